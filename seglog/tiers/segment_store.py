"""The port to a topic's sealed segments: one store for each topic and tier. A call puts or deletes a whole
segment.

Implementations: `seglog.tiers.local_store` (a directory), `seglog.tiers.memory_store`, `seglog.tiers.topic_tier` (a hot
store before a warm one). One conformance suite runs over all of them (tests/seglog/test_stores.py). The tests of other
stores run it too.

SEGSTORE-1  `put` returns when both parts are durable. `list` shows a segment only if both parts are there.
SEGSTORE-2  A segment may be put again, with other flags in the .idx, or rewritten without the bytes of deleted records
    (seglog.segments.rewrite). After a crash in the middle of that, the two parts need not fit each other. No reader
    reads a segment there before the manifest says that it is there.
SEGSTORE-3  A segment that is not there is `NoSuchSegment`, and nothing else is. Trouble is any other error. A store
    never takes trouble for absence.
SEGSTORE-4  Calls are synchronous and independent. Any thread may make them at any time.

A slow or dead store never delays an append or a read of hot data. So no thread holds a lock of the log over a call
here.
Source: topics engine architecture, section 3.6.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NewType, Protocol, TypeAlias, runtime_checkable

__all__ = ["OwnedStores", "Part", "SegmentId", "SegmentStore", "SegmentStores"]

SegmentId = NewType("SegmentId", int)
"""The segment's first seq."""


class Part(enum.Enum):
    DATA = "data"
    IDX = "idx"


class SegmentStore(Protocol):
    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        """Store both parts, durable on return."""
        ...

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        """Return exactly `length` bytes from `offset` on.

        Raises `NoSuchSegment`, and `SegmentCut` if the part ends before.
        """
        ...

    def delete(self, segment: SegmentId) -> None:
        """Delete the whole segment, durably. A missing segment is no error, and neither is half of one."""
        ...

    def list(self) -> list[SegmentId]:
        """Return the segments that have both parts, oldest first."""
        ...

    def exists(self, segment: SegmentId, part: Part) -> bool: ...

    def length(self, segment: SegmentId, part: Part) -> int:
        """Return the length of a part in bytes. Raises `NoSuchSegment`."""
        ...


@runtime_checkable
class OwnedStores(Protocol):
    """Stores that know their owner.

    Without an owner, two logs with the same place would replace each other's segments.
    """

    def __call__(self, topic_id: int) -> SegmentStore: ...
    def claim(self, log_id: str, path: str, is_ours: Callable[[int, SegmentId], bool]) -> None:
        """Take the stores for one log. The log calls this before the first put or delete of an opening.

        `path` is the data directory, for the error that another log gets. `is_ours` is described in
        seglog.tiers.warm_directory.
        Raises `WarmDirectoryTaken`, and errors of the store.
        """
        ...


SegmentStores: TypeAlias = Callable[[int], SegmentStore]
"""Return the store of a topic id. The log calls it once a topic and opening. The call opens nothing that may hang."""
