"""Standard streams that the caller has closed, whose reader has gone, or whose encoding lacks a character.

    seglog read t >&-          the stream is closed: /dev/null takes its place
    seglog log t | head -1     the reader goes early: the rest of the output goes to /dev/null, and the exit code stays
    seglog export t $'\xff'    the name of the directory is not UTF-8: the output has its own bytes

A command that changes something runs to its end without a reader. A command that only reads ends early.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

__all__ = ["accept_any_text", "discard_output", "flush_output", "has_reader", "open_closed_streams", "write_error"]

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
