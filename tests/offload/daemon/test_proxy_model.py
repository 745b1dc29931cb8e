"""A model of a proxy: a writer, its collection, two proxies with a cache, and three replicas, in any order of steps.

A replica shows a state that the name had, and never an earlier one than before, also after promotions. A proxy that is
behind, that starts again, or that loses its cache and its directory changes nothing of that.
"""

from __future__ import annotations

import random
import shutil
from contextlib import ExitStack
from pathlib import Path

from catalog import Vid
from catalog.errors import OutOfWindow
from catalog.objects import MemoryStore
from offload.archive import Archive
from offload.settings import CatalogSettings
from seglog import Log
from tests.offload.replicas import opened, ship, values
from tests.seams.proxy import look_at_remote
from tests.work import amounts, seed_of, tell
from tests.worlds.clock import HandClock
from tests.worlds.proxies import QUIET, Proxied, proxied

_DAY_MS = 24 * 3_600_000
_STEPS = (
    "append",
    "append",
    "append",
    "delete",
    "truncate",
    "compact",
    "collect",
    "look",
    "look",
    "restart",
    "wipe",
    "promote",
)
_PROXIES = 2
_State = tuple[Vid, int]


class World:
    def __init__(self, directory: Path, draw: random.Random, stack: ExitStack) -> None:
        self.directory = directory
        self.draw = draw
        self.store = MemoryStore()
        self.clock = HandClock()
        self.states: dict[_State, list[bytes]] = {}  # in the order of time
        self.shown: list[_State | None] = [None, None, None]
        settings = CatalogSettings(checkpoint_commits=5)
        self.log: Log
        self.writer: Archive
        self.log, self.writer = stack.enter_context(opened(directory / "writer", self.store, self.clock, settings))
        self.stacks = [stack.enter_context(ExitStack()) for _ in range(_PROXIES)]
        self.step("append")
        self.proxies = [self.start(number) for number in range(_PROXIES)]

    def start(self, number: int) -> Proxied:
        proxy = self.stacks[number].enter_context(proxied(self.directory / f"proxy-{number}", self.store, **QUIET))
        look_at_remote(proxy.service)
        return proxy

    def step(self, kind: str) -> None:
        self.clock.ms += self.draw.randrange(1, _DAY_MS)
        head = self.log.topic("t").head_seq if self.log.has_topic("t") else 0
        if kind == "append":
            ship(self.writer, self.log, "t", *(self.draw.randbytes(20) for _ in range(self.draw.randrange(1, 4))))
        elif kind == "delete" and head > 2:
            self.writer.delete("t", seqs=[self.draw.randrange(1, head)])
            self.writer.offload("t")
        elif kind == "truncate" and head > 4:
            self.writer.truncate("t", head)
        elif kind == "compact":
            self.writer.upkeep.compact("t")
        elif kind == "collect":
            self.writer.upkeep.collect()
        elif kind == "look":
            look_at_remote(self.draw.choice(self.proxies).service)
        elif kind in ("restart", "wipe"):
            number = self.draw.randrange(_PROXIES)
            self.stacks[number].close()
            if kind == "wipe":
                shutil.rmtree(self.directory / f"proxy-{number}")
            self.proxies[number] = self.start(number)
        elif kind == "promote" and head > 2:
            self.promote(self.draw.randrange(1, head))
        self.remember()

    def remember(self) -> None:
        """Keep what each commit since the last step shows. A proxy may look between two commits of a step."""
        vid, newest = self.state(self.writer)
        known = max((lsn for former, lsn in self.states if former == vid), default=newest - 1)
        for lsn in range(known + 1, newest):
            self.states[vid, lsn] = values(self.writer, "t", f"lsn:{lsn}")
        self.states[vid, newest] = values(self.writer, "t")

    def promote(self, seq: int) -> None:
        """Give the name to a branch that lacks the records after `seq`, and has one of its own."""
        number = len(self.states)
        try:
            self.writer.restore("t", to=f"seq:{seq}", name=f"fix-{number}")
        except OutOfWindow:
            return
        ship(self.writer, self.log, f"t@fix-{number}", self.draw.randbytes(20))
        self.writer.branches.promote_branch("t", f"fix-{number}", keep=f"was-{number}", leave=True)
        self.writer.replication.sync("t")
        self.writer.replication.take_over("t")

    def state(self, archive: Archive) -> _State:
        snapshot = archive.history.snapshot("t")
        return snapshot.vid, snapshot.lsn

    def sync(self, number: int, proxy: Proxied) -> None:
        """Let a replica sync, with the local copy that it has, and compare what it shows."""
        with opened(self.directory / f"replica-{number}", proxy.store(), self.clock) as (_, reader):
            reader.replication.sync("t")
            order, before, now = list(self.states), self.shown[number], self.state(reader)
            assert before is None or order.index(now) >= order.index(before)
            assert values(reader, "t") == self.states[now]
            self.shown[number] = now


@amounts(25, all=400, soak=200_000, part=8, slices=40)
def test_a_replica_shows_the_state_of_its_lsn_and_never_moves_back(amount: int, tmp_path: Path) -> None:
    draw, moved = random.Random(seed_of("model of a proxy")), 0
    with ExitStack() as stack:
        world = World(tmp_path, draw, stack)
        for _ in range(amount):
            if draw.random() < 0.5:
                number = draw.randrange(3)
                before = world.shown[number]
                world.sync(number, draw.choice(world.proxies))
                moved += world.shown[number] != before
            else:
                world.step(draw.choice(_STEPS))
        for number in range(3):
            proxy = draw.choice(world.proxies)
            look_at_remote(proxy.service)
            world.sync(number, proxy)
            assert world.shown[number] == list(world.states)[-1]
    tell(f"{amount} steps of a model of a proxy, in which replicas moved {moved} times")
