"""Forked children that report what happened to them. A child that hangs is killed."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["in_child", "outcome_of", "quiet_fork"]

_HANGS_S = 60


def quiet_fork() -> int:
    """Call `os.fork` without the warning of Python 3.12. These tests fork a process with threads on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], Any]) -> Any:
    """Return the result of `work` in a forked child. The child ends without finalizers, as a child of multiprocessing
    does.

    If the child raises, or does not end, the test fails.
    """
    reading, writing = os.pipe()
    pid = quiet_fork()
    if not pid:
        _report(work, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:
        body = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert body, f"the child ended with status {status} and said nothing"
    raised, result = pickle.loads(body)  # noqa: S301 - of our own child
    assert not raised, result
    return result


def _report(work: Callable[[], Any], writing: int) -> None:
    signal.alarm(_HANGS_S)
    try:
        body = pickle.dumps((False, work()))
    except BaseException:
        body = pickle.dumps((True, traceback.format_exc()))
    with contextlib.suppress(BaseException):
        os.write(writing, body)
    os._exit(0)


def outcome_of(call: Callable[[], Any]) -> str:
    """Return the name of the error that the call raises. For an iterator, return the error of its next item."""
    try:
        result = call()
        if isinstance(result, Iterator):
            next(result)
    except Exception as error:
        return type(error).__name__
    return "nothing"
