"""One call of work for all callers that want the same result at the same time.

FLIGHT-1  While one caller works for a key, the others wait, and all get its result.
FLIGHT-2  If the work fails, only the working caller gets the error at once. The waiting callers try once more, one for
    all of them, before they fail too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["SingleFlight"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    def __init__(self) -> None:
        self._flights: dict[K, Future[V]] = {}
        self._lock = threading.Lock()

    def do(self, key: K, work: Callable[[], V]) -> V:
        """Return `work()`, or the result of another caller's `work()`. Raises what the work raises."""
        failures = 0
        while True:
            with self._lock:
                flight = self._flights.get(key)
                is_mine = flight is None
                if flight is None:
                    flight = self._flights[key] = Future()
            if is_mine:
                return self._work(key, flight, work)
            error = flight.exception()
            if error is None:
                return flight.result()
            failures += 1
            if failures == 2:
                raise error

    def _work(self, key: K, flight: Future[V], work: Callable[[], V]) -> V:
        try:
            result = work()
        except BaseException as error:
            self._land(key)
            flight.set_exception(error)
            raise
        self._land(key)
        flight.set_result(result)
        return result

    def _land(self, key: K) -> None:
        with self._lock:
            del self._flights[key]
