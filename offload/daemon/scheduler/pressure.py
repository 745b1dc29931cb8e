"""The pressure of a daemon: a number from 0 to 1, and what the daemon puts off at which.

    pressure = the largest of these, and 1 at most
        feeds that wait for a slot / slots
        the smoothed wait for a slot / 5 ms
        busy threads for reads of the local disk / all of them; for replicas, those for reads of the remote

    above    what happens                                                           ends
    0.2      a feed collects news for 0 to 20 ms, and sends it as one event         at 0.2
    0.4      a group of appends waits 0.5 to 10 ms for more of them                 at 0.4
    0.8      feeds of topics with a negative priority get no slot                   below 0.6
    at 1     an append gets 429 while appends of `log.queue_max_bytes` wait         below 1

PRESSURE-1  Nothing is lost: what is put off is stored, and each reader who asks for it gets it.
PRESSURE-2  Feeds that are paused do not count as waiting. They would keep the pressure up, and so the pause.
PRESSURE-3  The pressure is measured every 100 ms while a feed waits. 100 ms after the last one it is 0, without a
    timer. So an idle daemon delays nothing.

No I/O, no clock: the caller says what time it is.
"""

from __future__ import annotations

import math
from typing import Final

from seglog.base.dataclasses import dataclass

SAMPLE_S: Final = 0.1
COLLECT, WIDEN, PAUSE, RESUME, FULL = 0.2, 0.4, 0.8, 0.6, 1.0

_WAIT_BOUND_S = 0.005
_COLLECT_MOST_S = 0.020
_WIDEN_LEAST_S, _WIDEN_MOST_S = 0.0005, 0.010
_EARLY_S = 0.005  # a timer may come a little early


def pressure_of(ready: int, slots: int, wait_s: float, busy: float) -> float:
    """Return the pressure. `busy` is the share of the threads for reads that work."""
    return min(1.0, max(ready / slots, wait_s / _WAIT_BOUND_S, busy))


def collect_s(pressure: float) -> float:
    """Return how long a feed collects news before it asks for a slot."""
    return _COLLECT_MOST_S * _share(pressure, COLLECT)


def group_wait_s(pressure: float) -> float:
    """Return how long a group of appends waits for more of them."""
    if pressure <= WIDEN:
        return 0.0
    return _WIDEN_LEAST_S + (_WIDEN_MOST_S - _WIDEN_LEAST_S) * _share(pressure, WIDEN)


def pauses(pressure: float, *, is_paused: bool) -> bool:
    """Return whether topics with a negative priority are paused, after they were or were not."""
    return pressure >= RESUME if is_paused else pressure > PAUSE


def smoothed(former_s: float, sample_s: float, passed_s: float) -> float:
    """Return the smoothed wait: half of what came before, every 100 ms, and the rest from the sample."""
    return sample_s + (former_s - sample_s) * math.exp2(-passed_s / SAMPLE_S)


def _share(pressure: float, above: float) -> float:
    """Return how far the pressure is between `above` and 1: 0 to 1."""
    return max(0.0, (pressure - above) / (1.0 - above))


@dataclass(slots=True, eq=False)
class Pressure:
    """The pressure of one directory. One thread changes it, and any thread reads it."""

    value: float = 0.0
    is_pausing: bool = False
    ends_s: float = -math.inf
    """From this time on the pressure is 0; infinite while feeds wait."""
    _wait_s: float = 0.0
    _sampled_s: float = -math.inf
    _waits: int = 0
    _waited_s: float = 0.0

    def at(self, now_s: float) -> float:
        """Return the pressure of now."""
        return self.value if now_s < self.ends_s else 0.0

    def note(self, wait_s: float) -> None:
        """Take note of how long a feed waited for its slot."""
        self._waits += 1
        self._waited_s += wait_s

    def begin(self, now_s: float) -> None:
        """Take note that a feed waits. If the pressure has ended since, it begins with 0."""
        if now_s >= self.ends_s:
            self.value, self.is_pausing, self._wait_s, self._sampled_s = 0.0, False, 0.0, -math.inf
            self._waits, self._waited_s = 0, 0.0
        self.ends_s = math.inf

    def end(self, now_s: float) -> None:
        """Take note that no feed waits any more (PRESSURE-3)."""
        self.ends_s = now_s + SAMPLE_S

    def is_due(self, now_s: float) -> bool:
        """Return whether the last sample is 100 ms ago."""
        return now_s - self._sampled_s >= SAMPLE_S - _EARLY_S

    def sample(self, ready: int, slots: int, oldest_wait_s: float, busy: float, now_s: float) -> None:
        """Measure the pressure. `ready` feeds may get a slot and wait (PRESSURE-2), one of them for `oldest_wait_s`."""
        mean_s = self._waited_s / self._waits if self._waits else oldest_wait_s
        self._wait_s = smoothed(self._wait_s, mean_s, now_s - self._sampled_s)
        self._waits, self._waited_s, self._sampled_s = 0, 0.0, now_s
        self.value = pressure_of(ready, slots, self._wait_s, busy)
        self.is_pausing = pauses(self.value, is_paused=self.is_pausing)
