"""A set of segment ids for large numbers.

Each id takes 16 bytes in a sorted string, with its value right behind it. Recent ids lie beside it in a Python dict.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from catalog.format.ids import Sid

_SIZE = 16
_RECENT = 16_384


class SidSet:
    """`value_bytes` is the length of the value that each id carries. By default, an id carries none."""

    def __init__(self, value_bytes: int = 0) -> None:
        self._piece_bytes = _SIZE + value_bytes
        self._ordered = b""
        self._recent: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        self._settle()
        return len(self._ordered) // self._piece_bytes

    def __contains__(self, sid: Sid) -> bool:
        return sid.raw in self._recent or self._is_ordered(sid.raw)

    def __iter__(self) -> Iterator[Sid]:
        """Yield the ids, ascending."""
        return (sid for sid, _ in self.items())

    def items(self) -> Iterator[tuple[Sid, bytes]]:
        """Yield the ids with their values, ascending."""
        self._settle()
        return ((Sid(piece[:_SIZE]), piece[_SIZE:]) for piece in self._pieces())

    def add(self, sid: Sid, value: bytes = b"") -> None:
        """Add an id that is not there yet, with its value."""
        if sid not in self:
            self._recent[sid.raw] = value
            if len(self._recent) >= max(_RECENT, len(self._ordered) // self._piece_bytes // 4):
                self._settle()

    def _is_ordered(self, raw: bytes) -> bool:
        ordered, size = self._ordered, self._piece_bytes
        count = len(ordered) // size
        index = bisect_left(range(count), raw, key=lambda at: ordered[at * size : at * size + _SIZE])
        return index < count and ordered[index * size : index * size + _SIZE] == raw

    def _settle(self) -> None:
        if self._recent:
            recent = (raw + value for raw, value in self._recent.items())
            self._ordered = b"".join(sorted([*self._pieces(), *recent]))
            self._recent.clear()

    def _pieces(self) -> Iterator[bytes]:
        return (self._ordered[at : at + self._piece_bytes] for at in range(0, len(self._ordered), self._piece_bytes))
