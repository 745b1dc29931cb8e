"""GC in a simulation, over and over; two of them meet."""

from __future__ import annotations

from catalog.gc import Collector, GcPolicy
from tests.simulation.tasks import Member

__all__ = ["Collecting"]


class Collecting(Member):
    """After each run some of what is promised is read."""

    turns = 40
    weight = 4  # a run takes many requests
    stall_rate = 0.003
    passes = True

    def turn(self) -> None:
        policy = GcPolicy(self.model.window_ms // 1000, self.model.grace_ms // 1000)
        Collector(self.store, policy, clock=lambda: self.now_ms, writer_id=self.name).run()
        self.model.collections += 1
        self.model.check(lambda lsns: [lsns[0], self.random.choice(lsns)])
