"""T9: random histories of a prefix and GC. GC deletes nothing reachable, and in the end leaves nothing else.

A history has writers, forks of forks, tags, pins, deletes, merges, truncations, undos, checkpoints, deleted branches
and pending uploads. The clocks of machines are wrong either way. Between the requests of a GC run another actor may
act. The actor writes, forks, pins, undoes, undeletes a branch, makes a checkpoint, or wakes after a stall. A fault may
end the run.

After each run the test reads every state that must exist by its objects, record by record. It compares them with a
model that knows commits only. All recorded uploads are there, and no volume that has a name is closed. A point that a
branch has from its parent is restorable while the parent keeps it and the branch goes back to it.

Not tested: bytes of records, a clock that changes during a run (`tests/catalog/test_gc_clock.py`), and the choice of
the point for a target by seq or time. The model takes that point from `resolve` over a store that lost nothing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from catalog.errors import CatalogError, ClocksDisagree, StoreUnreachable
from catalog.format.commit import Commit, ForkPoint
from catalog.objects.store_time import MOST_OFF_MS
from catalog.objects.wrapped import WrappedStore
from catalog.timeline import Lsn, Seq, Target, Time, span
from catalog.volume import Volumes
from tests.catalog.gc_world import HOUR_MS, Branch, World
from tests.faults.in_caller import InCaller
from tests.work import shares, tell

T = TypeVar("T")

_OPERATIONS = {
    "offload": 12,
    "delete": 3,
    "merge": 3,
    "truncate": 2,
    "undo": 3,
    "checkpoint": 2,
    "wait": 8,
    "clock_goes_wrong": 2,
    "clock_is_set": 3,
    "fork": 3,
    "tag": 1,
    "untag": 1,
    "pin": 2,
    "drop": 1,
    "undelete": 1,
    "upload": 2,
    "stall": 3,
    "wake": 2,
    "collect": 8,
}

HISTORIES, SOAK_HISTORIES = 8, 1_500


@pytest.fixture(autouse=True)
def _in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", InCaller)


class _Between(WrappedStore):
    """Lets another actor act before some requests. In some runs it fails one request, before or after its effect."""

    def __init__(self, world: World, wake: Callable[[], None]) -> None:
        super().__init__(world.store)
        self._random = world.random
        self._wake = wake
        self._ends_in = world.random.randint(1, 200) if world.random.random() < 0.3 else 0

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if self._random.random() < 0.03:
            self._wake()
        self._ends_in -= 1
        if self._ends_in == 0:
            if self._random.random() < 0.5:
                act()
            raise StoreUnreachable("faulty://", f"a fault at {method} {key}")
        return act()


class _History:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.random = random.Random(seed * 7 + 1)
        self.stalled: list[Iterator[object]] = []
        self.counts: Counter[str] = Counter()
        self.names = 0
        self.latest_ms = 0
        self.world.root()

    def run(self, steps: int) -> None:
        names, weights = list(_OPERATIONS), list(_OPERATIONS.values())
        for _ in range(steps):
            [name] = self.random.choices(names, weights)
            getattr(self, name)()
            self.counts[name] += 1
            self.latest_ms = max(self.latest_ms, self.world.now_ms)
        self.world.check()
        self.settle()

    def settle(self) -> None:
        """Complete every stalled step, set the clock past the time of every object, and collect until nothing changes.

        Then no object is left that no name reaches.
        """
        while self.stalled:
            self.wake()
        self.clock_is_set()
        self.world.now_ms = max(self.world.now_ms, self.world.latest_ms, self.latest_ms)
        for _ in range(40):
            before = self.world.objects()
            self.world.now_ms += 1
            report = self.world.collect()
            assert not report.blocked
            assert not report.unknown_keys
            if self.world.objects() == before:
                break
        self.counts["states"] += self.world.check()
        left = self.world.left_over()
        assert left == [], left

    def branch(self) -> Branch | None:
        named = [branch for branch in self.world.named() if not self.world.is_deleted(branch.name)]
        return self.random.choice(named) if named else None

    def point(self) -> ForkPoint | None:
        """Return a state that is restorable now, was so a moment ago, or that a tag, a pin or a branch holds."""
        held = [point for point in self.world.points() if point.vid in self.world.branches]
        held += [branch.parent for branch in self.world.branches.values() if branch.parent]
        if held and self.random.random() < 0.2:
            return self.random.choice(held)
        branch = self.branch()
        if branch is None:
            return None
        lowest = self.world.boundary(branch.vid)
        lsns = [lsn for lsn in branch.shown if lsn >= max(lowest, 1)]
        if not lsns:
            return None
        lsn = self.random.choice(lsns)
        head = branch.shown[lsn].bounds.head_seq
        seq = self.random.randint(1, head) if head > 1 and self.random.random() < 0.5 else None
        return ForkPoint(branch.vid, lsn, seq)

    # ------------------------------------------------------------ operations

    def offload(self) -> None:
        branch = self.branch()
        if branch:
            self.world.offload(branch)

    def delete(self) -> None:
        branch = self.branch()
        if branch:
            self.world.delete(branch)

    def merge(self) -> None:
        branch = self.branch()
        if branch:
            self.world.merge(branch)

    def truncate(self) -> None:
        branch = self.branch()
        if branch:
            self.world.truncate(branch)

    def undo(self) -> None:
        branch = self.branch()
        if branch:
            self._drain(self.world.undo_steps(branch, self._name("x")))

    def checkpoint(self) -> None:
        branch = self.branch()
        if branch:
            self.world.checkpoint(branch)

    def wait(self) -> None:
        self.world.now_ms += self.random.choice([1, HOUR_MS // 3, HOUR_MS, 3 * HOUR_MS])

    def clock_goes_wrong(self) -> None:
        """Set the machines' clocks wrong, and the clock of GC too. The store's clock stays right."""
        off_ms = self.random.choice([-4 * HOUR_MS, -HOUR_MS, 30 * HOUR_MS, 900 * HOUR_MS])
        self.world.off_ms = self.random.choice([off_ms, self.random.randint(-MOST_OFF_MS, MOST_OFF_MS)])

    def clock_is_set(self) -> None:
        self.world.off_ms = 0

    def fork(self) -> None:
        point = self.point()
        if point:
            self._drain(self.world.fork_steps(self._name("b"), point))

    def tag(self) -> None:
        point = self.point()
        if point:
            self._drain(self.world.tag_steps(self._name("t"), point))

    def untag(self) -> None:
        self.world.drop_a_tag()

    def pin(self) -> None:
        point = self.point()
        if point:
            ttl_ms = self.random.choice([1, 10]) * HOUR_MS
            self._drain(self.world.pin_steps(self._name("p"), point, ttl_ms))

    def drop(self) -> None:
        branch = self.branch()
        if branch and branch.name != "main":
            self.world.delete_ref(branch.name)

    def undelete(self) -> None:
        name = self.deleted()
        if name:
            self._drain(self.world.undelete_steps(name))

    def deleted(self) -> str | None:
        names = {branch.name for branch in self.world.branches.values()}
        found = sorted(name for name in names if self.world.is_deleted(name))
        return self.random.choice(found) if found else None

    def upload(self) -> None:
        """Record an attempt and put its objects. Its commit comes later."""
        branch = self.branch()
        if branch:
            steps = self._write(branch, self.world.offload(branch, prepare_only=True), is_on_record=True)
            next(steps)
            self.stalled.append(steps)

    def stall(self) -> None:
        """Begin an operation and stop it after some steps. `wake` continues it."""
        kind = self.random.choice(["writer", "forker", "pinner", "tagger", "undeleter", "checkpointer", "undoer"])
        point, branch = self.point(), self.branch()
        if branch is None or point is None:
            return
        steps: Iterator[object]
        if kind == "writer":
            steps = self._write(branch, self.world.offload(branch, prepare_only=True), is_on_record=False)
        elif kind == "forker":
            steps = self.world.fork_steps(self._name("s"), point)
        elif kind == "pinner":
            steps = self.world.pin_steps(self._name("q"), point, 10 * HOUR_MS)
        elif kind == "undoer":
            steps = self.world.undo_steps(branch, self._name("y"))
        elif kind == "undeleter":
            name = self.deleted()
            steps = self.world.undelete_steps(name) if name else iter(())
        elif kind == "checkpointer":
            lsns = [lsn for lsn in branch.shown if lsn >= max(self.world.boundary(branch.vid), 1)]
            steps = self.world.checkpoint_steps(branch.vid, self.random.choice(lsns)) if lsns else iter(())
        else:
            steps = self.world.tag_steps(self._name("u"), point)
        for _ in range(self.random.randint(0, 3)):
            if next(steps, self) is self:
                return
        self.stalled.append(steps)

    def wake(self) -> None:
        if self.stalled:
            steps = self.stalled.pop(self.random.randrange(len(self.stalled)))
            if next(steps, self) is not self:
                self.stalled.append(steps)

    def collect(self) -> None:
        store = _Between(self.world, self._wake_with_care)
        grace_s = self.random.choice([0, 0, 0, 3600])
        try:
            report = self.world.collect(grace_s, store, lambda: tuple(self.world.attempts))
        except ClocksDisagree:
            self.counts["clocks told"] += 1
        except CatalogError:
            self.counts["ended"] += 1
        else:
            self.counts["deleted"] += report.deleted.total()
        self.counts["states"] += self.world.check()
        self.drill()

    def drill(self) -> None:
        """T10: every restorable state equals the past state, and every state that must be restorable is."""
        branch = self.branch()
        if branch is None:
            return
        window = span(Volumes(self.world.store).history(branch.vid))
        targets: list[Target] = [Lsn(self.random.randint(1, branch.tip.lsn + 1)) for _ in range(2)]
        targets += [Seq(self.random.randint(1, branch.tip.bounds.head_seq + 2)) for _ in range(2)]
        targets += [Time(self.world.latest_ms - self.random.randint(0, 9 * HOUR_MS)) for _ in range(2)]
        for target in targets:
            self.counts["restored" if self.world.drill(branch, target) else "out of window"] += 1
        if window is not None and window.first_ms is not None and window.last_ms is not None:
            between = self.random.randint(window.first_ms, window.last_ms)
            for listed in (Time(window.first_ms), Time(window.last_ms), Time(between), Lsn(window.last_lsn)):
                assert self.world.drill(branch, listed), f"{listed} is listed"
            assert not self.world.drill(branch, Time(window.first_ms - 1))
            if window.seqs is not None:
                assert self.world.drill(branch, Seq(window.seqs[0])), f"{window} is listed"
            self.counts["listed"] += 1

    # ------------------------------------------------------------ inside

    def _wake_with_care(self) -> None:
        if self.stalled and self.random.random() < 0.7:
            self.wake()
        elif self.random.random() < 0.7:
            self.offload()
        elif self.random.random() < 0.3:
            self.fork()

    def _write(self, branch: Branch, commit: Commit, *, is_on_record: bool) -> Iterator[object]:
        """Yield between the upload and the commit.

        With `is_on_record`, GC runs in the same data directory and knows the attempt, however long it takes.
        """
        sid = commit.segments[0].sid
        if is_on_record:
            self.world.attempts[sid] = branch.vid
        yield "uploaded"
        if sid.created_ms >= branch.tip.collected_before_ms:
            self.counts["late commits"] += self.world.publish(branch, commit)
        if is_on_record:
            self.counts["attempts"] += 1
            del self.world.attempts[sid]

    def _drain(self, steps: Iterator[object]) -> None:
        for _ in steps:
            pass

    def _name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"


def _run(seeds: range) -> Counter[str]:
    total: Counter[str] = Counter()
    for seed in seeds:
        history = _History(seed)
        try:
            history.run(history.random.randint(30, 90))
        except BaseException as error:
            error.add_note(f"history {seed}")
            raise
        total += history.counts
        total["histories"] += 1
        total["refused"] += history.world.refused
    tell(f"T9: {dict(total)}; reachable deleted: 0, orphans left: 0")
    return total


def test_some_histories() -> None:
    total = _run(range(20, 20 + HISTORIES))
    assert min(total[name] for name in ("deleted", "ended", "late commits", "states")) > 0


@shares(6, 6, 7, 7)
def test_thousands_of_histories(share: int) -> None:
    total = _run(range(share * SOAK_HISTORIES, (share + 1) * SOAK_HISTORIES))
    assert min(total[name] for name in ("deleted", "ended", "late commits", "refused", "states")) > 0
