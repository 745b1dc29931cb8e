"""Threads for reads: a pool for optional work ahead of time, and work whose results come in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from catalog.objects.patience import carried
from seglog.base.ownership import Owned, check_process, is_foreign

__all__ = ["Pool", "in_order", "one_ahead"]

P = ParamSpec("P")
T = TypeVar("T")


class Pool(Owned):
    """A thread pool for optional work. If the pool has not done the work, the caller does it."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._is_closed = False
        self._lock = threading.Lock()

    def begin(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T] | None:
        """Submit `work` to a thread, and return its future. Return None once the pool is closed."""
        with self._lock:
            return None if self._is_closed else self._threads.submit(carried(work), *args, **named)

    def close(self) -> None:
        """Wait for the work that is under way, and cancel the rest. Idempotent."""
        with self._lock:
            self._is_closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)


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
                waiting.append(pool.submit(carried(one)))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def one_ahead(items: Generator[T, None, None], owner: Owned, name: str) -> Generator[T, None, None]:
    """Yield the items. From the second on, a thread makes the next item while the caller works on one.

    No item is None. The iterator closes `items` at its end, after the thread. In a forked child, the next item raises
    `OpenedByParent`, as `owner` does.
    """
    thread: ThreadPoolExecutor | None = None
    try:
        first = next(items, None)
        if first is None:
            return
        yield first
        thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        coming = thread.submit(carried(next), items, None)
        while True:
            check_process(owner)
            item = coming.result()
            if item is None:
                return
            coming = thread.submit(carried(next), items, None)
            yield item
    finally:
        # A child has no such thread, and the parent's is in the middle of `items`.
        if not is_foreign(owner):
            if thread is not None:
                thread.shutdown()
            items.close()
