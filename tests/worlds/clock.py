"""The one clock of the tests that moves only by hand."""

from __future__ import annotations

__all__ = ["HandClock"]


class HandClock:
    """A clock that stands still until the test sets `ms`, milliseconds since 1970."""

    def __init__(self, ms: int = 1_790_000_000_000) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms
