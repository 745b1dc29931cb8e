"""The work of one task: ranged GETs of its chunks, and one Arrow batch for each chunk.

SCAN-1  No record leaves unverified. The directory, the lengths, each chunk and each record have an XXH3 of their own.
SCAN-2  Deleted records, and records that the version does not show, are left out before any of their bytes is copied.
SCAN-3  Memory: two GETs of at most 8 MiB (or one chunk, if that is larger), one chunk decompressed, one batch.
    The second GET runs ahead. The scan keeps nothing on the executor's disk.
SCAN-4  Every batch has exactly the requested schema. Spark checks only the first, and fails in silence on a later one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from catalog.objects.base import ObjectStore
from offload.format.block import ChunkRef, adjacent
from offload.format.codec import decode_chunk
from offload.format.columns import Columns, decode_columns
from offload.format.trailer import decode_directory, decode_lengths, directory_length
from offload.read.pool import in_order
from offload.spark.plan import ChunkRange
from offload.wiring import open_store
from seglog.format.frame import DELETED

__all__ = ["scan"]

_READ_BYTES = 8 * 1024 * 1024
_READS_AT_A_TIME = 2
_SMALL_TRAILER_BYTES = 64 * 1024  # up to this, one GET for all of it is cheaper than two for its parts

_Rows = NDArray[np.int64]
_COLUMNS: Mapping[str, Callable[[ChunkRange, Columns, _Rows], pa.Array]] = {
    "topic": lambda chunk_range, _, rows: pa.repeat(chunk_range.topic, len(rows)),
    "seq": lambda _, columns, rows: pa.array(columns.seq[rows]),
    "timestamp": lambda _, columns, rows: pa.array(columns.ts_ms[rows] * 1000).view(pa.timestamp("us", tz="UTC")),
    "node": lambda _, columns, rows: columns.node(rows),
    "tag": lambda _, columns, rows: columns.tag(rows),
    "value": lambda _, columns, rows: columns.value(rows),
    "lsn": lambda chunk_range, _, rows: pa.repeat(pa.scalar(chunk_range.lsn, pa.int64()), len(rows)),
}


def scan(chunk_range: ChunkRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of `chunk_range` that its version shows, ascending by seq, one batch for each chunk.

    Raises `InvalidChunk`, `InvalidIndex`, and the errors of the store. Never skips a record because of an error.
    """
    store = _store(chunk_range.url)
    lengths = _entry_lengths(store, chunk_range)
    deleted = BitMap.deserialize(chunk_range.deleted) if chunk_range.deleted else BitMap()
    for chunk, raw in _chunks(store, chunk_range):
        columns = decode_columns(
            raw, next(lengths), chunk, chunk_range.segment_first_seq, chunk_range.topic_id, chunk_range.data_key
        )
        rows = _visible(chunk_range, columns, deleted)
        if len(rows):
            arrays = [_COLUMNS[name](chunk_range, columns, rows) for name in schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@functools.cache
def _store(url: str) -> ObjectStore:
    """Return one store for all tasks of a worker process: making an S3 client takes longer than a small task."""
    return open_store(url)


def _visible(chunk_range: ChunkRange, columns: Columns, deleted: BitMap) -> _Rows:
    shown = (columns.seq >= chunk_range.first) & (columns.seq <= chunk_range.last) & (columns.flags & DELETED == 0)
    if deleted:
        first_id = int(columns.seq[0]) - chunk_range.segment_first_seq
        gone = deleted & BitMap(range(first_id, first_id + len(shown)))
        shown[np.array(gone.to_array(), dtype=np.int64) - first_id] = False
    return np.flatnonzero(shown)


def _chunks(store: ObjectStore, chunk_range: ChunkRange) -> Iterator[tuple[ChunkRef, bytes | memoryview]]:
    groups = list(adjacent(chunk_range.chunks, _READ_BYTES))
    reads = [
        partial(
            store.get_range,
            chunk_range.data_key,
            group[0].offset,
            group[-1].offset + group[-1].stored_length - group[0].offset,
        )
        for group in groups
    ]
    bodies = in_order(reads, _READS_AT_A_TIME, "seglog-scan") if len(reads) > 1 else (read() for read in reads)
    for group, body in zip(groups, bodies, strict=True):
        view = memoryview(body)
        for chunk in group:
            place = chunk.offset - group[0].offset
            yield (
                chunk,
                decode_chunk(view[place : place + chunk.stored_length], chunk, chunk_range.codec, chunk_range.data_key),
            )


def _entry_lengths(store: ObjectStore, chunk_range: ChunkRange) -> Iterator[NDArray[np.uint32]]:
    """Yield the entry lengths of each chunk. Reads the trailer's directory, and the range's part."""
    at = chunk_range.trailer_offset
    front_length = min(chunk_range.trailer_length, max(directory_length(chunk_range.chunk_count), _SMALL_TRAILER_BYTES))
    front = store.get_range(chunk_range.index_key, at, front_length)
    refs = decode_directory(front, chunk_range.chunk_count, chunk_range.index_key, at)
    refs = refs[chunk_range.first_chunk : chunk_range.first_chunk + len(chunk_range.chunks)]
    start, end = refs[0].offset, refs[-1].offset + refs[-1].stored_length
    part = front[start:end] if end <= len(front) else store.get_range(chunk_range.index_key, at + start, end - start)
    for chunk, ref in zip(chunk_range.chunks, refs, strict=True):
        stored = part[ref.offset - start : ref.offset - start + ref.stored_length]
        yield decode_lengths(stored, ref, chunk, chunk_range.index_key, at)
