"""The mistakes of clients that get a line in the log, while no access log has a line for each request (sans I/O).

A mistake is an answer from 400 to 499, but for those that a client without a fault gets, too: 409, 412 and 429. The
line has the title of the problem and the id of the request, and no value that the client sent.

MISTAKE-1  The log gets at most 10 such lines a second, so a client cannot flood it. The next line says how many were
    left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

__all__ = ["Mistakes", "is_mistake", "title_of"]

_LINES_PER_S = 10
_NO_FAULT = frozenset({409, 412, 429})


@dataclass(slots=True)
class Mistakes:
    """The lines of the second under way. Not thread-safe."""

    second: int = 0
    lines: int = 0
    left_out: int = 0

    def take(self, now_s: float) -> int | None:
        """Return how many mistakes were left out since the last line, or None if this one is left out (MISTAKE-1)."""
        if int(now_s) != self.second:
            self.second, self.lines = int(now_s), 0
        if self.lines >= _LINES_PER_S:
            self.left_out += 1
            return None
        self.lines += 1
        left_out, self.left_out = self.left_out, 0
        return left_out


def is_mistake(status: int) -> bool:
    return 400 <= status < 500 and status not in _NO_FAULT


def title_of(body: bytes) -> str:
    """Return the title of a problem, and its reason if it has one. Return "" for another body."""
    try:
        said = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(said, dict):
        return ""
    return " ".join(str(said[name]) for name in ("title", "reason") if name in said)
