"""The work of one task: ranged GETs of its chunks, and one Arrow batch for each chunk.

SCAN-1  With `verify=record`, no record leaves unverified. The directory has an XXH3. So do the lengths, each chunk and
    each record. `chunk` leaves out the records' XXH3, and `none` also that of the chunks. Every level checks
    the shape of each record, so that a damaged length never reaches beyond its chunk.
SCAN-2  Deleted records, and records that the version does not show, are left out before any of their bytes is copied.
SCAN-3  Memory: two GETs of at most 8 MiB (or one chunk, if that is larger), one chunk decompressed, one batch.
    The second GET runs ahead. Up to 16 small GETs take the place of these two. The scan keeps nothing on the
    executor's disk.
SCAN-4  Every batch has exactly the requested schema. Spark checks only the first, and fails in silence on a later one.
SCAN-5  A piece that needs no data makes its rows from the task alone, without a request.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catalog.format.keys import check_key
from catalog.objects.base import ObjectStore
from offload.format.block import ChunkRef, adjacent
from offload.format.codec import decode_chunk
from offload.format.columns import decode_columns
from offload.format.trailer import decode_directory, decode_lengths, directory_length
from offload.read.pool import in_order
from offload.spark.executor_remotes import store_of
from offload.spark.options import Verify
from offload.spark.rows import data_batch, hidden_entries, plain_batches, visible
from offload.spark.task import Needs, Piece, Task

__all__ = ["scan"]

_READ_BYTES = 8 * 1024 * 1024
_READS_AT_A_TIME = 2
_SMALL_READS_AT_A_TIME = 16
_SMALL_TRAILER_BYTES = 64 * 1024  # up to this, one GET for all of it is cheaper than two for its parts


def scan(task: Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `task`, ascending by topic and seq, at least one batch for each chunk with rows.

    Raises `InvalidChunk`, `InvalidIndex`, and the errors of the store. Never skips a record because of an error.
    """
    for piece in task.pieces:
        if piece.needs is Needs.NOTHING:
            yield from plain_batches(piece, schema)
        else:
            yield from _read(piece, task, schema)


def _read(piece: Piece, task: Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    store = store_of(task.url)
    hidden = hidden_entries(piece)
    lengths = _entry_lengths(store, piece)
    for chunk, raw in _chunks(store, piece, task.verify):
        columns = decode_columns(
            raw,
            next(lengths),
            chunk,
            piece.segment_first_seq,
            piece.topic_id,
            piece.data,
            check_records=task.verify is Verify.RECORD,
        )
        rows = visible(piece, hidden, columns)
        if len(rows):
            yield data_batch(piece, chunk, columns, rows, schema)


def _chunks(store: ObjectStore, piece: Piece, verify: Verify) -> Iterator[tuple[ChunkRef, bytes | memoryview]]:
    groups = list(adjacent((chunk.ref for chunk in piece.chunks), _READ_BYTES))
    ranges = [(group[0].offset, group[-1].offset + group[-1].stored_length - group[0].offset) for group in groups]
    reads = [partial(store.get_range, check_key(piece.data), offset, length) for offset, length in ranges]
    fitting = _READS_AT_A_TIME * _READ_BYTES // max(length for _, length in ranges)
    at_a_time = max(_READS_AT_A_TIME, min(fitting, _SMALL_READS_AT_A_TIME))
    bodies = in_order(reads, at_a_time, "seglog-scan") if len(reads) > 1 else (read() for read in reads)
    for group, body in zip(groups, bodies, strict=True):
        view = memoryview(body)
        for chunk in group:
            place = chunk.offset - group[0].offset
            stored = view[place : place + chunk.stored_length]
            yield chunk, decode_chunk(stored, chunk, piece.codec, piece.data, check=verify is not Verify.NONE)


def _entry_lengths(store: ObjectStore, piece: Piece) -> Iterator[NDArray[np.uint32]]:
    """Yield the entry lengths of each chunk. Reads the trailer's directory, and the part from the first chunk to the
    last.
    """
    at = piece.trailer_offset
    front_length = min(piece.trailer_length, max(directory_length(piece.chunk_count), _SMALL_TRAILER_BYTES))
    index = check_key(piece.index)
    front = store.get_range(index, at, front_length)
    directory = decode_directory(front, piece.chunk_count, piece.index, at)
    refs = [directory[chunk.number] for chunk in piece.chunks]
    start, end = refs[0].offset, refs[-1].offset + refs[-1].stored_length
    part = front[start:end] if end <= len(front) else store.get_range(index, at + start, end - start)
    for chunk, ref in zip(piece.chunks, refs, strict=True):
        stored = part[ref.offset - start : ref.offset - start + ref.stored_length]
        yield decode_lengths(stored, ref, chunk.ref, piece.index, at)
