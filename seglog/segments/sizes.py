"""Running totals of the bytes in a topic's sealed segments. No I/O.

An append to a capped topic asks for them under the lock of the log. So an answer costs a binary search, whatever the
number of segments. A checkpoint counts the bytes when it changes the segments.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from operator import attrgetter

from seglog.segments.segment import SegmentInfo

__all__ = ["Sizes"]

_data_bytes = attrgetter("data_bytes")
_last_seq = attrgetter("last_seq")


class Sizes:
    """The totals of `segments`, which are sealed and ascend. `warm` are the relocated segments among them."""

    __slots__ = ("_ends", "segments", "warm", "warm_bytes")

    def __init__(self, segments: tuple[SegmentInfo, ...] = (), warm: tuple[SegmentInfo, ...] = ()) -> None:
        self.segments = segments
        self.warm = warm
        self.warm_bytes: int = sum(map(_data_bytes, warm))
        self._ends: array[int] = array("Q", accumulate(map(_data_bytes, segments), initial=0))

    @property
    def hot_bytes(self) -> int:
        return self._ends[-1] - self.warm_bytes

    def bytes_from(self, seq: int) -> int:
        """Return the bytes of the segments that end at `seq` or later."""
        return self._ends[-1] - self._ends[self.index_of(seq)]

    def index_of(self, seq: int) -> int:
        """Return the index of the first segment that ends at `seq` or later. Without one, return their number."""
        return bisect_left(self.segments, seq, key=_last_seq)
