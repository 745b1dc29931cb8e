"""What a reader gets: a record, or word of records that are gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Gap", "Record"]


class Record(NamedTuple):
    """`seq` from 1 within the topic, `ts_ms` in ms since the epoch as the log set it.

    `unterminated`: the value was the last line of a text, without a line end; who writes it as a line adds none.
    A named tuple, because readers make millions of them and it costs a quarter of a frozen dataclass.
    """

    seq: int
    ts_ms: int
    value: bytes
    tag: str | None = None
    node: str | None = None
    unterminated: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """In a reader's way: the records `gap_from` to `gap_to`, both inclusive, were evicted before it got there.

    Nobody asked for their removal one by one, so a reader is told; what was deleted it is not told of.
    """

    gap_from: int
    gap_to: int
