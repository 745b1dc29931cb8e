"""What a terminal shows of the results of an operation. An operation prints through the `Output` of the command line.

With --json, each result is a line of JSON, and no text is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

__all__ = ["Output", "Printer", "lines", "rows"]


class Output(Protocol):
    """Standard output: JSON with `is_json`, text with colours and tables with `is_rich`, else plain text."""

    @property
    def is_json(self) -> bool: ...

    @property
    def is_rich(self) -> bool: ...

    def show(self, result: Any, text: str) -> None:
        """Print a result: `text` and a line feed, or its JSON. An empty text prints nothing."""

    def remark(self, text: str) -> None:
        """Print a line for people. With --json print nothing."""

    def note(self, text: str) -> None:
        """Print a line on standard error, also with --json."""

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table for people. Only a terminal gets one."""

    def write(self, data: bytes) -> None:
        """Print bytes as they are."""

    def flush(self) -> None:
        """Let the reader have what was printed so far."""


Printer = Callable[[Output, Iterator[Any], Mapping[str, Any]], None]
"""Prints the results of an operation as they come. The mapping has its arguments."""


def lines(text: Callable[[Any], str], note_of: Callable[[Any], str] = lambda _: "") -> Printer:
    """Return a printer that shows each result with `text`. What `note_of` returns goes to standard error first."""

    def print_lines(output: Output, results: Iterator[Any], _: Mapping[str, Any]) -> None:
        for result in results:
            if told := note_of(result):
                output.note(told)
            output.show(result, text(result))

    return print_lines


def rows(columns: Sequence[str], row: Callable[[Any], Sequence[str]], text: Callable[[Any], str]) -> Printer:
    """Return a printer that shows the results as a table on a terminal, and elsewhere each as a line with `text`."""
    print_plain = lines(text)

    def print_rows(output: Output, results: Iterator[Any], values: Mapping[str, Any]) -> None:
        if not output.is_rich:
            print_plain(output, results, values)
        elif found := [row(result) for result in results]:
            output.table(columns, found)

    return print_rows
