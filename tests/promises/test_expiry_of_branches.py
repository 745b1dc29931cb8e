"""The owner of a branch with a ttl, a replica of it and a plain model show the same records, after any operations.

A branch shows its parent's records until a record of its own is past the ttl (EXPIRY-5). Main counts every record.
Two directories hand the branches to each other, promote and rename them by that.

Not tested: a clock that is set back, and a ttl that changes. An open log lowers its expiry floor for neither
(EXPIRY-2), and a replica does.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import offload
import seglog
from catalog.objects.memory import MemoryStore
from offload import OffloadSettings
from offload.archive import Archive
from seglog import Log, Topic, TopicConfig
from seglog.values.names import BRANCH_MARK
from tests.seglog.clocks import SetClock
from tests.work import amounts, seed_of, tell

TTL_MS = 100
STEPS = ("append",) * 4 + ("forward", "drop") * 2
STEPS += ("offload", "delete", "delete_tag", "truncate", "evict", "merge", "erase", "hand", "promote", "reopen")


@dataclass
class Volume:
    """The records of a volume that no truncation took: the time of each, and which are its own, live, and tagged."""

    times: dict[int, int] = field(default_factory=dict[int, int])
    own: set[int] = field(default_factory=set[int])
    live: set[int] = field(default_factory=set[int])
    tagged: set[int] = field(default_factory=set[int])
    evict_floor: int = 1

    @property
    def head_seq(self) -> int:
        return max(self.times, default=0)

    def shown(self, oldest_ms: int, *, is_branch: bool) -> list[int]:
        expired = [seq for seq in (self.own if is_branch else self.times) if self.times[seq] < oldest_ms]
        floor = max(self.evict_floor, max(expired, default=0) + 1)
        return sorted(seq for seq in self.live if seq >= floor)


class World:
    """Two directories, a store, and the model of each name. `writer` is the directory that writes a name."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = SetClock(10_000)
        self.store = MemoryStore(self.clock.now_ms)
        self.path = path
        self.stack = ExitStack()
        self.looks = 0
        self.told: list[str] = []
        self.reopen("")
        self.places[0][0].create_topic("t", TopicConfig(ttl_ms=TTL_MS))
        main = Volume()
        self.volumes, self.writer = {"t": main}, {"t": 0}
        self.append("t")
        self.offload("t")
        self.places[0][1].restore("t", to="head", name="b")
        self.volumes["t@b"] = Volume(dict(main.times), set(), set(main.live), set(main.tagged))
        self.writer["t@b"] = 0

    def step(self) -> None:
        do, name = self.chance.choice(STEPS), self.chance.choice(sorted(self.volumes))
        self.told.append(f"{do} {name}")
        getattr(self, do)(name)
        for each in sorted({name, "t"}):
            self.look(each)

    def look(self, name: str) -> None:
        if name not in self.volumes:
            return
        owner = self.writer[name]
        self.compare("owner", name, owner)
        if self.chance.random() < 0.5:
            self.offload(name)
            self.places[1 - owner][1].replication.sync(name)
            self.compare("owner after its offload", name, owner)
            self.compare("replica", name, 1 - owner)

    def compare(self, who: str, name: str, place: int) -> None:
        self.looks += 1
        wanted = self.volumes[name].shown(self.clock.ms - TTL_MS, is_branch=BRANCH_MARK in name)
        found = [record.seq for record in self.places[place][1].read(name)]
        assert found == wanted, f"{who} of {name} at {self.clock.ms}, {self.volumes[name]}, after {self.told}"

    def archive(self, name: str) -> Archive:
        return self.places[self.writer[name]][1]

    def topic(self, name: str) -> Topic:
        return self.archive(name).open_for_append(name)

    # ------------------------------------------------------------ steps

    def append(self, name: str) -> None:
        topic, volume, tag = self.topic(name), self.volumes[name], self.chance.choice([None, "x"])
        seqs = topic.append([b"x"] * self.chance.randint(1, 5), tag=tag)
        volume.times |= dict.fromkeys(seqs, topic.last_ts_ms)
        volume.own |= set(seqs)
        volume.live |= set(seqs)
        volume.tagged |= set(seqs) if tag else set()

    def forward(self, _: str) -> None:
        self.clock.ms += self.chance.randint(1, 60)

    def offload(self, name: str, *, drop_hot: bool = False) -> None:
        log, archive = self.places[self.writer[name]]
        if log.has_topic(name):
            log.topic(name).seal()
            archive.offload(name, drop_hot=drop_hot)

    def drop(self, name: str) -> None:
        self.offload(name, drop_hot=True)

    def delete(self, name: str) -> None:
        before = self.chance.randint(1, self.volumes[name].head_seq + 1)
        self.topic(name)
        self.archive(name).delete(name, before=before)
        self.volumes[name].live -= set(range(before))

    def delete_tag(self, name: str) -> None:
        self.topic(name)
        self.archive(name).delete(name, tag="x")
        self.volumes[name].live -= self.volumes[name].tagged

    def truncate(self, name: str) -> None:
        volume = self.volumes[name]
        seq = self.chance.randint(volume.evict_floor, volume.head_seq + 1)
        self.topic(name)
        self.archive(name).truncate(name, seq)
        for gone in range(seq, volume.head_seq + 1):
            del volume.times[gone]
            for seqs in (volume.own, volume.live, volume.tagged):
                seqs.discard(gone)

    def evict(self, name: str) -> None:
        volume = self.volumes[name]
        volume.evict_floor = self.chance.randint(volume.evict_floor, max(volume.evict_floor, volume.head_seq // 2))
        self.topic(name)
        self.archive(name).evict(name, volume.evict_floor)

    def merge(self, name: str) -> None:
        self.topic(name)
        self.archive(name).upkeep.compact(name)

    def erase(self, name: str) -> None:
        self.topic(name)
        self.offload(name)
        self.archive(name).upkeep.erase(name)

    def hand(self, name: str) -> None:
        """Let the other directory write the name from here on."""
        self.offload(name)
        former, self.writer[name] = self.writer[name], 1 - self.writer[name]
        self.archive(name).replication.take_over(name)
        self.follow(former, name)

    def promote(self, _: str) -> None:
        branch = next(name for name in self.volumes if name != "t")
        for name in ("t", branch):
            self.offload(name)
        keep = f"t@k{len(self.told)}"
        self.archive("t").branches.promote_branch("t", branch[2:], keep=keep[2:], leave=True)
        for place in (0, 1):
            for name in ("t", branch):
                self.follow(place, name)
            self.places[place][1].replication.sync("t")
        for known in (self.volumes, self.writer):
            known[keep], known["t"] = known.pop("t"), known.pop(branch)  # type: ignore[index]  # of one type each

    def follow(self, place: int, name: str) -> None:
        """Make the directory a replica of the name."""
        if self.places[place][0].has_topic(name):
            self.places[place][1].replication.reset(name)

    def reopen(self, _: str) -> None:
        self.stack.close()
        settings = offload.Settings().with_parts(OffloadSettings(merge_count=2))
        self.places: list[tuple[Log, Archive]] = []
        for number in (0, 1):
            log = self.stack.enter_context(seglog.open(self.path / str(number), clock=self.clock))
            archive = offload.attach(log, store=self.store, clock=self.clock, settings=settings)
            self.places.append((log, self.stack.enter_context(archive)))


@amounts(4, soak=300, part=2)
def test_owner_replica_and_model_show_the_same(tmp_path: Path, amount: int) -> None:
    seed, looks = seed_of("ttl of branches"), 0
    for number in range(amount):
        world = World(tmp_path / str(number), seed + number)
        with world.stack:
            for _ in range(25):
                world.step()
        looks += world.looks
    tell(f"{amount} histories, {looks} looks")
