"""A budget of bytes that several readers share."""

from __future__ import annotations

import threading

__all__ = ["ByteBudget"]


class ByteBudget:
    """A shared limit on bytes in memory.

    `take` always succeeds, even above the limit, for bytes that a reader needs now. `try_take` refuses bytes above the
    limit, and serves reads ahead, which can wait.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._taken_bytes = 0
        self._lock = threading.Lock()

    @property
    def taken_bytes(self) -> int:
        return self._taken_bytes

    def try_take(self, size_bytes: int) -> bool:
        with self._lock:
            if self._taken_bytes + size_bytes > self._limit_bytes:
                return False
            self._taken_bytes += size_bytes
            return True

    def take(self, size_bytes: int) -> None:
        with self._lock:
            self._taken_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        with self._lock:
            self._taken_bytes -= size_bytes
