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
from offload.spark.plan import ChunkRun
from offload.wiring import open_store
from seglog.format.frame import DELETED

__all__ = ["scan"]

_READ_BYTES = 8 * 1024 * 1024
_READS_AT_A_TIME = 2
_SMALL_TRAILER_BYTES = 64 * 1024  # up to this, one GET for all of it is cheaper than two for its parts

_Rows = NDArray[np.int64]
_COLUMNS: Mapping[str, Callable[[ChunkRun, Columns, _Rows], pa.Array]] = {
    "topic": lambda run, _, rows: pa.repeat(run.topic, len(rows)),
    "seq": lambda _, columns, rows: pa.array(columns.seq[rows]),
    "timestamp": lambda _, columns, rows: pa.array(columns.ts_ms[rows] * 1000).view(pa.timestamp("us", tz="UTC")),
    "node": lambda _, columns, rows: columns.node(rows),
    "tag": lambda _, columns, rows: columns.tag(rows),
    "value": lambda _, columns, rows: columns.value(rows),
    "lsn": lambda run, _, rows: pa.repeat(pa.scalar(run.lsn, pa.int64()), len(rows)),
}


def scan(run: ChunkRun, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of `run` that its version shows, ascending by seq, one batch for each chunk.

    Raises `InvalidChunk`, `InvalidIndex`, and the errors of the store. Never skips a record because of an error.
    """
    store = _store(run.url)
    lengths = _entry_lengths(store, run)
    deleted = BitMap.deserialize(run.deleted) if run.deleted else BitMap()
    for chunk, raw in _chunks(store, run):
        columns = decode_columns(raw, next(lengths), chunk, run.segment_first_seq, run.topic_id, run.data_key)
        rows = _visible(run, columns, deleted)
        if len(rows):
            arrays = [_COLUMNS[name](run, columns, rows) for name in schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


@functools.cache
def _store(url: str) -> ObjectStore:
    """Return one store for all tasks of a worker process: making an S3 client takes longer than a small task."""
    return open_store(url)


def _visible(run: ChunkRun, columns: Columns, deleted: BitMap) -> _Rows:
    shown = (columns.seq >= run.first) & (columns.seq <= run.last) & (columns.flags & DELETED == 0)
    if deleted:
        first_id = int(columns.seq[0]) - run.segment_first_seq
        gone = deleted & BitMap(range(first_id, first_id + len(shown)))
        shown[np.array(gone.to_array(), dtype=np.int64) - first_id] = False
    return np.flatnonzero(shown)


def _chunks(store: ObjectStore, run: ChunkRun) -> Iterator[tuple[ChunkRef, bytes | memoryview]]:
    groups = list(adjacent(run.chunks, _READ_BYTES))
    reads = [
        partial(
            store.get_range,
            run.data_key,
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
            yield chunk, decode_chunk(view[place : place + chunk.stored_length], chunk, run.codec, run.data_key)


def _entry_lengths(store: ObjectStore, run: ChunkRun) -> Iterator[NDArray[np.uint32]]:
    """Yield the entry lengths of each chunk. Reads the directory of the index object's trailer, and the run's part."""
    at = run.trailer_offset
    front_length = min(run.trailer_length, max(directory_length(run.chunk_count), _SMALL_TRAILER_BYTES))
    front = store.get_range(run.index_key, at, front_length)
    refs = decode_directory(front, run.chunk_count, run.index_key, at)
    refs = refs[run.first_chunk : run.first_chunk + len(run.chunks)]
    start, end = refs[0].offset, refs[-1].offset + refs[-1].stored_length
    part = front[start:end] if end <= len(front) else store.get_range(run.index_key, at + start, end - start)
    for chunk, ref in zip(run.chunks, refs, strict=True):
        stored = part[ref.offset - start : ref.offset - start + ref.stored_length]
        yield decode_lengths(stored, ref, chunk, run.index_key, at)
