"""The segments of one topic over two stores: the hot one, and a cold one for what has left it.

A segment that is in both, because it is on its way, is read from the hot one. Without a cold one all are hot.
"""

from __future__ import annotations

import enum

from seglog.errors import NoSuchSegment
from seglog.tiers.segment_store import Part, SegmentId, SegmentStore

__all__ = ["Tier", "TopicTier"]


class Tier(enum.Enum):
    HOT = "hot"
    COLD = "cold"


class TopicTier:
    """A segment store itself: what is put goes to the hot one, what is deleted goes from both."""

    def __init__(self, hot: SegmentStore, cold: SegmentStore | None = None) -> None:
        self.hot = hot
        self.cold = cold

    def resolve(self, segment: SegmentId) -> Tier | None:
        """Where it is read from; None if it is nowhere whole. The cold store is asked only if it is not hot."""
        if is_whole(self.hot, segment):
            return Tier.HOT
        return Tier.COLD if self.cold is not None and is_whole(self.cold, segment) else None

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self.hot.put(segment, data, idx)

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        # Tried, not looked up: the hot copy may go between the two.
        try:
            return self.hot.read_range(segment, part, offset, length)
        except NoSuchSegment:
            if self.cold is None:
                raise
        return self.cold.read_range(segment, part, offset, length)

    def delete(self, segment: SegmentId) -> None:
        self.hot.delete(segment)
        if self.cold is not None:
            self.cold.delete(segment)

    def list(self) -> list[SegmentId]:
        cold = [] if self.cold is None else self.cold.list()
        return sorted({*self.hot.list(), *cold})

    def exists(self, segment: SegmentId, part: Part) -> bool:
        return self.hot.exists(segment, part) or (self.cold is not None and self.cold.exists(segment, part))

    def length(self, segment: SegmentId, part: Part) -> int:
        try:
            return self.hot.length(segment, part)
        except NoSuchSegment:
            if self.cold is None:
                raise
        return self.cold.length(segment, part)


def is_whole(store: SegmentStore, segment: SegmentId) -> bool:
    return all(store.exists(segment, part) for part in Part)
