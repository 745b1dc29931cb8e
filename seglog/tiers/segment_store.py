"""The port to where a topic's sealed segments are: one store a topic and tier. Segments go in and out whole.

Implementations: `seglog.tiers.local_store` (a directory), `seglog.tiers.memory_store`, `seglog.tiers.topic_tier` (a hot
one before a cold
one). One conformance suite runs over all of them (tests/seglog/test_stores.py), and over others where those are.

Q1  `put` returns when both parts are durable. A segment is there with both parts, or `list` does not show it.
Q2  A segment may be put again: with other flags in the idx, or written anew without deleted records' bytes
    (seglog.segments.rewrite), and then a crash in the middle of it leaves two parts that need not fit each other.
    Nobody reads
    what was put before the snapshot says that it is there.
Q3  What is not there is `NoSuchSegment`, and nothing else is: trouble is never taken for absence. Trouble is any
    other error.
Q4  Calls are synchronous and know nothing of each other: any thread may make them, at any time.

A slow or dead store never delays an append or a read of hot data: so nobody holds a lock of the log over a call here.
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
        """Both parts, durable on return."""
        ...

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`. Raises `NoSuchSegment`, and `SegmentCut` if the part ends before."""
        ...

    def delete(self, segment: SegmentId) -> None:
        """The whole segment, durably. One that is not there is fine, as is half of one."""
        ...

    def list(self) -> list[SegmentId]:
        """Those that are there with both parts, oldest first."""
        ...

    def exists(self, segment: SegmentId, part: Part) -> bool: ...

    def length(self, segment: SegmentId, part: Part) -> int:
        """In bytes. Raises `NoSuchSegment`."""
        ...


@runtime_checkable
class OwnedStores(Protocol):
    """Stores that know whose they are: two logs with the same place would replace each other's segments."""

    def __call__(self, topic_id: int) -> SegmentStore: ...
    def claim(self, log_id: str, path: str, is_ours: Callable[[int, SegmentId], bool]) -> None:
        """Called before the first put or delete of an opening. Raises `ColdDirectoryTaken`, and what the store raises.

        `path` is the data directory, for the error that another log gets. `is_ours` as in seglog.tiers.cold_directory.
        """
        ...


SegmentStores: TypeAlias = Callable[[int], SegmentStore]
"""The store of a topic, by its id. Called once for each topic and opening of the log; opens nothing that may hang."""
