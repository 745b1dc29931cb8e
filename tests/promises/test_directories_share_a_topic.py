"""Several directories share a topic and a remote that fails now and then. Users run commands in any order.

After every step, whatever error it raised:

- each directory reads back every record that it acked, on the topic or on a branch that a reset made of it, unless a
  delete that no undo has taken back took it;
- a replica shows what the volume had at its LSN;
- the volume's commits are one chain whose epoch never falls, and its records have different values;
- an undo, by whichever directory, takes back the delete that it names, and a later call finds it done;
- an append that is repeated under its key is there once, also after an undo.

At the end the faults stop. `sync` or `reset --as` brings each directory back, and all of them read the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import offload
import seglog
from catalog import CommitKind, ForkPoint, Volumes
from catalog.errors import Diverged, NotUndone
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload import OffloadSettings
from offload.archive import Archive
from offload.errors import LocalChangesLost
from offload.settings import CatalogSettings
from seglog import Log, SeglogError
from tests.faults.files import UnsyncedFiles
from tests.faults.store import EFFECTS, lost, unreachable
from tests.seams.archive import context_of
from tests.work import amounts, tell

_TROUBLE = SeglogError


class _Shaky(WrappedStore):
    """One call in `one_in` gets no answer. It fails before or after its effect."""

    def __init__(self, inner: MemoryStore, chance: random.Random) -> None:
        super().__init__(inner)
        self.chance = chance
        self.one_in = 0

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        if not self.one_in or self.chance.randrange(self.one_in):
            return act()
        if method in EFFECTS and self.chance.random() < 0.5:
            act()
        raise (lost if method == "put_new" else unreachable)(key)


@dataclass
class _Delete:
    """A delete by a tag, whose directory had acked `values`. `point` is its commit, None if nobody learned of one."""

    values: frozenset[bytes]
    point: ForkPoint | None = None
    is_undone: bool = False


class _Directory:
    def __init__(self, path: Path, store: _Shaky, chance: random.Random) -> None:
        self.path = path
        self.store = store
        self.chance = chance
        self.acked: list[bytes] = []
        self.deletes: list[_Delete] = []
        self.repeatable: bytes | None = None
        self.branches = 0
        self.stack = ExitStack()
        self.log: Log
        self.archive: Archive
        self.open()

    def open(self) -> None:
        self.log = self.stack.enter_context(seglog.open(self.path, files=UnsyncedFiles()))
        self.archive = self.stack.enter_context(
            offload.attach(
                self.log,
                store=self.store,
                settings=offload.Settings().with_parts(
                    OffloadSettings(merge_count=3), CatalogSettings(checkpoint_commits=5)
                ),
            )
        )

    def reopen(self) -> None:
        self.stack.close()
        self.open()

    # ------------------------------------------------------------ what a user may do

    def append(self) -> None:
        value = f"{self.path.name}-{len(self.acked)}".encode()
        topic, key = self.archive.open_for_append("t"), value.decode()
        self.repeatable = None
        topic.append([value], tag=self.path.name, durability="memory", key=key)
        self.acked.append(value)
        self.repeatable = value

    def repeat(self) -> None:
        """Repeat the newest append. Only an undo, and what moves no topic, came since."""
        if self.repeatable is not None:
            topic = self.archive.open_for_append("t")
            topic.append([self.repeatable], tag=self.path.name, durability="memory", key=self.repeatable.decode())

    def delete(self) -> None:
        """Delete the directory's own records, if it writes the topic."""
        if self.log.has_topic("t"):
            deleted = _Delete(frozenset(self.acked))
            self.deletes.append(deleted)
            self.push()
            removed = self.archive.delete("t", tag=self.path.name)
            if removed.lsn is not None:
                deleted.point = ForkPoint(self.archive.history.snapshot("t").vid, removed.lsn)

    def undo(self, deletes: list[_Delete]) -> None:
        """Undo the newest delete that any directory knows to be a commit."""
        for deleted in deletes:
            if deleted.point is not None and not deleted.is_undone:
                lsn, vid = deleted.point.lsn, deleted.point.vid
                try:
                    self.archive.history.undo_removal("t", lsn, vid)
                except NotUndone:  # the delete took nothing that was left
                    continue
                self.store.one_in = 0
                done = self.archive.history.undo_removal("t", lsn, vid)
                assert (done.undone, done.is_earlier) == (deleted.point, True)
                deleted.is_undone = True
                return

    def push(self) -> None:
        if self.log.has_topic("t"):
            self.log.topic("t").seal()
            self.archive.offload("t", drop_hot=self.chance.random() < 0.5)

    def sync(self) -> None:
        self.repeatable = None
        self.archive.replication.sync("t")

    def pull(self) -> None:
        self.repeatable = None
        self.archive.replication.pull("t")

    def fetch(self) -> None:
        self.repeatable = None
        self.archive.replication.fetch("t")

    def take_over(self) -> None:
        self.repeatable = None
        self.archive.replication.take_over("t")

    def merge(self) -> None:
        self.archive.upkeep.compact("t")

    def drop_copies(self) -> None:
        self.archive.upkeep.drop_copies()

    def reset(self) -> None:
        self.repeatable = None
        try:
            self.archive.replication.reset("t")
        except LocalChangesLost:
            self.branches += 1
            self.archive.replication.reset("t", as_branch=self._branch(self.branches))

    # ------------------------------------------------------------ what must hold

    def values(self) -> Counter[bytes]:
        """Return every value that the directory shows, on the topic and on the branches that it made."""
        names = ["t", *(f"t@{self._branch(number)}" for number in range(1, self.branches + 1))]
        found: Counter[bytes] = Counter()
        for name in names:
            if self.log.has_topic(name) or self.archive.replication.is_replica(name):
                found.update(record.value for record in self.archive.read(name))
        return found

    def _branch(self, number: int) -> str:
        return f"{self.path.name}-{number}"


def _check_volume(store: MemoryStore, archive: Archive) -> list[bytes]:
    """Check the volume's chain. Return the values that the volume shows."""
    volumes = Volumes(store)
    vid = archive.history.snapshot("t").vid
    newest = volumes.newest_lsn(vid)
    commits = volumes.commits(vid, 1, newest)  # `commits` checks the hash chain and that epochs ascend
    heads = [each.commit.bounds.head_seq for each in commits]
    assert heads == sorted(heads)
    snapshot = volumes.snapshot(vid)
    records = list(context_of(archive).reader.records(snapshot, 1, snapshot.bounds.head_seq))
    added = [ref for each in commits if each.commit.kind is CommitKind.OFFLOAD for ref in each.commit.segments]
    assert [seq for ref in added for seq in range(ref.first_seq, ref.last_seq + 1)] == [*range(1, heads[-1] + 1)]
    values = [record.value for record in records]
    assert len(set(values)) == len(values)
    return values


def _at(store: MemoryStore, archive: Archive) -> list[bytes]:
    """Return what the volume had at the LSN of a replica."""
    handle = context_of(archive).handles.find("t")
    assert handle is not None
    snapshot = Volumes(store).snapshot(handle.vid, handle.lsn)
    return [record.value for record in context_of(archive).reader.records(snapshot, 1, snapshot.bounds.head_seq)]


def _drawn(chance: random.Random, directories: list[_Directory]) -> list[_Delete]:
    """Return all deletes in any order."""
    found = [deleted for each in directories for deleted in each.deletes]
    return chance.sample(found, len(found))


def _run(base: Path, seed: int, steps: int) -> tuple[int, Counter[str]]:
    chance = random.Random(seed)
    memory = MemoryStore()
    shaky = _Shaky(memory, chance)
    raised: Counter[str] = Counter()
    directories = [_Directory(base / name, shaky, chance) for name in ("one", "two", "three")]
    try:
        directories[0].append()
        directories[0].push()
        for _ in range(steps):
            directory = chance.choice(directories)
            undo = partial(directory.undo, _drawn(chance, directories))
            actions: list[Callable[[], None]] = [
                directory.append, directory.append, directory.push, directory.push, directory.sync, directory.sync,
                directory.pull, directory.fetch, directory.take_over, directory.merge, directory.drop_copies,
                directory.reset, directory.reopen, directory.repeat, directory.delete, directory.delete, undo, undo,
            ]  # fmt: skip
            action = chance.choice(actions)
            shaky.one_in = chance.choice([0, 0, 8, 25])
            try:
                action()
            except _TROUBLE as error:
                raised[type(error).__name__] += 1
            shaky.one_in = 0
            shown = _check_volume(memory, directory.archive)
            for each in directories:
                held = each.values()
                hidden = frozenset[bytes]().union(*(one.values for one in each.deletes if not one.is_undone))
                missing = [value for value in each.acked if value not in held and value not in shown]
                missing = [value for value in missing if value not in hidden]
                assert not missing, f"seed {seed}: {each.path.name} lost {missing} by {action}"
                if each.archive.replication.is_replica("t"):
                    found = [record.value for record in each.archive.read("t")]
                    assert found == _at(memory, each.archive), f"seed {seed}: {action}"
        _settle(directories)
        shown = _check_volume(memory, directories[0].archive)
        raised["deletes undone"] = sum(deleted.is_undone for each in directories for deleted in each.deletes)
        for each in directories:
            with suppress(Diverged):
                each.archive.replication.sync("t")
            assert [record.value for record in each.archive.read("t")] == shown
        return steps, raised
    finally:
        for each in directories:
            each.stack.close()


def _settle(directories: list[_Directory]) -> None:
    """Push every directory.

    If a push or a sync finds that the directory diverged, reset it and keep its records on a branch.
    """
    for directory in directories:
        try:
            directory.push()
        except Diverged:
            directory.reset()
    for directory in directories:
        try:
            directory.sync()
        except Diverged:
            directory.reset()


@amounts(6, all=60, soak=400, part=8)
def test_any_order_of_commands(amount: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.objects.settled_writes.backoff_s", lambda _: 0.0)
    steps, raised = 0, Counter[str]()
    for seed in range(amount):
        done, errors = _run(tmp_path / str(seed), seed, 40)
        steps += done
        raised += errors
    tell(f"{amount} seeds, {steps} steps; raised: {dict(raised)}; lost 0, doubled 0")
    assert {"Fenced", "StoreUnreachable"} <= set(raised)
    assert raised["deletes undone"] > 0
