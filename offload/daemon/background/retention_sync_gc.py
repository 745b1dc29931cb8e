"""The tasks besides the offload: `upkeep`, `release`, `sync`, `gc` and `erase`.

A release reads the remote copy back, and a store may take long to answer. So each release has the thread of releases.

`gc` and `erase` share one thread, as both delete in the remote. Their first runs begin one interval after the start.
Otherwise frequent restarts would run GC all the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from catalog.errors import BranchCollected, NoSuchBranch, NoSuchTopic
from offload.archive import Archive
from offload.daemon.background.context import TaskContext
from offload.daemon.background.disk import DiskState, DiskWatch
from offload.daemon.background.triggers import is_over
from offload.daemon.figures import ReplicaFigures
from offload.daemon.threads import in_threads
from offload.errors import NameDeleted, Stopping
from offload.services.replication import LOOKS_PER_SEARCH, MOST_WAITS, WAIT_S
from seglog import SeglogError

_LOCAL_GC_INTERVAL_MS = 600_000
_SYNCS_AT_ONCE = 4
_ASKED_FOR_MS = 60_000
_log = logging.getLogger("seglog.daemon")


class Upkeep:
    """The upkeep of one data directory, with its archive or without one."""

    def __init__(self, context: TaskContext, archive: Archive | None, disk: DiskWatch) -> None:
        self._context = context
        self._archive = archive
        self._disk = disk
        self._threads = context.threads.pool(1, "seglog-upkeep")
        self._release_threads = context.threads.pool(1, "seglog-release")
        self._collected_at_ms = 0
        self._releasable: list[str] = []

    async def look(self) -> None:
        self._releasable = await in_threads(self._threads, self._retain)
        if self._archive is not None:
            await self._drop_copies(self._archive)

    def _retain(self) -> list[str]:
        """Enforce retention. Return the topics whose hot copies may go: by lag, by retention, or for a full disk."""
        retained, archive = self._context.log.enforce_retention(), self._archive
        if archive is None:
            return []
        lag_s = self._context.settings().offload.deletion_lag_s if self._disk.state is DiskState.FINE else 0
        waiting = {topic.topic for topic in retained if topic.waiting_seq}
        hot = archive.status.with_hot_copies() if waiting else set()
        return sorted(archive.status.with_hot_copies(lag_s) | (waiting & hot))

    async def _drop_copies(self, archive: Archive) -> None:
        """Delete the local copies of commits that no name needs, every ten minutes."""
        now_ms = self._context.now_ms()
        if is_over(self._collected_at_ms, _LOCAL_GC_INTERVAL_MS, now_ms):
            self._collected_at_ms = now_ms
            await in_threads(self._threads, archive.upkeep.drop_copies)

    async def release(self, archive: Archive) -> None:
        """Release the hot copies that the last look found, topic by topic."""
        context = self._context
        names, self._releasable = self._releasable, []
        for name in names:
            is_busy = context.works.of(name).is_running
            if is_busy or context.stopping.is_set() or archive.status.is_diverged(name):
                continue
            try:
                await in_threads(self._release_threads, self._release, archive, name)
            except Stopping:
                return
            except Exception as error:
                context.metrics.failures.labels("release").inc()
                context.works.warn(name, "hot copies stay for now", error)

    def _release(self, archive: Archive, name: str) -> None:
        archive.release(name, at_once=self._disk.state is not DiskState.FINE)


class Replicas:
    """The topics that one data directory follows. A proxy looks also at its own topics that followers ask for."""

    def __init__(self, context: TaskContext, archive: Archive) -> None:
        self._context = context
        self._archive = archive
        self._threads = context.threads.pool(_SYNCS_AT_ONCE, "seglog-replica")
        self._search_thread = context.threads.pool(1, "seglog-names")
        self._wait_threads = context.threads.pool(MOST_WAITS, "seglog-wait")
        self._waits: dict[str, asyncio.Task[None]] = {}
        self._synced_at_ms: dict[str, int] = {}
        self._fresh_at_ms: dict[str, int] = {}  # of each replica, when its last sync succeeded
        self._searched_at_ms = 0

    async def look(self) -> None:
        interval_s = self._context.settings().catalog.sync_interval_s
        if not isinstance(interval_s, int):
            return
        now_ms = self._context.now_ms()
        names = await in_threads(self._threads, self._archive.replication.replicas)
        # A replica that never synced here lags since the daemon found it.
        self._fresh_at_ms = {name: self._fresh_at_ms.get(name, now_ms) for name in names}
        if self._context.settings().serve.proxy:
            names = [*names, *filter(self._is_asked_for, self._context.log.topics())]
        self._synced_at_ms = {name: self._synced_at_ms.get(name, 0) for name in names}
        due = [
            name
            for name in names
            if is_over(self._synced_at_ms[name], interval_s * 1000, now_ms)
            and not self._archive.status.is_diverged(name)
            and not self._context.works.of(name).is_running  # an offload finds another writer by itself
            and name not in self._waits
        ]
        await asyncio.gather(*map(self._sync, due))
        if self._may_wait():
            for name in due:
                if name in self._fresh_at_ms and self._context.works.of(name).sync_error is None:
                    self._waits[name] = asyncio.create_task(self._hear(name))

    async def _hear(self, name: str) -> None:
        """Wait for news of a replica of a proxy, and sync it at once, as long as that works (DAEMON-5)."""
        try:
            while self._may_wait():
                has_news = await in_threads(self._wait_threads, self._archive.replication.await_news, name, WAIT_S)
                if has_news is None or (has_news and not await self._sync(name)):
                    return
                self._note_fresh(name)
        except Exception as error:  # the sync of the next interval meets it, too, and tells
            _log.debug("%s: the wait for news ended: %s", name, error)
        finally:
            del self._waits[name]

    def _may_wait(self) -> bool:
        is_few, interval_s = len(self._fresh_at_ms) <= MOST_WAITS, self._context.settings().catalog.sync_interval_s
        is_on = isinstance(interval_s, int) and not self._context.stopping.is_set()
        return is_on and is_few and self._archive.replication.can_wait

    def end_waits(self) -> None:
        for task in self._waits.values():
            task.cancel()

    def _note_fresh(self, name: str) -> None:
        now_ms, work = self._context.now_ms(), self._context.works.of(name)
        if name in self._fresh_at_ms:
            self._fresh_at_ms[name] = now_ms
        self._synced_at_ms[name] = work.looked_at_ms = now_ms

    def _is_asked_for(self, name: str) -> bool:
        return not is_over(self._context.works.of(name).asked_at_ms, _ASKED_FOR_MS, self._context.now_ms())

    async def search(self) -> None:
        """Let a proxy search the remote for names, once in some sync intervals."""
        settings, now_ms = self._context.settings(), self._context.now_ms()
        interval_s = settings.catalog.sync_interval_s
        if not (settings.serve.proxy and isinstance(interval_s, int)):
            return
        if is_over(self._searched_at_ms, interval_s * 1000 * LOOKS_PER_SEARCH, now_ms):
            self._searched_at_ms = now_ms
            await in_threads(self._search_thread, self._search)

    def _search(self) -> None:
        """Follow each name of the remote that is new, and forget those that are gone."""
        archive, works, replicas = self._archive, self._context.works, self._archive.replication.replicas()
        for name in sorted({*archive.branches.remote_names()} - {*replicas, *self._context.log.topics()}):
            if self._context.stopping.is_set():
                return
            try:
                archive.replication.sync(name)
            except (NoSuchTopic, NoSuchBranch):
                continue  # deleted meanwhile
            except SeglogError as error:  # it holds up no other name
                works.warn(name, "the proxy does not follow it yet", error)
        for name in replicas:
            if isinstance(works.of(name).sync_error, (NameDeleted, BranchCollected)):
                try:
                    archive.delete_topic(name)
                except SeglogError as error:
                    works.warn(name, "the proxy does not forget it yet", error)
                else:
                    works.of(name).sync_error = None

    async def _sync(self, name: str) -> bool:
        """Sync a topic, and return whether it moved. A failure is on record."""
        context, has_moved = self._context, False
        self._synced_at_ms[name] = context.now_ms()
        try:
            has_moved = await in_threads(self._threads, self._follow, name)
        except Stopping:
            return False
        except Exception as error:
            context.works.of(name).sync_error = error
            context.metrics.failures.labels("sync").inc()
            context.works.warn(name, "it stays at the last commit that this directory knows", error)
        else:
            if name in self._fresh_at_ms:
                context.works.of(name).last_error = None  # of a topic of the log, it is that of its offload
                self._fresh_at_ms[name] = context.now_ms()
            context.works.of(name).sync_error = None
            context.works.of(name).looked_at_ms = context.now_ms()
        return has_moved

    def _follow(self, name: str) -> bool:
        if self._context.stopping.is_set():  # this sync may have waited for its thread since then
            raise Stopping
        return self._archive.replication.follow(name)

    def figures(self) -> Iterator[ReplicaFigures]:
        """Yield the lag of each replica, for the metrics."""
        now_ms = self._context.now_ms()
        for name, at_ms in list(self._fresh_at_ms.items()):
            yield ReplicaFigures(name, max(0, now_ms - at_ms) / 1000)


class Garbage:
    """The garbage in the remote of one archive: objects that no name needs, and deleted records within objects."""

    def __init__(self, context: TaskContext, archive: Archive) -> None:
        self._context = context
        self._archive = archive
        self._threads = context.threads.pool(1, "seglog-gc")
        self._collected_at_ms = self._erased_at_ms = context.now_ms()

    async def collect(self) -> None:
        """Run GC over the whole remote, if its interval is over."""
        interval_s, now_ms = self._context.settings().catalog.gc_interval_s, self._context.now_ms()
        if isinstance(interval_s, int) and is_over(self._collected_at_ms, interval_s * 1000, now_ms):
            self._collected_at_ms = now_ms
            await self._collect()

    async def _collect(self) -> None:
        context, metrics = self._context, self._context.metrics
        outcome, deleted, deleted_bytes = "failed", 0, 0
        try:
            report = await in_threads(self._threads, self._archive.upkeep.collect)
            outcome = "blocked" if report.blocked else "done"
            deleted, deleted_bytes = report.deleted.total(), report.deleted_bytes
            metrics.collected(report.deleted, report.deleted_bytes)
            metrics.gc_done_at_s.set(context.now_ms() / 1000)
            for vid, reason in report.blocked.items():
                _log.error("gc leaves volume %s alone: %s", vid, reason)
            _log.info("gc deleted %s and planned %s", dict(report.deleted), dict(report.planned))
        finally:
            metrics.gc_runs.labels(outcome).inc()
            context.events.publish("gc", outcome=outcome, deleted=deleted, deleted_bytes=deleted_bytes)

    async def erase(self) -> None:
        """Rewrite the objects of all topics that hold deleted records, if the interval is over."""
        interval_s, now_ms = self._context.settings().catalog.erase_interval_s, self._context.now_ms()
        if isinstance(interval_s, int) and is_over(self._erased_at_ms, interval_s * 1000, now_ms):
            self._erased_at_ms = now_ms
            await self._erase_all()

    async def _erase_all(self) -> None:
        context, status = self._context, self._archive.status
        for name in context.log.topics():
            if context.stopping.is_set():
                return
            try:
                if not (status.is_paused(name) or status.is_diverged(name)):
                    await in_threads(self._threads, self._erase, name)
            except Stopping:
                return
            except Exception as error:
                context.metrics.failures.labels("erase").inc()
                context.works.warn(name, "deleted records stay in their objects for now", error)

    def _erase(self, name: str) -> None:
        self._archive.upkeep.erase(name, on_bytes=self._context.runs.count_bytes)
