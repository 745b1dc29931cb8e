"""The values that the planner hands to the readers. This module does no I/O.

A task is the input of one Spark task: a list of pieces. A piece is chunks of one segment, with all that a reader needs
to read and check them. `offload.spark.messages` gives the meaning of each field, and is their encoding.
"""

from __future__ import annotations

import enum

from catalog.format.commit import Codec
from offload.format.block import ChunkRef
from offload.spark.options import Verify
from seglog.base.dataclasses import dataclass


class Op(enum.StrEnum):
    EQ = "eq"
    IN = "in"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    PREFIX = "prefix"
    IS_NULL = "isnull"
    NOT_NULL = "notnull"


class Needs(enum.StrEnum):
    NOTHING = "nothing"
    DATA = "data"


ROW_BYTES = 16  # of a row that is made without a read


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one column. `IS_NULL` and `NOT_NULL` have no values, `IN` any number, the others one."""

    column: str
    op: Op
    values: tuple[int | str, ...] = ()


class ChangeKind(enum.StrEnum):
    APPEND = "append"
    UNDELETE = "undelete"
    DELETE = "delete"
    TRUNCATE = "truncate"
    EVICT = "evict"

    @property
    def is_removal(self) -> bool:
        return self not in {ChangeKind.APPEND, ChangeKind.UNDELETE}


@dataclass(frozen=True, slots=True)
class Change:
    """What the commit `lsn` did to records, in a feed."""

    kind: ChangeKind
    lsn: int


def is_removal(change: Change | None) -> bool:
    return change is not None and change.kind.is_removal


@dataclass(frozen=True, slots=True)
class NumberedChunk:
    """A chunk, and its number among the segment's chunks, from 0."""

    number: int
    ref: ChunkRef


@dataclass(frozen=True, slots=True)
class Piece:
    """Chunks of one segment, ascending. Seqs are inclusive, lengths and offsets in bytes.

    `hidden` is a portable Roaring bitmap of entry ids (`seq - segment_first_seq`), or None. `change` is set in a feed.
    """

    topic: str
    topic_id: int
    lsn: int
    segment: str
    data: str
    index: str
    codec: Codec
    block_size: int
    segment_first_seq: int
    first: int
    last: int
    rows: int
    chunks: tuple[NumberedChunk, ...]
    chunk_count: int
    trailer_offset: int
    trailer_length: int
    hidden: bytes | None
    filters: tuple[Filter, ...]
    needs: Needs
    change: Change | None = None

    @property
    def is_removal(self) -> bool:
        return is_removal(self.change)


@dataclass(frozen=True, slots=True)
class Task:
    """The input of one Spark task. `url` is the remote. A key of a piece names an object below it."""

    url: str
    verify: Verify
    pieces: tuple[Piece, ...]

    @property
    def rows(self) -> int:
        """The number of rows, or the most rows that the pieces can give if one of them has filters."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def is_exact(self) -> bool:
        """Tell whether the pieces give exactly `rows` rows."""
        return not any(piece.filters for piece in self.pieces)

    @property
    def raw_bytes(self) -> int:
        """The decompressed bytes of the chunks. A removal counts by its rows, because it has no bytes."""
        return sum(
            piece.rows * ROW_BYTES if piece.is_removal else sum(chunk.ref.raw_length for chunk in piece.chunks)
            for piece in self.pieces
        )
