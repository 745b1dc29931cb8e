"""The reads of a log that go below its hot floor: the archive answers them from the newest state that it knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from catalog.errors import NoSuchObject
from offload.errors import HistoryBehind
from offload.services.archive_parts import ArchiveParts
from seglog import Record, Topic

if TYPE_CHECKING:
    from catalog import Snapshot
    from seglog import RecordArrays

_Item = TypeVar("_Item")


class ColdTier:
    """The cold tier of the log: it returns the records below the hot floor."""

    def __init__(self, parts: ArchiveParts) -> None:
        self._parts = parts

    def __repr__(self) -> str:
        return f"remote {self._parts.context.store.url}"

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        return self._items(
            topic, self._snapshot(topic, last), first, last, self._parts.context.reader.records, attrgetter("seq")
        )

    def read_arrays(self, topic: str, first: int, last: int) -> Iterator[RecordArrays]:
        snapshot = self._snapshot(topic, last)
        return self._items(topic, snapshot, first, last, self._parts.context.reader.arrays, attrgetter("last_seq"))

    def open_for_append(self, name: str) -> Topic:
        return self._parts.takeover.topic(name, is_asked=False)

    def expired_own(self, branch: str, end: int, oldest_ms: int) -> tuple[int, int]:
        from offload.services.expired import first_since, own_views

        snapshot = self._parts.states.newest(branch)
        while True:
            own = [view for view in own_views(snapshot) if view.first < end]
            try:
                first_live = min(first_since(own, oldest_ms, self._parts.context.reader), end)
            except NoSuchObject as missing:
                snapshot = self._newer(branch, snapshot, missing)
            else:
                return first_live, own[0].ref.min_ts_ms if own and first_live == 1 else 0

    def _snapshot(self, topic: str, last: int) -> Snapshot:
        snapshot = self._parts.states.newest(topic)
        if last > snapshot.bounds.head_seq:
            raise HistoryBehind(topic, last, snapshot.bounds.head_seq)
        return snapshot

    def _items(
        self,
        topic: str,
        snapshot: Snapshot,
        first: int,
        last: int,
        read: Callable[[Snapshot, int, int], Iterator[_Item]],
        last_seq_of: Callable[[_Item], int],
    ) -> Iterator[_Item]:
        while True:
            try:
                for item in read(snapshot, first, last):
                    yield item
                    first = last_seq_of(item) + 1
            except NoSuchObject as missing:
                snapshot = self._newer(topic, snapshot, missing)
            else:
                return

    def _newer(self, topic: str, snapshot: Snapshot, missing: NoSuchObject) -> Snapshot:
        """Return a newer state than one that lacks an object. If there is none, raise the error."""
        newer = self._parts.states.behind_read(topic, snapshot)
        if newer is None:
            raise missing
        return newer
