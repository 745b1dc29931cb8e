"""Where a command writes: the terminal, or the answer to whoever asked the daemon to run it.

A context variable, so that commands which the daemon runs at the same time do not write into each other's.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import Protocol

__all__ = ["Output", "Terminal", "output", "write_to"]


class Output(Protocol):
    """Raises `BrokenPipeError` when nobody takes it any more."""

    def text(self, text: str) -> None:
        """To standard output."""
        ...

    def data(self, body: bytes) -> None:
        """To standard output, byte for byte."""
        ...

    def note(self, text: str) -> None:
        """A line to standard error."""
        ...

    def flush(self) -> None: ...
    def abandon(self) -> None:
        """What is still buffered for standard output is not wanted."""
        ...

    @property
    def is_watched(self) -> bool:
        """Whether somebody sees a progress bar."""
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
    """Of this context, from now on."""
    _current.set(target)
