"""A thread pool for optional work ahead of time. If the pool has not done the work, the caller does it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from seglog.process.ownership import Owned

__all__ = ["Pool"]

P = ParamSpec("P")
T = TypeVar("T")


class Pool(Owned):
    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._is_closed = False
        self._lock = threading.Lock()

    def begin(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> Future[T] | None:
        """Submit `work` to a thread, and return its future. Return None once the pool is closed."""
        with self._lock:
            return None if self._is_closed else self._threads.submit(work, *args, **named)

    def close(self) -> None:
        """Wait for the work that is under way, and cancel the rest. Idempotent."""
        with self._lock:
            self._is_closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)
