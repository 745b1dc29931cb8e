"""The tasks `gc` and `erase`: they share one thread, as both delete in the remote.

The first runs begin one interval after the start. Otherwise frequent restarts would run GC all the time.
"""

from __future__ import annotations

import logging

from offload.archive import Archive
from offload.daemon.background.context import TaskContext
from offload.daemon.background.triggers import is_over
from offload.daemon.threads import in_threads
from offload.errors import Stopping

__all__ = ["Garbage"]

_log = logging.getLogger("seglog.daemon")


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
