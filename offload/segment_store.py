"""A log's cold store on object storage: segments as they are, two objects each.

    store = open_store("s3://bucket/prefix")
    with seglog.open("data", cold_stores=cold_stores(store, "this-log")) as log: ...

The data object is put first and deleted last, so the idx object says that a segment is there with both parts (Q1 of
`seglog.store`). This is no archive: nobody else reads it, and there are no commits. `place` sets the log apart from
others under the same prefix, and stays the same as long as the log has segments there.
"""

from __future__ import annotations

from catalog.errors import InvalidObject, NoSuchObject
from catalog.keys import Key, cold_prefix, cold_segment_key, cold_segment_of
from catalog.objects.base import ObjectStore
from seglog import NoSuchSegment, SegmentCut
from seglog.store import Part, SegmentId, SegmentStores

__all__ = ["ObjectSegmentStore", "cold_stores"]


def cold_stores(store: ObjectStore, place: str) -> SegmentStores:
    """For `seglog.open`. Whoever opened `store` closes it, after the log. Raises `InvalidName`."""
    cold_prefix(place, 0)
    return lambda topic_id: ObjectSegmentStore(store, place, topic_id)


class ObjectSegmentStore:
    """Of one topic. Raises what the object store raises in trouble."""

    def __init__(self, store: ObjectStore, place: str, topic_id: int) -> None:
        self._store = store
        self._place = place
        self._topic_id = topic_id

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        # No fresh id in the keys: a put that comes through after the log was closed may replace a later one (0091).
        self._store.put(self._key(segment, Part.DATA), bytes(data), {})
        self._store.put(self._key(segment, Part.IDX), bytes(idx), {})

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        if length == 0:
            self._check_range(segment, part, offset, 0)
            return b""
        try:
            return self._store.get_range(self._key(segment, part), offset, length)
        except NoSuchObject as error:
            raise NoSuchSegment(segment) from error
        except InvalidObject:
            self._check_range(segment, part, offset, length)
            raise

    def delete(self, segment: SegmentId) -> None:
        for part in (Part.IDX, Part.DATA):
            self._store.delete(self._key(segment, part))

    def list(self) -> list[SegmentId]:
        found = [cold_segment_of(key) for key in self._store.list(cold_prefix(self._place, self._topic_id))]
        data, idx = ({one[0] for one in found if one is not None and one[1] == part.value} for part in Part)
        return sorted(map(SegmentId, data & idx))

    def exists(self, segment: SegmentId, part: Part) -> bool:
        try:
            self.length(segment, part)
        except NoSuchSegment:
            return False
        return True

    def length(self, segment: SegmentId, part: Part) -> int:
        try:
            return self._store.head(self._key(segment, part)).size
        except NoSuchObject as error:
            raise NoSuchSegment(segment) from error

    def _check_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> None:
        """Raises `SegmentCut`, `NoSuchSegment`."""
        size = self.length(segment, part)
        if size < offset + length:
            raise SegmentCut(segment, part.value, size, offset + length)

    def _key(self, segment: SegmentId, part: Part) -> Key:
        return cold_segment_key(self._place, self._topic_id, segment, part.value)
