"""The task `sync`: it looks for new commits of the topics that this directory follows and does not write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from offload.archive import Archive
from offload.daemon.background.context import TaskContext
from offload.daemon.background.triggers import is_over
from offload.daemon.figures import ReplicaFigures
from offload.daemon.threads import in_threads
from offload.errors import Stopping

__all__ = ["Replicas"]

_AT_ONCE = 4


class Replicas:
    """The topics that one data directory follows."""

    def __init__(self, context: TaskContext, archive: Archive) -> None:
        self._context = context
        self._archive = archive
        self._threads = context.threads.pool(_AT_ONCE, "seglog-replica")
        self._synced_at_ms: dict[str, int] = {}
        self._fresh_at_ms: dict[str, int] = {}  # of each replica, when its last sync succeeded

    async def look(self) -> None:
        interval_s = self._context.settings().catalog.sync_interval_s
        if not isinstance(interval_s, int):
            return
        now_ms = self._context.now_ms()
        names = await in_threads(self._threads, self._archive.replication.replicas)
        # A replica that never synced here lags since the daemon found it.
        self._fresh_at_ms = {name: self._fresh_at_ms.get(name, now_ms) for name in names}
        self._synced_at_ms = {name: self._synced_at_ms.get(name, 0) for name in names}
        due = [
            name
            for name in names
            if is_over(self._synced_at_ms[name], interval_s * 1000, now_ms)
            and not self._archive.status.is_diverged(name)
        ]
        await asyncio.gather(*map(self._sync, due))

    async def _sync(self, name: str) -> None:
        context = self._context
        self._synced_at_ms[name] = context.now_ms()
        try:
            await in_threads(self._threads, self._follow, name)
        except Stopping:
            return
        except Exception as error:
            context.metrics.failures.labels("sync").inc()
            context.works.warn(name, "the replica stays at the last commit that it knows", error)
        else:
            context.works.of(name).last_error = None
            self._fresh_at_ms[name] = context.now_ms()

    def _follow(self, name: str) -> None:
        if self._context.stopping.is_set():  # this sync may have waited for its thread since then
            raise Stopping
        self._archive.replication.follow(name)

    def figures(self) -> Iterator[ReplicaFigures]:
        """Yield the lag of each replica, for the metrics."""
        now_ms = self._context.now_ms()
        for name, at_ms in list(self._fresh_at_ms.items()):
            yield ReplicaFigures(name, max(0, now_ms - at_ms) / 1000)
