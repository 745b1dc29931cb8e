"""Locks for calls within a call of the same thread: a signal handler, a finalizer, a logging handler.

Python runs such code between two steps of whatever the thread does at the moment. That may be a call of this log which
has one of its locks. A lock that is taken once more would then wait for itself for ever.

    1  The thread is within a call: it has a lock, or an entry of it is in group commit.
    2  Python runs a handler in that thread, and the handler calls the log.
    3  The inner call finds that the thread has the lock, and raises `CalledWithin`. It has changed nothing.
    4  The handler returns, and the outer call goes on.

OWNLOCK-1  The test comes before the lock is taken, and `with` takes the lock by itself. So an interrupt leaves no lock
           behind (see seglog.process.interrupts).
"""

from __future__ import annotations

import threading
from typing import Protocol, cast

from seglog.errors import CalledWithin

__all__ = ["OwnLock", "Reentrant", "new_lock", "once", "owned", "taken"]


class Reentrant(Protocol):
    """A lock that knows its thread, as `threading.RLock` and `threading.Condition` have it."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...
    def _is_owned(self) -> bool: ...


def new_lock() -> Reentrant:
    return cast("Reentrant", threading.RLock())


def owned(lock: Reentrant) -> bool:
    """Whether this thread has it."""
    return lock._is_owned()  # noqa: SLF001 - what threading.Condition asks, too


def once(lock: Reentrant) -> Reentrant:
    """The lock, for `with`. Raises `CalledWithin` if this thread has it."""
    if owned(lock):
        raise CalledWithin
    return lock


def taken(lock: Reentrant) -> bool:
    """Take the lock if it is free, and return whether it was."""
    return not owned(lock) and lock.acquire(blocking=False)


class OwnLock:
    """`with own.once:` takes it, or raises `CalledWithin` if this thread has it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = new_lock()

    @property
    def is_mine(self) -> bool:
        return owned(self._lock)

    @property
    def once(self) -> Reentrant:
        return once(self._lock)
