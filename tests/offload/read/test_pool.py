from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from offload.read.pool import in_order


def test_results_come_in_order_and_no_more_are_begun_than_may_be() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        return number

    results = in_order((partial(work, number) for number in range(20)), 3, "test")
    for number in range(20):
        assert next(results) == number
        assert max(begun) <= number + 3
    assert list(results) == []


def test_they_are_done_at_the_same_time() -> None:
    together = threading.Barrier(4)
    assert len(list(in_order([partial(together.wait, 30)] * 4, 4, "test"))) == 4


def test_a_failure_is_raised_in_its_place_and_nothing_is_left_behind() -> None:
    def fail() -> int:
        raise ValueError("the third")

    def work() -> Iterator[partial[int] | object]:
        yield partial(int, 1)
        yield partial(int, 2)
        yield fail
        while True:
            yield partial(int, 4)

    results = in_order(work(), 2, "seglog-test")  # type: ignore[arg-type]
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(results)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("seglog-test")]
