"""The time that a command waits for a store that gives no answer.

A command may make any number of requests, and a long one may take days. So the limit counts only *unpaid* time.

PATIENCE-1  Time counts while a request of the command is under way. Requests beside each other count once. The pauses
    between requests, and the command's own work, do not count.
PATIENCE-2  An answer pays for a sixth of the limit, and each MiB of a body that was sent or received for the whole of
    it. With the usual 120 s that is 20 s for an answer, and 120 s for a MiB: nine KB/s. So a command that makes
    progress runs as long as it needs. One whose answers come slower than that, byte by byte for example, ends.
PATIENCE-3  An answer that says that the store is in trouble (5xx, 429) pays for nothing.
PATIENCE-4  When the unpaid time reaches the limit, the request under way ends, and no other one of the command begins.
PATIENCE-5  The threads that work for a command have its time (`carried`). A request of no command has a time of its
    own.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

LIMIT_S = 120.0
_ANSWERS = 6  # so many answers pay for the whole limit
_BODY_BYTES = 1024 * 1024  # so many bytes pay for the whole limit

P = ParamSpec("P")
T = TypeVar("T")


class Patience:
    """The unpaid time of one command. For several threads. `limit_s` wins over the limit of a store."""

    def __init__(self, limit_s: float | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._calls = 0
        self._since_s = 0.0
        self._unpaid_s = 0.0

    def unpaid_s(self) -> float:
        with self._lock:
            self._settle()
            return self._unpaid_s

    def begin(self) -> None:
        with self._lock:
            self._settle()
            self._calls += 1

    def end(self) -> None:
        with self._lock:
            self._settle()
            self._calls -= 1

    def pay(self, seconds: float) -> None:
        with self._lock:
            self._settle()
            self._unpaid_s = max(0.0, self._unpaid_s - seconds)

    def _settle(self) -> None:
        now_s = self._now_s()
        if self._calls:
            self._unpaid_s += now_s - self._since_s
        self._since_s = now_s


class Call:
    """One request. `limit_s` is the limit of its command."""

    __slots__ = ("_patience", "limit_s")

    def __init__(self, patience: Patience, limit_s: float) -> None:
        self._patience = patience
        self.limit_s = limit_s

    def left_s(self) -> float:
        """Return the time that is left for the command; 0 or less if there is none."""
        return self.limit_s - self._patience.unpaid_s()

    def moved(self, count: int) -> None:
        """Count bytes of a body that were sent or received."""
        self._patience.pay(self.limit_s * count / _BODY_BYTES)

    def answered(self) -> None:
        """Count an answer."""
        self._patience.pay(self.limit_s / _ANSWERS)


_COMMAND: ContextVar[Patience | None] = ContextVar("command", default=None)
_CALL: ContextVar[Call | None] = ContextVar("call", default=None)


@contextmanager
def one_command(limit_s: float | None = None) -> Iterator[None]:
    """Let all requests of the block share one time. A command within a command has a time of its own.

    `limit_s` wins over the limit of each store, also for a command within this one.
    """
    outer = _COMMAND.get()
    token = _COMMAND.set(Patience(outer.limit_s if limit_s is None and outer is not None else limit_s))
    try:
        yield
    finally:
        _COMMAND.reset(token)


def carried(work: Callable[P, T]) -> Callable[P, T]:
    """Return `work` for another thread, which then shares the time of this thread's command."""
    patience = _COMMAND.get()
    if patience is None:
        return work

    @functools.wraps(work)
    def run(*args: P.args, **keywords: P.kwargs) -> T:
        token = _COMMAND.set(patience)
        try:
            return work(*args, **keywords)
        finally:
            _COMMAND.reset(token)

    return run


def one_request(read: Callable[P, T]) -> Callable[P, T]:
    """Let the tries of one request, and the reading of its answer, share one time, if no command has one."""

    @functools.wraps(read)
    def run(*args: P.args, **keywords: P.kwargs) -> T:
        if _COMMAND.get() is not None:
            return read(*args, **keywords)
        with one_command():
            return read(*args, **keywords)

    return run


@contextmanager
def waiting(limit_s: float) -> Iterator[Call]:
    """Count the time of the block, which makes one request or reads its answer, for the command of this thread.

    `limit_s` is the limit of the store, which holds unless the command has one.
    """
    patience = _COMMAND.get() or Patience()
    call = Call(patience, patience.limit_s or limit_s)
    token = _CALL.set(call)
    patience.begin()
    try:
        yield call
    finally:
        patience.end()
        _CALL.reset(token)


def this_call() -> Call | None:
    """Return the request that this thread waits for."""
    return _CALL.get()
