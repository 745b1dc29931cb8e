"""The rows of a piece as Arrow batches. This module does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from offload.format.block import ChunkRef
from offload.format.columns import Columns
from offload.spark.task import Filter, Op, Piece
from seglog.format.arrow import timestamps
from seglog.format.frame import DELETED

__all__ = ["data_batch", "hidden_entries", "plain_batches", "visible"]

_PLAIN_ROWS = 65_536

_Rows = NDArray[np.int64]


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
}


def hidden_entries(piece: Piece) -> BitMap:
    """Return the entry ids that the piece does not show."""
    return BitMap.deserialize(piece.hidden) if piece.hidden else BitMap()


def visible(piece: Piece, hidden: BitMap, columns: Columns) -> _Rows:
    """Return the numbers of the chunk's records that the piece shows. `hidden` comes from `hidden_entries`."""
    shown = (columns.seq >= piece.first) & (columns.seq <= piece.last) & (columns.flags & DELETED == 0)
    if hidden:
        shown[_places(piece, hidden, int(columns.seq[0]), int(columns.seq[-1]))] = False
    rows = np.flatnonzero(shown)
    for condition in piece.filters:
        rows = rows[_meets(condition, columns, rows)]
    return rows


def data_batch(piece: Piece, chunk: ChunkRef, columns: Columns, rows: _Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Return the records `rows` of a chunk."""
    return _batch(_Source(piece, chunk, columns.seq[rows], rows, columns), schema)


def plain_batches(piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece that needs no data."""
    entries = hidden_entries(piece)
    for each in piece.chunks:
        first, last = max(piece.first, each.ref.first_seq), min(piece.last, each.ref.last_seq)
        seqs = np.arange(first, last + 1, dtype=np.int64)
        seqs = np.delete(seqs, _places(piece, entries, first, last))
        for start in range(0, len(seqs), _PLAIN_ROWS):
            part = seqs[start : start + _PLAIN_ROWS]
            yield _batch(_Source(piece, each.ref, part, part, None), schema)


def _batch(source: _Source, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_COLUMNS[name](source) for name in schema.names], schema=schema)


def _repeated(value: int, kind: pa.DataType, source: _Source) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), len(source.seqs))


def _places(piece: Piece, entries: BitMap, first: int, last: int) -> _Rows:
    """Return the places of the entries between two seqs, counted from the first of these seqs."""
    base = piece.segment_first_seq
    found = entries & BitMap(range(first - base, last + 1 - base))
    return np.array(found.to_array(), dtype=np.int64) - (first - base)


def _meets(condition: Filter, columns: Columns, rows: _Rows) -> NDArray[np.bool_]:
    """Return for each of `rows` whether it meets a filter of a piece."""
    if condition.column == "timestamp":
        micros = columns.ts_ms[rows] * 1000
        if condition.op is Op.IN:
            return np.isin(micros, np.array(condition.values, dtype=np.int64))
        wanted = int(condition.values[0])
        return np.asarray(micros >= wanted if condition.op is Op.GE else micros <= wanted)
    tags = columns.tag(rows)
    if condition.op is Op.IN:
        found = pc.is_in(tags, value_set=pa.array(condition.values, pa.string()))
    elif condition.op is Op.PREFIX:
        found = pc.fill_null(pc.starts_with(tags, str(condition.values[0])), fill_value=False)
    else:
        found = pc.is_null(tags) if condition.op is Op.IS_NULL else pc.is_valid(tags)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)
