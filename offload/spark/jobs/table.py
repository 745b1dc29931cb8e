"""The result of a job on standard output: a table for people, or lines of JSON. This module does no I/O.

With JSON, each row is an object on its own line, and the last line has the job's other numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from offload.moment import Moment

__all__ = ["result_lines"]


def result_lines(result: Any, *, as_json: bool) -> Iterator[str]:
    """Yield the lines of a result: a dataclass with `rows`, and maybe other fields."""
    rows = [_values(row) for row in result.rows]
    rest = _values(result)
    del rest["rows"]
    if as_json:
        yield from (json.dumps(row) for row in [*rows, *([rest] if rest else [])])
        return
    yield from _table(rows)
    if rest:
        yield ", ".join(f"{name.replace('_', ' ')}: {_text(value)}" for name, value in rest.items())
    elif not rows:
        yield "nothing"


def _values(record: Any) -> dict[str, Any]:
    found = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: str(value) if isinstance(value, Moment) else value for name, value in found.items()}


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    names = list(rows[0])
    cells = [[name.replace("_", " ") for name in names], *([_text(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(names))]
    is_number = [any(_counts(row[name]) for row in rows) for name in names]
    for line in cells:
        yield _line(line, widths, is_number)


def _line(cells: Iterable[str], widths: Iterable[int], is_number: Iterable[bool]) -> str:
    parts = zip(cells, widths, is_number, strict=True)
    return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in parts).rstrip()


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if _counts(value) else str(value)
