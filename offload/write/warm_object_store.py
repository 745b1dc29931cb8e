"""A log's warm store on object storage: unchanged segments, two objects each.

    store = open_store("s3://bucket/prefix")
    with seglog.open("data", warm_stores=warm_stores(store, "this-log")) as log: ...

The store puts the data object first and deletes it last. So if the idx object exists, both parts of the segment do
(SEGSTORE-1). This store is no archive: only its log reads it, and it has no commits.

`place` separates the log from others under the same prefix. It must stay the same while the log has segments there. An
object `owner` names the log, so that a second log with the same place moves nothing there. A copy of a data directory
has the id of its original, so the store cannot tell the two apart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from catalog.errors import InvalidObject, KeyTaken, NoSuchObject, OutcomeUnknown
from catalog.format.keys import Key, cold_owner_key, cold_place_prefix, cold_prefix, cold_segment_key, cold_segment_of
from catalog.objects.object_store import ObjectStore
from seglog import NoSuchSegment, SegmentCut, WarmDirectoryTaken
from seglog.tiers.segment_store import Part, SegmentId, SegmentStores
from seglog.values import canonical


def warm_stores(store: ObjectStore, place: str) -> SegmentStores:
    """Return the stores for `seglog.open`. The caller closes `store` itself, after the log. Raises `InvalidName`."""
    return ObjectSegmentStores(store, place)


class ObjectSegmentStores:
    """The stores of one log. Raises `InvalidName`."""

    def __init__(self, store: ObjectStore, place: str) -> None:
        self._store = store
        self._place = place
        self._owner_key = cold_owner_key(place)

    def __call__(self, topic_id: int) -> ObjectSegmentStore:
        return ObjectSegmentStore(self._store, self._place, topic_id)

    def claim(self, log_id: str, path: str, is_ours: Callable[[int, SegmentId], bool]) -> None:
        """Claim the place, as `seglog.tiers.segment_store.OwnedStores` says. One GET, and once a LIST and a PUT."""
        owner = self._owner()
        if owner is None:
            if not self._may_adopt(is_ours):
                raise self._taken("another log, whose segments are there")
            body = canonical.encode({"format": 1, "log": log_id, "path": path})
            with suppress(KeyTaken, OutcomeUnknown):
                self._store.put_new(self._owner_key, body)
            owner = self._owner()
        if owner is None or owner.get("log") != log_id:
            raise self._taken("another log" if owner is None else f"log {owner.get('log')} of {owner.get('path')}")

    def _owner(self) -> dict[str, Any] | None:
        try:
            body = self._store.get(self._owner_key)
        except NoSuchObject:
            return None
        try:
            owner: dict[str, Any] = canonical.decode(body)
        except ValueError as error:
            raise InvalidObject(self._owner_key, f"it names no log: {error}") from error
        return owner

    def _may_adopt(self, is_ours: Callable[[int, SegmentId], bool]) -> bool:
        is_empty = True
        for key in self._store.list(cold_place_prefix(self._place)):
            segment = cold_segment_of(key)
            if segment is not None:
                is_empty = False
                topic_id, first_seq, part = segment
                if part == Part.IDX.value and is_ours(topic_id, SegmentId(first_seq)):
                    return True
        return is_empty

    def _taken(self, owner: str) -> WarmDirectoryTaken:
        return WarmDirectoryTaken(Path(cold_place_prefix(self._place)), owner)


class ObjectSegmentStore:
    """The warm store of one topic. Raises the errors of the object store."""

    def __init__(self, store: ObjectStore, place: str, topic_id: int) -> None:
        self._store = store
        self._place = place
        self._topic_id = topic_id

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        # The keys have no fresh id, so a late put of a closed log may replace a later one (decision 0091).
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
        ids = [cold_segment_of(key) for key in self._store.list(cold_prefix(self._place, self._topic_id))]
        data, idx = ({parsed[1] for parsed in ids if parsed is not None and parsed[2] == part.value} for part in Part)
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
        """Check that a part has these bytes. Raises `SegmentCut`, `NoSuchSegment`."""
        size = self.length(segment, part)
        if size < offset + length:
            raise SegmentCut(segment, part.value, size, offset + length)

    def _key(self, segment: SegmentId, part: Part) -> Key:
        return cold_segment_key(self._place, self._topic_id, segment, part.value)
