"""The parts of one archive, and the reads of its log that go below the hot floor.

Each part is imported and made at its first use, so that a command that only looks skips the encoder, the upload and the
merge: half of its CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from catalog.errors import NoSuchObject
from offload.context import ArchiveContext, OfContext, part
from offload.errors import HistoryBehind
from offload.replication.replica import Replicas
from offload.settings import OffloadSettings
from seglog import Record, Topic

if TYPE_CHECKING:
    from catalog import Snapshot
    from offload.replication.replica_follower import Epochs
    from offload.replication.reset import Reset
    from offload.replication.sync import Sync
    from offload.replication.takeover import Takeover
    from offload.services.states import TopicStates
    from offload.services.writer import Writer
    from offload.write.offloader import Offloader
    from offload.write.publisher import Publisher
    from offload.write.uploader import Uploader
    from seglog import RecordArrays

_Item = TypeVar("_Item")


class ArchiveParts:
    """What each service of an archive gets: the context, and by name the parts that do the work."""

    def __init__(self, context: ArchiveContext, settings: OffloadSettings, uploader: Uploader | None) -> None:
        """`uploader` is None if the thread that offloads also uploads."""
        self.context = context
        self.replicas = Replicas(context)
        self._settings = settings
        self._given_uploader = uploader

    def close(self) -> None:
        if self._given_uploader is not None:
            self._given_uploader.close()

    def change_settings(self, settings: OffloadSettings) -> None:
        """Use `settings` for every offload that begins from now on."""
        self._settings = settings
        self.offloader.settings = settings

    @part
    def publisher(self) -> Publisher:
        from offload.write.publisher import Publisher

        return Publisher(self.context)

    @part
    def offloader(self) -> Offloader:
        from offload.write.offloader import Offloader
        from offload.write.segment_upload import LocalUploader

        uploader = self._given_uploader or LocalUploader(self.context.store, self.context.reader)
        return Offloader(self.context, self._settings, self.publisher, uploader)

    @part
    def takeover(self) -> Takeover:
        from offload.replication.takeover import Takeover

        return Takeover(self.context, self.replicas, self.publisher)

    @part
    def reset(self) -> Reset:
        from offload.replication.reset import Reset

        return Reset(self.context, self.replicas, self.offloader, self.publisher)

    @part
    def sync(self) -> Sync:
        from offload.replication.sync import Sync

        return Sync(self.context, self.replicas, self.offloader, self.publisher, self.reset)

    @part
    def epochs(self) -> Epochs:
        from offload.replication.replica_follower import Epochs

        return Epochs(self.context, self.replicas, self.states.newest, self.states.live_floor)

    @part
    def states(self) -> TopicStates:
        from offload.services.states import TopicStates

        return TopicStates(self)

    @part
    def writer(self) -> Writer:
        from offload.services.writer import Writer

        return Writer(self)


class OfArchive(OfContext):
    """A base of the services of an archive."""

    def __init__(self, parts: ArchiveParts) -> None:
        super().__init__(parts.context)
        self._parts, self._replicas = parts, parts.replicas

    @part
    def _states(self) -> TopicStates:
        return self._parts.states


class ColdTier:
    """The cold tier of the log: it returns the records below the hot floor, from the newest state that is known."""

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
