"""New commits of a volume: which there are, and whether they are more than maintenance."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from catalog.checkpointer import make_checkpoint
from catalog.errors import BranchCollected, InvalidObject, NoSuchObject, StoreUnreachable
from catalog.format.commit import Bounds, CommitKind
from catalog.format.control import DEAD, Boundary, Control
from catalog.format.encoding import StoredCommit, commit_hash, encode_commit
from catalog.format.keys import boundary_key, commit_key
from catalog.format.small_objects import encode_boundary
from catalog.local_catalog import LocalCatalog
from catalog.objects.memory import MemoryStore
from catalog.snapshot import empty
from catalog.updates import Updates, pull
from catalog.volume import Volumes
from tests.catalog.samples import START_MS, HistoryMaker, segment, vid
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, unreachable

VID = vid(1)


def published(*kinds: str) -> tuple[MemoryStore, HistoryMaker]:
    store, history = MemoryStore(), HistoryMaker(VID)
    volumes = Volumes(store)
    volumes.create(Control(VID, None, START_MS, "t", "main"))
    for number, kind in enumerate(kinds):
        if kind == "offload":
            history.offload((number * 10 + 1, number * 10 + 10))
        else:
            history.compact([], segment(1, 10, 900 + number))
        commit = history.stored[-1].commit
        volumes.publish(VID, commit.lsn, encode_commit(commit)[0])
    return store, history


def test_news_are_what_follows_each_joined_to_the_one_before(tmp_path: Path) -> None:
    store, history = published(*["offload"] * 5)
    counting = CountingStore(store)
    with LocalCatalog(tmp_path / "catalog.db") as cache:
        volumes = Volumes(counting, cache)
        updates = pull(volumes, VID, 2, history.stored[1].hash)
        assert (updates.lsn, updates.commits, updates.is_empty) == (5, tuple(history.stored[2:]), False)
        counting.counts.clear()
        assert pull(volumes, VID, 2, history.stored[1].hash) == updates  # the cache has the commits by now
        assert counting.counts == {"get": 2}
        assert pull(volumes, VID, 5, history.stored[4].hash).is_empty


def test_news_end_before_the_first_commit_that_is_not_there() -> None:
    store, history = published(*["offload"] * 8)
    store.delete(commit_key(VID, 5))
    assert Volumes(store).next_commits(VID, 0) == tuple(history.stored[:4])


def test_a_follower_is_told_each_commit_up_to_the_boundary_and_the_state_alone_behind_it() -> None:
    store, history = published(*["offload"] * 4)
    for boundary, told in ((2, tuple(history.stored[1:])), (3, ())):
        store.put(boundary_key(VID), encode_boundary(Boundary(VID, boundary)), {})
        updates = pull(Volumes(store), VID, 1, history.stored[0].hash)
        assert (updates.lsn, updates.commits, updates.newest is None) == (4, told, bool(told))


def test_a_history_that_does_not_continue_ours_is_damage() -> None:
    store, history = published("offload", "offload")
    with pytest.raises(InvalidObject, match="does not continue lsn 1"):
        pull(Volumes(store), VID, 1, bytes(32))
    assert history.stored[0].hash != bytes(32)


def test_a_store_that_does_not_answer_is_not_without_news() -> None:
    store, history = published("offload")
    faulty = FaultyStore(store, [Fault(error=unreachable, method="get")])
    with pytest.raises(StoreUnreachable):
        pull(Volumes(faulty), VID, 1, history.stored[0].hash)


def test_what_lies_below_the_boundary_does_not_count_whatever_is_there(tmp_path: Path) -> None:
    """A stalled writer has put a commit under the key of a collected commit."""
    store, history = published(*["offload"] * 4)
    stalled = replace(history.stored[1].commit, nonce=bytes([1]) * 16, message="late")
    store.delete(commit_key(VID, 2))
    store.put_new(commit_key(VID, 2), encode_commit(stalled)[0])
    store.put(boundary_key(VID), encode_boundary(Boundary(VID, 4)), {})
    with LocalCatalog(tmp_path / "catalog.db") as cache:
        volumes = Volumes(store, cache)
        volumes.snapshot(VID, 1)
        with pytest.raises((NoSuchObject, InvalidObject)):
            pull(volumes, VID, 1, history.stored[0].hash)  # no checkpoint from the boundary on has the whole state
        fresh, same = published(*["offload"] * 4)
        make_checkpoint(Volumes(fresh), VID, 4, now_ms=START_MS)
        for key in fresh.list(f"{VID}/log/", limit=1):
            store.put(key, fresh.get(key), {})
        store.put(f"{VID}/checkpoints", fresh.get(f"{VID}/checkpoints"), {})  # type: ignore[arg-type]
        updates = pull(volumes, VID, 1, same.stored[0].hash)
        assert (updates.lsn, updates.commits) == (4, ())
        assert updates.newest is not None
        assert updates.newest.bounds == Bounds(1, 40)
        assert list(cache.commit_bodies(VID, 1, 3)) == [1]  # the follower's own LSN, and no commit read after it


def stored(**fields: object) -> StoredCommit:
    commit = replace(HistoryMaker(VID).compact([], segment(1, 10)), **fields)  # type: ignore[arg-type]
    return StoredCommit(commit, commit_hash(commit))


@pytest.mark.parametrize(
    ("fields", "is_maintenance", "fence"),
    [
        ({}, True, None),
        ({"kind": CommitKind.CONFIG}, True, None),
        ({"kind": CommitKind.OFFLOAD}, False, None),
        ({"kind": CommitKind.DELETE}, False, None),
        ({"kind": CommitKind.EVICT}, False, None),
        ({"kind": CommitKind.TRUNCATE}, False, None),
        ({"bounds": Bounds(1, 11)}, False, None),
        ({"bounds": Bounds(2, 10)}, False, None),
        ({"epoch": 2}, True, None),
        ({"epoch": 4}, False, (1, 4)),
    ],
)
def test_what_is_maintenance_for_a_writer_of_epoch_3(
    fields: dict[str, object], is_maintenance: bool, fence: tuple[int, int] | None
) -> None:
    updates = Updates(VID, 1, (stored(**{"bounds": Bounds(1, 10), "epoch": 3, **fields}),))
    assert updates.is_maintenance(Bounds(1, 10), 3) == is_maintenance
    assert updates.fenced_by(3) == fence


def test_what_a_volume_adds_up_to_is_asked_where_commits_are_gone() -> None:
    newest = replace(empty(VID), lsn=9, bounds=Bounds(1, 10), epoch=3, config="{}")
    updates = Updates(VID, 2, newest=newest)
    assert (updates.lsn, updates.config, updates.is_maintenance(Bounds(1, 10), 3), updates.fenced_by(3)) == (
        9,
        "{}",
        True,
        None,
    )
    assert not updates.is_maintenance(Bounds(1, 9), 3)
    assert updates.fenced_by(2) == (9, 3)
    assert not updates.is_maintenance(Bounds(1, 10), 2)


def test_a_volume_that_another_began_and_emptied_is_not_as_its_beginner_left_it() -> None:
    """Two directories begin an empty volume with epoch 1. One commits, and truncates all. GC has passed the commits."""
    newest = replace(empty(VID), lsn=2, epoch=1)
    assert not Updates(VID, 0, newest=newest).is_maintenance(newest.bounds, 1)
    assert Updates(VID, 0, newest=replace(newest, epoch=0)).is_maintenance(newest.bounds, 1)


@pytest.mark.parametrize("epoch", [0, 1])
def test_of_two_that_begin_an_empty_volume_the_first_commit_wins_whatever_its_kind(epoch: int) -> None:
    first = stored(kind=CommitKind.CONFIG, bounds=Bounds(1, 0), epoch=epoch)
    assert Updates(VID, 0, (first,)).is_maintenance(Bounds(1, 0), 1) == (epoch == 0)


def test_the_newest_configuration_is_told() -> None:
    said = [stored(kind=CommitKind.CONFIG, config=text) for text in ('{"a":1}', '{"a":2}', "")]
    assert Updates(VID, 0, tuple(said)).config == '{"a":2}'
    assert Updates(VID, 0, (stored(),)).config == ""


def test_who_looked_long_ago_starts_from_a_checkpoint_once_gc_has_passed() -> None:
    store, _ = published(*["offload"] * 6)
    volumes = Volumes(store)
    volumes.snapshot(VID, 2)
    make_checkpoint(Volumes(store), VID, 5, now_ms=START_MS)
    for lsn in range(1, 5):
        store.delete(commit_key(VID, lsn))
    assert volumes.snapshot(VID).bounds == Bounds(1, 60)
    with pytest.raises(NoSuchObject):
        volumes.snapshot(VID, 4)


def behind(commits: int, checkpoint: int | None) -> tuple[MemoryStore, HistoryMaker]:
    store, history = published(*["offload"] * commits)
    if checkpoint is not None:
        make_checkpoint(Volumes(store), VID, checkpoint, now_ms=START_MS)
    return store, history


@pytest.mark.parametrize("is_here", [False, True])
def test_the_state_alone_costs_as_much_of_a_thousand_commits_as_of_a_hundred(tmp_path: Path, *, is_here: bool) -> None:
    counts = []
    for commits in (100, 1_000):
        store, history = behind(commits, commits - 9)
        counting = CountingStore(store)
        with LocalCatalog(tmp_path / f"{commits}.db") as cache:
            volumes = Volumes(counting, cache if is_here else None)
            volumes.snapshot(VID, 1)
            counting.counts.clear()
            updates = pull(volumes, VID, 1, history.stored[0].hash, each=False)
        assert (updates.lsn, updates.commits) == (commits, ())
        assert updates.newest == Volumes(store).snapshot(VID)
        counts.append(counting.counts)
    assert counts[0] == counts[1]
    assert counts[0].total() <= 15 + 1 + 9 + 6


@pytest.mark.parametrize("checkpoint", [None, 1, 16])
def test_where_no_checkpoint_is_ahead_each_commit_is_told(checkpoint: int | None) -> None:
    store, history = behind(40, checkpoint)
    updates = pull(Volumes(store), VID, 1, history.stored[0].hash, each=False)
    assert updates.newest is None
    assert [stored.hash for stored in updates.commits] == [stored.hash for stored in history.stored[1:]]
    assert len(pull(Volumes(store), VID, 1, history.stored[0].hash).commits) == 39


def test_a_list_that_is_behind_hides_no_commit() -> None:
    store, history = behind(60, 50)

    class Behind(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            return iter([commit_key(VID, 30)]) if method == "list" else act()

    assert pull(Volumes(Behind(store)), VID, 1, history.stored[0].hash, each=False).lsn == 60


def test_a_state_far_from_the_one_that_is_known_is_built_from_a_checkpoint() -> None:
    store, _ = behind(200, 190)
    counting = CountingStore(store)
    volumes = Volumes(counting)
    for at, gets in ((5, 5), (60, 55), (200, 1 + 10)):
        counting.counts.clear()
        assert volumes.snapshot(VID, at).bounds.head_seq == at * 10
        assert counting.counts["get"] == gets + (at == 5)  # the first call also reads the control


@pytest.mark.parametrize("has_cache", [False, True])
def test_a_volume_that_was_collected_is_told_as_that(tmp_path: Path, *, has_cache: bool) -> None:
    store, history = published("offload")
    for key in [*store.list("")]:
        store.delete(key)
    store.put(boundary_key(VID), encode_boundary(Boundary(VID, DEAD)), {})
    with LocalCatalog(tmp_path / "catalog.db") as cache:
        for each in (False, True):
            with pytest.raises(BranchCollected, match="GC has deleted its volume"):
                pull(Volumes(store, cache if has_cache else None), VID, 1, history.stored[0].hash, each=each)
