from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from functools import partial

import pytest

from offload.read.chunk_fetcher import in_order, one_ahead
from seglog.base.ownership import Owned, is_foreign
from tests.children import in_child, outcome_of


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


def test_a_thread_makes_the_next_item_while_the_caller_works_on_one() -> None:
    made: list[tuple[int, bool]] = []
    third = threading.Event()

    def items() -> Generator[int, None, None]:
        for number in range(4):
            made.append((number, threading.current_thread() is threading.main_thread()))
            if number == 2:
                third.set()
            yield number

    found = one_ahead(items(), Owned(), "test-ahead")
    assert (next(found), made) == (0, [(0, True)])
    assert next(found) == 1
    assert third.wait(60)  # nobody has asked for it yet
    assert list(found) == [2, 3]
    assert made[1:] == [(1, False), (2, False), (3, False)]


def test_what_is_made_ahead_fails_when_the_caller_gets_there_and_ends_with_the_caller() -> None:
    closed: list[int] = []

    def items(fails_at: int) -> Generator[int, None, None]:
        try:
            for number in range(5):
                if number == fails_at:
                    raise ConnectionError
                yield number
        finally:
            closed.append(fails_at)

    found = one_ahead(items(3), Owned(), "test-ahead")
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ConnectionError):
        next(found)
    for taken in range(4):
        stopped = one_ahead(items(4), Owned(), "test-ahead")
        assert [next(stopped) for _ in range(taken)] == list(range(taken))
        stopped.close()
    assert closed == [3, 4, 4, 4]
    assert list(one_ahead((number for number in range(0)), Owned(), "test-ahead")) == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("test-ahead")]


def test_a_forked_child_does_not_wait_for_the_thread_of_its_parent() -> None:
    may_go_on = threading.Event()

    def items() -> Generator[int, None, None]:
        yield 1
        yield 2
        may_go_on.wait(60)
        yield 3

    found = one_ahead(items(), owner := Owned(), "test-ahead")
    assert [next(found), next(found)] == [1, 2]
    assert in_child(lambda: outcome_of(lambda: found)) == "OpenedByParent"
    may_go_on.set()
    assert list(found) == [3]
    assert not is_foreign(owner)
