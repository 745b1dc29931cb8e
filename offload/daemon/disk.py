"""How full the local disk may get, decided from values. No I/O.

    free bytes                state     what happens
    above `alarm`             fine      -
    below `alarm`             alarm     offload at once, whatever the triggers say; hot copies that are published and
                                        read back go without waiting for the deletion lag
    below `reject`            full      appends are refused too, with an error that says so: before the disk is full, so
                                        that the log itself can still write what it has to

D1  Nothing that is not offloaded is ever dropped to make room.
D2  A state is left only when there is a tenth more room than what made it begin: no flapping.
"""

from __future__ import annotations

import enum

__all__ = ["DiskState", "disk_state"]


class DiskState(enum.IntEnum):
    FINE = 0
    ALARM = 1
    FULL = 2


def disk_state(free_bytes: int, before: DiskState, alarm_bytes: int, reject_bytes: int) -> DiskState:
    """`before` is the state until now."""
    if free_bytes < _bound(reject_bytes, stays=before is DiskState.FULL):
        return DiskState.FULL
    if free_bytes < _bound(alarm_bytes, stays=before is not DiskState.FINE):
        return DiskState.ALARM
    return DiskState.FINE


def _bound(size_bytes: int, *, stays: bool) -> int:
    """D2."""
    return size_bytes + size_bytes // 10 if stays else size_bytes
