"""Offsets and cursors, as texts.

An offset is the epoch of the topic and the seq of the last record before the position, each with 16 digits. So offsets
of one stream sort as texts. The beginning is `0000000000000000_0000000000000000`, and a reader may say `-1` for it.

POSITION-1  An offset of an earlier epoch stays valid: the epoch also rises at a takeover, which changes no record. An
    offset of a later epoch, above the head, or of a record that a truncation took since the start, is refused.
CURSOR-1  A cursor is the number of the current interval of 20 s. A client that has this one already, or a later one,
    gets a higher one. So a cache never answers with the same empty answer forever.

No I/O.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["BEGINNING", "NOW", "cursor", "offset_text", "parsed_offset"]

BEGINNING: Final = "-1"
NOW: Final = "now"

_OFFSET = re.compile(r"([0-9]{16})_([0-9]{16})", re.ASCII)
_INTERVAL_MS = 20_000
_SINCE_MS = 1_728_432_000_000  # 2024-10-09T00:00:00Z, as the protocol says
_JITTER_MAX = 180  # intervals: an hour


def offset_text(epoch: int, seq: int) -> str:
    return f"{epoch:016d}_{seq:016d}"


def parsed_offset(text: str) -> tuple[int, int] | None:
    """Return the epoch and the seq of an offset, or None for any other text."""
    match = _OFFSET.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2]))


def cursor(now_ms: int, given: str | None, chance: float) -> str:
    """Return the cursor of an answer. `given` is the client's, and `chance` a number from 0 to below 1 (CURSOR-1)."""
    current = max(0, now_ms - _SINCE_MS) // _INTERVAL_MS
    is_number = given is not None and given.isascii() and given.isdigit() and len(given) <= 15
    if given is None or not is_number or int(given) < current:
        return str(current)
    return str(int(given) + 1 + int(chance * _JITTER_MAX))
