"""The columns of a progress bar, by rich. Only a bar that appears imports this module."""

from __future__ import annotations

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text


def progress_columns(total: int | None, unit: str | None) -> list[ProgressColumn]:
    """Return the columns of a bar: count, rate and time left. Without a total, the time that has passed.

    `unit` is `bytes`, a noun, or None if nothing is counted.
    """
    title = TextColumn("{task.description}", markup=False)
    if unit is None:
        return [SpinnerColumn(), title, TimeElapsedColumn()]
    counts = [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn(), _Rate(unit)]
    if total is None:
        return [SpinnerColumn(), title, *counts, TimeElapsedColumn()]
    return [title, BarColumn(), *counts, TimeRemainingColumn()]


class _Rate(ProgressColumn):
    """The unit of a count, and its rate."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(self._unit if speed is None else f"{self._unit}, {speed:,.1f}/s")
