"""The output of a command: text for people, or with --json one line of JSON for each result."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from offload.cli.streams import discard_output, flush_output, write_error
from offload.operations.results import json_line

__all__ = ["Output"]


@dataclass(frozen=True, slots=True)
class Output:
    """Standard output, for the printers of the operations (offload.operations.printing)."""

    is_json: bool
    is_rich: bool = False

    def show(self, result: Any, text: str) -> None:
        if self.is_json:
            _write(json_line(result))
        else:
            self.remark(text)

    def remark(self, text: str) -> None:
        if text and not self.is_json:
            _write((self._painted(text) if self.is_rich else text) + "\n")

    def note(self, text: str) -> None:
        write_error(text + "\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        from offload.cli.render import table

        _write(table(columns, rows))

    def write(self, data: bytes) -> None:
        try:
            sys.stdout.buffer.write(data)
        except BrokenPipeError:
            discard_output()

    def flush(self) -> None:
        flush_output()

    def _painted(self, text: str) -> str:
        from offload.cli.render import painted

        return painted(text)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        discard_output()
