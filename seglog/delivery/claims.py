"""The right to change a state that is kept by its key: one holder at a time, in the event loop or in a thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Claims:
    """The keys that somebody changes now, or waits to change. Thread-safe."""

    def __init__(self) -> None:
        self._room = threading.Condition()
        self._claimed: set[str] = set()
        self._waiting: Counter[str] = Counter()

    def try_claim(self, key: str) -> bool:
        """Claim a key, unless somebody else has it or waits for it. Return whether it is claimed now."""
        with self._room:
            if key in self._claimed or self._waiting[key]:
                return False
            self._claimed.add(key)
            return True

    def claim(self, key: str) -> None:
        """Claim a key, and wait until it is free."""
        with self._room:
            self._waiting[key] += 1
            try:
                self._room.wait_for(lambda: key not in self._claimed)
                self._claimed.add(key)
            finally:
                self._waiting -= Counter([key])

    def release(self, key: str) -> None:
        with self._room:
            self._claimed.discard(key)
            self._room.notify_all()

    @contextmanager
    def claimed(self, key: str) -> Iterator[None]:
        """Hold a key during the block."""
        self.claim(key)
        try:
            yield
        finally:
            self.release(key)
