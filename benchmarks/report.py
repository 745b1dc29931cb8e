"""A benchmark's result as a value, and as text and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from benchmarks.machine import Machine
from benchmarks.runner import Rounds

__all__ = ["Report", "Row", "compare"]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside one yardstick; `yardstick` is None for a figure that stands alone.

    `ratio` says how many times as good ours is: above 1 is better, for rates and for times alike.
    """

    what: str
    unit: str
    ours: float
    yardstick: str | None = None
    theirs: float | None = None
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    measured: str
    rows: tuple[Row, ...]
    machine: Machine

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def as_text(self) -> str:
        cells = [("what", "ours", "yardstick", "theirs", "ratio"), *map(_cells, self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(5)]
        table = "\n".join(_line(row, widths) for row in cells)
        return f"{self.name}: {self.measured}\n{table}\n{self.machine.line()}"


def compare(rounds: Rounds, what: str, unit: str, figure: str, *yardsticks: str, more_is_better: bool) -> list[Row]:
    """A row for each yardstick; the subject called `seglog` is ours."""
    ours = rounds.median("seglog", figure)
    return [
        Row(
            what=what,
            unit=unit,
            ours=ours,
            yardstick=name,
            theirs=rounds.median(name, figure),
            ratio=rounds.ratio("seglog", name, figure, more_is_better=more_is_better),
        )
        for name in yardsticks
    ]


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    theirs = "" if row.theirs is None else f"{_number(row.theirs)} {row.unit}"
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}x"
    return row.what, f"{_number(row.ours)} {row.unit}", row.yardstick or "", theirs, ratio


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _line(row: tuple[str, str, str, str, str], widths: list[int]) -> str:
    left = (True, False, True, False, False)
    padded = [
        cell.ljust(width) if is_left else cell.rjust(width)
        for cell, width, is_left in zip(row, widths, left, strict=True)
    ]
    return ("  " + "  ".join(padded)).rstrip()
