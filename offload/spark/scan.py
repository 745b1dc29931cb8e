"""The work of one task: ranged GETs of its chunks, and one Arrow batch for each chunk.

SCAN-1  With `verify=record`, no record leaves unverified. The directory has an XXH3. So do the lengths, each chunk and
    each record. `chunk` leaves out the records' XXH3, and `none` also that of the chunks. Every level checks
    the shape of each record, so that a damaged length never reaches beyond its chunk.
SCAN-2  Deleted records, and records that the version does not show, are left out before any of their bytes is copied.
SCAN-3  Memory: two GETs of at most 8 MiB (or one chunk, if that is larger), one chunk decompressed, one batch.
    The second GET runs ahead. Up to 16 small GETs take the place of these two. The scan keeps nothing on the
    executor's disk.
SCAN-4  Every batch has exactly the requested schema. Spark checks only the first, and fails in silence on a later one.
SCAN-5  A piece that needs no data makes its rows from the task alone, without a request. So do the removals of a feed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from catalog.format.keys import check_key
from catalog.objects.object_store import ObjectStore
from offload.format.block import ChunkRef, adjacent
from offload.format.codec import decode_chunk
from offload.format.columns import Columns, decode_columns
from offload.format.trailer import decode_directory, decode_lengths, directory_length
from offload.read.chunk_fetcher import in_order
from offload.spark.columns import NEVER_NULL_IN_A_FEED
from offload.spark.options import Verify
from offload.spark.stores import store_of
from offload.spark.task import Change, Filter, Needs, Op, Piece, Task
from seglog.base.dataclasses import dataclass
from seglog.format.arrow import timestamps
from seglog.format.frame import DELETED

_READ_BYTES = 8 * 1024 * 1024
_READS_AT_A_TIME = 2
_SMALL_READS_AT_A_TIME = 16
_SMALL_TRAILER_BYTES = 64 * 1024  # up to this, one GET for all of it is cheaper than two for its parts
_PLAIN_ROWS = 65_536

_Rows = NDArray[np.int64]


def scan(task: Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `task` in the order of its pieces, at least one batch for each chunk with rows.

    Raises `InvalidChunk`, `InvalidIndex`, and the errors of the store. Never skips a record because of an error.
    """
    for piece in task.pieces:
        if piece.needs is Needs.NOTHING:
            yield from _plain_batches(piece, schema)
        else:
            yield from _read(piece, task, schema)


def _read(piece: Piece, task: Task, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    store = store_of(task.url)
    hidden = _hidden_entries(piece)
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
        rows = _visible(piece, hidden, columns)
        if len(rows):
            yield _data_batch(piece, chunk, columns, rows, schema)


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
            start = chunk.offset - group[0].offset
            stored = view[start : start + chunk.stored_length]
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


@dataclass(frozen=True, slots=True)
class _Source:
    """The part of a chunk that a batch shows. `columns` is None if no data was read."""

    piece: Piece
    chunk: ChunkRef
    seqs: _Rows
    rows: _Rows
    columns: Columns | None

    @property
    def read(self) -> Columns:
        assert self.columns is not None  # noqa: S101 - the planner gives data to every query that needs it (MSG-3)
        return self.columns

    @property
    def change(self) -> Change:
        assert self.piece.change is not None  # noqa: S101 - a feed has one in each piece
        return self.piece.change


_COLUMNS: Mapping[str, Callable[[_Source], pa.Array]] = {
    "topic": lambda source: pa.repeat(source.piece.topic, len(source.seqs)),
    "seq": lambda source: pa.array(source.seqs),
    "timestamp": lambda source: timestamps(source.read.ts_ms[source.rows]),
    "node": lambda source: source.read.node(source.rows),
    "tag": lambda source: source.read.tag(source.rows),
    "value": lambda source: source.read.value(source.rows),
    "lsn": lambda source: _repeated(source.piece.lsn, pa.int64(), source),
    "segment": lambda source: pa.repeat(source.piece.segment, len(source.seqs)),
    "block": lambda source: _repeated(source.chunk.offset // source.piece.block_size + 1, pa.int32(), source),
    "offset": lambda source: _repeated(source.chunk.offset, pa.int64(), source),
    "_change": lambda source: pa.repeat(source.change.kind.value, len(source.seqs)),
    "_lsn": lambda source: _repeated(source.change.lsn, pa.int64(), source),
}


def _hidden_entries(piece: Piece) -> BitMap:
    """Return the entry ids that the piece does not show."""
    return BitMap.deserialize(piece.hidden) if piece.hidden else BitMap()


def _visible(piece: Piece, hidden: BitMap, columns: Columns) -> _Rows:
    """Return the numbers of the chunk's records that the piece shows. `hidden` comes from `_hidden_entries`."""
    visible = (columns.seq >= piece.first) & (columns.seq <= piece.last) & (columns.flags & DELETED == 0)
    if hidden:
        visible[_places(piece, hidden, int(columns.seq[0]), int(columns.seq[-1]))] = False
    rows = np.flatnonzero(visible)
    for condition in piece.filters:
        rows = rows[_meets(condition, columns, rows)]
    return rows


def _data_batch(piece: Piece, chunk: ChunkRef, columns: Columns, rows: _Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Return the records `rows` of a chunk."""
    return _batch(_Source(piece, chunk, columns.seq[rows], rows, columns), schema)


def _plain_batches(piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece that needs no data."""
    entries = _hidden_entries(piece)
    for chunk in piece.chunks:
        first, last = max(piece.first, chunk.ref.first_seq), min(piece.last, chunk.ref.last_seq)
        seqs = np.arange(first, last + 1, dtype=np.int64)
        seqs = np.delete(seqs, _places(piece, entries, first, last))
        for start in range(0, len(seqs), _PLAIN_ROWS):
            part = seqs[start : start + _PLAIN_ROWS]
            yield _batch(_Source(piece, chunk.ref, part, part, None), schema)


def _batch(source: _Source, schema: pa.Schema) -> pa.RecordBatch:
    def column(field: pa.Field) -> pa.Array:
        if source.piece.is_removal and field.name not in NEVER_NULL_IN_A_FEED:
            return pa.nulls(len(source.seqs), field.type)
        return _COLUMNS[field.name](source)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)


def _repeated(value: int, kind: pa.DataType, source: _Source) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), len(source.seqs))


def _places(piece: Piece, entries: BitMap, first: int, last: int) -> _Rows:
    """Return the places of the entries between two seqs, counted from the first of these seqs."""
    base = piece.segment_first_seq
    hidden = entries & BitMap(range(first - base, last + 1 - base))
    return np.array(hidden.to_array(), dtype=np.int64) - (first - base)


def _meets(condition: Filter, columns: Columns, rows: _Rows) -> NDArray[np.bool_]:
    """Return for each of `rows` whether it meets a filter of a piece."""
    if condition.column == "timestamp":
        micros = columns.ts_ms[rows] * 1000
        if condition.op is Op.IN:
            return np.isin(micros, np.array(condition.values, dtype=np.int64))
        bound = int(condition.values[0])
        return np.asarray(micros >= bound if condition.op is Op.GE else micros <= bound)
    tags = columns.tag(rows)
    if condition.op is Op.IN:
        matches = pc.is_in(tags, value_set=pa.array(condition.values, pa.string()))
    elif condition.op is Op.PREFIX:
        matches = pc.fill_null(pc.starts_with(tags, str(condition.values[0])), fill_value=False)
    else:
        matches = pc.is_null(tags) if condition.op is Op.IS_NULL else pc.is_valid(tags)
    return np.asarray(matches.to_numpy(zero_copy_only=False), dtype=bool)
