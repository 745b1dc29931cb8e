"""The lines of a text as the values of one append, without an object for each line.

The line feeds are found in one pass over the whole text. seglog.format.appends puts a header in the place of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from seglog.base.dataclasses import dataclass
from seglog.format.arrays import NDArray, np

_FEED = b"\n"


@dataclass(frozen=True, slots=True, eq=False)
class Lines(Sequence[bytes]):
    """The lines of `text`, in order, each without its line feed. `ends` are the positions of the line feeds.

    The text has bytes, and ends with a line feed. Iterating cuts the lines out.
    """

    text: bytes
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, text: bytes) -> Lines:
        return cls(text, np.flatnonzero(np.frombuffer(text, np.uint8) == ord(_FEED)))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.text.split(_FEED)[:-1])

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [*self][index]
        end = int(self.ends[index])
        return self.text[self.text.rfind(_FEED, 0, end) + 1 : end]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return the size of each line in bytes."""
        return np.diff(self.ends, prepend=-1) - 1

    @property
    def size_bytes(self) -> int:
        """Return the sum of the sizes."""
        return len(self.text) - len(self.ends)

    def part(self, start: int, stop: int) -> Lines:
        """Return the lines number `start` to `stop` (exclusive), at least one."""
        begin = self._end_before(start) + 1
        ends = self.ends[start:stop]
        return Lines(self.text[begin : int(ends[-1]) + 1], ends - begin)

    def behind_feeds(self, start: int, stop: int) -> bytes:
        """Return the lines number `start` to `stop` (exclusive), each behind a line feed instead of before it."""
        end = int(self.ends[stop - 1])
        return self.text[self._end_before(start) : end] if start else _FEED + self.text[:end]

    def _end_before(self, index: int) -> int:
        return int(self.ends[index - 1]) if index else -1


def total_bytes(values: Sequence[bytes]) -> int:
    """Return the sum of the sizes of the values."""
    return values.size_bytes if type(values) is Lines else sum(map(len, values))


def longest_bytes(values: Sequence[bytes]) -> int:
    """Return the size of the largest value; 0 without values."""
    return int(values.sizes.max()) if type(values) is Lines else max(map(len, values), default=0)
