"""Test eviction of offloaded records: readers here and elsewhere learn of it, and earlier states stay readable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog import Bounds, CommitKind
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.moment import format_time
from offload.replica_topic import ReplicaTopic
from seglog import Evicted, Gap, Log, NotTruncatable
from seglog.values.deletes import DeleteWhere
from tests.faults.steps import Place, crashes
from tests.faults.stride import every
from tests.offload.replicas import opened, ship, values
from tests.worlds.clock import HandClock

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def pair(tmp_path: Path, store: MemoryStore, clock: HandClock) -> Iterator[tuple[Log, Archive]]:
    """Make a topic t of two offloads of 4 records each."""
    with opened(tmp_path / "data", store, clock) as (log, archive):
        ship(archive, log, "t", b"1", b"2", b"3", b"4")
        clock.ms += 1000
        ship(archive, log, "t", b"5", b"6", b"7", b"8")
        yield log, archive


def newest(archive: Archive) -> tuple[CommitKind, Bounds]:
    commit = next(iter(archive.history.commits("t"))).commit
    return commit.kind, commit.bounds


@pytest.mark.parametrize("drop_hot", [False, True])
@pytest.mark.parametrize("before", [2, 5, 7, 9, 100])
def test_what_is_evicted_is_told_and_stays_in_the_past(
    pair: tuple[Log, Archive], clock: HandClock, before: int, drop_hot: bool
) -> None:
    log, archive = pair
    archive.offload("t", drop_hot=drop_hot)
    before_ms = clock.ms
    clock.ms += 1000
    done = archive.evict("t", before)
    floor = min(before, 9)
    assert (done.records, done.lsn) == (floor - 1, 3)
    assert newest(archive) == (CommitKind.EVICT, Bounds(floor, 8, floor))
    topic = log.topic("t")
    assert (topic.earliest_seq, topic.inner.evict_floor, topic.inner.delete_ops()) == (floor, floor, ())
    left = [b"%d" % seq for seq in range(floor, 9)]
    assert values(archive, "t") == values(archive, "t", "head") == left
    assert next(topic.read(1, gaps=True)) == Gap(1, floor - 1)
    with pytest.raises(Evicted):
        next(topic.read(1))
    every = [b"%d" % seq for seq in range(1, 9)]
    assert values(archive, "t", "lsn:2") == values(archive, "t", format_time(before_ms)) == every
    ship(archive, log, "t", b"9")
    assert newest(archive) == (CommitKind.OFFLOAD, Bounds(floor, 9, floor))
    assert values(archive, "t", "head") == [*left, b"9"]
    archive.restore("t", to="lsn:2", name="before")
    archive.open_for_append("t@before").append([b"more"])
    assert values(archive, "t@before") == [*every, b"more"]


def test_others_are_told_too(pair: tuple[Log, Archive], tmp_path: Path, store: MemoryStore) -> None:
    _, archive = pair
    archive.evict("t", 4)
    with opened(tmp_path / "two", store) as (two_log, two):
        two.replication.sync("t")
        replica = ReplicaTopic(two, "t")
        assert replica.earliest_seq == 4
        assert [item if isinstance(item, Gap) else item.seq for item in replica.read(2, gaps=True)] == [
            Gap(2, 3), 4, 5, 6, 7, 8,
        ]  # fmt: skip
        with pytest.raises(Evicted):
            list(replica.read(2))
        with pytest.raises(Evicted):
            two.read("t", 3)
        assert len(values(two, "t")) == 5
        two.replication.take_over("t")
        topic = two_log.topic("t")
        assert (topic.inner.evict_floor, topic.earliest_seq) == (4, 4)
        ship(two, two_log, "t", b"9")
        assert [item if isinstance(item, Gap) else item.seq for item in topic.read(1, gaps=True)] == [
            Gap(1, 3), 4, 5, 6, 7, 8, 9,
        ]  # fmt: skip
        assert [past.commit.kind for past in two.history.commits("t")].count(CommitKind.EVICT) == 1


def test_one_that_the_volume_was_never_told_of_is_one_on_the_branch_of_a_reset(
    pair: tuple[Log, Archive], tmp_path: Path, store: MemoryStore
) -> None:
    log, archive = pair
    with opened(tmp_path / "two", store) as (_, two):
        two.replication.take_over("t")
    log.topic("t").evict(3)
    assert archive.replication.reset("t", as_branch="mine").changes.deletes == 1
    assert log.topic("t@mine").inner.evict_floor == 3
    assert len(values(archive, "t@mine")) == 6
    assert len(values(archive, "t")) == 8


def test_what_is_not_offloaded_is_before_its_eviction_is_told(pair: tuple[Log, Archive], clock: HandClock) -> None:
    log, archive = pair
    log.topic("t").append([b"9", b"10"])
    clock.ms += 1000
    assert archive.evict("t", 10).waits_for == "the offload of what was appended before it"
    log.topic("t").append([b"11"])
    assert values(archive, "t") == [b"10", b"11"]
    assert values(archive, "t", "seq:10") == [b"%d" % seq for seq in range(1, 11)]
    assert values(archive, "t", "head") == [b"10", b"11"]


def test_below_it_nothing_is_truncated_and_above_it_the_floor_stays(pair: tuple[Log, Archive]) -> None:
    log, archive = pair
    archive.evict("t", 4)
    with pytest.raises(NotTruncatable):
        archive.truncate("t", 3)
    archive.truncate("t", 4)
    assert newest(archive) == (CommitKind.TRUNCATE, Bounds(4, 3, 4))
    ship(archive, log, "t", b"new 4")
    assert values(archive, "t") == values(archive, "t", "head") == [b"new 4"]


def test_gc_takes_it_when_the_window_has_passed(
    pair: tuple[Log, Archive], store: MemoryStore, clock: HandClock
) -> None:
    _, archive = pair
    archive.evict("t", 5)
    history = archive.history.commits("t")
    dates = [archive.upkeep.erasures("t", history).date_ms(past) for past in history]
    assert dates[0] is not None
    for _ in range(3):
        clock.ms += 3_600_000
        Collector(store, GcPolicy(window_s=60, grace_s=60), clock=clock.now_ms, writer_id="gc").run()
    assert len([key for key in store.list("") if "/segments/" in key]) == 2
    assert values(archive, "t", "head") == [b"5", b"6", b"7", b"8"]


@every(23, part=8)
def test_it_ends_anywhere_and_is_gone_on_from(every: int, tmp_path: Path) -> None:
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        ship(archive, log, "t", b"1", b"2", b"3")
    steps = 0
    for name, place in crashes(base, tmp_path, lambda _, archive: archive.evict("t", 3), every):
        steps += 1
        with place.opened() as (log, archive):
            is_evicted = log.topic("t").inner.evict_floor == 3
            ship(archive, log, "t", b"4")
            left = [b"3", b"4"] if is_evicted else [b"1", b"2", b"3", b"4"]
            assert values(archive, "t") == values(archive, "t", "head") == left, name
            kinds = [past.commit.kind for past in archive.history.commits("t")]
            assert kinds.count(CommitKind.EVICT) == is_evicted, name
            assert values(archive, "t", "seq:3") == [b"1", b"2", b"3"], name
    assert steps > 30 / every


def test_without_an_archive_it_frees_the_disk(tmp_path: Path) -> None:
    import seglog

    with seglog.open(tmp_path, settings=seglog.LogSettings(segment_max_events=4)) as log:
        topic = log.topic("t")
        topic.append([b"x"] * 10)
        log.checkpoint()
        op = topic.inner.delete(DeleteWhere(6), evicts=True)
        assert (op.below, op.evict_from) == (6, 1)
        assert (topic.inner.evict_floor, topic.earliest_seq) == (6, 6)
        log.checkpoint()
        assert topic.inner.hot_floor == 5
        assert topic.inner.delete(DeleteWhere(6), evicts=True).evict_from is None  # no record was left to evict
    with seglog.open(tmp_path) as log:
        assert [item if isinstance(item, Gap) else item.seq for item in log.topic("t").read(1, gaps=True)] == [
            Gap(1, 5), 6, 7, 8, 9, 10,
        ]  # fmt: skip
