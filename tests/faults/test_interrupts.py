"""The points of a run are the same on every Python, however often it ran before, and beside other threads."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from threading import Event, Thread

from tests.faults.interrupts import handled, interrupted, points

HERE = (__name__,)


def add(number: int) -> int:
    return number + 1


def work() -> int:
    """Ten points: `range`, three calls and three turns of the loop, and three calls of `with`."""
    total = 0
    for number in range(3):
        total += add(number)
    with nullcontext():
        add(total)
    return total


def test_the_first_run_of_a_process_has_all_points() -> None:
    lines = f"import sys; sys.path.insert(0, '.'); from {__name__} import HERE, points, work; print(points(work, HERE))"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout == "10\n"


def test_another_thread_in_the_same_code_takes_no_points_away() -> None:
    ended = Event()

    def other() -> None:
        while not ended.is_set():
            work()

    thread = Thread(target=other)
    thread.start()
    try:
        found = {points(work, HERE) for _ in range(100)}
    finally:
        ended.set()
        thread.join()
    assert found == {10}


def test_each_point_interrupts_and_what_a_handler_runs_has_none() -> None:
    assert [interrupted(work, HERE, at) for at in range(1, 12)] == [True] * 10 + [False]
    ran: list[int] = []
    for at in range(1, 11):
        handled(work, HERE, at, lambda: ran.append(work()))
    assert ran == [6] * 10
