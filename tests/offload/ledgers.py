"""Ledgers whose entries follow from numbers. judge.Ledger makes the same ledgers in Java."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Ledger"]


@dataclass(frozen=True, slots=True)
class Ledger:
    id: int
    first: int
    count: int
    step: int

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def length(self) -> int:
        """Return the number of bytes of all entries."""
        return sum(map(self.size_of, range(self.first, self.last + 1)))

    def size_of(self, entry_id: int) -> int:
        return entry_id * entry_id % 97 * self.step + 1

    def entry(self, entry_id: int) -> bytes:
        at = np.arange(self.size_of(entry_id), dtype=np.int64)
        return (self.id * 31 + entry_id * 7 + at * 13 + (at >> 8) * 5).astype(np.uint8).tobytes()

    def entries(self) -> list[tuple[int, bytes]]:
        return [(entry_id, self.entry(entry_id)) for entry_id in range(self.first, self.last + 1)]

    def __str__(self) -> str:
        return f"{self.id},{self.first},{self.count},{self.step}"
