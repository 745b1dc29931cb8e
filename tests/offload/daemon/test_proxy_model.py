"""A model of a proxy: a writer, its collection, a proxy with a cache, and three replicas, in any order of steps.

A replica shows the state that the writer had at its LSN, and never moves back. A proxy that is behind, that starts
again, or that loses its cache and its directory changes nothing of that.
"""

from __future__ import annotations

import random
import shutil
from contextlib import ExitStack
from pathlib import Path

from catalog.objects import MemoryStore
from offload.archive import Archive
from offload.settings import CatalogSettings
from seglog import Log
from tests.offload.replicas import opened, ship, values
from tests.seams.proxy import look_at_remote
from tests.work import amounts, seed_of, tell
from tests.worlds.clock import HandClock
from tests.worlds.proxies import Proxied, proxied

_DAY_MS = 24 * 3_600_000
_STEPS = ("append", "append", "append", "delete", "truncate", "compact", "collect", "look", "look", "restart", "wipe")


class World:
    def __init__(self, directory: Path, draw: random.Random, stack: ExitStack) -> None:
        self.directory = directory
        self.draw = draw
        self.store = MemoryStore()
        self.clock = HandClock()
        self.states: dict[int, list[bytes]] = {}
        self.lsns = [0, 0, 0]
        settings = CatalogSettings(checkpoint_commits=5)
        self.log: Log
        self.writer: Archive
        self.log, self.writer = stack.enter_context(opened(directory / "writer", self.store, self.clock, settings))
        self.proxies = stack.enter_context(ExitStack())
        self.step("append")
        self.proxy = self.start()

    def start(self) -> Proxied:
        proxy = self.proxies.enter_context(
            proxied(self.directory / "proxy", self.store, CATALOG_SYNC_INTERVAL_S="never")
        )
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
            look_at_remote(self.proxy.service)
        elif kind in ("restart", "wipe"):
            self.proxies.close()
            if kind == "wipe":
                shutil.rmtree(self.directory / "proxy")
            self.proxy = self.start()
        self.states[self.writer.status.topic("t").lsn] = values(self.writer, "t")

    def sync(self, number: int) -> None:
        """Let a replica sync, with the local copy that it has, and compare what it shows."""
        with opened(self.directory / f"replica-{number}", self.proxy.store(), self.clock) as (_, reader):
            lsn = reader.replication.sync("t").lsn
            assert lsn >= self.lsns[number]
            assert values(reader, "t") == self.states[lsn]
            self.lsns[number] = lsn


@amounts(25, all=400, soak=200_000, part=8, slices=40)
def test_a_replica_shows_the_state_of_its_lsn_and_never_moves_back(amount: int, tmp_path: Path) -> None:
    draw, moved = random.Random(seed_of("model of a proxy")), 0
    with ExitStack() as stack:
        world = World(tmp_path, draw, stack)
        for _ in range(amount):
            if draw.random() < 0.5:
                number = draw.randrange(3)
                before = world.lsns[number]
                world.sync(number)
                moved += world.lsns[number] > before
            else:
                world.step(draw.choice(_STEPS))
        for number in range(3):
            look_at_remote(world.proxy.service)
            world.sync(number)
            assert world.lsns[number] == max(world.states)
    tell(f"{amount} steps of a model of a proxy, in which replicas moved {moved} times")
