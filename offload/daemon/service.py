"""An open data directory as a service: its log and archive, the threads of its requests, and its background tasks."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import offload
from catalog.objects.object_store import ObjectStore
from offload.archive import Archive
from offload.daemon.asgi import tenant_id
from offload.daemon.background import Background
from offload.daemon.background.context import LiveSettings, TaskContext
from offload.daemon.background.disk import DiskState
from offload.daemon.background.topic_work import TopicWorks
from offload.daemon.cursors import Cursors
from offload.daemon.events import Events
from offload.daemon.feeds import Feeds
from offload.daemon.figures import DirectoryFigures
from offload.daemon.metrics import MeteredFiles, Metrics
from offload.daemon.offload_outcomes import Runs
from offload.daemon.past_topic import PastTopic
from offload.daemon.problems import RETRY_AFTER_S
from offload.daemon.proxy import ProxyObjects
from offload.daemon.queues import Queues
from offload.daemon.quota import Quota
from offload.daemon.routers import Routers
from offload.daemon.scheduler.slots import Slots
from offload.daemon.stopping import StopEvent
from offload.daemon.store_gate import Gate, GatedStore
from offload.daemon.tenant_aws import TenantAws, open_aws
from offload.daemon.threads import Threads, in_threads
from offload.errors import Busy
from offload.read.chunk_cache import open_cache
from offload.replica_topic import ReplicaTopic
from offload.settings import PROCESS, ServeSettings, Settings, read_settings
from offload.wiring import check_remote_apart, open_store
from offload.worker.pool import WorkerPool
from seglog import SETTINGS_FILE, InvalidName, Log, NoSuchTopic, SeglogError, Topic, aio
from seglog.files.clock import Clock, SystemClock
from seglog.files.file_system import Files
from seglog.interrupts import closing_after

if TYPE_CHECKING:
    from catalog.objects.s3_credentials import CredentialSource
    from offload.tenants.credentials import Refresher

_log = logging.getLogger("seglog.daemon")
_READ_THREADS = 8
_COLD_READ_THREADS = 16
_LOCAL_THREADS = 4
_ROUTER_THREADS = 4
_CLOSE_ARCHIVE_S = 2.0
_LEAST_CLOSE_S = 0.2


class Service:
    """The open log with its background tasks, in one event loop. Blocking work runs in threads.

    Make it with `open_service`.
    """

    def __init__(
        self,
        log: aio.AsyncLog,
        archive: Archive | None,
        loaded: LiveSettings,
        metrics: Metrics,
        clock: Clock,
        stopping: StopEvent,
        gate: Gate,
        workers: WorkerPool | None = None,
        aws: TenantAws | None = None,
        objects: ProxyObjects | None = None,
        slots: Slots | None = None,
    ) -> None:
        self.log = log
        self.archive = archive
        self.objects = objects  # those of the remote, for the clients of a proxy
        self.tenant = metrics.tenant  # empty for a directory without one
        self.aws = aws
        self.metrics = metrics
        self.now_ms = clock.now_ms
        self.quota = Quota(loaded.tenant, metrics.count_rejected)
        self.stopping = stopping
        self.is_leaving = False  # the daemon stops soon: it is not ready, and still takes requests
        self.events = Events(clock.now_ms, metrics.lost_events.inc)
        self.stopping.listen(self.events.wake)
        self._stopped_s = 0.0
        self.stopping.listen(self._note_stop)
        self.works = TopicWorks(lambda: self._loaded.offload, clock.now_ms)
        self.runs = Runs(metrics, self.events, stopping, self.works, clock.now_ms)
        self._threads = Threads(self.tenant)
        # One thread for each command, as a command may follow for days. A command beyond the limit gets `Busy` at once.
        self.commands = self._threads.pool(loaded.serve.max_requests, "seglog-command")
        self.free_commands = threading.BoundedSemaphore(loaded.serve.max_requests)
        self.local = self._threads.pool(_LOCAL_THREADS, "seglog-local")  # short work on the local disk only
        self.hot_reads = self._threads.pool(_READ_THREADS, "seglog-read")
        self.cold_reads = self._threads.pool(_COLD_READ_THREADS, "seglog-cold")
        slots = slots or Slots(lambda: self.settings.delivery_slots)
        ready = slots.ready_set(lambda: self._threads.busy_share(self.hot_reads))
        cold_slots = Slots(lambda: self.settings.delivery_slots)  # (SLOT-6)
        cold_ready = cold_slots.ready_set(lambda: self._threads.busy_share(self.cold_reads))
        late = metrics.late_followers.inc
        self.feeds = Feeds(self.hot_reads, self.stopping, self.cold_reads, ready, late, cold_ready)
        metrics.watch_delivery(ready, cold_ready)
        log.queue.group_wait_s = ready.group_wait_s
        self.cursors = Cursors(self)
        self.queues = Queues(self)
        self.routers = Routers(self, self._threads.pool(_ROUTER_THREADS, "seglog-router"))
        self._loaded = loaded
        self._gate = gate
        self._has_log_id = False
        self._closing: threading.Thread | None = None
        context = TaskContext(
            log=self.sync,
            settings=lambda: self._loaded,
            now_ms=clock.now_ms,
            stopping=stopping,
            threads=self._threads,
            metrics=metrics,
            events=self.events,
            runs=self.runs,
            works=self.works,
        )
        self._background = Background(context, archive, self.quota)
        if archive is not None:
            self.stopping.listen(archive.replication.end_waits)
        self._be_proxy()
        replicas = self._background.replica_figures
        metrics.watch(DirectoryFigures(self.sync, archive, self.works, workers, replicas, clock.now_ms))

    @property
    def sync(self) -> Log:
        return self.log.sync

    @property
    def settings(self) -> ServeSettings:
        return self._loaded.serve

    @property
    def looks_within_ms(self) -> int:
        """Return the time within which the daemon looks again at a topic that it follows, if nothing is slow."""
        return 2 * (int(self._loaded.catalog.sync_interval_s) * 1000 + self.settings.check_interval_ms)

    @property
    def disk(self) -> DiskState:
        return self._background.disk.state

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
        self._background.start()
        self.cursors.start()
        self.queues.start()
        self.routers.start()
        if self.aws is not None:
            self.aws.start(self.events)

    def repeat(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        """Let the background look at one more thing, as at its own. `name` is that of the task in logs and metrics."""
        self._background.add(name, look)

    async def opened(self) -> None:
        """Return: the log is open."""

    async def ended(self) -> None:
        """Return: the service has no sockets of its own."""

    @property
    def has_work(self) -> bool:
        """Return whether a thread still works, for example as it waits for a store that does not answer."""
        return self._threads.has_work or (self._closing is not None and self._closing.is_alive())

    async def close(self) -> None:
        """Stop running work at its next step, then close the archive and the log (DAEMON-3). Idempotent.

        From the stop on, the service waits `stop_timeout_s` for calls of the store, and two seconds more for the
        archive. Then it closes the log without them, and `has_work` is True.
        """
        self.stopping.set()
        await self.routers.close()
        await self._background.close(self._left_s())
        self._gate.close()
        await self._threads.close(self._left_s())
        try:
            if self.archive is not None:
                await self._close_archive(self.archive, max(_LEAST_CLOSE_S, self._left_s(_CLOSE_ARCHIVE_S)))
            if self.aws is not None:
                await self.aws.close()
        finally:
            with closing_after(sys.exc_info()[1]):
                await self.log.close()
        if self.has_work:
            _log.warning("the store has not answered: what waits for it stays on record, and the next start continues")

    async def _close_archive(self, archive: Archive, patience_s: float) -> None:
        """Close the archive in a thread of its own, and wait `patience_s` at most: its readers may hang."""
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def close() -> None:
            try:
                archive.close()
                if self.objects is not None:
                    self.objects.close()
            except Exception as error:
                _log.error("the archive was not closed well: %s", error)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(closed.set)

        self._closing = threading.Thread(target=close, name="seglog-archive-close", daemon=True)
        self._closing.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await closed.wait()
                self._closing.join()  # it has nothing left to do, and `has_work` would still see it

    def _note_stop(self) -> None:
        self._stopped_s = time.monotonic()

    def _left_s(self, more_s: float = 0.0) -> float:
        """Return the time from now to the end of the stop, and `more_s`."""
        return max(0.0, self._stopped_s + self.settings.stop_timeout_s + more_s - time.monotonic())

    def _be_proxy(self) -> None:
        """Open the cache, and let the archive take nothing over at a first append, if this daemon is a proxy."""
        if self.archive is not None:
            self.archive.replication.keep_following(is_on=self.settings.proxy)
        if self.objects is not None and self.settings.proxy:
            self.objects.open()

    def reload(self, variables: Mapping[str, str]) -> None:
        """Read the settings of the daemon, the offload and the catalog from seglog.toml again.

        If a setting is invalid, the daemon logs the error and changes no setting. Settings that bind at the start stay:
        the address, the section [log], and the remote. So do the checksum, storage class and encryption of
        objects.
        """
        path = self.sync.path / SETTINGS_FILE
        try:
            loaded = LiveSettings.of(read_settings(path, variables).for_tenant(self.tenant))
        except Exception as error:
            _log.error("the settings stay as they are: %s", error)
            return
        self._loaded = loaded
        self._be_proxy()
        if self.archive is not None:
            self.archive.change_settings(loaded.offload)
        self._gate.change(loaded.offload)
        self.quota.change(loaded.tenant)
        _log.info("settings taken from %s", path)

    def check_pressure(self) -> None:
        """Raise `Busy` at pressure 1, while appends of `log.queue_max_bytes` wait (APPEND-5)."""
        if self.log.queue.is_full and self.feeds.ready.is_full:
            self.metrics.count_rejected("pressure")
            raise Busy(RETRY_AFTER_S, "log.queue_max_bytes, at pressure 1")

    def read_threads(self, topic: Topic | ReplicaTopic | PastTopic, first: int) -> ThreadPoolExecutor:
        """Return the threads for a read from seq `first` on: cold ones below the hot floor, else hot ones (HTTP-2)."""
        is_cold = not isinstance(topic, Topic) or first < topic.inner.hot_floor
        return self.cold_reads if is_cold else self.hot_reads

    async def incarnation(self, name: str) -> str | None:
        """Return the incarnation of a topic (`Topic.incarnation`); None if there is no such topic, or the disk fails.

        The first call makes the log's id, durably, so a thread makes it.
        """
        try:
            topic = self.sync.topic(name)
            if not self._has_log_id:
                topic = self.sync.get_topic(name)
                await in_threads(self.local, topic.incarnation)
                self._has_log_id = True
            return topic.incarnation()
        except (InvalidName, NoSuchTopic):
            return None
        except (OSError, SeglogError) as error:
            # An answer that says that records are in must not become an error.
            _log.warning("%s: an answer has no seglog-incarnation: %s", name, error)
            return None


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
    slots: Slots | None = None,
) -> Service:
    """Open the data directory, and attach its remote if it has one. The background tasks do not run yet.

    `is_alone` says that the process has no other service (`Metrics`). `files` is the file system of the log, instead of
    the operating system's with its metrics. All services of a process may share what `refresher` returns: it renews the
    credentials of their tenants. So they share `slots`, in which their feeds read.

    Raises the errors of `seglog.open` and `offload.attach`, and then leaves nothing open.
    """
    url, loaded = remote or settings.url, LiveSettings.of(settings)
    metrics, stopping, clock = Metrics(settings.tenant.name, is_alone=is_alone), StopEvent(), clock or SystemClock()
    files = files or MeteredFiles(metrics)
    async with AsyncExitStack() as stack:
        log = await stack.enter_async_context(
            aio.open(directory, create=False, settings=settings.log, files=files, clock=clock)
        )
        gate = Gate.of(metrics, loaded.offload, stopping)
        archive = workers = aws = objects = None
        if store is None and url:
            check_remote_apart(url, log.sync.path)
            aws = open_aws(settings, url, metrics, refresher)
            if aws is not None:
                stack.push_async_callback(aws.close)
            credentials = None if aws is None else aws.credentials
            store = open_store(url, settings.cold, loaded.offload, credentials)
            workers = _workers(store, settings, gate, credentials, None if is_alone else 1)
        if store is not None:
            gated = GatedStore(store, gate)
            archive = offload.attach(log.sync, url, store=gated, settings=settings, clock=clock, uploader=workers)
            place, most = settings.cold.place_of_cache(log.sync.path) / "proxy", settings.cold.cache_bytes
            objects = ProxyObjects(gated, lambda: open_cache(place, most))
        service = Service(log, archive, loaded, metrics, clock, stopping, gate, workers, aws, objects, slots)
        stack.pop_all()
        return service


def _workers(
    store: ObjectStore, settings: Settings, gate: Gate, credentials: CredentialSource | None, most: int | None
) -> WorkerPool | None:
    """Return the worker processes for uploads; None if the settings want uploads in this process.

    A worker opens the store by its URL. So uploads to a store that the caller gives stay in this process.
    """
    if settings.offload.worker != PROCESS:
        return None
    return WorkerPool(store.url, settings.cold, settings.offload, gate, credentials=credentials, most=most)
