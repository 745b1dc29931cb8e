"""The store's time: the second opinion on this machine's clock.

Every machine that uses a prefix asks the same store, so its clock is the one that they share. A machine alone cannot
tell that its own clock is wrong.

T1  A caller that deletes by age asks `check_clock` first. It refuses if the clocks differ by more than `MOST_OFF_MS`.
T2  A caller that notes until when something is kept uses `latest_ms`. So a clock that is behind takes nothing early.
T3  A caller that judges the age of another machine's work uses `earliest_ms`. A clock ahead ends nothing early.
T4  A store that tells no time judges nothing: the machine's clock counts, and `check_clock` returns None.
T5  A directory on this machine's own disk has this machine's clock. There nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable

from catalog.errors import ClocksDisagree
from catalog.objects.base import ObjectStore, TellsTime

__all__ = ["MOST_OFF_MS", "ahead_ms", "check_clock", "earliest_ms", "latest_ms", "measured_ahead_ms"]

MOST_OFF_MS = 60_000
"""A machine with NTP is off by far less, and a lease of a reader (15 minutes, renewed in time) outlives it by far."""


def ahead_ms(asked_ms: int, told_ms: int, answered_ms: int) -> int:
    """By how much a clock is ahead of the store's, at least; negative if it is behind.

    `told_ms`, rounded down to a second, is the store's time at a moment that the clock has between the other two.
    """
    latest_ms = told_ms + 999
    if asked_ms > latest_ms:
        return asked_ms - latest_ms
    return min(0, answered_ms - told_ms)


def measured_ahead_ms(store: ObjectStore, clock: Callable[[], int]) -> int | None:
    """By how much `clock` is ahead of the store's; None if the store tells no time. One request."""
    asked_ms = clock()
    told_ms = store.time_ms() if isinstance(store, TellsTime) else None
    return None if told_ms is None else ahead_ms(asked_ms, told_ms, clock())


def check_clock(store: ObjectStore, clock: Callable[[], int], what: str) -> int | None:
    """As `measured_ahead_ms`. Raise `ClocksDisagree` if it is more than `MOST_OFF_MS`, either way.

    `what` says in the message what is not done then.
    """
    ahead = measured_ahead_ms(store, clock)
    if ahead is not None and abs(ahead) > MOST_OFF_MS:
        raise ClocksDisagree(store.url, ahead, clock(), MOST_OFF_MS, what)
    return ahead


def latest_ms(store: ObjectStore, now_ms: int) -> int:
    """`now_ms` or the store's time: the later one. One request."""
    told_ms = store.time_ms() if isinstance(store, TellsTime) else None
    return now_ms if told_ms is None else max(now_ms, told_ms)


def earliest_ms(store: ObjectStore, now_ms: int) -> int:
    """`now_ms` or the store's time: the earlier one. One request."""
    told_ms = store.time_ms() if isinstance(store, TellsTime) else None
    return now_ms if told_ms is None else min(now_ms, told_ms)
