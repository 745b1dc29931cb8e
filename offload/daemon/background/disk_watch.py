"""The task `disk`: it looks at the free space, also for the log, and counts the hot bytes for the quota of a tenant.

The log itself refuses appends before the disk is full (seglog.engine.room). Its own looks come with its appends, and
another program may fill the disk faster.
"""

from __future__ import annotations

import logging
import os

from offload.daemon.background.context import TaskContext
from offload.daemon.disk import DiskState, disk_state
from offload.daemon.quota import Quota
from offload.daemon.threads import in_threads

__all__ = ["DiskWatch"]

_log = logging.getLogger("seglog.daemon")


class DiskWatch:
    """The watch over the disk of one data directory. `state` is the result of the last look."""

    def __init__(self, context: TaskContext, quota: Quota) -> None:
        self.state = DiskState.FINE
        self._context = context
        self._quota = quota
        self._threads = context.threads.pool(1, "seglog-disk")

    async def look(self) -> None:
        await self._count_hot_bytes()
        context, loaded = self._context, self._context.settings()
        settings, reject_bytes = loaded.serve, loaded.disk_reject_bytes
        free_bytes = await in_threads(self._threads, self._free_bytes, reject_bytes)
        state = disk_state(free_bytes, self.state, settings.disk_alarm_bytes, reject_bytes)
        context.metrics.disk_free_bytes.set(free_bytes)
        context.metrics.disk_state.set(state.value)
        if state is not self.state:
            self._change(state, free_bytes)

    def _free_bytes(self, reject_bytes: int) -> int:
        log = self._context.log
        log.disk_reject_bytes = reject_bytes  # also looks at the disk
        found = os.statvfs(log.path)
        return found.f_bavail * found.f_frsize

    async def _count_hot_bytes(self) -> None:
        if self._quota.most_bytes is not None:
            since_bytes = self._quota.since_bytes
            self._quota.looked(await in_threads(self._threads, self._hot_bytes), since_bytes)

    def _hot_bytes(self) -> int:
        log = self._context.log
        return sum(log.topic(name).bytes_hot for name in log.topics())

    def _change(self, state: DiskState, free_bytes: int) -> None:
        log = self._context.log
        _log.log(
            logging.INFO if state is DiskState.FINE else logging.WARNING,
            "the disk of %s is %s: %d bytes free", log.path, state.name.lower(), free_bytes,
        )  # fmt: skip
        self.state = state
        self._context.events.publish("disk", state=state.name.lower(), free_bytes=free_bytes)
