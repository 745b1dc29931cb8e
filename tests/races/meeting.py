"""Two calls meet, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tests.races.turns import Turns

__all__ = ["meet"]


def meet(turns: Turns, acts: Sequence[Callable[[], object]], order: str) -> tuple[object, object]:
    """Run two calls, each in a thread of its own: one after the other, or both at once.

    A call that waits for news is under way when the other one begins.
    """
    answers: list[object] = [None, None]

    late, begins_at = turns.random.choice((0, 1, -1)), 10 ** turns.random.uniform(0.5, 3.2)

    def run(number: int) -> None:
        if number == late and order == "met":
            turns.wait(lambda: turns.seams >= begins_at or not threads[1 - number].is_alive(), 0.5)
        answers[number] = acts[number]()

    threads = [threading.Thread(target=run, args=(number,), name=f"call {number}") for number in (0, 1)]
    if order == "met":
        with turns.racing():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    else:
        for each in order:
            threads["ab".index(each)].start()
            turns.sleep(0.5)
        for each in order:
            threads["ab".index(each)].join()
    for thread in threads:
        if thread.error is not None:  # type: ignore[attr-defined]
            raise thread.error  # type: ignore[attr-defined]
    return answers[0], answers[1]
