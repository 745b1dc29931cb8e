"""The tasks that run in the background on an open data directory.

    task         every            does
    disk         check_interval   raises an alarm, and lets the log look at the free space (`background.disk`)
    upkeep       check_interval   seals by age, enforces retention
    release      check_interval   releases hot copies whose lag is over, topic by topic
    offload      check_interval   asks the triggers of each topic, and offloads the topics that are due, some at a time
    sync         sync_interval    looks for new commits of the topics that this directory follows and does not write
    names        12 sync_intervals  follows new names of the remote of a proxy, and forgets those that are gone
    gc           gc_interval      runs GC over the whole remote, in a thread of its own
    erase        erase_interval   rewrites objects that hold deleted records, topic by topic, in the thread of GC

    streams      check_interval   deletes streams that have expired, and ends deletions (offload.daemon.streams)

Without a remote, only the first two and the last one run.

DAEMON-1  No task waits for another. Each kind of work has its own threads. Slow work on one topic delays neither other
    topics nor appends. But beside other tenants, the uploads of one tenant take turns in its only upload process.
DAEMON-2  The daemon logs and counts a failure, and tries again. A topic's offload waits longer after each failure in a
    row (`Backoff`). No failure of one topic ends a task.
DAEMON-3  Once the daemon stops, no task looks again, and no work that waits for a thread begins. Running work stops at
    its next step. `close` waits for offloads, but no longer than its caller says: a store may never answer. Attempts
    stay on record, and the next start continues them.
DAEMON-5  If the remote is a proxy, and the directory follows few topics, one thread waits for the news of each. A wait
    that fails, or news that the sync does not find, let the next interval ask again. A stop ends the waits.
DAEMON-4  If the clock goes back, by whatever amount, no task and no retry stalls: each comes within its interval
    (TRIGGER-4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from offload.archive import Archive
from offload.daemon.background.context import TaskContext
from offload.daemon.background.disk import DiskWatch
from offload.daemon.background.offloads import Offloads
from offload.daemon.background.retention_sync_gc import Garbage, Replicas, Upkeep
from offload.daemon.figures import ReplicaFigures
from offload.daemon.quota import Quota
from offload.errors import Stopping
from seglog import SeglogError

__all__ = ["Background"]

_log = logging.getLogger("seglog.daemon")


class Background:
    """The background tasks of one service, in its event loop."""

    def __init__(self, context: TaskContext, archive: Archive | None, quota: Quota) -> None:
        self.disk = DiskWatch(context, quota)
        self._context = context
        self._offloads: Offloads | None = None
        self._replicas: Replicas | None = None
        self._tasks: list[asyncio.Task[None]] = []
        upkeep = Upkeep(context, archive, self.disk)
        self._looks: dict[str, Callable[[], Awaitable[None]]] = {"disk": self.disk.look, "upkeep": upkeep.look}
        if archive is not None:
            self._offloads = Offloads(context, archive, self.disk)
            self._replicas = Replicas(context, archive)
            garbage = Garbage(context, archive)
            self._looks |= {
                "release": partial(upkeep.release, archive),
                "offload": self._offloads.look,
                "sync": self._replicas.look,
                "names": self._replicas.search,
                "gc": garbage.collect,
                "erase": garbage.erase,
            }

    def start(self) -> None:
        """Start the tasks in the running event loop."""
        self._tasks = [self._task(name, look) for name, look in self._looks.items()]

    def add(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        """Add a task. If the others run, it starts at once."""
        self._looks[name] = look
        if self._tasks:
            self._tasks.append(self._task(name, look))

    async def close(self, patience_s: float) -> None:
        """End the tasks, and return when no offload runs, or after `patience_s`.

        The caller sets `stopping` before (DAEMON-3). Idempotent.
        """
        for task in self._tasks:
            task.cancel()
        if self._replicas is not None:
            self._replicas.end_waits()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._offloads is not None:
            await self._offloads.ended(patience_s)
        self._tasks.clear()

    def replica_figures(self) -> Iterator[ReplicaFigures]:
        return iter(()) if self._replicas is None else self._replicas.figures()

    def _task(self, name: str, look: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(self._repeat(name, look), name=f"seglog-{name}")

    async def _repeat(self, name: str, look: Callable[[], Awaitable[None]]) -> None:
        while not self._context.stopping.is_set():
            try:
                await look()
            except Stopping:
                return
            except Exception as error:
                self._context.metrics.failures.labels(name).inc()
                is_ours = isinstance(error, SeglogError)
                _log.error("%s failed, and is tried again: %s", name, error, exc_info=None if is_ours else error)
            await asyncio.sleep(self._context.settings().serve.check_interval_ms / 1000)
