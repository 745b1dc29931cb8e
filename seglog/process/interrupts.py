"""Interrupts: what a signal's handler raises in the main thread, wherever that happens to be (`KeyboardInterrupt`).

They come between two calls, or out of one that waits; never between statements that call nothing. So work that others
depend on is written in steps that may be done again, and `uninterrupted` does so until it is done.
"""

from __future__ import annotations

from collections.abc import Callable

from seglog.errors import CalledWithin, SeglogError

__all__ = ["failure_under", "is_interrupt", "uninterrupted"]

# So many for one piece of work are no interrupts: whatever raises them will go on to do so.
_MOST = 100


def is_interrupt(error: BaseException) -> bool:
    """True for what is no `Exception`, and for the refusal of a call that a handler made and did not catch."""
    return not isinstance(error, Exception) or isinstance(error, CalledWithin)


def uninterrupted(work: Callable[[], object]) -> None:
    """Call `work`, again after each interrupt, until it returns or fails; then raise the interrupt, if there was one.

    A handler that raises anything else has failed the work.
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
    """The failure of the disk that was on its way up when the interrupt came on top of it, if any.

    `outer` is what the caller was handling before (`sys.exception`): that is none of ours. Nor are other
    errors: a library that handles one of its own (`pathlib` does) may be what was interrupted, and what has failed for
    such a reason fails again when it is done again.
    """
    error = interrupt.__context__
    while error is not None and error is not outer:
        if isinstance(error, (OSError, SeglogError)):
            return error
        error = error.__context__
    return None
