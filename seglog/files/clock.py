"""The port to time, and a watch that warns when the clock goes wrong.

A topic's records never go back in time, so a wrong time has lasting effects.

    observed                                        warning
    the clock went ahead by more than a day, and    once for each jump: at an append to a topic whose newest record is
    the machine's steady clock did not              a day old or more
    a topic's newest record is more than a day      once for each topic, until its records are in the past again
    ahead of the clock

The steady clock counts from the start of the machine, in sleep too. So a topic that was idle for a month is no jump. A
clock that was wrong before the log was opened is not detected: the comparison begins with the opening.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from seglog.base.errors import moment_text
from seglog.base.lazy import logger

JUMP_MS = 24 * 3600 * 1000
_logger = logger("seglog.files.clock")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the milliseconds since the epoch. They may jump in either direction, as clocks do."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def _steady_ms() -> int:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return int(time.clock_gettime(clock) * 1000)


class ClockWatch:
    """The clock watch of one log. Its caller holds the lock under which records get their times."""

    def __init__(self, clock: Clock, steady_ms: Callable[[], int] = _steady_ms) -> None:
        self._steady_ms = steady_ms
        self._offset_ms = clock.now_ms() - steady_ms()
        self._ahead: set[str] = set()

    def look(self, topic: str, now_ms: int, last_ms: int) -> None:
        """Warn if the clock is wrong, at an append to `topic` at `now_ms`.

        The caller calls this only if the topic's newest record, of `last_ms`, is a day or more away.
        """
        offset_ms = now_ms - self._steady_ms()
        jumped_ms, self._offset_ms = offset_ms - self._offset_ms, offset_ms
        if jumped_ms > JUMP_MS:
            _logger.warning(
                "the clock went ahead by %d days at once, to %s, at an append to %s: if it is wrong, set it now. "
                "Records keep their times, and until then a topic's later records all get the time of its newest one. "
                "Targets by time cannot tell these apart; seq:N can",
                jumped_ms // JUMP_MS, moment_text(now_ms), topic,
            )  # fmt: skip
        if last_ms <= now_ms:
            self._ahead.discard(topic)
        elif topic not in self._ahead:
            self._ahead.add(topic)
            _logger.warning(
                "the newest record of %s has the time %s, which is %d days ahead of the clock: until then its records "
                "all get that time, and none is sealed, offloaded or evicted by age",
                topic, moment_text(last_ms), (last_ms - now_ms) // JUMP_MS,
            )  # fmt: skip
