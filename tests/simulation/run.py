"""Run one schedule: `python -m tests.simulation.run SEED` repeats it and prints its outcome.

`python -m tests.simulation.run promotions SEED` repeats a schedule with promotions, and `undos SEED` one with undos.
Each set of tasks has schedules of its own, so a new set changes no other schedule.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from unittest import mock

from tests.simulation.collecting import Collecting
from tests.simulation.directory import Directory
from tests.simulation.ground import Ground
from tests.simulation.model import Model
from tests.simulation.promoting import Promoting
from tests.simulation.schedule import DAY_MS, Schedule
from tests.simulation.tasks import Checkpointer, Forker, LateForker, LatePinner, Member, Pinner, Reader, Tagger
from tests.simulation.undoing import LEASE_MS, Undoing

__all__ = ["PROMOTIONS", "UNDOS", "Outcome", "simulate"]

PROMOTIONS = "promotions"
UNDOS = "undos"

_STEPS = 4_000


Cast = tuple[tuple[tuple[type[Member], str], ...], int, int]
"""The classes of the tasks with their names, the window in ms, and the grace in ms."""

_EVERYBODY: Cast = (
    (
        (Directory, "d1 d2"),
        (Reader, "r1 r2"),
        (Forker, "f1"),
        (Tagger, "t1"),
        (Pinner, "p1"),
        (Checkpointer, "c1"),
        (Collecting, "g1 g2"),
    ),
    3 * DAY_MS,
    DAY_MS,
)
# With few other tasks, GC and the tasks that create names meet more often.
_NAMES: Cast = (
    (
        (Directory, "d1"),
        (LateForker, "f1 f2"),
        (Tagger, "t1"),
        (LatePinner, "p1 p2 p3"),
        (Collecting, "g1 g2"),
    ),
    DAY_MS,
    DAY_MS // 12,
)
_MORE: Mapping[str, Cast] = {
    PROMOTIONS: (
        (
            (Promoting, "d1 d2"),
            (Reader, "r1"),
            (Forker, "f1"),
            (Tagger, "t1"),
            (Collecting, "g1 g2"),
        ),
        3 * DAY_MS,
        DAY_MS,
    ),
    UNDOS: (
        (
            (Undoing, "d1 d2"),
            (Reader, "r1"),
            (Forker, "f1"),
            (Checkpointer, "c1"),
            (Collecting, "g1"),
        ),
        3 * DAY_MS,
        DAY_MS,
    ),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts of a schedule that broke no promise."""

    trace_hash: str
    steps: int
    commits: int
    acked: int
    checked: int
    gone: int
    collections: int
    crashes: int
    stalls: int
    offloads: int
    deletes: int
    truncations: int
    merges: int
    takeovers: int
    resets: int
    refused: int
    promotions: int
    promotions_taken_back: int
    undos: int
    undos_of_parents: int
    undos_in_the_log: int
    undos_of_waiting: int
    undos_completed: int


def simulate(seed: int, more: str = "") -> Outcome:
    """Run the schedule of `seed`, with `more` as `PROMOTIONS` or `UNDOS`.

    Raise `Broken` for a broken promise, or the unexpected error of a task.
    """
    schedule = Schedule(seed)
    cast, window_ms, grace_ms = _MORE[more] if more else _EVERYBODY if seed % 2 else _NAMES
    ground = Ground(lambda: schedule.now_ms, is_ordered=seed % 8 < 4)
    model = Model(ground, lambda: schedule.now_ms, window_ms, grace_ms)
    with schedule.deterministic(), mock.patch("offload.services.undoing.PIN_MS", LEASE_MS):
        for kind, names in cast:
            for name in names.split():
                kind(schedule, model, name)
        schedule.run(_STEPS)
        model.check()
    return Outcome(
        schedule.trace_hash,
        schedule.steps,
        model.commits,
        len(model.acked),
        model.checked,
        model.gone,
        model.collections,
        schedule.crashes,
        schedule.stalls,
        model.counts["OFFLOAD"],
        model.counts["DELETE"],
        model.counts["TRUNCATE"],
        model.counts["COMPACT"],
        model.counts["CONFIG"],
        model.counts["resets"],
        model.counts["refused"],
        model.counts["promotions"],
        model.counts["promotions taken back"],
        model.counts["RESTORE"],
        model.counts["undos of a parent"],
        model.counts["undos in the log"],
        model.counts["undos of waiting deletes"],
        model.counts["undos completed"],
    )


if __name__ == "__main__":
    for number in filter(str.isdecimal, sys.argv[1:]):
        print(number, simulate(int(number), next((each for each in _MORE if each in sys.argv), "")))
