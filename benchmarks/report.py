"""A benchmark's result as a value, and as text, Markdown and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from benchmarks.machine import Machine
from benchmarks.runner import Rounds

__all__ = ["Aim", "Report", "Row", "alone", "compare", "number", "short"]


@dataclass(frozen=True, slots=True)
class Aim:
    """The lowest acceptable ratio to `yardstick`. With `yardstick` None, the lowest acceptable figure of ours."""

    least: float
    yardstick: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside one yardstick. `yardstick` is None for a figure that stands alone.

    `ratio` says how many times as good ours is: above 1 is better, for rates and for times alike. `spread` holds the
    lowest and the highest ratio of the rounds. `missing` says why the yardstick has no figure. `met` is None without an
    aim.
    """

    what: str
    unit: str
    ours: float
    yardstick: str | None = None
    theirs: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    missing: str | None = None
    aim: float | None = None
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Report:
    name: str
    measured: str
    rows: tuple[Row, ...]
    machine: Machine
    rounds: int

    def as_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def as_text(self) -> str:
        cells = [_HEADS, *map(_cells, self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADS))]
        return "\n".join((f"{self.name}: {self.measured}", *(_line(row, widths) for row in cells), self.last_line()))

    def as_markdown(self) -> str:
        """Return the table as a code block, for a document."""
        return f"```text\n{self.as_text()}\n```"

    def last_line(self) -> str:
        return f"{self.rounds} rounds; {self.machine.line()}"


def compare(
    rounds: Rounds,
    what: str,
    unit: str,
    figure: str,
    *yardsticks: str,
    more_is_better: bool,
    aims: tuple[Aim, ...] = (),
) -> list[Row]:
    """Return a row for each yardstick. The subject called `seglog` is ours."""
    by_yardstick = {aim.yardstick: aim.least for aim in aims}
    ours = rounds.median("seglog", figure)
    rows = [
        _beside(rounds, what, unit, figure, name, more_is_better=more_is_better, aim=by_yardstick.get(name))
        for name in yardsticks
    ]
    if None in by_yardstick:
        rows.insert(0, alone(what, unit, ours, at_least=by_yardstick[None]))
    return rows


def alone(what: str, unit: str, ours: float, *, at_least: float | None = None, at_most: float | None = None) -> Row:
    """Return a row without a yardstick."""
    if at_most is not None:
        return Row(what, unit, ours, aim=at_most, met=ours <= at_most)
    return Row(what, unit, ours, aim=at_least, met=None if at_least is None else ours >= at_least)


def _beside(
    rounds: Rounds, what: str, unit: str, figure: str, yardstick: str, *, more_is_better: bool, aim: float | None
) -> Row:
    ours = rounds.median("seglog", figure)
    if yardstick in rounds.missing:
        return Row(what, unit, ours, yardstick, missing=rounds.missing[yardstick], aim=aim)
    ratios = rounds.ratios("seglog", yardstick, figure, more_is_better=more_is_better)
    ratio = rounds.ratio("seglog", yardstick, figure, more_is_better=more_is_better)
    return Row(
        what=what,
        unit=unit,
        ours=ours,
        yardstick=yardstick,
        theirs=rounds.median(yardstick, figure),
        ratio=ratio,
        spread=(min(ratios), max(ratios)),
        aim=aim,
        met=None if aim is None else ratio >= aim,
    )


_HEADS = ("what", "ours", "yardstick", "theirs", "ratio", "spread", "aim")
_IS_LEFT = (True, False, True, False, False, False, False)


def _cells(row: Row) -> tuple[str, ...]:
    theirs = row.missing or ("" if row.theirs is None else f"{number(row.theirs)} {row.unit}")
    ratio = "" if row.ratio is None else f"{row.ratio:.3g}x"
    spread = "" if row.spread is None else " to ".join(map(short, row.spread))
    return row.what, f"{number(row.ours)} {row.unit}", row.yardstick or "", theirs, ratio, spread, _aim(row)


def _aim(row: Row) -> str:
    if row.aim is None:
        return ""
    wanted = f"{number(row.aim)}x" if row.yardstick is not None else number(row.aim)
    return f"{wanted}: {'not measured' if row.met is None else 'met' if row.met else 'missed'}"


def number(value: float) -> str:
    """Return a figure with the digits that a measurement is worth."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def short(value: float) -> str:
    """Return an end of a spread, which two digits tell."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    padded = [
        cell.ljust(width) if is_left else cell.rjust(width)
        for cell, width, is_left in zip(row, widths, _IS_LEFT, strict=True)
    ]
    return ("  " + "  ".join(padded)).rstrip()
