"""The store's time: the second opinion on this machine's clock.

Every machine that uses a prefix asks the same store, so all machines share the store's clock. A machine alone cannot
tell that its own clock is wrong.

TIME-1  A caller that deletes by age asks `check_clock` first. It refuses if the clocks differ by more than
    `MOST_OFF_MS`.
TIME-2  A caller that records until when something is kept uses `latest_ms`. So a clock that is behind ends nothing
    early.
TIME-3  A caller that judges the age of another machine's work uses `earliest_ms`. So a clock that is ahead ends nothing
    early.
TIME-4  If a store tells no time, the machine's clock counts, and `check_clock` returns None.
TIME-5  A directory on this machine's own disk has this machine's clock. There a wrong clock goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable

from catalog.errors import ClocksDisagree
from catalog.objects.object_store import ObjectStore, TellsTime

MOST_OFF_MS = 60_000
"""The largest accepted difference. NTP keeps it far smaller, and a reader's lease (15 minutes) is far longer."""


def ahead_ms(asked_ms: int, told_ms: int, answered_ms: int) -> int:
    """Return by how much a clock is ahead of the store's, at least; negative if the clock is behind.

    The clock showed `asked_ms` before the request and `answered_ms` after it. `told_ms` is the store's time between the
    two, rounded down to a second.
    """
    latest_ms = told_ms + 999
    if asked_ms > latest_ms:
        return asked_ms - latest_ms
    return min(0, answered_ms - told_ms)


def measured_ahead_ms(store: ObjectStore, clock: Callable[[], int]) -> int | None:
    """Return by how much `clock` is ahead of the store's; None if the store tells no time. One request."""
    asked_ms = clock()
    told_ms = store.time_ms() if isinstance(store, TellsTime) else None
    return None if told_ms is None else ahead_ms(asked_ms, told_ms, clock())


def check_clock(store: ObjectStore, clock: Callable[[], int], consequence: str) -> int | None:
    """Return `measured_ahead_ms`. Raise `ClocksDisagree` if it is more than `MOST_OFF_MS`, either way.

    `consequence` begins the message: the work that was not done because of the clock.
    """
    ahead = measured_ahead_ms(store, clock)
    if ahead is not None and abs(ahead) > MOST_OFF_MS:
        raise ClocksDisagree(store.url, ahead, clock(), MOST_OFF_MS, consequence)
    return ahead


def latest_ms(store: ObjectStore, now_ms: int) -> int:
    """Return `now_ms` or the store's time, whichever is later. One request."""
    told_ms = store.time_ms() if isinstance(store, TellsTime) else None
    return now_ms if told_ms is None else max(now_ms, told_ms)


def earliest_ms(store: ObjectStore, now_ms: int) -> int:
    """Return `now_ms` or the store's time, whichever is earlier. One request."""
    told_ms = store.time_ms() if isinstance(store, TellsTime) else None
    return now_ms if told_ms is None else min(now_ms, told_ms)
