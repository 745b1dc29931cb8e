"""Measures stores that stay open, each for a slice of time in its turn, so that a slow moment of the disk hits all.

The rules of `benchmarks.runner` hold. Besides:

SLICE-1  All subjects of a case are open at once, and only one of them works at a time. The background work of a subject
    (a checkpoint, a compaction) may fall into another subject's turn. Over the rounds it falls into every turn.
SLICE-2  A slice ends with the first append that ends after its time. That append counts, and so does its time.
SLICE-3  A subject that is not available raises `Unavailable` when it is opened. The report names it with the reason.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeAlias

from benchmarks.options import Options
from benchmarks.runner import Figures, Rounds, percentiles, settle_disk

__all__ = ["Open", "Slice", "Unavailable", "in_slices", "rate_and_percentiles"]

Slice: TypeAlias = Callable[[float], Figures]
"""A function that measures for about so many seconds and returns its figures."""

Open: TypeAlias = Callable[[Path], AbstractContextManager[Slice]]
"""A function that opens a subject in a new, empty directory."""


class Unavailable(Exception):
    """A yardstick is not installed here, or cannot do the measured work."""


def in_slices(options: Options, label: str, subjects: Mapping[str, Open]) -> Rounds:
    """Measure all subjects in slices. Progress goes to stderr."""
    missing: dict[str, str] = {}
    place = options.directory / "slices"
    shutil.rmtree(place, ignore_errors=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        slices: dict[str, Slice] = {}
        for name, open_subject in subjects.items():
            directory = place / name.replace(" ", "-")
            directory.mkdir(parents=True)
            try:
                slices[name] = stack.enter_context(open_subject(directory))
            except Unavailable as reason:
                missing[name] = str(reason)
        print(f"{label}: {', '.join(slices)}", file=sys.stderr)
        for work in slices.values():
            work(options.slice_s / 2)
        settle_disk()
        names = list(slices)
        results: dict[str, list[Figures]] = {name: [] for name in names}
        for number in range(options.rounds):
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                results[name].append(slices[name](options.slice_s))
    return Rounds(results, missing)


def rate_and_percentiles(records: int, elapsed_s: float, seconds: list[float]) -> Figures:
    """Return the rate of `records` in `elapsed_s`, and the percentiles of `seconds`, the time of each append."""
    return {"records_per_s": records / elapsed_s, **percentiles(seconds)}
