"""The requests of the last day, in memory: counts by the hour. They begin with the process."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from offload.operations.directory import RequestsSeen

__all__ = ["LastDay"]

_HOUR_S = 3600.0
_HOURS = 24


class LastDay:
    """Counts of requests by method. Safe for many threads. `steady_s` is a clock that never goes back."""

    def __init__(self, steady_s: Callable[[], float] = time.monotonic) -> None:
        self._steady_s = steady_s
        self._lock = threading.Lock()
        self._hours: deque[tuple[float, Counter[str]]] = deque([(steady_s(), Counter())])

    def count(self, method: str) -> None:
        with self._lock:
            self._turn()
            self._hours[-1][1][method] += 1

    def seen(self) -> RequestsSeen:
        """Return the counts. They cover the time since the start, and 24 hours at most."""
        with self._lock:
            self._turn()
            total: Counter[str] = Counter()
            for _, counts in self._hours:
                total += counts
            return RequestsSeen(self._steady_s() - self._hours[0][0], dict(sorted(total.items())))

    def _turn(self) -> None:
        """Begin the hour of now, and forget the hours that began a day ago or earlier."""
        now_s = self._steady_s()
        if now_s - self._hours[-1][0] >= _HOUR_S:
            self._hours.append((now_s, Counter()))
        while len(self._hours) > 1 and now_s - self._hours[0][0] >= _HOURS * _HOUR_S:
            self._hours.popleft()
