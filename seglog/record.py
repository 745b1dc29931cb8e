"""One record as a reader sees it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Record"]


@dataclass(frozen=True, slots=True)
class Record:
    """`seq` from 1 within the topic, `ts_ms` in ms since the epoch as the log set it.

    `unterminated`: the value was the last line of a text, without a line end; who writes it as a line adds none.
    """

    seq: int
    ts_ms: int
    value: bytes
    tag: str | None = None
    node: str | None = None
    unterminated: bool = False
