"""The task `disk`: it decides the state of the local disk from its free bytes, and counts the hot bytes for the quota.

    free bytes                state     what the daemon does
    above `alarm`             fine      -
    below `alarm`             alarm     It offloads at once, whatever the triggers say. It deletes hot copies that are
                                        published and read back without waiting for the deletion lag.
    below `reject`            full      It is not ready. The log refuses appends, with an error that gives the reason,
                                        so that it can still write its own files.

The log itself refuses appends before the disk is full (seglog.engine.engine). Its own looks come with its appends, and
another program may fill the disk faster.

DISK-1  The daemon never deletes a record that is not offloaded to make room.
DISK-2  A state ends only when the free bytes exceed the bound that began it by a tenth. So the state does not flap.
"""

from __future__ import annotations

import enum
import logging
import os

from offload.daemon.background.context import TaskContext
from offload.daemon.quota import Quota
from offload.daemon.threads import in_threads

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
        usage = os.statvfs(log.path)
        return usage.f_bavail * usage.f_frsize

    async def _count_hot_bytes(self) -> None:
        if self._quota.most_bytes is not None:
            since_bytes = self._quota.since_bytes
            self._quota.looked(await in_threads(self._threads, self._hot_bytes), since_bytes)

    def _hot_bytes(self) -> int:
        log = self._context.log
        return sum(log.topic(name).inner.bytes_hot for name in log.topics())

    def _change(self, state: DiskState, free_bytes: int) -> None:
        log = self._context.log
        _log.log(
            logging.INFO if state is DiskState.FINE else logging.WARNING,
            "the disk of %s is %s: %d bytes free", log.path, state.name.lower(), free_bytes,
        )  # fmt: skip
        self.state = state
        self._context.events.publish("disk", state=state.name.lower(), free_bytes=free_bytes)


class DiskState(enum.IntEnum):
    FINE = 0
    ALARM = 1
    FULL = 2


def disk_state(free_bytes: int, before: DiskState, alarm_bytes: int, reject_bytes: int) -> DiskState:
    """Return the state for `free_bytes`. `before` is the state until now."""
    if free_bytes < _bound(reject_bytes, stays=before is DiskState.FULL):
        return DiskState.FULL
    if free_bytes < _bound(alarm_bytes, stays=before is not DiskState.FINE):
        return DiskState.ALARM
    return DiskState.FINE


def _bound(size_bytes: int, *, stays: bool) -> int:
    """Return the bound, raised by a tenth if the state that it began still lasts (DISK-2)."""
    return size_bytes + size_bytes // 10 if stays else size_bytes
