"""The tasks `upkeep`, which seals segments by age and enforces retention, and `release`, which releases hot copies.

A release reads the remote copy back, and a store may take long to answer. So each release has the thread of releases.
"""

from __future__ import annotations

from offload.archive import Archive
from offload.daemon.background.context import TaskContext
from offload.daemon.background.disk_watch import DiskWatch
from offload.daemon.background.triggers import is_over
from offload.daemon.disk import DiskState
from offload.daemon.threads import in_threads
from offload.errors import Stopping

__all__ = ["Upkeep"]

_LOCAL_GC_INTERVAL_MS = 600_000


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
        found, archive = self._context.log.enforce_retention(), self._archive
        if archive is None:
            return []
        lag_s = self._context.settings().offload.deletion_lag_s if self._disk.state is DiskState.FINE else 0
        waiting = {each.topic for each in found if each.waiting_seq}
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
