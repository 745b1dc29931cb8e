"""The items that a reader gets: a record, or a gap in place of records that are gone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

__all__ = ["LABEL_MAX_BYTES", "Gap", "Record"]

LABEL_MAX_BYTES: Final = 0xFFFF
"""The length of a tag or node in UTF-8, at most."""


class Record(NamedTuple):
    """A record. `seq` counts from 1 within the topic. `ts_ms` is the time that the log set, in ms since the epoch.

    `unterminated`: the value was the last line of a text, without a line end. A caller that writes it as a line adds no
    line end.
    Readers make millions of records. A named tuple costs a quarter of a frozen dataclass.
    """

    seq: int
    ts_ms: int
    value: bytes
    tag: str | None = None
    node: str | None = None
    unterminated: bool = False


@dataclass(frozen=True, slots=True)
class Gap:
    """The evicted records `gap_from` to `gap_to`, both inclusive. They were evicted before the reader got there.

    The user did not ask to remove these records one by one, so the reader reports them. It does not report deleted
    records.
    """

    gap_from: int
    gap_to: int
