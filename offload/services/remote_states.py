"""The newest state of a topic or branch in the remote, as far as this directory knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from catalog import Handle, History, Snapshot
from catalog.errors import NoSuchObject, NoSuchTopic
from catalog.history import NO_HISTORY
from offload.context import ArchiveContext
from offload.errors import HistoryBehind
from offload.services.expired import first_since, own_views
from offload.write.publisher import Publisher
from seglog import Record

if TYPE_CHECKING:
    from seglog.format.record_arrays import RecordArrays

__all__ = ["ColdTier", "RemoteStates"]

_Item = TypeVar("_Item")


class RemoteStates:
    def __init__(self, context: ArchiveContext, publisher: Publisher) -> None:
        self._log = context.log
        self._volumes = context.volumes
        self._handles = context.handles
        self._publisher = publisher

    def newest(self, name: str) -> Snapshot:
        """Return the remote state of a topic or branch, as far as this directory knows it."""
        handle = self._found(name)
        if handle is None:
            return self._volumes.snapshot(self._handles.resolve(name))
        try:
            return self._volumes.snapshot(handle.vid, handle.lsn)
        except NoSuchObject:
            moved = self.behind_gc(handle)
            if moved is None:
                raise
            return self._volumes.snapshot(moved.vid, moved.lsn)

    def behind_read(self, name: str, snapshot: Snapshot) -> Snapshot | None:
        """Return a newer state of a writer's topic, if GC deleted objects of `snapshot` since. Otherwise None.

        An example is a process that died right after its merge. GC then deletes the merged segments, and this directory
        still knows the state before.
        """
        handle = self._handles.find(name)
        moved = None if handle is None else self.behind_gc(handle)
        if moved is None or moved.lsn <= snapshot.lsn:
            return None
        return self._volumes.snapshot(moved.vid, moved.lsn)

    def behind_gc(self, handle: Handle) -> Handle | None:
        """Return the handle of a writer, advanced past GC's commits.

        Returns None unless GC keeps only these commits after the handle. The call does not save the result: the next
        offload advances the handle on record.
        """
        if not self._handles.is_writer(handle) or not self._publisher.is_passed(handle):
            return None
        updates = self._handles.fetch_updates(handle)
        bounds = self._handles.tip(handle).bounds
        if updates.is_empty or not updates.is_maintenance(bounds, handle.epoch):
            return None
        return self._handles.advanced(handle, updates)

    def history(self, name: str) -> History:
        """Return the commits of the topic or branch, through its fork points, as far as GC keeps them.

        A topic of the log that the remote does not have yet has no history.
        """
        handle = self._found(name)
        if handle is not None:
            return self._volumes.history(handle.vid, handle.lsn)
        try:
            vid = self._handles.resolve(name)
        except NoSuchTopic:
            if self._log.has_topic(name):
                return NO_HISTORY
            raise
        return self._volumes.history(vid)

    def _found(self, name: str) -> Handle | None:
        """Return the handle, if it belongs to this remote (HANDLE-6). Raises `OtherRemote`, `RemoteBehind`."""
        handle = self._handles.find(name)
        if handle is not None:
            self._handles.check_chosen(handle)
        return handle


class ColdTier:
    """The cold tier of the log: it returns the records below the hot floor."""

    def __init__(self, context: ArchiveContext, states: RemoteStates) -> None:
        self._reader = context.reader
        self._states = states

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        return self._items(topic, self._snapshot(topic, last), first, last, self._reader.records, attrgetter("seq"))

    def read_arrays(self, topic: str, first: int, last: int) -> Iterator[RecordArrays]:
        snapshot = self._snapshot(topic, last)
        return self._items(topic, snapshot, first, last, self._reader.arrays, attrgetter("last_seq"))

    def expired_own(self, branch: str, end: int, oldest_ms: int) -> tuple[int, int]:
        snapshot = self._states.newest(branch)
        while True:
            own = [view for view in own_views(snapshot) if view.first < end]
            try:
                found = min(first_since(own, oldest_ms, self._reader), end)
            except NoSuchObject as missing:
                snapshot = self._newer(branch, snapshot, missing)
            else:
                return found, own[0].ref.min_ts_ms if own and found == 1 else 0

    def _snapshot(self, topic: str, last: int) -> Snapshot:
        snapshot = self._states.newest(topic)
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
        newer = self._states.behind_read(topic, snapshot)
        if newer is None:
            raise missing
        return newer
