"""A clock that a test sets."""

from __future__ import annotations

__all__ = ["SetClock"]


class SetClock:
    def __init__(self, now_ms: int = 1_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms
