"""Ctrl-C: the process ends with exit code 130, and without a traceback.

    before a command runs, and after it    the process ends at once. It holds nothing open that would need a close
    while it runs                          the command gets a KeyboardInterrupt, so that it closes what it opened

An interrupt in an import may be lost: Python prints an exception in a callback, and continues. So no KeyboardInterrupt
is raised there.
"""

from __future__ import annotations

import os
import signal

__all__ = ["EXIT_INTERRUPTED", "end_at_once", "raise_in_command"]

EXIT_INTERRUPTED = 130


def _end(*_: object) -> None:
    os._exit(EXIT_INTERRUPTED)


def end_at_once() -> None:
    """Let Ctrl-C end the process. If the parent has it ignored, as `nohup` does, it stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_in_command() -> None:
    """Let Ctrl-C raise a KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
