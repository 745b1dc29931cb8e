"""The parts of an archive, and the helpers of all its calls: a lock for each topic, and the handle of a name."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from catalog import Handle, Snapshot
from catalog.errors import NoSuchObject
from catalog.objects.base import ObjectStore
from catalog.retention import window_ms_of
from offload.context import open_context
from offload.errors import HistoryBehind
from offload.read.cold_reader import ColdReader
from offload.replication.replica import Replicas
from offload.replication.reset import Reset
from offload.replication.sync import Sync
from offload.replication.takeover import Takeover
from offload.settings import CatalogSettings, ColdSettings, OffloadSettings
from offload.write.offloader import Offloader
from offload.write.publisher import Publisher
from offload.write.uploader import InThread, Sender
from seglog import Log, Record
from seglog.arguments import checked
from seglog.files.clock import Clock
from seglog.process.ownership import Owned, is_foreign

__all__ = ["ArchiveParts"]


class ArchiveParts(Owned):
    """The base class that builds and holds the parts. `offload.archive` says what the parts are for."""

    def __init__(
        self,
        log: Log,
        store: ObjectStore,
        settings: OffloadSettings,
        cold: ColdSettings,
        upkeep: CatalogSettings,
        clock: Clock,
        sender: Sender | None,
    ) -> None:
        self._context = context = open_context(log, store, cold, upkeep, clock)
        try:
            log.attach_cold(_ColdTier(context.reader, self._newest))
        except BaseException:
            context.reader.close()
            context.local.close()
            raise
        log.topic_defaults = replace(log.topic_defaults, keep_history=True)
        self._log, self._store, self._clock, self._reader = log, store, clock, context.reader
        self._local, self._volumes, self._branches, self._tags = (
            context.local, context.volumes, context.branches, context.tags,
        )  # fmt: skip
        self._handles, self._writer_id, self._upkeep = context.handles, context.writer_id, upkeep
        self._sender = sender or InThread(store, self._reader)
        self._publisher = Publisher(context)
        self._offloader = Offloader(context, settings, self._publisher, self._sender)
        self._replicas = Replicas(context)
        self._takeover = Takeover(context, self._replicas, self._publisher)
        self._reset = Reset(context, self._replicas, self._offloader, self._publisher)
        self._sync = Sync(context, self._replicas, self._offloader, self._publisher, self._reset)
        self._is_closed = False

    def close(self) -> None:
        """Close the archive. Reads of the log end at its hot floor from now on. Idempotent."""
        if is_foreign(self) or self._is_closed:
            return
        self._is_closed = True
        self._sender.close()
        self._log.detach_cold()
        self._context.close()

    @property
    def url(self) -> str:
        return self._store.url

    def cache_counts(self) -> Iterator[tuple[str, int, int]]:
        """Return the name, hits and misses of each cache of cold reads, counted since the archive was attached."""
        return self._reader.cache_counts()

    @checked
    def change_settings(self, settings: OffloadSettings) -> None:
        """Use `settings` for every offload that begins from now on."""
        self._offloader.settings = settings

    def _turn(self, name: str) -> threading.RLock:
        return self._context.locks.of(name)

    def _open(self, name: str) -> Handle:
        """Return the writer's handle for a topic of the log. If this directory is not the writer yet, take the volume
        over.
        """
        handle = self._handles.open(name)
        return handle if self._handles.is_writer(handle) else self._takeover.run(name)

    def _followed(self, name: str) -> Handle:
        handle = self._handles.follow(name)
        self._handles.check_remote(handle)
        return handle

    def _gc_takes_ms(self, name: str, snapshot: Snapshot) -> int:
        """Return the longest time from a commit of the topic until GC has deleted the objects that the commit replaced
        (`offload.services.erasures`).
        """
        upkeep = self._upkeep
        config = json.dumps(self._log.topic(name).config.to_json()) if self._log.has_topic(name) else snapshot.config
        window_ms = window_ms_of(config, upkeep.pitr_window_s * 1000)
        interval_s = upkeep.gc_interval_s if isinstance(upkeep.gc_interval_s, int) else 0
        return window_ms + (upkeep.gc_grace_s + 2 * interval_s) * 1000

    def _newest(self, name: str) -> Snapshot:
        """Return the remote state of a topic or branch, as far as this directory knows it."""
        handle = self._handles.find(name)
        if handle is None:
            return self._volumes.snapshot(self._handles.resolve(name))
        try:
            return self._volumes.snapshot(handle.vid, handle.lsn)
        except NoSuchObject:
            moved = self._behind_gc(handle)
            if moved is None:
                raise
            return self._volumes.snapshot(moved.vid, moved.lsn)

    def _behind_gc(self, handle: Handle) -> Handle | None:
        """Return the handle of a writer, advanced past GC's commits.

        Returns None unless GC keeps only these commits after the handle. The call does not save the result: the next
        offload advances the handle on record.
        """
        if not self._handles.is_writer(handle) or not self._publisher.is_passed(handle):
            return None
        news = self._handles.heard(handle)
        bounds = self._handles.tip(handle).bounds
        if news.is_empty or not news.is_maintenance(bounds, handle.epoch):
            return None
        return self._handles.advanced(handle, news)


class _ColdTier:
    """The cold tier of the log: it returns the records below the hot floor."""

    def __init__(self, reader: ColdReader, snapshot: Callable[[str], Snapshot]) -> None:
        self._reader = reader
        self._snapshot = snapshot

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        snapshot = self._snapshot(topic)
        if last > snapshot.bounds.head_seq:
            raise HistoryBehind(topic, last, snapshot.bounds.head_seq)
        return self._reader.records(snapshot, first, last)
