"""A set of segment ids for large numbers.

Each id takes 16 bytes in a sorted string. Recent ids lie beside it in a Python set.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from catalog.format.gid import Sid

__all__ = ["SidSet"]

_SIZE = 16
_RECENT = 16_384


class SidSet:
    def __init__(self) -> None:
        self._ordered = b""
        self._recent: set[bytes] = set()

    def __len__(self) -> int:
        self._settle()
        return len(self._ordered) // _SIZE

    def __contains__(self, sid: Sid) -> bool:
        return sid.raw in self._recent or self._is_ordered(sid.raw)

    def __iter__(self) -> Iterator[Sid]:
        """Yield the ids, ascending."""
        self._settle()
        return (Sid(raw) for raw in _pieces(self._ordered))

    def add(self, sid: Sid) -> None:
        if not self._is_ordered(sid.raw):
            self._recent.add(sid.raw)
            if len(self._recent) >= max(_RECENT, len(self._ordered) // _SIZE // 4):
                self._settle()

    def _is_ordered(self, raw: bytes) -> bool:
        ordered = self._ordered
        count = len(ordered) // _SIZE
        found = bisect_left(range(count), raw, key=lambda at: ordered[at * _SIZE : (at + 1) * _SIZE])
        return found < count and ordered[found * _SIZE : (found + 1) * _SIZE] == raw

    def _settle(self) -> None:
        if self._recent:
            self._ordered = b"".join(sorted([*_pieces(self._ordered), *self._recent]))
            self._recent.clear()


def _pieces(ordered: bytes) -> Iterator[bytes]:
    return (ordered[at : at + _SIZE] for at in range(0, len(ordered), _SIZE))
