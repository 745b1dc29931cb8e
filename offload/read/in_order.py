"""Several things done at a time, and their results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

T = TypeVar("T")


def in_order(work: Iterable[Callable[[], T]], at_a_time: int, name: str) -> Iterator[T]:
    """The result of each, in order, with `at_a_time` of them begun and not yet handed out. Raises what one raises.

    Threads are there while the iterator is; what was not begun when it ends never is.
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
