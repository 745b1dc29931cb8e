"""Locks for calls within a call of the same thread: from a signal handler, a finalizer or a logging handler.

Python runs such code between two steps of a thread. The thread may be within a call of this log, and hold one of its
locks. If the inner call took that lock too, the thread would wait for itself for ever.

    1  A thread is within a call: it holds a lock, or an entry of it is in group commit.
    2  Python runs a handler in that thread, and the handler calls the log.
    3  The inner call finds that the thread holds the lock, and raises `CalledWithin`. It has changed nothing.
    4  The handler returns, and the outer call continues.

OWNLOCK-1  The test comes before the lock is taken, and `with` alone takes the lock. So an interrupt leaves no lock held
           (see seglog.process.interrupts).
"""

from __future__ import annotations

import threading
from typing import Protocol, cast

from seglog.errors import CalledWithin

__all__ = ["OwnLock", "Reentrant", "exclusive", "new_lock", "owned", "try_lock"]


class Reentrant(Protocol):
    """A lock that knows which thread holds it, as `threading.RLock` and `threading.Condition` do."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> None: ...
    def _is_owned(self) -> bool: ...


def new_lock() -> Reentrant:
    return cast("Reentrant", threading.RLock())


def owned(lock: Reentrant) -> bool:
    """Return whether this thread holds the lock."""
    return lock._is_owned()  # noqa: SLF001 - threading.Condition calls it too


def exclusive(lock: Reentrant) -> Reentrant:
    """Return the lock, for `with`. Raise `CalledWithin` if this thread holds it already."""
    if owned(lock):
        raise CalledWithin
    return lock


def try_lock(lock: Reentrant) -> bool:
    """Take the lock if it is free, and return whether it was free."""
    return not owned(lock) and lock.acquire(blocking=False)


class OwnLock:
    """A lock that its holder cannot take twice: `with own.exclusive:` takes it, or raises `CalledWithin`."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = new_lock()

    @property
    def is_mine(self) -> bool:
        return owned(self._lock)

    @property
    def exclusive(self) -> Reentrant:
        return exclusive(self._lock)
