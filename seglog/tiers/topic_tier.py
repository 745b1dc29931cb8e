"""The segments of one topic over two stores: a hot one, and a warm one for relocated segments.

During a relocation, a segment is in both, and is read from the hot store. Without a warm store, all segments are hot.
"""

from __future__ import annotations

import enum

from seglog.errors import NoSuchSegment
from seglog.tiers.segment_store import Part, SegmentId, SegmentStore

__all__ = ["Tier", "TopicTier"]


class Tier(enum.Enum):
    HOT = "hot"
    WARM = "warm"


class TopicTier:
    """A segment store over a hot and a warm store.

    `put` goes to the hot store. `delete` goes to both.
    """

    def __init__(self, hot: SegmentStore, warm: SegmentStore | None = None) -> None:
        self.hot = hot
        self.warm = warm

    def resolve(self, segment: SegmentId) -> Tier | None:
        """Return the tier that reads of the segment use. None: no store has it whole.

        The warm store is asked only if the hot one does not have the segment.
        """
        if is_whole(self.hot, segment):
            return Tier.HOT
        return Tier.WARM if self.warm is not None and is_whole(self.warm, segment) else None

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self.hot.put(segment, data, idx)

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        # Read without a look first: the hot copy may go between the look and the read.
        try:
            return self.hot.read_range(segment, part, offset, length)
        except NoSuchSegment:
            if self.warm is None:
                raise
        return self.warm.read_range(segment, part, offset, length)

    def delete(self, segment: SegmentId) -> None:
        self.hot.delete(segment)
        if self.warm is not None:
            self.warm.delete(segment)

    def list(self) -> list[SegmentId]:
        warm = [] if self.warm is None else self.warm.list()
        return sorted({*self.hot.list(), *warm})

    def exists(self, segment: SegmentId, part: Part) -> bool:
        return self.hot.exists(segment, part) or (self.warm is not None and self.warm.exists(segment, part))

    def length(self, segment: SegmentId, part: Part) -> int:
        try:
            return self.hot.length(segment, part)
        except NoSuchSegment:
            if self.warm is None:
                raise
        return self.warm.length(segment, part)


def is_whole(store: SegmentStore, segment: SegmentId) -> bool:
    """Tell whether the store has both parts of the segment."""
    return all(store.exists(segment, part) for part in Part)
