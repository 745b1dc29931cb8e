"""Handle interrupts: exceptions that a signal handler raises in the main thread, such as `KeyboardInterrupt`.

An interrupt arrives between two calls, or out of a call that waits. It never arrives between statements that call
nothing. So work that other threads depend on consists of steps that may run again. `uninterrupted` repeats such work
until the work completes.
"""

from __future__ import annotations

from collections.abc import Callable

from seglog.errors import CalledWithin, SeglogError

__all__ = ["failure_under", "is_interrupt", "uninterrupted"]

# The maximum number of attempts. After so many interrupts, assume that their source never stops.
_MOST = 100


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
