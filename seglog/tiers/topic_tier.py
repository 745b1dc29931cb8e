"""The segments of one topic over two stores: a hot one, and a cold one for relocated segments.

During a relocation, a segment is in both, and is read from the hot store. Without a cold store, all segments are hot.
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
    """A segment store over a hot and a cold store.

    `put` goes to the hot store. `delete` goes to both.
    """

    def __init__(self, hot: SegmentStore, cold: SegmentStore | None = None) -> None:
        self.hot = hot
        self.cold = cold

    def resolve(self, segment: SegmentId) -> Tier | None:
        """Return the tier that reads of the segment use. None: no store has it whole.

        The cold store is asked only if the hot one does not have the segment.
        """
        if is_whole(self.hot, segment):
            return Tier.HOT
        return Tier.COLD if self.cold is not None and is_whole(self.cold, segment) else None

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self.hot.put(segment, data, idx)

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        # Read without a look first: the hot copy may go between the look and the read.
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
    """Tell whether the store has both parts of the segment."""
    return all(store.exists(segment, part) for part in Part)
