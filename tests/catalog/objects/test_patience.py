"""Test the time that a command waits for a store, with a clock that the test moves."""

from __future__ import annotations

import threading

import pytest

from catalog.objects.store_timeout import Call, Patience, carried, one_command, waiting

LIMIT_S = 60.0


class HandClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_time_counts_once_while_requests_are_under_way_and_not_between_them(clock: HandClock) -> None:
    patience = Patience(now_s=clock)
    clock.now_s = 1000
    patience.begin()
    patience.begin()
    clock.now_s += 10
    patience.end()
    clock.now_s += 5
    patience.end()
    clock.now_s += 1000
    assert patience.unpaid_s() == 15


def test_an_answer_pays_for_a_sixth_of_the_limit_and_a_mib_for_all_of_it(clock: HandClock) -> None:
    patience = Patience(now_s=clock)
    call = Call(patience, LIMIT_S)
    patience.begin()
    clock.now_s += 59
    call.answered()
    assert call.left_s() == 11
    call.moved(1024 * 1024)
    assert call.left_s() == LIMIT_S  # nothing is paid in advance


@pytest.mark.parametrize(("each_s", "ends"), [(9.0, False), (30.0, True)])
def test_a_store_that_answers_slowly_ends_a_command_and_one_that_keeps_up_does_not(
    clock: HandClock, each_s: float, ends: bool
) -> None:
    patience = Patience(now_s=clock)
    call = Call(patience, LIMIT_S)
    for _ in range(100):
        patience.begin()
        clock.now_s += each_s
        call.answered()
        patience.end()
    assert (call.left_s() <= 0) is ends


def test_the_threads_of_a_command_share_its_time_and_its_limit() -> None:
    limits: list[float] = []

    def ask() -> None:
        with waiting(LIMIT_S) as call:
            limits.append(call.limit_s)

    with one_command(7):
        for work in (ask, carried(ask)):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
    assert limits == [LIMIT_S, 7]
