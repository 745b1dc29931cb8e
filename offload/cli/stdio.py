"""What the process shares with its caller: the standard streams, and the signals that end it.

**Streams** may be closed, their reader may have gone, or their encoding lacks a character.

    seglog read t >&-          the stream is closed: /dev/null takes its place
    seglog log t | head -1     the reader goes early: the rest of the output goes to /dev/null, and the exit code stays
    seglog export t $'\xff'    the name of the directory is not UTF-8: the output has its own bytes

A command that changes something runs to its end without a reader. A command that only reads ends early.

**Ctrl-C and SIGTERM** end the process with exit code 130 or 143, and without a traceback.

    before a command runs, and after it    the process ends at once. It holds nothing open that would need a close
    while it runs                          the command gets a KeyboardInterrupt, so that it closes what it opened

An interrupt in an import may be lost: Python prints an exception in a callback, and continues. So no KeyboardInterrupt
is raised there.
"""

from __future__ import annotations

import io
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TextIO

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


_MODES = {"stdin": "r", "stdout": "w", "stderr": "w"}
_OWN_BYTES = "surrogateescape"


def open_closed_streams() -> None:
    """Open /dev/null for each closed stream.

    `open` takes the lowest free descriptor, so each stream gets its own. Otherwise a file of the log would get the
    descriptor of standard output, and output of a library would go into that file.
    """
    for name, mode in _MODES.items():
        if getattr(sys, name) is None:
            setattr(sys, name, _null(mode))


def accept_any_text() -> None:
    """Let standard output take any path, and any character. Standard error takes them as Python sets it up.

    Python reads the name of a file that is not UTF-8 as text with lone surrogates, which stand for its bytes. An
    encoding other than UTF-8 lacks characters, which become escapes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        is_utf8 = sys.stdout.encoding.lower() in {"utf-8", "utf8"}
        sys.stdout.reconfigure(errors=_OWN_BYTES if is_utf8 else "backslashreplace")


def has_reader() -> bool:
    """Return False if nothing reads the output any more, or nothing ever did."""
    return getattr(sys.stdout, "name", "") != os.devnull


def discard_output() -> None:
    """Send the rest of the output to /dev/null, with the bytes that are still in its buffer."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
    sys.stdout = _null("w")


def write_output(text: str) -> None:
    """Print a text. If the reader has gone, as in `seglog --help | head`, that is no error."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        discard_output()


def flush_output() -> None:
    """Write what is buffered. If the reader has gone, that is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def write_error(text: str) -> None:
    """Write to standard error. If its reader has gone, that is no error."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        sys.stderr = _null("w")


def _null(mode: str) -> TextIO:
    return open(os.devnull, mode, encoding="utf-8", errors=_OWN_BYTES)  # type: ignore[return-value]
