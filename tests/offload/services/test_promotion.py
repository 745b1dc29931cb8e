"""Test a promotion beside the directories that write or follow main: no acked record is lost, and each one sees it."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import CommitKind, Vid
from catalog.errors import (
    BranchExists,
    CatalogError,
    Fenced,
    KeyChanged,
    Misuse,
    NoSuchBranch,
    StoreUnreachable,
    VolumeHasName,
)
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.errors import Conflict, OffloadError, OtherRemote, RecordsAfterFork
from offload.format.topic_config import CARRIED_FROM
from seglog import Log, SystemClock
from tests.faults.meanwhile import DuringReadBack, Meanwhile
from tests.faults.steps import Place, crashes
from tests.faults.store import Fault, FaultyStore, unreachable
from tests.faults.stride import every as strided
from tests.offload.replicas import opened, ship, values
from tests.worlds.branches import branches_of
from tests.worlds.clock import HandClock

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def _bad_delete(log: Log, archive: Archive) -> None:
    """Make a topic with a delete that was a mistake, and the branch `good` of the state before it."""
    ship(archive, log, "t", b"a", b"b")
    ship(archive, log, "t", b"c")
    archive.delete("t", before=3)
    archive.restore("t", to="head~1", name="good")


def _rename(store: MemoryStore, through: MemoryStore | FaultyStore) -> None:
    """Make the branch `fix` main by its names alone, with no fence."""
    branches = branches_of(store)
    vids = branches.resolve("t"), branches.resolve("t", "fix")
    branches_of(through).promote("t", "fix", "old", vids, now_ms=SystemClock().now_ms())  # type: ignore[arg-type]


def test_a_restored_state_becomes_main_and_undo_takes_that_back(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _bad_delete(log, archive)
        done = archive.branches.promote_branch("t", "good", keep="bad")
        assert done.after_fork is not None
        assert (done.keep, done.after_fork.left.appended, done.after_fork.left.deleted) == ("bad", 0, 2)
        assert values(archive, "t") == [b"a", b"b", b"c"]
        assert values(archive, "t@bad") == [b"c"]
        ship(archive, log, "t", b"d")
        assert [each.branch for each in archive.branches.list("t")] == ["bad", "main"]
        assert archive.history.undo().entry.operation == "branch promote"
        assert values(archive, "t") == [b"c"]
        assert values(archive, "t@good") == [b"a", b"b", b"c", b"d"]
        ship(archive, log, "t", b"e")
    with opened(tmp_path / "two", store) as (log, archive):
        assert values(archive, "t") == [b"c", b"e"]


def test_records_after_the_fork_stay_only_if_the_caller_says_so(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _bad_delete(log, archive)
        log.topic("t").append([b"new"])
        with pytest.raises(RecordsAfterFork) as refused:
            archive.branches.promote_branch("t", "good")
        assert (refused.value.records, refused.value.shared_seq, refused.value.exit_code) == (1, 3, 4)
        assert log.has_topic("t")
        assert values(archive, "t") == [b"c", b"new"]
        ship(archive, log, "t@good", b"x")
        done = archive.branches.promote_branch("t", "good", leave=True)
        assert done.keep.startswith("before-promote-2")
        assert values(archive, "t") == [b"a", b"b", b"c", b"x"]
        assert values(archive, f"t@{done.keep}") == [b"c", b"new"]
        assert (log.topics(), archive.replication.replicas()) == (["t"], [])


@pytest.mark.parametrize("is_running", [True, False])
def test_the_former_writer_is_fenced_and_keeps_what_it_acked(
    tmp_path: Path, store: MemoryStore, is_running: bool
) -> None:
    with ExitStack() as stack:
        log, archive = stack.enter_context(opened(tmp_path / "one", store))
        ship(archive, log, "t", b"a")
        with opened(tmp_path / "two", store) as (_, other):
            other.restore("t", to="head", name="fix")
            ship(other, _, "t@fix", b"x")
            other.branches.promote_branch("t", "fix", keep="old")
        log.topic("t").append([b"late"])
        log.topic("t").seal()
        if not is_running:
            stack.close()
            log, archive = stack.enter_context(opened(tmp_path / "one", store))
        with pytest.raises(Fenced):
            archive.offload("t")
        with pytest.raises(Fenced):
            archive.replication.sync("t")
        assert values(archive, "t") == [b"a", b"late"]
        archive.replication.reset("t", as_branch="late")
        assert values(archive, "t@late") == [b"a", b"late"]
        assert values(archive, "t") == [b"a", b"x"]
        ship(archive, log, "t", b"y")
    with opened(tmp_path / "two", store) as (_, other):
        other.replication.sync("t")
        assert values(other, "t") == [b"a", b"x", b"y"]
        assert values(other, "t@old") == [b"a"]


def test_an_idle_writer_and_a_replica_follow_the_new_main(tmp_path: Path, store: MemoryStore) -> None:
    with (
        opened(tmp_path / "one", store) as (log, writer),
        opened(tmp_path / "two", store) as (_, replica),
        opened(tmp_path / "three", store) as (third_log, third),
    ):
        ship(writer, log, "t", b"a")
        replica.replication.sync("t")
        third.restore("t", to="head", name="fix")
        ship(third, third_log, "t@fix", b"x")
        third.branches.promote_branch("t", "fix", keep="old")
        for archive in (writer, replica):
            synced = archive.replication.sync("t")
            assert (synced.is_replica, synced.commits > 0) == (True, True)
            assert values(archive, "t") == [b"a", b"x"]
        assert not replica.replication.follow("t")
        third.history.undo()
        for archive in (writer, replica, third):
            archive.replication.sync("t")
            assert values(archive, "t") == [b"a"]


@pytest.mark.parametrize(("keep", "error"), [("good", BranchExists), ("other", BranchExists), ("main", Misuse)])
def test_a_name_that_cannot_be_kept_is_refused_before_anything_changes(
    tmp_path: Path, store: MemoryStore, keep: str, error: type[Exception]
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _bad_delete(log, archive)
        archive.restore("t", to="head", name="other")
        log.topic("t").append([b"new"])
        before = [*store.list("")]
        with pytest.raises(error):
            archive.branches.promote_branch("t", "good", keep=keep, leave=True)
        assert [*store.list("")] == before
        assert values(archive, "t") == [b"c", b"new"]


def test_a_replica_is_reset_after_its_name_has_moved(tmp_path: Path, store: MemoryStore) -> None:
    with (
        opened(tmp_path / "one", store) as (log, writer),
        opened(tmp_path / "two", store) as (_, replica),
    ):
        ship(writer, log, "t", b"a")
        replica.replication.sync("t")
        writer.restore("t", to="head", name="fix")
        ship(writer, log, "t@fix", b"x")
        writer.branches.promote_branch("t", "fix", keep="old")
    with opened(tmp_path / "two", store) as (_, replica):
        replica.replication.reset("t")
        assert values(replica, "t") == [b"a", b"x"]


def test_a_second_call_fences_a_writer_that_the_first_one_had_not_fenced(tmp_path: Path, store: MemoryStore) -> None:
    """The first call ends before its last steps. A takeover came between its fence and its change of the names."""
    with opened(tmp_path / "one", store) as (log, one), opened(tmp_path / "two", store) as (two_log, two):
        ship(one, log, "t", b"a")
        one.restore("t", to="head", name="fix")
        two.replication.sync("t")
        ship(two, two_log, "t", b"theirs")
        with pytest.raises(StoreUnreachable):
            _rename(store, FaultyStore(store, [Fault(4, "before", unreachable)]))
        one.branches.promote_branch("t", "fix", keep="any")
        two_log.topic("t").append([b"late"])
        two_log.topic("t").seal()
        with pytest.raises(Fenced):
            two.offload("t")
        assert values(two, "t@old") == [b"a", b"theirs"]


def test_a_writer_that_nobody_has_fenced_is_reset_after_its_name_has_moved(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, one):
        ship(one, log, "t", b"a")
        one.restore("t", to="head", name="fix")
        _rename(store, store)
        log.topic("t").append([b"late"])
        log.topic("t").seal()
    with opened(tmp_path / "one", store) as (_, one):
        with pytest.raises(OtherRemote):
            one.offload("t")
        one.replication.reset("t", as_branch="late")
        assert (values(one, "t@late"), values(one, "t")) == ([b"a", b"late"], [b"a"])


def test_the_writer_of_the_branch_is_fenced_too(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, one), opened(tmp_path / "two", store) as (two_log, two):
        ship(one, log, "t", b"a")
        one.restore("t", to="head", name="fix")
        ship(two, two_log, "t@fix", b"x")
        one.branches.promote_branch("t", "fix", keep="old")
        two_log.topic("t@fix").append([b"late"])
        two_log.topic("t@fix").seal()
        with pytest.raises(Fenced):
            two.offload("t@fix")
        assert values(one, "t") == [b"a", b"x"]
    with opened(tmp_path / "two", store) as (_, two):
        two.replication.reset("t@fix", as_branch="late")
        assert values(two, "t@late") == [b"a", b"x", b"late"]


@pytest.mark.parametrize("effect", range(1, 15, 2))
def test_a_record_that_is_appended_meanwhile_is_on_one_of_the_two(
    tmp_path: Path, store: MemoryStore, effect: int
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _bad_delete(log, archive)

    def act() -> None:
        if log.has_topic("t"):
            acked.extend(log.topic("t").append([b"new"]))

    acked: list[int] = []
    with opened(tmp_path / "one", Meanwhile(store, effect, act)) as (log, archive):
        with suppress(RecordsAfterFork):
            archive.branches.promote_branch("t", "good", keep="bad")
        found = {each.branch for each in archive.branches.list("t")}
        assert values(archive, "t") == ([b"a", b"b", b"c"] if "bad" in found else [b"c", *[b"new"] * len(acked)])
        assert "bad" not in found or not acked, "else the promotion is refused"


@pytest.mark.parametrize("carry", [False, True])
def test_a_record_that_is_appended_during_the_offload_of_main_stays_there(tmp_path: Path, *, carry: bool) -> None:
    appended = 0
    for effect in range(1, 8):
        store, place, acked = MemoryStore(), tmp_path / str(effect), list[int]()
        with opened(place, store) as (log, archive):
            _bad_delete(log, archive)
            log.topic("t").append([b"old"])

        def act(acked: list[int] = acked) -> None:
            if log.has_topic("t"):
                acked.extend(log.topic("t").append([b"new"]))

        with opened(place, Meanwhile(store, effect, act)) as (log, archive):
            archive.branches.promote_branch("t", "good", keep="bad", carry=carry, leave=not carry)
            late = [b"old", *[b"new"] * len(acked)]
            assert values(archive, "t@bad") == [b"c", *late]
            assert values(archive, "t") == [b"a", b"b", b"c", *(late if carry else [])]
        appended += len(acked)
    assert appended > 1


def test_a_record_that_is_appended_after_the_offload_is_compared_too(tmp_path: Path, store: MemoryStore) -> None:
    remote = DuringReadBack(store)
    with opened(tmp_path / "one", remote) as (log, archive):
        _bad_delete(log, archive)
        remote.changes = [lambda: log.topic("t").append([b"new"])]
        with pytest.raises(RecordsAfterFork):
            archive.branches.promote_branch("t", "good", keep="bad")
        assert (remote.changes, values(archive, "t")) == ([], [b"c", b"new"])


@pytest.mark.parametrize("effect", range(1, 8))
def test_a_takeover_meanwhile_writes_main_or_is_fenced(tmp_path: Path, store: MemoryStore, effect: int) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _bad_delete(log, archive)
    with opened(tmp_path / "two", store) as (other_log, other):
        other.replication.sync("t")

        def act() -> None:
            with suppress(CatalogError, OffloadError):
                ship(other, other_log, "t", b"theirs")

        with (
            opened(tmp_path / "one", Meanwhile(store, effect, act)) as (log, archive),
            suppress(RecordsAfterFork, Fenced),
        ):
            archive.branches.promote_branch("t", "good", keep="bad")
        is_main = True
        try:
            ship(other, other_log, "t", b"more")
        except Fenced:
            is_main = False
        with opened(tmp_path / "three", store) as (_, fresh):
            assert (b"more" in values(fresh, "t")) == is_main
        if not is_main:
            other.replication.reset("t", as_branch="rest")
            assert values(other, "t@rest")[-1:] == [b"more"]


@pytest.mark.parametrize("effect", range(1, 9))
def test_a_promotion_of_another_branch_meanwhile_keeps_the_records_of_its_main(
    tmp_path: Path, store: MemoryStore, effect: int
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
        archive.restore("t", to="head", name="f")
        archive.restore("t", to="head", name="g")
    with opened(tmp_path / "two", store) as (other_log, other):

        def act() -> None:
            with suppress(CatalogError):  # Fenced, or ours was faster
                other.branches.promote_branch("t", "g", keep="was")
                other.replication.sync("t")
                ship(other, other_log, "t", b"acked")
                acked.append(b"acked")

        acked: list[bytes] = []
        with opened(tmp_path / "one", Meanwhile(store, effect, act)) as (_, archive):
            try:
                archive.branches.promote_branch("t", "f", keep="k")
            except (KeyChanged, VolumeHasName, RecordsAfterFork):
                assert acked
        with opened(tmp_path / "three", store) as (_, fresh):
            assert values(fresh, "t") == [b"a", *acked]


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("effect", range(1, 9))
def test_a_branch_that_is_made_anew_meanwhile_is_not_promoted_in_place_of_the_former_one(
    tmp_path: Path, store: MemoryStore, effect: int, carry: bool
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
        ship(archive, log, "t", b"b")
        archive.restore("t", to="head~1" if carry else "head", name="f")
    with opened(tmp_path / "two", store) as (_, other):

        def act() -> None:
            with suppress(CatalogError):  # it is promoted already
                other.branches.delete_branch("t", "f")
                other.restore("t", to="lsn:1", name="f")
                made.append((other.history.snapshot("t@f").vid, values(other, "t@f")))

        made: list[tuple[Vid, list[bytes]]] = []
        with opened(tmp_path / "one", Meanwhile(store, effect, act)) as (_, archive), suppress(KeyChanged):
            archive.branches.promote_branch("t", "f", keep="k", carry=carry)
        with opened(tmp_path / "three", store) as (_, fresh):
            assert values(fresh, "t") == [b"a", b"b"]
            for vid, theirs in made:
                assert fresh.history.snapshot("t").vid != vid
                assert values(fresh, "t@f") == theirs


@pytest.mark.long
@strided(47, part=8)
def test_a_promotion_that_ends_at_any_step_is_completed_by_the_next(tmp_path: Path, every: int) -> None:
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        _bad_delete(log, archive)
        log.topic("t").append([b"new"])

    def act(_: Log, archive: Archive) -> None:
        archive.branches.promote_branch("t", "good", keep="bad", leave=True)

    for name, place in crashes(base, tmp_path, act, every):
        with place.opened() as (log, archive):
            if "good" in {each.branch for each in archive.branches.list("t")}:
                act(log, archive)
            else:
                with pytest.raises(NoSuchBranch):
                    act(log, archive)
            assert values(archive, "t") == [b"a", b"b", b"c"], name
            assert values(archive, "t@bad") == [b"c", b"new"], name
            ship(archive, log, "t", b"d")
            kinds = [past.commit.kind for past in archive.history.commits("t")]
            assert kinds[:3] == [CommitKind.OFFLOAD, CommitKind.CONFIG, CommitKind.CONFIG], name
            archive.history.undo()
            assert values(archive, "t") == [b"c", b"new"], name


def test_records_of_main_are_carried_with_their_labels(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _bad_delete(log, archive)
        topic = log.topic("t")
        topic.append([b"1", b"2"], tag="x", node="n")
        topic.append([b"gone"], tag="y")
        archive.delete("t", tag="y")
        topic.append([b"3"])
        ship(archive, log, "t@good", b"own")
        done = archive.branches.promote_branch("t", "good", keep="bad", carry=True)
        assert done.carried == range(5, 8)
        assert values(archive, "t") == [b"a", b"b", b"c", b"own", b"1", b"2", b"3"]
        assert [(each.tag, each.node) for each in archive.read("t", 5)] == [("x", "n")] * 2 + [(None, None)]
        assert values(archive, "t@bad") == [b"c", b"1", b"2", b"3"]
        archive.history.undo()
        ship(archive, log, "t", b"4")
        assert archive.branches.promote_branch("t", "good", keep="bad", carry=True).carried == range(8, 9)
        assert values(archive, "t") == [b"a", b"b", b"c", b"own", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("effect", range(1, 8))
def test_what_is_carried_is_told_whole_if_a_takeover_makes_the_steps_begin_again(
    tmp_path: Path, store: MemoryStore, effect: int
) -> None:
    with opened(tmp_path / "base", store) as (log, archive):
        _bad_delete(log, archive)
        ship(archive, log, "t", b"1", b"2")

    def act() -> None:
        with opened(tmp_path / "two", store) as (_, archive):
            archive.replication.sync("t")
            archive.replication.take_over("t")

    with opened(tmp_path / "one", Meanwhile(store, effect, act)) as (_, archive):
        archive.replication.sync("t")
        assert archive.branches.promote_branch("t", "good", keep="bad", carry=True).carried == range(4, 6)
        assert values(archive, "t") == [b"a", b"b", b"c", b"1", b"2"]


@pytest.mark.parametrize(
    ("cut", "own", "expected"),
    [
        (3, [], b"a x 1 2 3"),
        (4, [], b"a x y 1 2 3"),
        (4, [b"1"], b"a x y 1 1 2 3"),
        (6, [], b"a x y 1 2 3"),
        (6, [b"3"], b"a x y 1 2 3 3"),
        (6, [b"z", b"4"], b"a x y 1 2 z 4 3"),
        (7, [b"4"], b"a x y 1 2 3 4"),
    ],
)
def test_a_branch_that_was_cut_gets_again_what_it_lost_and_keeps_its_own(
    tmp_path: Path, store: MemoryStore, cut: int, own: list[bytes], expected: bytes
) -> None:
    clock = HandClock(1_000)
    with opened(tmp_path / "one", store, clock) as (log, archive):
        ship(archive, log, "t", b"a")
        archive.restore("t", to="head", name="f")
        archive.open_for_append("t@f").append([b"x", b"y"])
        log.topic("t").append([b"1", b"2", b"3"])
        assert archive.branches.promote_branch("t", "f", keep="old", carry=True).carried == range(4, 7)
        archive.history.undo()
        archive.open_for_append("t@f")
        archive.truncate("t@f", cut)
        clock.ms += 1
        log.topic("t@f").append(own)
        archive.branches.promote_branch("t", "f", keep="old", carry=True)
        assert b" ".join(values(archive, "t")) == expected
        archive.history.undo()
        ship(archive, log, "t", b"5")
        archive.branches.promote_branch("t", "f", keep="old", carry=True)
        assert b" ".join(values(archive, "t")) == expected + b" 5"


def test_records_that_came_in_the_place_of_carried_ones_are_carried_too(tmp_path: Path, store: MemoryStore) -> None:
    clock = HandClock(1_000)
    with opened(tmp_path / "one", store, clock) as (log, archive):
        ship(archive, log, "t", b"a")
        archive.restore("t", to="head", name="f")
        ship(archive, log, "t", b"1", b"1", b"1")
        archive.branches.promote_branch("t", "f", keep="old", carry=True)
        archive.history.undo()
        archive.open_for_append("t")
        archive.truncate("t", 3)
        clock.ms += 1
        log.topic("t").append([b"1"])
        archive.open_for_append("t@f").append([b"1"])
        assert archive.branches.promote_branch("t", "f", keep="old", carry=True).carried == range(6, 7)
        assert values(archive, "t") == [b"a", *[b"1"] * 5]


def test_records_that_both_brought_back_are_not_carried(tmp_path: Path, store: MemoryStore) -> None:
    """Main and the branch undo a truncation from before the fork. A carry then brought its records a second time."""
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"b", b"c")
        cut, vid = archive.truncate("t", 2).lsn, archive.history.snapshot("t").vid
        assert cut is not None
        archive.restore("t", to="head", name="f")
        for name in ("t@f", "t"):
            archive.history.undo_removal(name, cut, vid)
        archive.open_for_append("t")
        archive.upkeep.compact("t")
        ship(archive, log, "t", b"d")
        assert archive.branches.promote_branch("t", "f", keep="old", carry=True).carried == range(4, 5)
        assert values(archive, "t") == values(archive, "t@old") == [b"a", b"b", b"c", b"d"]


def test_an_old_note_is_compared_and_a_cut_ends_its_refusal(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a")
        archive.restore("t", to="head", name="f")
        ship(archive, log, "t", b"1", b"2")
        topic = archive.open_for_append("t@f")
        noted = {CARRIED_FROM: f"{archive.history.snapshot('t').vid} 1 1"}
        log.configure("t@f", replace(topic.config, attributes=noted))
        topic.append([b"1", b"z"])
        with pytest.raises(Conflict) as refused:
            archive.branches.promote_branch("t", "f", keep="old", carry=True)
        assert "truncate t@f --from 2" in str(refused.value.hint)
        archive.truncate("t@f", 3)
        assert archive.branches.promote_branch("t", "f", keep="old", carry=True).carried == range(2, 4)
        assert values(archive, "t") == [b"a", b"1", b"2"]


@pytest.mark.long
@strided(71, part=8)
def test_a_promotion_that_carries_may_end_at_any_step(tmp_path: Path, every: int) -> None:
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        _bad_delete(log, archive)
        ship(archive, log, "t", b"1", b"1", b"1")

    def act(_: Log, archive: Archive) -> None:
        archive.branches.promote_branch("t", "good", keep="bad", carry=True)

    for name, place in crashes(base, tmp_path, act, every):
        with place.opened() as (log, archive):
            with suppress(NoSuchBranch):  # the first call made all changes in the remote
                act(log, archive)
            assert values(archive, "t") == [b"a", b"b", b"c", b"1", b"1", b"1"], name
            assert values(archive, "t@bad") == [b"c", b"1", b"1", b"1"], name
