"""The state of the local disk, decided from the number of free bytes. No I/O.

    free bytes                state     what the daemon does
    above `alarm`             fine      -
    below `alarm`             alarm     It offloads at once, whatever the triggers say. It deletes hot copies that are
                                        published and read back without waiting for the deletion lag.
    below `reject`            full      It is not ready. The log refuses appends, with an error that gives the reason,
                                        so that it can still write its own files.

DISK-1  The daemon never deletes a record that is not offloaded to make room.
DISK-2  A state ends only when the free bytes exceed the bound that began it by a tenth. So the state does not flap.
"""

from __future__ import annotations

import enum

__all__ = ["DiskState", "disk_state"]


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
