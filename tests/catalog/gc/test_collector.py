"""GC of one prefix: which objects it deletes and which it keeps, and why, in small worlds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import TypeVar

import pytest

from catalog.checkpointer import make_checkpoint
from catalog.errors import HistoryCollected, InvalidObject, Outdated
from catalog.format.commit import CommitKind, Deletions, ForkPoint
from catalog.format.control import DEAD
from catalog.format.encoding import decode_commit_at, encode_commit
from catalog.format.ids import Vid
from catalog.format.keys import (
    boundary_key,
    commit_key,
    control_key,
    data_key,
    list_of,
    pin_key,
    ref_key,
    segments_prefix,
)
from catalog.format.small_objects import decode_pin, encode_pin
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.history import KeptCommits, retry_if_collected
from catalog.timeline import Seq, Time
from catalog.volume import Volumes
from tests.catalog.gc_world import HOUR_MS, TOPIC, Branch, World, fork, grown, settle
from tests.catalog.samples import HistoryMaker
from tests.faults.in_caller import InCaller
from tests.faults.store import CountingStore, WrappedStore
from tests.seams.limits import Limit, set_limit

T = TypeVar("T")

# ---------------------------------------------------------------- objects that stay


def test_what_lies_before_the_window_goes_and_the_rest_reads_as_before() -> None:
    world = World()
    main = grown(world)
    first = world.collect()
    assert (first.deleted, first.planned) == ({}, {"commits": 4, "boundaries": 1})
    assert world.boundary(main.vid) == 0
    second = world.collect()
    assert second.deleted == {"commits": 4}
    assert not second.planned
    assert world.boundary(main.vid) == 5
    assert world.check() == 6
    assert world.left_over() == []


def test_segments_that_no_kept_state_shows_go_with_their_bytes_told() -> None:
    world = World()
    main = grown(world, 3)
    for _ in range(2):
        world.merge(main)
    world.now_ms += 10 * HOUR_MS
    planned = world.collect()
    assert planned.planned["segments"] == 4
    assert planned.planned_bytes == 4 * 32  # the bytes of data and index objects
    assert world.collect().deleted_bytes == 128
    assert len([*world.store.list(segments_prefix(main.vid))]) == 2
    assert world.check() == 1


def test_a_topics_own_window_goes_before_the_setting_and_retain_before_both() -> None:
    world = World()
    main = grown(world)
    config = world.commit(main, CommitKind.CONFIG, config='{"attributes":{"pitr_window_s":"7200"}}')
    world.publish(main, config)
    assert world.collect().planned["commits"] == 8
    policy = GcPolicy(world.window_ms // 1000, 0, retain_s=9 * 3600)
    report = Collector(world.store, policy, clock=lambda: world.now_ms, writer_id="gc").run(dry_run=True)
    assert report.kept[0].first_lsn == 2


def _note(told: list[tuple[str, int, int | None, str]], phase: str, done: int, total: int | None, unit: str) -> None:
    told.append((phase, done, total, unit))


def test_a_run_tells_its_phases() -> None:
    world = World()
    main = grown(world, 3)
    world.merge(main)
    world.now_ms += 10 * HOUR_MS
    policy = GcPolicy(world.window_ms // 1000, 0)
    for phases in (["reading commits", "searching"], ["reading commits", "deleting", "searching"]):
        told: list[tuple[str, int, int | None, str]] = []
        watch = functools.partial(_note, told)
        Collector(world.store, policy, clock=lambda: world.now_ms, writer_id="gc", watch=watch).run()
        assert [*dict.fromkeys(phase for phase, *_ in told)] == phases
        assert all(total is not None and done <= total for _, done, total, _ in told)


@pytest.mark.parametrize("holder", ["fork", "tag", "pin"])
def test_one_state_below_the_window_stays_as_long_as_something_holds_it(holder: str) -> None:
    world = World()
    main = grown(world)
    point = ForkPoint(main.vid, 3, 25)
    if holder == "fork":
        fork(world, "half", point)
    elif holder == "tag":
        [*world.tag_steps("v1", point)]
    else:
        [*world.pin_steps("job", point, 20 * HOUR_MS)]
    world.now_ms += 10 * HOUR_MS
    settle(world)
    world.check()
    assert world.left_over() == []
    assert [*world.store.list(commit_key(main.vid, 3))]
    [kept] = [volume for volume in world.collect().kept if volume.vid == main.vid]
    [(lsn, [found])] = kept.points
    assert (lsn, str(found).split()[0]) == (3, holder)
    if holder == "fork":
        assert [*world.store.list(f"{main.vid}/forks/")]
        world.delete_ref("half")
    elif holder == "tag":
        world.drop_a_tag()
    world.now_ms += 30 * HOUR_MS
    settle(world)
    assert world.left_over() == []
    assert not [*world.store.list(commit_key(main.vid, 3))]
    assert not [*world.store.list("pins/")]


def test_a_deleted_branch_goes_after_a_window_and_leaves_its_boundary_and_its_ref() -> None:
    world = World()
    main = grown(world)
    half = fork(world, "half", ForkPoint(main.vid, 9))
    world.offload(half)
    world.delete_ref("half")
    world.now_ms += world.window_ms - 100
    settle(world)
    assert Volumes(world.store).snapshot(half.vid).lsn == 1
    world.now_ms += 200
    settle(world)
    assert [*world.store.list(f"{half.vid}/")] == [boundary_key(half.vid)]
    assert world.boundary(half.vid) == DEAD
    assert [*world.store.list(ref_key(TOPIC, "half"))]
    with pytest.raises(Outdated):
        Volumes(world.store).publish(half.vid, *_prepared(world, half))


def _prepared(world: World, branch: Branch) -> tuple[int, bytes]:
    from catalog.format.encoding import encode_commit

    commit = world.commit(branch, CommitKind.CONFIG, config="{}")
    world.store.put_new(control_key(branch.vid), world.everything.get(control_key(branch.vid)))
    return commit.lsn, encode_commit(commit)[0]


def test_segments_of_a_parent_stay_while_a_fork_shows_them_though_the_parent_is_gone() -> None:
    world = World()
    main = grown(world, 3)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    world.offload(half)
    quarter = fork(world, "quarter", ForkPoint(half.vid, 1))
    world.offload(quarter)
    world.delete_ref("half")
    for _ in range(3):
        world.now_ms += 10 * HOUR_MS
        world.offload(quarter)
        settle(world)
    assert world.check() > 0
    assert world.left_over() == []
    assert [key for key in world.store.list(f"{half.vid}/") if "/segments/" in key]
    assert not [key for key in world.store.list(f"{half.vid}/") if "/log/" in key]


@pytest.mark.parametrize("is_fork", [False, True])
def test_segments_that_only_an_undo_shows_again_stay_in_their_volume_and_in_a_parent(*, is_fork: bool) -> None:
    """The first kept state is the one right after the delete. The pin of the undo has expired."""
    world = World(window_ms=24 * HOUR_MS)
    branch = main = grown(world, 3)
    if is_fork:
        branch = fork(world, "half", ForkPoint(main.vid, 3))
        world.offload(branch)
        for _ in range(2):
            world.merge(main)
    world.publish(branch, world.commit(branch, CommitKind.DELETE, deletions=Deletions(before_seq=11)))
    world.now_ms += 20 * HOUR_MS
    assert list(world.undo_steps(branch, "x")) == ["pin"]
    assert len(world.read(branch.tip)) == branch.tip.bounds.head_seq
    world.offload(branch)
    world.now_ms += 17 * HOUR_MS
    settle(world)
    assert world.boundary(branch.vid) == branch.tip.lsn - 2
    assert world.check() > 0
    world.now_ms += 30 * HOUR_MS
    world.merge(branch)
    settle(world)
    assert world.check() > 0
    world.now_ms += 30 * HOUR_MS
    settle(world)
    assert world.check() > 0
    assert world.left_over() == []


def test_what_a_deleted_branch_stands_on_stays_until_its_volume_is_dead() -> None:
    """A deleted branch keeps its parent's segments until its volume is dead (MARK-2).

    The first kept state of the branch is a commit of its own. Only the states of the branch show these two segments of
    main, because main has merged them.
    """
    world = World()
    main = grown(world, 3)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    for _ in range(2):
        world.offload(half)
        world.merge(main)
        world.now_ms += 10 * HOUR_MS
        settle(world)
    assert world.boundary(half.vid) > 1
    world.delete_ref("half")
    world.now_ms += 10 * HOUR_MS
    own = len([*world.store.list(segments_prefix(half.vid))]) // 2
    report = world.collect()
    assert (report.planned["volumes"], report.planned["segments"]) == (1, own)
    report = world.collect()
    assert (report.deleted["segments"], world.boundary(half.vid)) == (own, DEAD)
    assert world.collect().planned["segments"] == 2
    world.check()


def test_a_dead_volume_of_which_a_tag_holds_the_beginning_is_planned_once() -> None:
    world = World()
    main = grown(world)
    half = fork(world, "half", ForkPoint(main.vid, 9))
    [*world.tag_steps("v1", ForkPoint(half.vid, 0))]
    world.delete_ref("half")
    world.now_ms += 20 * HOUR_MS
    for _ in range(5):
        world.now_ms += 1
        world.collect()
    assert world.boundary(half.vid) == DEAD
    assert not world.collect().planned
    assert [*world.store.list(control_key(half.vid))]


def test_what_is_young_waits_for_its_name_or_its_commit() -> None:
    world = World()
    main = grown(world)
    ref = world.upload(main.vid, 101, 110)
    steps = world.fork_steps("late", ForkPoint(main.vid, 9))
    assert next(steps) == "control"
    report = world.collect(grace_s=3600)
    assert report.young_segments == 1
    assert "segments" not in report.planned
    assert "volumes" not in report.planned
    for _ in steps:
        pass
    world.now_ms += 2 * HOUR_MS
    assert world.collect(grace_s=3600).planned["segments"] == 1
    assert world.collect(attempts=lambda: (ref.sid,)).deleted["segments"] == 0  # a local catalog records its upload
    world.check()


def test_what_an_upload_on_record_has_is_not_planned() -> None:
    world = World()
    main = grown(world)
    ref = world.upload(main.vid, 101, 110)
    world.now_ms += 2 * HOUR_MS
    assert "segments" not in world.collect(grace_s=3600, attempts=lambda: (ref.sid,)).planned
    assert world.collect(grace_s=3600).planned["segments"] == 1


def test_a_pin_that_ended_is_there_for_the_grace() -> None:
    world = World()
    main = grown(world)
    [*world.pin_steps("job", ForkPoint(main.vid, 10), HOUR_MS)]
    world.now_ms += HOUR_MS + 1
    assert "pins" not in world.collect(grace_s=3600).planned
    world.now_ms += HOUR_MS
    assert world.collect(grace_s=3600).planned["pins"] == 1


def test_a_dry_run_tells_and_changes_nothing() -> None:
    world = World()
    grown(world)
    before = world.objects()
    policy = GcPolicy(world.window_ms // 1000, 0)
    collector = Collector(world.store, policy, clock=lambda: world.now_ms, writer_id="gc")
    assert collector.run(dry_run=True).planned == {"commits": 4, "boundaries": 1}
    assert world.objects() == before


class _Timeless(WrappedStore):
    def time_ms(self) -> None:
        return None

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        return act()


def test_where_no_store_tells_the_time_one_run_with_a_clock_that_is_ahead_takes_nothing_from_the_window() -> None:
    world = World()
    main = grown(world)
    world.collect(grace_s=3600)
    held = {lsn for branch, lsn in world.held() if branch is main}
    right_ms, ahead_ms = world.now_ms, world.now_ms + 30 * 24 * HOUR_MS
    policy = GcPolicy(world.window_ms // 1000, 3600)
    for now_ms in (ahead_ms, right_ms, right_ms + HOUR_MS):
        report = Collector(_Timeless(world.store), policy, clock=lambda now_ms=now_ms: now_ms, writer_id="gc").run()
        assert not report.blocked
        assert not report.is_clock_checked
        assert world.boundary(main.vid) == min(held)
        for lsn in held:
            assert Volumes(world.store).snapshot(main.vid, lsn) == main.shown[lsn]
    assert all(each.due_ms <= now_ms + HOUR_MS for each in report.waiting)  # no plan is due by the wrong clock


def test_a_plan_waits_for_the_grace_and_is_not_planned_again() -> None:
    world = World()
    grown(world)
    world.collect(grace_s=7200)
    world.now_ms += 1
    second = world.collect(grace_s=7200)
    assert (second.deleted, second.planned) == ({}, {})
    [waiting] = second.waiting
    assert waiting.due_ms == world.now_ms - 1 + 7_200_000
    world.now_ms += 2 * HOUR_MS
    third = world.collect(grace_s=7200)
    assert third.deleted == {"commits": 4}
    assert world.boundary(next(iter(world.branches))) == 5  # the start of the window at the time of the plan
    assert third.planned == {"commits": 2, "boundaries": 1}


def test_what_came_back_since_the_plan_stays() -> None:
    world = World()
    main = grown(world)
    world.collect()
    [*world.tag_steps("v1", ForkPoint(main.vid, 2))]
    assert world.collect().deleted == {"commits": 3}
    world.check()


def test_no_mark_is_left_of_a_checkpoint_that_goes() -> None:
    world = World()
    main = grown(world)
    for lsn in (2, 3, 6, 9):
        make_checkpoint(Volumes(world.store), main.vid, lsn, now_ms=world.now_ms)
    [*world.tag_steps("v1", ForkPoint(main.vid, 3))]
    world.now_ms += 3 * HOUR_MS
    settle(world)
    boundary = world.boundary(main.vid)
    marks = [mark.lsn for mark in Volumes(world.store).checkpoints(main.vid).marks]
    assert marks == [3, *sorted({boundary, 9})]
    world.check()


def _lists(world: World, vid: Vid) -> list[int]:
    return [found[0] for key in world.store.list(f"{vid}/lists/") if (found := list_of(key)) is not None]


def test_the_list_of_a_checkpoint_goes_with_its_commit_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.SEGMENTS_IN_CHECKPOINT_BYTES, 0)
    world = World()
    main = grown(world)
    for lsn in (2, 3, 4, 9):
        make_checkpoint(Volumes(world.store), main.vid, lsn, now_ms=world.now_ms)
    [*world.tag_steps("v1", ForkPoint(main.vid, 3))]
    world.now_ms += 3 * HOUR_MS
    assert world.collect().planned["lists"] == 2
    [*world.tag_steps("v2", ForkPoint(main.vid, 4))]
    settle(world)
    assert sorted(_lists(world, main.vid)) == [3, 4, world.boundary(main.vid), 9]
    world.check()
    world.drop_a_tag()
    world.drop_a_tag()
    settle(world)
    assert sorted(_lists(world, main.vid)) == [world.boundary(main.vid), 9]
    world.check()


def test_a_pin_that_is_held_again_since_the_plan_stays() -> None:
    """The holder read the pin before it expired, stalled, and then renewed it."""
    world = World()
    main = grown(world)
    [*world.pin_steps("job", ForkPoint(main.vid, 10), HOUR_MS)]
    world.now_ms += 2 * HOUR_MS
    assert world.collect().planned["pins"] == 1
    key = pin_key(main.vid, "job")
    pin = decode_pin(world.store.get(key), key)
    world.store.put(key, encode_pin(replace(pin, expires_at_ms=world.now_ms + HOUR_MS)), {})
    world.now_ms += 1
    assert "pins" not in world.collect().deleted
    assert [*world.store.list("pins/")] == [key]


def test_nothing_goes_of_a_volume_that_nobody_held_when_it_was_planned_and_that_has_its_name_again() -> None:
    """The boundary has not risen, so the states below the window are still valid."""
    world = World()
    main = grown(world, 2)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    for _ in range(5):
        world.offload(half)
        world.now_ms += HOUR_MS
    world.delete_ref("half")
    world.now_ms += 10 * HOUR_MS
    assert world.collect().planned["volumes"] == 1
    [*world.undelete_steps("half")]
    world.now_ms += 1
    world.collect()
    for lsn in range(1, 6):
        assert [*world.store.list(commit_key(half.vid, lsn))]
        assert Volumes(world.store).snapshot(half.vid, lsn) == half.shown[lsn]
    settle(world)
    world.check()


def test_an_orphan_that_was_named_since_the_plan_stays_while_the_boundary_is_below_it() -> None:
    """A merge replaced the segment after the plan, and the window has passed both commits.

    The plan is older than the commits, so its boundary is below them and the segment stays.
    """
    world = World()
    main = grown(world)
    stalled = world.offload(main, prepare_only=True)
    [ref] = stalled.segments
    world.now_ms += 2 * HOUR_MS
    assert world.collect(grace_s=3600).planned["segments"] == 1
    world.publish(main, stalled)
    while any(view.ref.sid == ref.sid for view in main.tip.segments):
        world.offload(main)
        world.merge(main)
    world.now_ms += 8 * HOUR_MS
    world.offload(main)
    world.now_ms += 8 * HOUR_MS
    world.collect(grace_s=3600)
    kept = [lsn for lsn in main.shown if lsn >= world.boundary(main.vid)]
    assert stalled.lsn in kept
    for lsn in kept:
        world.read(main.shown[lsn])


def test_segments_of_a_state_that_got_a_tag_since_the_plan_stay() -> None:
    world = World()
    main = grown(world, 3)
    for _ in range(2):
        world.merge(main)
    world.now_ms += 10 * HOUR_MS
    assert world.collect().planned["segments"] == 4
    [*world.tag_steps("v1", ForkPoint(main.vid, 2))]
    assert world.collect().deleted["segments"] < 4
    assert world.check() == 2


# ---------------------------------------------------------------- stalled writers


def test_an_orphan_goes_only_when_no_stalled_commit_can_name_it_any_more() -> None:
    world = World()
    main = grown(world)
    commit = world.offload(main, prepare_only=True)
    settle(world)
    [sid] = [ref.sid for ref in commit.segments]
    assert data_key(main.vid, sid) not in [*world.store.list(segments_prefix(main.vid))]
    told = Volumes(world.store).commits(main.vid, commit.lsn, commit.lsn)[0].commit
    assert told.kind is CommitKind.CONFIG
    assert told.collected_before_ms == sid.created_ms + 1
    assert (told.bounds, told.epoch, told.at_ts_ms) == (main.tip.bounds, main.tip.epoch, main.tip.max_ts_ms)
    assert not world.publish(main, commit)
    world.check()
    lsn = main.tip.lsn
    settle(world)
    assert Volumes(world.store).newest_lsn(main.vid) == lsn  # GC commits only if there are orphans


def test_orphans_of_two_moments_right_after_each_other_go_with_two_plans() -> None:
    world = World()
    main = grown(world)
    refs = [world.upload(main.vid, 101, 110)]
    world.now_ms += 1
    refs.append(world.upload(main.vid, 101, 110))
    world.now_ms += HOUR_MS - 1
    for planned in (1, 1, 0):
        assert world.collect(grace_s=3600).planned["segments"] == planned
        world.now_ms += HOUR_MS
    left = [*world.store.list(segments_prefix(main.vid))]
    assert not [key for key in left if any(str(ref.sid) in key for ref in refs)]
    world.check()


def test_a_stalled_commit_that_is_faster_keeps_its_segment() -> None:
    world = World()
    main = grown(world)
    commit = world.offload(main, prepare_only=True)
    world.collect()

    class Waking(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method == "put_new" and key == commit_key(main.vid, commit.lsn):
                assert world.publish(main, commit)
            return act()

    world.collect(store=Waking(world.store))
    world.check()
    assert main.tip.bounds.head_seq == 110


def test_a_commit_that_comes_after_its_lsn_was_collected_counts_as_refused_and_goes() -> None:
    world = World()
    main = grown(world, 1)
    stalled = world.commit(main, CommitKind.CONFIG, config="{}")
    world.offload(main)
    world.offload(main)
    own = world.store.get(commit_key(main.vid, 2))
    world.now_ms += 20 * HOUR_MS
    settle(world)
    assert world.boundary(main.vid) == 3
    with pytest.raises(Outdated):
        Volumes(world.store).publish(main.vid, 2, encode_commit(stalled)[0])
    settle(world)
    Volumes(world.store).publish(main.vid, 2, own)  # commit 3 builds on it
    settle(world)
    assert world.left_over() == []


def test_a_forker_that_looked_before_the_boundary_rose_keeps_its_point() -> None:
    world = World()
    main = grown(world)
    world.now_ms += 10 * HOUR_MS
    world.collect()
    steps = world.fork_steps("half", ForkPoint(main.vid, 2))

    class Stalling(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method == "put_new" and key == boundary_key(main.vid):
                assert [next(steps) for _ in range(3)] == ["control", "fork", "looked"]
            return act()

    world.collect(store=Stalling(world.store))
    assert world.boundary(main.vid) == 10
    assert [*steps] == ["ref"]
    world.check()
    settle(world)
    assert world.check() == 2
    assert world.left_over() == []


# ---------------------------------------------------------------- reports and costs


def test_notes_come_before_boundaries_rise_and_plans_are_carried_out() -> None:
    world = World()
    main = grown(world)
    notes: list[tuple[str, str, str]] = []

    def note(operation: str, subject: str, message: str) -> None:
        assert world.boundary(main.vid) == 0
        notes.append((operation, subject, message))

    policy = GcPolicy(world.window_ms // 1000, 0)
    for _ in range(2):
        Collector(world.store, policy, clock=lambda: world.now_ms, writer_id="gc", note=note).run()
    assert [(operation, message) for operation, _, message in notes] == [
        ("gc", "at most 5 objects"),
        ("boundary", "raised to lsn 5"),
    ]
    assert notes[1][1] == boundary_key(main.vid)


def test_restorable_is_what_the_window_says_and_nothing_below_it() -> None:
    world = World()
    main = grown(world)
    settle(world)
    first_ms = main.at_ms[5]
    assert world.drill(main, Time(first_ms))
    assert not world.drill(main, Time(first_ms - 1))
    assert world.drill(main, Seq(51))
    assert not world.drill(main, Seq(50))


def test_a_history_that_gc_passes_while_it_is_looked_at_says_so_and_is_asked_again() -> None:
    world = World()
    main = grown(world)
    body = world.store.get(commit_key(main.vid, 2))
    volumes = Volumes(world.store)
    past = volumes.history(main.vid)
    newest = next(iter(past))
    settle(world)
    with pytest.raises(HistoryCollected, match="lsn 5"):
        list(past)
    world.store.put_new(commit_key(main.vid, 2), body)  # a stalled writer's PUT, below the boundary
    with pytest.raises(HistoryCollected):
        past.at_lsn(3)
    histories = [past, volumes.history(main.vid)]
    assert [each.commit.lsn for each in retry_if_collected(lambda: histories.pop(0), list)] == [10, 9, 8, 7, 6, 5]
    assert newest.commit.lsn == 10


@pytest.mark.parametrize("first", range(1, 6))
def test_a_state_that_is_kept_is_read_though_gc_passes_by_twice_meanwhile(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", InCaller)
    for second in range(first + 1, first + 6):
        world = World()
        main = grown(world)
        settle(world)
        calls = count(1)

        class Passing(WrappedStore):
            def _call(self, method, key, act, world=world, calls=calls, second=second):  # type: ignore[no-untyped-def]
                if next(calls) in (first, second):
                    world.now_ms += HOUR_MS
                    settle(world)
                return act()

        assert Volumes(Passing(world.store)).snapshot(main.vid, 8) == main.shown[8]


def test_commits_of_a_history_that_are_missing_above_the_boundary_are_damage() -> None:
    world = World()
    main = grown(world)
    settle(world)
    past = Volumes(world.store).history(main.vid)
    world.store.delete(commit_key(main.vid, 7))
    with pytest.raises(InvalidObject, match="missing"):
        list(past)


def test_batches_of_a_history_are_joined_and_what_lies_below_the_boundary_by_now_is_no_part_of_it() -> None:
    vid, boundary = Vid.new(0), 0
    history, other = HistoryMaker(vid), HistoryMaker(vid)
    for number in range(6):
        history.offload((10 * number + 1, 10 * number + 10))
        other.offload((10 * number + 1, 10 * number + 9))
    sources = iter([history, other, other])
    load = KeptCommits(lambda _, first, last: next(sources).stored[first - 1 : last], lambda _: boundary, {vid: 0})
    assert load(vid, 5, 6) == history.stored[4:]
    with pytest.raises(InvalidObject, match="does not continue lsn 4"):
        load(vid, 3, 4)  # the batch alone is consistent
    boundary = 5
    with pytest.raises(HistoryCollected):
        load(vid, 3, 4)
    sources = iter([other, history])
    load = KeptCommits(lambda _, first, last: next(sources).stored[first - 1 : last], lambda _: boundary, {vid: 5})
    assert load(vid, 5, 5) == other.stored[4:5]
    with pytest.raises(InvalidObject, match="does not continue lsn 5"):
        load(vid, 6, 6)  # the boundary has not moved
    boundary = 6
    sources = iter([history])
    with pytest.raises(InvalidObject, match="does not continue lsn 5"):
        load(vid, 6, 6)  # the boundary has moved, but not past lsn 6


def test_requests_of_a_run_do_not_grow_with_what_was_collected_before() -> None:
    counts = []
    for commits in (20, 60):
        world = World()
        main = grown(world, commits)
        settle(world)
        world.offload(main)
        counting = CountingStore(world.store)
        world.collect(store=counting)
        counts.append(counting.counts)
    assert counts[0] == counts[1]


def test_a_writer_on_a_dead_volume_is_told() -> None:
    world = World()
    main = grown(world, 2)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    commit = world.offload(half, prepare_only=True)
    world.delete_ref("half")
    world.now_ms += 20 * HOUR_MS
    for _ in range(2):
        world.collect()
    with pytest.raises(Outdated):  # although no object holds its name any more
        Volumes(world.store).publish(half.vid, commit.lsn, _body(replace(commit)))
    settle(world)
    assert world.left_over() == []


def _body(commit: object) -> bytes:
    from catalog.format.encoding import encode_commit

    body, _ = encode_commit(commit)  # type: ignore[arg-type]
    assert decode_commit_at(body, commit.vid, commit.lsn).commit == commit  # type: ignore[attr-defined]
    return body
