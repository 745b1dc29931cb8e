from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from offload.read.cold_reader import SingleFlight
from tests.seams.archive import count_flights, count_waiting
from tests.waiting import wait_until


class Work:
    """Work that waits until the test lets it end. The first `failures` calls fail."""

    def __init__(self, failures: int = 0) -> None:
        self.calls = 0
        self.begun = threading.Event()
        self.goes_on = threading.Event()
        self._failures = failures

    def __call__(self) -> int:
        self.calls += 1
        call = self.calls
        self.begun.set()
        assert self.goes_on.wait(30)
        if call <= self._failures:
            raise OSError(f"call {call}")
        return call


def together(flights: SingleFlight[str, int], work: Work, pool: ThreadPoolExecutor) -> list[object]:
    """Return the results of five callers. The others come while the first caller's call runs."""
    entered = threading.Barrier(5)

    def follow() -> int:
        entered.wait(30)
        return flights.do("key", work)

    first = pool.submit(flights.do, "key", work)
    assert work.begun.wait(30)
    others = [pool.submit(follow) for _ in range(4)]
    entered.wait(30)
    wait_until(lambda: count_waiting(flights, "key") == 4)
    work.goes_on.set()
    return [future.exception(30) or future.result() for future in [first, *others]]


def test_those_who_come_meanwhile_get_the_same_result() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    work = Work()
    with ThreadPoolExecutor(5) as pool:
        assert together(flights, work, pool) == [1] * 5
    assert flights.do("key", work) == 2
    assert count_flights(flights) == 0


def test_a_failure_is_not_that_of_those_who_waited() -> None:
    work = Work(failures=1)
    with ThreadPoolExecutor(5) as pool:
        first, *others = together(SingleFlight(), work, pool)
    assert isinstance(first, OSError)
    assert all(isinstance(other, int) for other in others)


def test_whoever_met_two_failures_fails_too() -> None:
    work = Work(failures=100)
    with ThreadPoolExecutor(5) as pool:
        results = together(SingleFlight(), work, pool)
    assert all(isinstance(result, OSError) for result in results)
    assert work.calls <= 5


def test_other_keys_do_not_wait() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    work = Work()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(flights.do, "key", work)
        assert work.begun.wait(30)
        assert flights.do("another", lambda: 7) == 7
        work.goes_on.set()
        assert first.result(30) == 1


def test_an_error_is_raised_to_whoever_worked() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    work = Work(failures=1)
    work.goes_on.set()
    with pytest.raises(OSError, match="call 1"):
        flights.do("key", work)
    assert flights.do("key", work) == 2
