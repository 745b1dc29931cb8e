"""The terminal: whether the output may have colours and tables, and the pager that long output goes through.

a pipe, a file, NO_COLOR, TERM=dumb, --plain    plain text, byte for byte the same everywhere
a terminal                                      colours, tables, progress, and $PAGER for long output
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from offload.cli.interrupt import Terminated

if TYPE_CHECKING:
    import subprocess

__all__ = ["PAGED", "is_rich", "paged"]

#: The commands whose output is often longer than a screen.
PAGED = frozenset({"diff", "inspect", "log", "oplog", "points", "show"})

_DEFAULT_PAGER = "less"
_LESS = "FRX"  # as git sets it: quit if the text fits, show colours, leave the text on the screen


def is_rich(stream: TextIO, variables: Mapping[str, str]) -> bool:
    """Return whether the stream is a terminal that wants more than plain text."""
    is_plain = bool(variables.get("NO_COLOR")) or variables.get("TERM", "dumb") == "dumb"
    return not is_plain and stream.isatty()


@contextmanager
def paged(variables: Mapping[str, str]) -> Iterator[None]:
    """Send standard output through the pager. Without a pager, the output goes straight to the terminal.

    At the end the call waits until the operator leaves the pager.
    """
    import shlex
    import subprocess

    words = shlex.split(variables.get("PAGER", _DEFAULT_PAGER))
    if not words or words == ["cat"]:
        yield
        return
    terminal = sys.stdout
    try:
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=terminal, env={"LESS": _LESS, **variables})
    except OSError:
        yield
        return
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    sys.stdout = stream = io.TextIOWrapper(
        process.stdin, encoding="utf-8", errors="surrogateescape", line_buffering=True
    )
    try:
        yield
    finally:
        last, sys.stdout = sys.stdout, terminal
        with suppress(BrokenPipeError):
            stream.close()
        if last is not stream:  # the pager has gone early, and /dev/null took its place
            last.close()
        _wait(process)


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for the pager. It gets Ctrl-C as well, and decides itself what that means."""
    while True:
        try:
            process.wait()
        except Terminated:
            raise
        except KeyboardInterrupt:
            continue
        return
