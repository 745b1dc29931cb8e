"""A preview names exactly the branches and tags that still show some of the records that go."""

from __future__ import annotations

import random
from pathlib import Path

from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from seglog import Log
from tests.offload.replicas import opened, ship, values
from tests.work import amounts, seed_of, tell


class World:
    """A topic whose values are all different, with branches and tags. One directory writes, another one looks."""

    def __init__(self, log: Log, archive: Archive, seed: int) -> None:
        self.log = log
        self.archive = archive
        self.chance = random.Random(seed)
        self.names = ["t"]
        self.tags: list[str] = []
        self.appended = 0
        self.append("t")

    def append(self, name: str) -> None:
        given = [b"%d" % number for number in range(self.appended, self.appended + 3)]
        self.appended += len(given)
        ship(self.archive, self.log, name, *given, tag=self.chance.choice([None, "x", "y"]))

    def step(self) -> None:
        name = self.chance.choice(self.names)
        topic = self.archive.open_for_append(name)
        match self.chance.choice(
            ["append", "append", "branch", "branch", "tag", "delete", "delete tag", "delete tag", "truncate", "evict"]
        ):
            case "append":
                self.append(name)
            case "branch":
                self.names.append(f"t@b{len(self.names)}")
                self.archive.restore(name.partition("@")[0], to="head", name=self.names[-1][2:])
            case "tag":
                self.tags.append(f"v{len(self.tags)}")
                self.archive.tags.tag("t", self.tags[-1])
            case "delete":
                self.archive.delete(name, before=self.chance.randint(1, topic.head_seq + 1))
            case "delete tag":
                self.archive.delete(name, tag=self.chance.choice("xy"))
            case "truncate":
                self.archive.truncate(name, self.chance.randint(topic.inner.evict_floor, topic.head_seq + 1))
            case "evict":
                self.archive.evict(name, self.chance.randint(1, topic.head_seq // 2 + 1))
        self.archive.offload(name)

    def shown(self, archive: Archive) -> dict[str, set[bytes]]:
        found = {name: set(values(archive, name)) for name in self.names}
        return found | {f"tag:{tag}": set(values(archive, "t", at=f"tag:{tag}")) for tag in self.tags}

    def check(self, looks: Archive) -> int:
        """Compare a preview of each command with what all names show."""
        for name in self.names:
            looks.replication.sync(name)
        shown = self.shown(looks)
        for name in self.names:
            others = {each: found for each, found in shown.items() if each != name}
            tag, start = self.chance.choice([None, "x"]), self.chance.randint(1, 4)
            live = looks.read(name)
            going = {each.value for each in live if each.seq >= start and (tag is None or each.tag == tag)}
            told = looks.previews.removal(name, start=start, tag=tag)
            assert told.going.records == len(going)
            assert set(told.shown_by) == {each for each, found in others.items() if found & going}
            if name != "t":
                only = looks.previews.branch("t", name[2:])
                assert set(only.shown_by) == {each for each, found in others.items() if found & shown[name]}
                assert only.going.records == len(shown[name].difference(*others.values()))
        return 2 * len(self.names) - 1


@amounts(4, soak=200, part=8)
def test_names_that_still_show_a_record_are_told_and_no_others(tmp_path: Path, amount: int) -> None:
    seed, looks = seed_of("previews"), 0
    for number in range(amount):
        store = MemoryStore()
        with (
            opened(tmp_path / f"{number}", store) as (log, archive),
            opened(tmp_path / f"{number} looks", store) as (_, other),
        ):
            world = World(log, archive, seed + number)
            for _ in range(4):
                for _ in range(4):
                    world.step()
                looks += world.check(other)
    tell(f"{amount} histories, {looks} previews")
