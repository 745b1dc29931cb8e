"""After each GC run, `points` lists what can be restored: each listed point is, and a point that left is refused.

A history has appends, deletes, evictions, truncations, tags, branches, days and GC. A plain model has the records of
each LSN, tag and branch. After each run a new machine lists the points of a copy of the remote. It restores each of
them as a branch, and compares the records with the model. It then asks for each LSN that the history lacks, and for
each point of the listing before that is not listed any more.

A point that only left the list, such as a former head, is still in the window. It is restored and compared, too.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from catalog.errors import NoSuchTag, OutOfWindow
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.operations.points import PointListed, points
from tests.offload.replicas import opened, ship
from tests.work import amounts, tell
from tests.worlds.clock import HandClock

pytestmark = pytest.mark.usefixtures("no_pauses")

START_MS = 1_790_000_000_000
DAY_MS = 24 * 3_600_000
_STEPS = 30
_OPERATIONS = {"append": 8, "delete": 4, "evict": 1, "truncate": 2, "tag": 3, "untag": 2, "fork": 3, "drop": 2, "gc": 6}

State = dict[int, bytes]


@dataclass
class _Model:
    """The records now, and those of each LSN, tag and branch. `first` and `head` are seqs of the topic."""

    shown: State = field(default_factory=dict[int, bytes])
    head: int = 0
    commits: dict[int, State] = field(default_factory=dict[int, State])
    tags: dict[str, State] = field(default_factory=dict[str, State])
    forks: dict[str, State] = field(default_factory=dict[str, State])

    def at(self, lsn: int) -> State:
        """Return the records at a commit. A commit of GC changes none."""
        return self.commits[max(each for each in self.commits if each <= lsn)]

    def of(self, point: PointListed) -> State:
        kind, _, name = point.kept.partition(" ")
        if kind == "tag":
            return self.tags[name]
        return self.forks[name] if kind == "branch" else self.at(int(point.target.removeprefix("lsn:")))


class _History:
    def __init__(self, path: Path, seed: int, stack: ExitStack, counts: Counter[str]) -> None:
        self.random = random.Random(seed)
        self.path = path
        self.clock = HandClock(START_MS)
        self.store = MemoryStore(self.clock.now_ms)
        self.log, self.archive = stack.enter_context(opened(path / "writer", self.store, self.clock))
        self.model = _Model()
        self.counts = counts
        self.listed: dict[str, State] = {}
        self.number = 0
        self.append()

    def run(self) -> None:
        for _ in range(_STEPS):
            [name] = self.random.choices([*_OPERATIONS], [*_OPERATIONS.values()])
            self.clock.ms += self.random.choice([1_000, DAY_MS, 4 * DAY_MS])
            self.number += 1
            act: Callable[[], None] = getattr(self, name)
            act()
            self.model.commits[self.archive.status.topic("t").lsn] = dict(self.model.shown)
            self.counts[name] += 1
        self.gc()

    # ------------------------------------------------------------ operations

    def append(self) -> None:
        values = [b"%d-%d" % (self.number, each) for each in range(self.random.randint(1, 3))]
        ship(self.archive, self.log, "t", *values, tag=self.random.choice("ab"))
        for value in values:
            self.model.head += 1
            self.model.shown[self.model.head] = value
        self.model.commits[self.archive.status.topic("t").lsn] = dict(self.model.shown)

    def delete(self) -> None:
        before = self.random.randint(1, self.model.head + 1)
        self.archive.delete("t", before=before)
        self.model.shown = {seq: value for seq, value in self.model.shown.items() if seq >= before}

    def evict(self) -> None:
        before = self.random.randint(1, max(1, self.model.head - 3))
        self.archive.evict("t", before)
        self.model.shown = {seq: value for seq, value in self.model.shown.items() if seq >= before}

    def truncate(self) -> None:
        seq = self.model.head - self.random.randint(0, 1)
        if seq > max(self.log.topic("t").inner.evict_floor, 1):
            self.archive.truncate("t", seq)
            self.model.shown = {each: value for each, value in self.model.shown.items() if each < seq}
            self.model.head = seq - 1

    def tag(self) -> None:
        self.archive.tags.tag("t", f"t{self.number}")
        self.model.tags[f"t{self.number}"] = dict(self.model.shown)

    def untag(self) -> None:
        if self.model.tags:
            self.archive.tags.delete_tag("t", name := self.random.choice([*self.model.tags]))
            del self.model.tags[name]

    def fork(self) -> None:
        self.archive.restore("t", to="head", name=f"f{self.number}")
        self.model.forks[f"f{self.number}"] = dict(self.model.shown)

    def drop(self) -> None:
        if self.model.forks:
            self.archive.branches.delete_branch("t", name := self.random.choice([*self.model.forks]))
            del self.model.forks[name]

    def gc(self) -> None:
        """Run GC twice, two days apart: the second run deletes what the first one planned."""
        for _ in range(2):
            self.clock.ms += 2 * DAY_MS
            report = self.archive.upkeep.collect()
            assert not report.blocked
            self.counts["deleted"] += report.deleted.total()
            self.check()

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        copy = MemoryStore(self.clock.now_ms)
        for key in self.store.list(""):
            copy.put(key, self.store.get(key), {})
        self.counts["checks"] += 1
        with opened(self.path / f"new-{self.counts['checks']}", copy, self.clock) as (_, archive):
            _, *found = points(archive, "t", limit=1_000)
            listed = {each.target: self.model.of(each) for each in found if isinstance(each, PointListed)}
            assert len(listed) >= 1 + len(self.model.tags)
            for target, state in listed.items():
                assert _restored(archive, target) == state, target
                self.counts["restored"] += 1
            kept = {past.commit.lsn for past in archive.history.commits("t")}
            for target, state in self.listed.items():
                if target not in listed:
                    self._check_left(archive, target, None if _is_gone(target, kept) else state)
            for lsn in self.model.commits:
                if lsn and lsn not in kept:
                    self._check_left(archive, f"lsn:{lsn}", None)
        self.listed = listed

    def _check_left(self, archive: Archive, target: str, state: State | None) -> None:
        """Check a point that is not listed. `state` is None if the point has to be refused."""
        if state is not None:
            assert _restored(archive, target) == state, target
            self.counts["only left the list"] += 1
            return
        with pytest.raises((NoSuchTag, OutOfWindow)):
            archive.restore("t", to=target, name="refused")
        with pytest.raises((NoSuchTag, OutOfWindow)):
            list(archive.read("t", at=target))
        self.counts["refused"] += 1


def _is_gone(target: str, kept: set[int]) -> bool:
    return target.startswith("tag:") or int(target.removeprefix("lsn:")) not in kept


def _restored(archive: Archive, target: str) -> State:
    name = target.replace(":", "-")
    archive.restore("t", to=target, name=name)
    found = {record.seq: record.value for record in archive.read(f"t@{name}")}
    archive.branches.delete_branch("t", name)
    return found


@pytest.mark.long
@amounts(2, soak=150, part=8)
def test_after_gc_each_listed_point_is_restored_and_no_other(amount: int, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(amount):
        try:
            with ExitStack() as stack:
                _History(tmp_path / str(seed), seed, stack, counts).run()
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise
    tell(", ".join(f"{count} {name}" for name, count in counts.items()))
    assert min(counts[name] for name in ("deleted", "restored", "refused")) > 0
