"""GC in a simulation, in repeated runs. Two GC tasks run at the same time."""

from __future__ import annotations

from catalog.errors import ClocksDisagree
from catalog.gc.collector import Collector
from tests.simulation.schedule import DAY_MS, Clock
from tests.simulation.tasks import Member

__all__ = ["Collecting"]

_WRONG_RATE = 0.1
_WRONG_MS = 400 * DAY_MS


class Collecting(Member):
    """A task that runs GC and reads some of the promised states after each run.

    In one run out of ten its clock is wrong by up to 400 days, in either direction.
    """

    turns = 40
    weight = 4  # a run takes many requests
    stall_rate = 0.003
    passes = True
    sees_names = True

    def turn(self) -> None:
        clock = self.clock
        if self.schedule.chance(_WRONG_RATE):
            clock = Clock(self.schedule, -_WRONG_MS, _WRONG_MS)
        try:
            Collector(self.store, self.model.policy, clock=clock.now_ms, writer_id=self.name).run()
        except ClocksDisagree:
            self.model.counts["refused"] += 1
        self.model.collections += 1
        self.model.check(lambda lsns: [lsns[0], self.random.choice(lsns)])
