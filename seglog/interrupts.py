"""Calls that are interrupted: calls within calls, interrupts, and an error on the way out of a `with` block.

**Locks for calls within a call of the same thread**: from a signal handler, a finalizer or a logging handler.

Python runs such code between two steps of a thread. The thread may be within a call of this log, and hold one of its
locks. If the inner call took that lock too, the thread would wait for itself for ever.

    1  A thread is within a call: it holds a lock, or an entry of it is in group commit.
    2  Python runs a handler in that thread, and the handler calls the log.
    3  The inner call finds that the thread holds the lock, and raises `CalledWithin`. It has changed nothing.
    4  The handler returns, and the outer call continues.

OWNLOCK-1  The test comes before the lock is taken, and `with` alone takes the lock. So an interrupt leaves no lock
    held.

**Interrupts** are exceptions that a signal handler raises in the main thread, such as `KeyboardInterrupt`. One arrives
between two calls, or out of a call that waits. It never arrives between statements that call nothing. So work that
other threads depend on consists of steps that may run again. `uninterrupted` repeats such work until the work
completes.

**The end of a `with` block** that closes something: the error within the block wins over an error of the close. The
error within tells what the block did. An append, for instance, says how much of its input is in. If the close fails
after it, often for the same reason, its error would take the place of that answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, cast

from seglog.errors import CalledWithin, SeglogError

# The maximum number of attempts. After so many interrupts, assume that their source never stops.
_MOST = 100


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


def is_interrupt(error: BaseException) -> bool:
    """Return whether `error` is an interrupt: no `Exception`, or a `CalledWithin`.

    A handler raises `CalledWithin` if it calls the log, is refused, and does not catch the refusal.
    """
    return not isinstance(error, Exception) or isinstance(error, CalledWithin)


def uninterrupted(work: Callable[[], object]) -> None:
    """Call `work`, again after each interrupt, until it returns or fails. Then raise the last interrupt, if any.

    If a handler raises any other exception, the work has failed. After 100 interrupts, give up and raise the last one.
    """
    interrupt: BaseException | None = None
    for _ in range(_MOST):
        try:
            work()
            break
        except BaseException as error:
            if not is_interrupt(error):
                raise
            interrupt = error
    if interrupt is not None:
        raise interrupt


def failure_under(interrupt: BaseException, outer: BaseException | None) -> Exception | None:
    """Return the disk failure that was propagating when the interrupt came on top of it, or None.

    `outer` is the exception that the caller was handling before (`sys.exception`). It is no failure of this work, so
    the search ends there.

    Only an `OSError` or a `SeglogError` counts. A library may handle other errors of its own. If such an error makes
    the work fail, the repeated work fails again. An `OSError` counts even if a library was handling it, as `pathlib`
    does. Then the work fails although a repeat might succeed: a failed sync must never pass for a success.
    """
    error = interrupt.__context__
    while error is not None and error is not outer:
        if isinstance(error, (OSError, SeglogError)):
            return error
        error = error.__context__
    return None


class _Closable(Protocol):
    def close(self) -> object: ...


_Closed = TypeVar("_Closed", bound=_Closable)


@contextmanager
def closing_after(error: BaseException | None) -> Iterator[None]:
    """Close within this block. `error` ended the caller's own block, or is None.

    With an `error`, a failure of the close becomes a note of it. A generator that ends early has no reader of notes,
    so there the failure is raised.
    """
    try:
        yield
    except Exception as failure:
        if error is None or isinstance(error, GeneratorExit):
            raise
        error.add_note(f"the close after it failed too: {failure}")


@contextmanager
def closed_after(thing: _Closed) -> Iterator[_Closed]:
    """Close `thing` at the end, as `contextlib.closing` does, but let the error within the block win."""
    error: BaseException | None = None
    try:
        yield thing
    except BaseException as raised:
        error = raised
        raise
    finally:
        with closing_after(error):
            thing.close()
