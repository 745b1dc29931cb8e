"""An open data directory, and the tasks that run on it in the background.

    task         every            does
    offload      check_interval   asks the triggers of each topic, and offloads the topics that are due, some at a time
    upkeep       check_interval   seals by age, enforces retention, releases hot copies whose lag is over
    sync         sync_interval    looks for new commits of the topics that this directory follows and does not write
    gc           gc_interval      runs GC over the whole remote, in a thread of its own
    erase        erase_interval   rewrites objects that hold deleted records, topic by topic, in the thread of GC
    disk         check_interval   offload.daemon.disk: raises an alarm, and holds appends before the disk is full

DAEMON-1  No task waits for another. Each kind of work has its own threads. Slow work on one topic delays neither other
    topics nor appends.
DAEMON-2  The daemon logs and counts a failure, and tries again. A topic's offload waits longer after each failure in a
    row (offload.daemon.triggers). No failure of one topic ends a task.
DAEMON-3  `close` stops running work at its next step. Attempts stay on record, and the next start continues them.
DAEMON-4  If the clock goes back, by whatever amount, no task and no retry stalls: each comes within its interval
    (TRIGGER-4).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import offload
from catalog.errors import Diverged
from catalog.objects.base import ObjectStore
from offload.archive import Archive
from offload.backoff import Backoff
from offload.daemon.disk import DiskState, disk_state
from offload.daemon.events import Events
from offload.daemon.feeds import Feeds
from offload.daemon.figures import ReplicaFigures, TopicFigures
from offload.daemon.gate import Gate, GatedStore, Rate
from offload.daemon.metrics import MeteredFiles, Metrics
from offload.daemon.quota import Quota
from offload.daemon.rests import Rest, Rests
from offload.daemon.runs import Runs
from offload.daemon.seals import Seals
from offload.daemon.stopping import StopEvent
from offload.daemon.tenant_aws import TenantAws, open_aws
from offload.daemon.tenant_id import tenant_id
from offload.daemon.triggers import Backlog, Due, due, is_over, next_due_ms, policy_of
from offload.errors import OtherRemote, Stopping
from offload.settings import PROCESS, CatalogSettings, OffloadSettings, ServeSettings, TenantSettings
from offload.settings_file import Settings, read_settings
from offload.wiring import check_remote_apart, open_store
from offload.worker.pool import WorkerPool
from seglog import SETTINGS_FILE, InvalidTopicName, Log, NoSuchTopic, Retention, SeglogError, aio
from seglog.files.clock import Clock, SystemClock
from seglog.files.port import Files

if TYPE_CHECKING:
    from offload.tenants.credentials import Refresher

__all__ = ["Service", "TopicWork", "open_service"]

_log = logging.getLogger("seglog.daemon")
_READ_THREADS = 8
_COLD_READ_THREADS = 16
_LOCAL_THREADS = 4
_SYNC_THREADS = 4
_LOCAL_GC_INTERVAL_MS = 600_000


@dataclass(slots=True)
class TopicWork:
    """The state of a topic's offload, in memory only. After a restart the daemon tries every topic without a wait."""

    is_running: bool = False
    failures: int = 0
    failed_at_ms: int = 0
    delay_ms: int = 0
    last_error: str | None = None
    unsealed_since_ms: int | None = None
    unsealed_from_seq: int = 0

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next try, or 0 if the next try is due."""
        is_due = is_over(self.failed_at_ms, self.delay_ms, now_ms)
        return 0 if is_due else self.failed_at_ms + self.delay_ms - now_ms


@dataclass(frozen=True, slots=True)
class _Reloadable:
    """The parts of the settings that a reload replaces."""

    serve: ServeSettings
    offload: OffloadSettings
    catalog: CatalogSettings
    tenant: TenantSettings

    @classmethod
    def of(cls, settings: Settings) -> _Reloadable:
        """Return the parts. Raise `InvalidSetting` if a value of one is not allowed."""
        return cls(settings.serve, settings.offload, settings.catalog, settings.tenant)


class Service:
    """The open log with its background tasks, in one event loop. Blocking work runs in threads.

    Make it with `open_service`.
    """

    def __init__(
        self,
        log: aio.AsyncLog,
        archive: Archive | None,
        loaded: _Reloadable,
        metrics: Metrics,
        clock: Clock,
        rates: _Rates,
        workers: WorkerPool | None = None,
        aws: TenantAws | None = None,
    ) -> None:
        self.log = log
        self.archive = archive
        self.tenant = metrics.tenant  # empty for a directory without one
        self.aws = aws
        self.settings = loaded.serve
        self.metrics = metrics
        self.quota = Quota(loaded.tenant, lambda reason: metrics.rejected.labels(reason).inc())
        self.stopping = rates.stopping
        self.is_leaving = False  # the daemon stops soon: it is not ready, and still takes requests
        self.disk = DiskState.FINE
        self.events = Events(clock.now_ms, metrics.lost_events.inc)
        self.stopping.listen(self.events.wake)
        self.runs = Runs(metrics, self.events, clock.now_ms)
        # One thread for each command, as a command may follow for days. A command beyond the limit gets `Busy` at once.
        self.commands = self._threads(loaded.serve.max_requests, "seglog-command")
        self.free_commands = threading.BoundedSemaphore(loaded.serve.max_requests)
        self.local = self._threads(_LOCAL_THREADS, "seglog-local")  # short work on the local disk only
        self.hot_reads = self._threads(_READ_THREADS, "seglog-read")
        self.cold_reads = self._threads(_COLD_READ_THREADS, "seglog-cold")
        self.feeds = Feeds(lambda: self.hot_reads, self.stopping)
        self._offload_settings = loaded.offload
        self._catalog_settings = loaded.catalog
        self._clock = clock
        self._rates = rates
        self._topics: dict[str, TopicWork] = {}
        self._rests = Rests()
        self._seals = Seals()
        self._jobs = self._threads(loaded.offload.topics_at_once, "seglog-offload")
        self._upkeep = self._threads(3, "seglog-upkeep")  # for the tasks disk, upkeep and offload
        self._syncs = self._threads(_SYNC_THREADS, "seglog-sync")
        self._gc = self._threads(1, "seglog-gc")
        self._gc_at_ms = self._clock.now_ms()  # no run at the start: frequent restarts would run GC all the time
        self._erased_at_ms = self._gc_at_ms
        self._synced_at_ms: dict[str, int] = {}
        self._fresh_at_ms: dict[str, int] = {}  # of each replica, when its last sync succeeded
        self._workers = workers
        self._collected_at_ms = 0
        self._has_log_id = False
        self._tasks: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Task[None]] = set()
        metrics.watch(self)

    def _threads(self, most: int, name: str) -> ThreadPoolExecutor:
        """Return a pool, which makes its threads one by one as they are needed. Their log lines name the tenant."""
        return ThreadPoolExecutor(most, name, tenant_id.set, (self.tenant,))

    @property
    def sync(self) -> Log:
        return self.log.sync

    @property
    def is_ready(self) -> bool:
        """Return whether the daemon takes appends."""
        return (
            not self.is_leaving
            and not self.stopping.is_set()
            and self.disk is not DiskState.FULL
            and not self.sync.is_poisoned
        )

    def start(self) -> None:
        """Start the background tasks in the running event loop."""
        tenant_id.set(self.tenant)
        for name, look in (
            ("disk", self._look_at_disk),
            ("upkeep", self._look_after),
            ("offload", self._look_at_topics),
            ("sync", self._look_at_replicas),
            ("gc", self._look_at_garbage),
            ("erase", self._look_at_deleted),
        ):
            self._tasks.append(asyncio.create_task(self._repeat(name, look), name=f"seglog-{name}"))
        if self.aws is not None:
            self.aws.start(self.events)

    async def opened(self) -> None:
        """Return: the log is open."""

    async def ended(self) -> None:
        """Return: the service has no sockets of its own."""

    async def close(self) -> None:
        """Stop running work at its next step, then close the archive and the log (DAEMON-3). Idempotent."""
        self.stopping.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._running, return_exceptions=True)
        self._tasks.clear()
        for pool in (
            self._jobs,
            self._upkeep,
            self._syncs,
            self._gc,
            self.commands,
            self.local,
            self.hot_reads,
            self.cold_reads,
        ):
            pool.shutdown(wait=False, cancel_futures=True)
        if self.archive is not None:
            await asyncio.to_thread(self.archive.close)
        if self.aws is not None:
            await self.aws.close()
        await self.log.close()

    def reload(self, variables: Mapping[str, str]) -> None:
        """Read the settings of the daemon, the offload and the catalog from seglog.toml again.

        If a setting is invalid, the daemon logs the error and changes no setting. Settings that bind at the start stay:
        the address, the section [log], and the remote. So do the checksum, storage class and encryption of
        objects.
        """
        path = self.sync.path / SETTINGS_FILE
        try:
            loaded = _Reloadable.of(read_settings(path, variables).for_tenant(self.tenant))
        except Exception as error:
            _log.error("the settings stay as they are: %s", error)
            return
        self.settings, self._catalog_settings, self._offload_settings = loaded.serve, loaded.catalog, loaded.offload
        if self.archive is not None:
            self.archive.change_settings(loaded.offload)
        self._rates.change(loaded.offload)
        self.quota.change(loaded.tenant)
        _log.info("settings taken from %s", path)

    # ------------------------------------------------------------ calls from other modules

    def work(self, name: str) -> TopicWork:
        return self._topics.setdefault(name, TopicWork())

    def retry(self, name: str) -> None:
        """Let the daemon try the topic at its next look, whatever the number of failures."""
        work = self.work(name)
        work.failures, work.delay_ms = 0, 0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def incarnation(self, name: str) -> str | None:
        """Return the incarnation of a topic (`Topic.incarnation`); None if there is no such topic, or the disk fails.

        The first call makes the log's id, durably, so a thread makes it.
        """
        try:
            topic = self.sync.topic(name)
            if not self._has_log_id:
                topic = self.sync.get_topic(name)
                await self._in(self.local, topic.incarnation)
                self._has_log_id = True
            return topic.incarnation()
        except (InvalidTopicName, NoSuchTopic):
            return None
        except (OSError, SeglogError) as error:
            # An answer that says that records are in must not become an error.
            _log.warning("%s: an answer has no seglog-incarnation: %s", name, error)
            return None

    def figures(self) -> Iterator[TopicFigures]:
        """Yield the figures of each topic, for the metrics. Asks the local disk only."""
        self.metrics.wal_bytes.set(self.sync.wal_bytes)
        for name in self.sync.topics():
            topic = self.sync.topic(name)
            offloaded_seq = self.archive.status.offloaded_seq(name) if self.archive else topic.head_seq
            waiting = [each for each in topic.segments() if each.sealed and each.last_seq > offloaded_seq]
            lag_ms = self._clock.now_ms() - waiting[0].min_ts_ms if waiting else 0
            yield TopicFigures(
                topic=name,
                earliest_seq=topic.earliest_seq,
                head_seq=topic.head_seq,
                hot_bytes=topic.bytes_hot,
                forgotten_producers=topic.forgotten_producers,
                keys=topic.known_keys,
                lag_bytes=sum(segment.data_bytes for segment in waiting),
                lag_s=max(0, lag_ms) / 1000,
                is_paused=self.archive is not None and self.archive.status.is_paused(name),
                is_diverged=self.archive is not None and self.archive.status.is_diverged(name),
                offloaded_at_ms=self.runs.succeeded_at_ms(name),
                kept_from_ms=None if self.archive is None else self.archive.status.kept_from_ms(name),
            )

    def replica_figures(self) -> Iterator[ReplicaFigures]:
        now_ms = self._clock.now_ms()
        for name, at_ms in list(self._fresh_at_ms.items()):
            yield ReplicaFigures(name, max(0, now_ms - at_ms) / 1000)

    def live_workers(self) -> int:
        return 0 if self._workers is None else self._workers.live

    def cache_counts(self) -> Iterator[tuple[str, int, int]]:
        return iter(()) if self.archive is None else self.archive.cache_counts()

    # ------------------------------------------------------------ background

    async def _repeat(self, name: str, look: Any) -> None:
        while True:
            try:
                await look()
            except Exception as error:
                self.metrics.failures.labels(name).inc()
                _log.exception("%s failed, and is tried again: %s", name, error)
            await asyncio.sleep(self.settings.check_interval_ms / 1000)

    async def _look_at_disk(self) -> None:
        if self.quota.most_bytes is not None:
            since_bytes = self.quota.since_bytes
            self.quota.looked(await self._in(self._upkeep, self._hot_bytes), since_bytes)
        found = await self._in(self._upkeep, os.statvfs, self.sync.path)
        free_bytes = found.f_bavail * found.f_frsize
        settings = self.settings
        state = disk_state(free_bytes, self.disk, settings.disk_alarm_bytes, settings.disk_reject_bytes)
        self.metrics.disk_free_bytes.set(free_bytes)
        self.metrics.disk_state.set(state.value)
        if state is self.disk:
            return
        _log.log(
            logging.INFO if state is DiskState.FINE else logging.WARNING,
            "the disk of %s is %s: %d bytes free", self.sync.path, state.name.lower(), free_bytes,
        )  # fmt: skip
        self.disk = state
        self.events.publish("disk", state=state.name.lower(), free_bytes=free_bytes)
        full = f"the disk has only {free_bytes} bytes left, and serve.disk_reject_bytes is {settings.disk_reject_bytes}"
        self.sync.hold_appends(full if state is DiskState.FULL else None)

    def _hot_bytes(self) -> int:
        return sum(self.sync.topic(name).bytes_hot for name in self.sync.topics())

    async def _look_after(self) -> None:
        found = await self._in(self._upkeep, self.sync.enforce_retention)
        archive = self.archive
        if archive is None:
            return
        now_ms = self._clock.now_ms()
        if is_over(self._collected_at_ms, _LOCAL_GC_INTERVAL_MS, now_ms):
            self._collected_at_ms = now_ms
            await self._in(self._upkeep, archive.upkeep.drop_copies)
        for name in await self._in(self._upkeep, self._releasable, archive, found):
            if self.work(name).is_running or self.stopping.is_set() or archive.status.is_diverged(name):
                continue
            try:
                await self._in(self._upkeep, self._release, archive, name)
            except Exception as error:
                self.metrics.failures.labels("release").inc()
                self._warn(name, "hot copies stay for now", error)

    def _releasable(self, archive: Archive, found: list[Retention]) -> list[str]:
        """Return the topics with hot copies that may go: by the lag, by retention, or as the disk is full."""
        lag_s = self._offload_settings.deletion_lag_s if self.disk is DiskState.FINE else 0
        waiting = {each.topic for each in found if each.waiting_seq}
        hot = archive.status.with_hot_copies() if waiting else set()
        return sorted(archive.status.with_hot_copies(lag_s) | (waiting & hot))

    def _release(self, archive: Archive, name: str) -> None:
        archive.release(name, at_once=self.disk is not DiskState.FINE)

    async def _look_at_replicas(self) -> None:
        archive, interval_s = self.archive, self._catalog_settings.sync_interval_s
        if archive is None or not isinstance(interval_s, int):
            return
        now_ms = self._clock.now_ms()
        names = await self._in(self._syncs, archive.replication.replicas)
        # A replica that never synced here lags since the daemon found it.
        self._fresh_at_ms = {name: self._fresh_at_ms.get(name, now_ms) for name in names}
        due = [
            name
            for name in names
            if is_over(self._synced_at_ms.get(name, 0), interval_s * 1000, now_ms)
            and not archive.status.is_diverged(name)
        ]
        await asyncio.gather(*(self._sync(archive, name) for name in due))

    async def _sync(self, archive: Archive, name: str) -> None:
        self._synced_at_ms[name] = self._clock.now_ms()
        try:
            await self._in(self._syncs, archive.replication.follow, name)
        except Exception as error:
            self.metrics.failures.labels("sync").inc()
            self._warn(name, "stays at what was heard of last", error)
        else:
            self.work(name).last_error = None
            self._fresh_at_ms[name] = self._clock.now_ms()

    async def _look_at_garbage(self) -> None:
        archive, interval_s = self.archive, self._catalog_settings.gc_interval_s
        now_ms = self._clock.now_ms()
        if archive is None or not isinstance(interval_s, int):
            return
        if not is_over(self._gc_at_ms, interval_s * 1000, now_ms):
            return
        self._gc_at_ms = now_ms
        outcome, deleted, deleted_bytes = "failed", 0, 0
        try:
            report = await self._in(self._gc, archive.upkeep.collect)
            outcome = "blocked" if report.blocked else "done"
            deleted, deleted_bytes = report.deleted.total(), report.deleted_bytes
            self.metrics.collected(report.deleted, report.deleted_bytes)
            self.metrics.gc_done_at_s.set(self._clock.now_ms() / 1000)
            for vid, reason in report.blocked.items():
                _log.error("gc leaves volume %s alone: %s", vid, reason)
            _log.info("gc deleted %s and planned %s", dict(report.deleted), dict(report.planned))
        finally:
            self.metrics.gc_runs.labels(outcome).inc()
            self.events.publish("gc", outcome=outcome, deleted=deleted, deleted_bytes=deleted_bytes)

    async def _look_at_deleted(self) -> None:
        archive, interval_s = self.archive, self._catalog_settings.erase_interval_s
        now_ms = self._clock.now_ms()
        if archive is None or not isinstance(interval_s, int):
            return
        if not is_over(self._erased_at_ms, interval_s * 1000, now_ms):
            return
        self._erased_at_ms = now_ms
        for name in self.sync.topics():
            if self.stopping.is_set():
                return
            try:
                if not (archive.status.is_paused(name) or archive.status.is_diverged(name)):
                    await self._in(self._gc, self._erase, archive, name)
            except Stopping:
                return
            except Exception as error:
                self.metrics.failures.labels("erase").inc()
                self._warn(name, "deleted records stay in their objects for now", error)

    def _erase(self, archive: Archive, name: str) -> None:
        archive.upkeep.erase(name, on_bytes=self._on_bytes)

    async def _look_at_topics(self) -> None:
        if self.archive is None:
            return
        for name, wanted in await self._in(self._upkeep, self._all_due, self.archive):
            if self.stopping.is_set():
                return
            work = self.work(name)
            work.is_running = True
            if wanted.seal:
                self._seals.want(name)
            task = asyncio.create_task(self._offload(self.archive, name, work, wanted))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _all_due(self, archive: Archive) -> list[tuple[str, Due]]:
        found = []
        versions, offload_versions, now_ms = self.sync.versions(), archive.status.versions(), self._clock.now_ms()
        self._rests.begin_pass(versions.keys(), self._offload_settings, self.disk)
        for name, changes in sorted(versions.items()):
            version = (*changes, offload_versions.get(name, 0))
            if self._rests.lasts(name, version, now_ms):
                continue
            work = self.work(name)
            if work.is_running or work.wait_ms(self._clock.now_ms()):
                continue
            try:
                wanted = self._due(archive, name, work, version)
            except NoSuchTopic:  # deleted meanwhile
                continue
            except Exception as error:
                self._put_off(name, work, error)
                continue
            if wanted is not None:
                found.append((name, wanted))
        return found

    def _due(self, archive: Archive, name: str, work: TopicWork, version: tuple[object, ...]) -> Due | None:
        """Return the offload that is due. If there is none, the topic rests."""
        topic, now_ms = self.sync.topic(name), self._clock.now_ms()
        if archive.status.is_paused(name) or archive.status.is_diverged(name) or topic.config.durability == "ephemeral":
            self._rests.put(name, Rest(version, now_ms, None))
            return None
        offloaded_seq, sealed_seq, head_seq = archive.status.offloaded_seq(name), topic.sealed_seq, topic.head_seq
        if head_seq <= sealed_seq:
            work.unsealed_since_ms = None
        elif work.unsealed_since_ms is None or work.unsealed_from_seq <= sealed_seq:
            work.unsealed_since_ms, work.unsealed_from_seq = self._clock.now_ms(), sealed_seq + 1
        backlog = Backlog(
            sealed=[segment for segment in topic.segments() if segment.sealed and segment.last_seq > offloaded_seq],
            offloaded_seq=offloaded_seq,
            head_seq=head_seq,
            unsealed_since_ms=work.unsealed_since_ms,
            is_unfinished=archive.status.is_unfinished(name),
        )
        policy = policy_of(self._offload_settings, topic.config.attributes)
        if self.disk is not DiskState.FINE:
            policy = replace(policy, after_ms=0, hot_bytes=0)
        wanted = due(backlog, policy, now_ms)
        if wanted is None:
            self._rests.put(name, Rest(version, now_ms, next_due_ms(backlog, policy)))
        return wanted

    async def _offload(self, archive: Archive, name: str, work: TopicWork, wanted: Due) -> None:
        try:
            published = await self._in(self._jobs, self._run, archive, name, wanted)
            offloaded_seq = archive.status.offloaded_seq(name)
            if published:
                _log.info("%s: offloaded up to seq %d (%s)", name, offloaded_seq, wanted.reason)
            work.failures, work.last_error = 0, None
            self.runs.done(name, offloaded_seq, is_published=published)
        except Stopping as stop:
            self.runs.failed(name, stop)
        except Exception as error:
            self._put_off(name, work, error)
            self.runs.failed(name, error)
        finally:
            work.is_running = False

    def _put_off(self, name: str, work: TopicWork, error: Exception) -> None:
        """Record a failed offload of a topic, and how long the topic waits before the next try (DAEMON-2)."""
        work.failures += 1
        settings = self._offload_settings
        backoff = Backoff(settings.retry_min_s * 1000, settings.retry_max_s * 1000)
        delay_ms = backoff.delay_ms(work.failures, random.random())
        work.failed_at_ms, work.delay_ms = self._clock.now_ms(), delay_ms
        self._warn(name, f"offload failed, next try in {delay_ms / 1000:.1f} s", error)
        work.last_error = str(error)

    def _warn(self, name: str, what: str, error: Exception) -> None:
        """Log a failure, with the next step. A divergence lasts, so only the first work that meets it logs.

        The same holds for a name that leads to no volume or to another one.
        """
        if isinstance(error, (Diverged, OtherRemote)):
            if self.work(name).last_error == str(error):
                return
            self.work(name).last_error = str(error)
        hint = getattr(error, "hint", None)
        _log.warning("%s: %s: %s%s", name, what, error, f". {hint}" if hint else "")

    def _run(self, archive: Archive, name: str, wanted: Due) -> bool:
        up_to = wanted.up_to
        if wanted.seal:
            # The sealed segments also hold the records appended since `due` ran. The offload takes them too.
            self._seals.seal(self.sync, name)
            up_to = max(up_to, self.sync.topic(name).sealed_seq)
        result = archive.offload(name, up_to=up_to, on_bytes=self._on_bytes)
        if result.published:
            archive.upkeep.compact(name, on_bytes=self._on_bytes)
        return bool(result.published)

    def _on_bytes(self, count: int) -> None:
        if self.stopping.is_set():
            raise Stopping
        self.metrics.offloaded_bytes.inc(count)

    async def _in(self, pool: ThreadPoolExecutor, work: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)


@dataclass(slots=True)
class _Rates:
    """The limits of requests and uploads, which may change while requests wait."""

    requests: Rate
    uploads: Rate
    stopping: StopEvent = field(default_factory=StopEvent)

    def change(self, settings: OffloadSettings) -> None:
        self.requests.change(_per_s(settings.requests_per_s))
        self.uploads.change(_per_s(settings.upload_bytes_per_s))


async def open_service(
    directory: Path,
    settings: Settings,
    *,
    remote: str | None = None,
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    is_alone: bool = True,
    files: Files | None = None,
    refresher: Callable[[], Refresher] | None = None,
) -> Service:
    """Open the data directory, and attach its remote if it has one. The background tasks do not run yet.

    `is_alone` says that the process has no other service (`Metrics`). `files` is the file system of the log, instead of
    the operating system's with its metrics. All services of a process may share what `refresher` returns: it renews the
    credentials of their tenants.

    Raises the errors of `seglog.open` and `offload.attach`, and then leaves nothing open.
    """
    url, loaded = remote or settings.url, _Reloadable.of(settings)
    metrics = Metrics(settings.tenant.name, is_alone=is_alone)
    clock = clock or SystemClock()
    log = aio.open(directory, create=False, settings=settings.log, files=files or MeteredFiles(metrics), clock=clock)
    await log.__aenter__()
    aws: TenantAws | None = None
    try:
        stopping = StopEvent()
        rates = _Rates(
            requests=Rate(_per_s(loaded.offload.requests_per_s), stopping),
            uploads=Rate(_per_s(loaded.offload.upload_bytes_per_s), stopping),
            stopping=stopping,
        )
        archive = pool = None
        if store is not None or url:
            cold = settings.cold
            if store is None:
                check_remote_apart(url or "", log.sync.path)
                aws = open_aws(settings, url, metrics, refresher)
            credentials = None if aws is None else aws.credentials
            inner = store or open_store(url or "", cold, loaded.offload, credentials)
            gate = Gate(metrics, rates.requests, rates.uploads)
            # Worker processes open a store by its URL. Uploads to a store that the caller gives stay in this process.
            pool = (
                WorkerPool(inner.url, cold, loaded.offload, gate, credentials=credentials)
                if loaded.offload.worker == PROCESS and store is None
                else None
            )
            archive = offload.attach(
                log.sync,
                url,
                store=GatedStore(inner, gate),
                settings=settings,
                clock=clock,
                uploader=pool,
            )
        return Service(log, archive, loaded, metrics, clock, rates, pool, aws)
    except BaseException:
        if aws is not None:
            await aws.close()
        await log.close()
        raise


def _per_s(limit: int | str) -> float | None:
    return float(limit) if isinstance(limit, int) else None
