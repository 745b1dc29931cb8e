"""Several tasks that run at a time, with their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

T = TypeVar("T")


def in_order(work: Iterable[Callable[[], T]], at_a_time: int, name: str) -> Iterator[T]:
    """Yield the result of each task, in order. At most `at_a_time` tasks have begun and not been yielded yet.

    Raises what a task raises. The threads live as long as the iterator. If a task has not begun when the iterator ends,
    it never runs.
    """
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(at_a_time, thread_name_prefix=name) as pool:
        try:
            for one in work:
                if len(waiting) == at_a_time:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(one))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
