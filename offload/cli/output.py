"""The output of a command: text for people, or with --json one line of JSON for each result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from offload.cli.streams import discard_output, flush_output, write_error
from offload.operations.results import json_line

__all__ = ["Output", "Printer", "counted", "format_bytes", "lines", "note", "rows"]


@dataclass(frozen=True, slots=True)
class Output:
    """Standard output: JSON with `is_json`, text with colours and tables with `is_rich`, else plain text."""

    is_json: bool
    is_rich: bool = False

    def show(self, result: Any, text: str) -> None:
        """Print a result: `text` and a line feed, or its JSON. An empty text prints nothing."""
        if self.is_json:
            _write(json_line(result))
        else:
            self.remark(text)

    def remark(self, text: str) -> None:
        """Print a line for people. With --json print nothing."""
        if text and not self.is_json:
            _write((self._painted(text) if self.is_rich else text) + "\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table for people. Only a terminal gets one."""
        from offload.cli.render import table

        _write(table(columns, rows))

    def flush(self) -> None:
        """Let the reader have what was printed so far."""
        flush_output()

    def _painted(self, text: str) -> str:
        from offload.cli.render import painted

        return painted(text)


Printer = Callable[[Output, Iterator[Any], Mapping[str, Any]], None]
"""Prints the results of a command as they come. The mapping has the command's arguments."""


def lines(text: Callable[[Any], str], note_of: Callable[[Any], str] = lambda _: "") -> Printer:
    """Return a printer that shows each result with `text`. What `note_of` returns goes to standard error first."""

    def print_lines(output: Output, results: Iterator[Any], _: Mapping[str, Any]) -> None:
        for result in results:
            if told := note_of(result):
                note(told)
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


def note(text: str) -> None:
    """Print a line on standard error, also with --json."""
    write_error(text + "\n")


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        discard_output()


def counted(count: int, noun: str = "record") -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
