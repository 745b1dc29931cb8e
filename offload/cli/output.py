"""The output of a command: the terminal, or the answer to the client for which the daemon runs the command.

The output is a context variable, so that commands that the daemon runs at the same time do not share one.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import Protocol

__all__ = ["Output", "Terminal", "output", "write_to"]


class Output(Protocol):
    """The port for a command's output. Its methods raise `BrokenPipeError` if the reader has gone."""

    def text(self, text: str) -> None:
        """Write to standard output."""
        ...

    def data(self, body: bytes) -> None:
        """Write to standard output, byte for byte."""
        ...

    def note(self, text: str) -> None:
        """Write a line to standard error."""
        ...

    def flush(self) -> None: ...
    def abandon(self) -> None:
        """Discard the bytes that are still buffered for standard output."""
        ...

    @property
    def is_watched(self) -> bool:
        """Return whether the output can show a progress bar to a person."""
        ...


class Terminal:
    def text(self, text: str) -> None:
        sys.stdout.write(text)

    def data(self, body: bytes) -> None:
        sys.stdout.buffer.write(body)

    def note(self, text: str) -> None:
        sys.stderr.write(text + "\n")

    def flush(self) -> None:
        sys.stdout.flush()

    def abandon(self) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    @property
    def is_watched(self) -> bool:
        return sys.stderr.isatty()


_current: ContextVar[Output] = ContextVar("output", default=Terminal())  # noqa: B039 - it has no state


def output() -> Output:
    return _current.get()


def write_to(target: Output) -> None:
    """Make `target` the output of this context from now on."""
    _current.set(target)
