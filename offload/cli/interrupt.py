"""Ctrl-C and SIGTERM: the process ends with exit code 130 or 143, and without a traceback.

    before a command runs, and after it    the process ends at once. It holds nothing open that would need a close
    while it runs                          the command gets a KeyboardInterrupt, so that it closes what it opened

An interrupt in an import may be lost: Python prints an exception in a callback, and continues. So no KeyboardInterrupt
is raised there.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["SIGNALS", "Terminated", "end_at_once", "exit_code", "is_raised", "raise_in_command", "stop_of"]

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Terminated(KeyboardInterrupt):
    """SIGTERM came while a command ran."""


def _end(number: int, _: object) -> None:
    os._exit(128 + number)


def _terminate(*_: object) -> None:
    raise Terminated


_RAISING: dict[signal.Signals, Callable[..., Any]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: _terminate,
}


def end_at_once() -> None:
    """Let the signals end the process. If the parent has one ignored, as `nohup` does, it stays ignored."""
    for number, raising in _RAISING.items():
        if signal.getsignal(number) in (raising, signal.SIG_DFL):
            signal.signal(number, _end)


def raise_in_command() -> None:
    """Let the signals raise a KeyboardInterrupt."""
    for number, raising in _RAISING.items():
        if signal.getsignal(number) is _end:
            signal.signal(number, raising)


def is_raised(number: int) -> bool:
    """Return whether this signal raises a KeyboardInterrupt now."""
    return signal.getsignal(number) is _RAISING[signal.Signals(number)]


def stop_of(number: int) -> KeyboardInterrupt:
    """Return the exception that stands for this signal."""
    return Terminated() if number == signal.SIGTERM else KeyboardInterrupt()


def exit_code(stop: KeyboardInterrupt) -> int:
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)
