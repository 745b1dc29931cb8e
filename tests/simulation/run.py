"""One schedule: `python -m tests.simulation.run SEED` does it again and says what happened."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from tests.simulation.collecting import Collecting
from tests.simulation.ground import Ground
from tests.simulation.model import Model
from tests.simulation.schedule import DAY_MS, Schedule
from tests.simulation.tasks import Checkpointer, Forker, Pinner, Reader, Tagger, Writer

__all__ = ["Outcome", "simulate"]

WINDOW_MS = 3 * DAY_MS
_STEPS = 4_000
_CHECK_EVERY = 400


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a schedule did, when nothing was broken."""

    trace_hash: str
    steps: int
    commits: int
    acked: int
    checked: int
    gone: int
    collections: int
    crashes: int
    stalls: int


def simulate(seed: int) -> Outcome:
    """Raises `Broken`, or what a task raised that it should not have."""
    schedule = Schedule(seed)
    ground = Ground()
    model = Model(ground, lambda: schedule.now_ms, WINDOW_MS)
    with schedule.deterministic():
        for kind, names in (
            (Writer, "w1 w2"),
            (Reader, "r1 r2"),
            (Forker, "f1"),
            (Tagger, "t1"),
            (Pinner, "p1"),
            (Checkpointer, "c1"),
            (Collecting, "g1 g2"),
        ):
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
    )


if __name__ == "__main__":
    for number in sys.argv[1:]:
        print(number, simulate(int(number)))
