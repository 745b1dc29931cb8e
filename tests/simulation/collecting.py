"""GC in a simulation, over and over; two of them meet."""

from __future__ import annotations

from catalog.gc import Collector, GcPolicy
from tests.simulation.tasks import GRACE_MS, Member

__all__ = ["Collecting"]


class Collecting(Member):
    """After each run some of what is promised is read."""

    turns = 25

    def turn(self) -> None:
        policy = GcPolicy(self.model.window_ms // 1000, GRACE_MS // 1000)
        Collector(self.store, policy, clock=lambda: self.now_ms, writer_id=self.name).run()
        self.model.collections += 1
        self.model.check(lambda lsns: [self.random.choice(lsns) for _ in range(2)])
