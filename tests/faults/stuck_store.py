"""A store that hangs."""

from __future__ import annotations

import threading
from typing import Any

from catalog.errors import StoreUnreachable
from catalog.objects.memory import MemoryStore

__all__ = ["StuckStore"]


class StuckStore:
    """Forwards calls to a store until `stuck` is set. After that every request waits for `release`, and then fails."""

    def __init__(self) -> None:
        self._inner = MemoryStore()
        self.stuck = threading.Event()
        self.release = threading.Event()
        self.waiting = threading.Event()

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if not callable(inner):
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.stuck.is_set() and name != "close":
                self.waiting.set()
                assert self.release.wait(60)
                raise StoreUnreachable("memory://", "it hung")
            return inner(*args, **kwargs)

        return call
