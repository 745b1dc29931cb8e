"""Test a branch that is deleted and collected while other directories write and follow it.

Each directory gets an error that says so, and loses nothing.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from catalog.errors import BranchCollected, BranchExists
from catalog.format.keys import boundary_key
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.errors import LocalChangesLost, OtherRemote
from seglog import Log
from tests.faults.steps import Place, crashes
from tests.faults.store import CountingStore
from tests.faults.stride import every
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import describe_status
from tests.worlds.clock import HandClock
from tests.worlds.services import serving, until

pytestmark = pytest.mark.usefixtures("no_pauses")

DAY_MS = 24 * 3_600_000
BRANCH = "t@br"


class World:
    """Directory `main` has t and the branch t@br. Directory `writer` writes the branch.

    Seqs 3 and 4 of the branch are in the remote, 5 and 6 are not.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.store, self.clock = path, MemoryStore(), HandClock()

    @contextmanager
    def opened(self, name: str, store: object = None) -> Iterator[tuple[Log, Archive]]:
        with opened(self.path / name, store or self.store, self.clock) as both:  # type: ignore[arg-type]
            yield both

    def begin(self) -> None:
        with self.opened("main") as (log, archive):
            ship(archive, log, "t", b"a", b"b")
            archive.restore("t", to="seq:2", name="br")

    def write(self, log: Log, archive: Archive) -> None:
        ship(archive, log, BRANCH, b"c", b"d", tag="x")
        log.topic(BRANCH).append([b"e"], tag="eu", node="n")
        log.topic(BRANCH).append([b"f"])
        log.topic(BRANCH).seal()

    def collect(self) -> None:
        with self.opened("main") as (_, archive):
            archive.branches.delete_branch("t", "br")
            for _ in range(4):
                self.clock.ms += 8 * DAY_MS
                assert not archive.upkeep.collect().blocked

    def keys_of(self, vid: object) -> list[str]:
        return [*self.store.list(f"{vid}/")]


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.begin()
    return world


@pytest.fixture
def gone(world: World) -> World:
    with world.opened("writer") as (log, archive):
        world.write(log, archive)
        vid = archive.history.snapshot(BRANCH).vid
    world.collect()
    assert world.keys_of(vid) == [boundary_key(vid)]
    return world


def test_who_writes_it_in_a_running_process_stops_for_good(world: World) -> None:
    store = CountingStore(world.store)
    with world.opened("writer", store) as (log, archive):
        world.write(log, archive)
        world.collect()
        with pytest.raises(BranchCollected, match="t@br was deleted in the remote") as caught:
            archive.offload(BRANCH)
        assert f"seglog reset {BRANCH} --as NAME" in (caught.value.hint or "")
        status = archive.status.topic(BRANCH)
        assert archive.status.is_diverged(BRANCH)
        assert (status.diverged_lsn, status.pending_lsn, status.hot_first_seq, status.head_seq) == (0, None, 3, 6)
        assert "COLLECTED: it was deleted in the remote, and its volume is gone" in describe_status(status)
        store.counts.clear()
        for again in (archive.offload, archive.replication.sync, archive.replication.take_over):
            with pytest.raises(BranchCollected):
                again(BRANCH)
        assert not store.counts
        assert archive.release(BRANCH, at_once=True) == 0
        assert [each.value for each in log.topic(BRANCH).read(3)] == [b"c", b"d", b"e", b"f"]


def test_its_hot_copies_stay_though_nobody_was_told_yet(world: World) -> None:
    with world.opened("writer") as (log, archive):
        world.write(log, archive)
        world.collect()
        with pytest.raises(BranchCollected):
            archive.release(BRANCH, at_once=True)
        assert archive.release(BRANCH, at_once=True) == 0
        assert log.topic(BRANCH).inner.hot_floor == 3


def test_who_follows_it_in_a_running_process_is_told(world: World) -> None:
    with world.opened("writer") as (log, archive):
        world.write(log, archive)
    with world.opened("reader") as (_, archive):
        archive.replication.sync(BRANCH)
        world.collect()
        for act in (
            archive.replication.pull,
            archive.replication.fetch,
            archive.replication.sync,
            archive.replication.follow,
            archive.replication.take_over,
        ):
            with pytest.raises(BranchCollected):
                act(BRANCH)
        assert "COLLECTED" in describe_status(archive.status.topic(BRANCH))
        assert not archive.replication.reset(BRANCH).is_followed
        assert archive.replication.replicas() == []


def test_a_new_process_does_not_blame_the_remote(gone: World, tmp_path: Path) -> None:
    with gone.opened("writer") as (_, archive):
        with pytest.raises(BranchCollected):
            archive.offload(BRANCH)
        assert archive.status.topic(BRANCH).diverged_lsn == 0
    # The local catalog has the collection on record, so the call needs no remote.
    with opened(tmp_path / "writer", MemoryStore()) as (_, archive), pytest.raises(BranchCollected):
        archive.replication.sync(BRANCH)


def test_another_remote_is_told_as_one(world: World, tmp_path: Path) -> None:
    with world.opened("writer") as (log, archive):
        world.write(log, archive)
    with opened(tmp_path / "writer", MemoryStore()) as (_, archive), pytest.raises(OtherRemote):
        archive.replication.sync(BRANCH)


def test_a_daemon_tells_it_once_and_asks_no_more(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.opened("writer") as (log, archive):
        world.write(log, archive)
    with world.opened("reader") as (_, archive):
        archive.replication.sync(BRANCH)
    world.collect()

    async def run() -> None:
        for name in ("writer", "reader"):
            clock, store = HandClock(), CountingStore(world.store)
            clock.ms = world.clock.ms
            async with serving(world.path / name, store, clock, OFFLOAD_OFFLOAD_AFTER_S="0") as service:
                assert service.archive is not None
                await until(lambda: service.archive.status.is_diverged(BRANCH), name)
                await asyncio.sleep(0.1)
                store.counts.clear()
                clock.ms += 600_000
                await asyncio.sleep(0.1)
                assert not store.counts
                if name == "writer":
                    assert "was deleted in the remote" in str(service.works.of(BRANCH).last_error)
                    assert 'seglog_topic_diverged{topic="t@br"} 1.0' in service.metrics.text().decode()
        assert len(told_in(caplog)) == 2

    asyncio.run(run())


def test_a_daemon_tells_it_once_if_upkeep_meets_it_first(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with world.opened("writer") as (log, archive):
        world.write(log, archive)
    world.collect()

    async def run() -> None:
        clock, store = HandClock(), CountingStore(world.store)
        clock.ms = world.clock.ms
        async with serving(world.path / "writer", store, clock, OFFLOAD_OFFLOAD_AFTER_S="never") as service:
            assert service.archive is not None
            await until(lambda: service.archive.status.is_diverged(BRANCH), "release")
            await until(lambda: bool(told_in(caplog)), "warning")
            clock.ms += 600_000
            await asyncio.sleep(0.2)
            assert "was deleted in the remote" in str(service.works.of(BRANCH).last_error)
        assert len(told_in(caplog)) == 1

    asyncio.run(run())


def told_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines that tell of the deleted branch."""
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "was deleted in the remote" in line]


@pytest.mark.parametrize("is_running", [False, True])
def test_what_is_still_here_becomes_a_branch_that_begins_with_nothing(world: World, *, is_running: bool) -> None:
    def save(log: Log, archive: Archive) -> None:
        log.topic(BRANCH).delete(tag="eu")
        with pytest.raises(LocalChangesLost, match="4 records and 1 delete "):
            archive.replication.reset(BRANCH)
        result = archive.replication.reset(BRANCH, as_branch="saved")
        assert (result.changes.records, result.branch, result.is_followed) == (4, "saved", False)
        assert not log.has_topic(BRANCH)
        assert archive.replication.replicas() == []
        log.topic("t@saved").append([b"g"])
        log.topic("t@saved").seal()
        archive.offload("t@saved", drop_hot=True)

    with world.opened("writer") as (log, archive):
        world.write(log, archive)
        world.collect()
        if is_running:
            save(log, archive)
    if not is_running:
        with world.opened("writer") as (log, archive):
            save(log, archive)
    with world.opened("third") as (_, archive):
        archive.replication.sync("t@saved")
        found = [(each.seq, each.value, each.tag) for each in archive.read("t@saved")]
        assert found == [(1, b"c", "x"), (2, b"d", "x"), (4, b"f", None), (5, b"g", None)]
        before = list(archive.read("t@saved", at="seq:4"))
        assert [(each.seq, each.value, each.node) for each in before][2] == (3, b"e", "n")
        assert "rescued_from" not in archive.history.snapshot("t@saved").config


def test_deletes_that_reach_below_what_is_here_take_nothing_of_it(gone: World) -> None:
    with gone.opened("writer") as (log, archive):
        log.topic(BRANCH).delete(before=2)
        log.topic(BRANCH).delete(before=5)
        log.topic(BRANCH).append([b"g"])
        archive.replication.reset(BRANCH, as_branch="saved")
        assert values(archive, "t@saved") == [b"e", b"f", b"g"]


def test_a_branch_that_saved_something_else_is_not_taken_for_an_earlier_try(gone: World) -> None:
    with gone.opened("main") as (_, archive):
        archive.restore("t", to="seq:1", name="second")
    with gone.opened("writer") as (log, archive):
        archive.replication.reset(BRANCH, as_branch="saved")
        ship(archive, log, "t@second", b"x")
    with gone.opened("main") as (_, archive):
        archive.branches.delete_branch("t", "second")
        for _ in range(4):
            gone.clock.ms += 8 * DAY_MS
            archive.upkeep.collect()
    with gone.opened("writer") as (log, archive):
        with pytest.raises(BranchExists):
            archive.replication.reset("t@second", as_branch="saved")
        assert [each.value for each in log.topic("t@second").read(2)] == [b"x"]
        archive.replication.reset("t@second", as_branch="other")
        assert (values(archive, "t@saved"), values(archive, "t@other")) == ([b"c", b"d", b"e", b"f"], [b"x"])


@pytest.mark.parametrize("act", ["reset", "detach"])
def test_discard_drops_it(gone: World, act: str) -> None:
    with gone.opened("writer") as (log, archive):
        if act == "reset":
            assert archive.replication.reset(BRANCH, discard=True).changes.records == 4
        else:
            archive.delete_topic(BRANCH, detach=True, discard=True)
        assert not log.has_topic(BRANCH)
        assert archive.replication.replicas() == []


@every(41, part=8)
def test_saving_it_ends_anywhere_and_is_repeated(every: int, gone: World, tmp_path: Path) -> None:
    place = Place(gone.path / "writer", gone.store)
    steps = 0

    def act(_: Log, archive: Archive) -> None:
        archive.replication.reset(BRANCH, as_branch="saved")

    for name, crashed in crashes(place, tmp_path / "crashes", act, every):
        steps += 1
        with crashed.opened() as (log, archive):
            if log.has_topic(BRANCH) or archive.replication.is_replica(BRANCH):
                archive.replication.reset(BRANCH, as_branch="saved")
            assert values(archive, "t@saved") == [b"c", b"d", b"e", b"f"], name
            assert not log.has_topic(BRANCH), name
        shutil.rmtree(crashed.path)
    assert steps > 100 / every
