"""GC of one prefix: what goes, what stays and why, in small worlds."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import count

import pytest

from catalog import gc_plan
from catalog.commit import CommitKind, ForkPoint
from catalog.control import DEAD
from catalog.encoding import decode_commit_at
from catalog.errors import CatalogError, Diverged, Outdated, OutOfWindow, StoreUnreachable
from catalog.gc import Collector
from catalog.gc_report import GcPolicy
from catalog.holds import check_kept
from catalog.keys import (
    Key,
    boundary_key,
    checkpoints_key,
    commit_key,
    control_key,
    data_key,
    plan_key,
    ref_key,
    segments_prefix,
    tag_key,
)
from catalog.timeline import Seq, Time
from catalog.volume import Volumes
from tests.catalog.gc_world import HOUR_MS, TOPIC, Branch, World
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, faults_of, unreachable


def grown(world: World, commits: int = 10) -> Branch:
    """A topic with a commit each hour."""
    branch = world.root()
    for _ in range(commits):
        world.offload(branch)
        world.now_ms += HOUR_MS
    return branch


def settle(world: World) -> None:
    before = None
    while before != (before := world.objects()):
        world.now_ms += 1
        assert not world.collect().blocked


def fork(world: World, name: str, point: ForkPoint) -> Branch:
    for _ in world.fork_steps(name, point):
        pass
    return next(branch for branch in world.branches.values() if branch.name == name)


# ---------------------------------------------------------------- what stays


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
    assert planned.planned_bytes == 4 * 32  # of data and index
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
    from catalog.encoding import encode_commit

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


def test_what_is_young_waits_for_its_name_or_its_commit() -> None:
    world = World()
    main = grown(world)
    ref = world.upload(main.vid, 101, 110)
    steps = world.fork_steps("late", ForkPoint(main.vid, 9))
    assert next(steps) == "control"
    report = world.collect(grace_s=3600)
    assert report.young_segments == 1
    assert "segments" not in report.planned
    for _ in steps:
        pass
    world.now_ms += 2 * HOUR_MS
    assert world.collect(grace_s=3600).planned["segments"] == 1
    assert world.collect(attempts=lambda: (ref.sid,)).deleted["segments"] == 0  # on record somewhere
    world.check()


def test_a_dry_run_tells_and_changes_nothing() -> None:
    world = World()
    grown(world)
    before = world.objects()
    policy = GcPolicy(world.window_ms // 1000, 0)
    collector = Collector(world.store, policy, clock=lambda: world.now_ms, writer_id="gc")
    assert collector.run(dry_run=True).planned == {"commits": 4, "boundaries": 1}
    assert world.objects() == before


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
    assert world.boundary(next(iter(world.branches))) == 7  # where the window begins now
    assert third.planned == {"commits": 2}


def test_what_came_back_since_the_plan_stays() -> None:
    world = World()
    main = grown(world)
    world.collect()
    [*world.tag_steps("v1", ForkPoint(main.vid, 2))]
    assert world.collect().deleted == {"commits": 3}
    world.check()


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
    assert Volumes(world.store).newest_lsn(main.vid) == lsn  # only when there are some


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
    main = grown(world, 2)
    world.offload(main)
    body = world.store.get(commit_key(main.vid, 2))
    world.now_ms += 20 * HOUR_MS
    settle(world)
    assert world.boundary(main.vid) == 3
    with pytest.raises(Outdated):
        Volumes(world.store).publish(main.vid, 2, body)
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


# ---------------------------------------------------------------- trouble


def test_damage_stops_gc_of_what_it_may_hold_and_of_nothing_else() -> None:
    world = World()
    main = grown(world)
    half = fork(world, "half", ForkPoint(main.vid, 9))
    other = world.root("other")
    for _ in range(5):
        world.offload(half)
        world.offload(other)
        world.now_ms += 5 * HOUR_MS
    world.store.put(commit_key(half.vid, 4), b"not a commit", {})
    planned = world.collect()
    assert set(planned.blocked) == {half.vid, main.vid}
    before = [*world.store.list(f"{main.vid}/"), *world.store.list(f"{half.vid}/")]
    assert world.collect().deleted["commits"] > 0
    assert [*world.store.list(f"{main.vid}/"), *world.store.list(f"{half.vid}/")] == before


@pytest.mark.parametrize("key", ["ref", "tag", "pin", "control", "checkpoints", "boundary"])
def test_an_object_that_does_not_decode_is_no_ground_to_delete_another(key: str) -> None:
    world = World()
    main = grown(world)
    [*world.tag_steps("v1", ForkPoint(main.vid, 2))]
    [*world.pin_steps("job", ForkPoint(main.vid, 3), 50 * HOUR_MS)]
    world.checkpoint(main)
    damaged = {
        "ref": ref_key(TOPIC, "main"),
        "tag": tag_key(TOPIC, "v1"),
        "pin": Key(f"pins/{main.vid}/job"),
        "control": control_key(main.vid),
        "checkpoints": checkpoints_key(main.vid),
        "boundary": boundary_key(main.vid),
    }[key]
    world.store.put(damaged, b"not what it was", {})
    before = world.objects()
    world.now_ms += 100 * HOUR_MS
    for _ in range(3):
        report = world.collect()
        assert main.vid in report.blocked
        assert not report.deleted
    assert {each: body for each, body in world.objects().items() if not each.startswith("gc/")} == before


def test_a_missing_commit_is_damage_too() -> None:
    world = World()
    main = grown(world)
    world.store.delete(commit_key(main.vid, 8))
    assert "missing" in world.collect().blocked[main.vid]


def test_a_key_that_is_none_of_ours_stays_and_is_told() -> None:
    world = World()
    main = grown(world)
    strange = Key(f"{main.vid}/segments/README")
    world.store.put(strange, b"hello", {})
    assert world.collect().unknown_keys == [strange]
    settle(world)
    assert world.store.get(strange) == b"hello"


@pytest.mark.parametrize("prefix", ["refs/", "tags/", "pins/", "5"])
def test_a_list_that_shows_nothing_deletes_nothing_that_is_held(prefix: str) -> None:
    world = World()
    main = grown(world)
    [*world.tag_steps("v1", ForkPoint(main.vid, 2))]
    fork(world, "half", ForkPoint(main.vid, 9))
    settle(world)

    class Behind(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            return iter(()) if method == "list" and key == prefix else act()

    world.collect(store=Behind(world.store))  # the plan of this one may say anything
    world.now_ms += 1
    world.collect()
    world.check()


def test_a_damaged_plan_is_given_up_and_made_anew() -> None:
    world = World()
    grown(world)
    world.collect()
    [plan] = gc_plan.plans(world.store)
    page = Key(plan_key(plan.number).replace("plan", "00000000"))
    world.store.put(page, world.store.get(page)[:-1], {})
    world.now_ms += 1
    report = world.collect()
    assert len(report.damaged_plans) == 1
    assert report.planned["commits"] == 4
    assert not report.deleted
    settle(world)
    assert world.left_over() == []


def test_pages_are_of_bounded_size_and_those_without_a_plan_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_plan, "PAGE_OBJECTS", 3)
    world = World()
    grown(world, 12)
    world.now_ms += 50 * HOUR_MS
    world.collect()
    [plan] = gc_plan.plans(world.store)
    assert (plan.pages, plan.objects) == (4, 12)
    world.store.delete(plan_key(plan.number))
    world.now_ms += 1
    report = world.collect()
    assert not report.deleted
    assert not [key for key in world.store.list("gc/") if f"/{plan.number}/" in key]
    settle(world)
    assert world.left_over() == []
    assert [*world.store.list("gc/")] == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_end_at_any_request_leaves_all_that_is_held_and_the_next_runs_finish(when: str) -> None:
    """Of two runs, each request that changes something fails once; so does each that only looks."""
    changes = looks = 0
    for method in (None, "get", "list"):
        for nth in count(1):
            world = _busy()
            faulty = FaultyStore(world.store, [Fault(nth, when, unreachable, method)])  # type: ignore[arg-type]
            for _ in range(2):
                try:
                    world.collect(store=faulty)
                except CatalogError:
                    world.check()
            if not faulty.struck:
                break
            changes, looks = changes + (method is None), looks + (method is not None)
            world.check()
            settle(world)
            assert world.left_over() == []
            if method is not None and nth > 60:
                break
    assert changes > 10
    assert looks > 60


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.soak)])
def test_a_store_that_fails_in_any_way_costs_nothing_that_is_held(every: int) -> None:
    """Errors before and after the effect, lost and late ones, flipped bits, and listings that show nothing."""
    plans = 0
    for method in ("put_new", "swap", "delete_many", "delete", "list", "get", "get_tagged"):
        for nth in range(1, 46):
            struck = False
            for number, fault in enumerate(faults_of(method, nth)):
                if (nth + number) % every:
                    struck = True  # as far as anybody knows
                    continue
                world = _busy()
                faulty = FaultyStore(world.store, [fault])
                for _ in range(2):
                    world.now_ms += 1
                    with contextlib.suppress(CatalogError):
                        world.collect(store=faulty)
                    world.check()
                faulty.land()
                world.check()
                struck = struck or bool(faulty.struck)
                plans += bool(faulty.struck)
                settle(world)
                world.check()
                assert world.left_over() == [], str(fault)
            if not struck:
                break
    assert plans > 30
    print(f"T6 of GC: {plans} faults; reachable deleted: 0, orphans left: 0")


def _busy() -> World:
    world = World()
    main = grown(world, 4)
    half = fork(world, "half", ForkPoint(main.vid, 2, 15))
    world.offload(half)
    world.merge(main)
    world.delete_ref("half")
    [*world.tag_steps("v1", ForkPoint(main.vid, 3))]
    world.offload(main, prepare_only=True)
    world.now_ms += 20 * HOUR_MS
    return world


def test_two_runs_at_once_delete_nothing_that_is_held() -> None:
    for nth in range(1, 80, 3):
        world = _busy()
        world.collect()
        calls = count(1)

        class Another(WrappedStore):
            def _call(self, method, key, act, world=world, calls=calls, nth=nth):  # type: ignore[no-untyped-def]
                if next(calls) == nth:
                    world.collect()
                return act()

        world.collect(store=Another(world.store))
        world.check()
        settle(world)
        assert world.left_over() == []


def test_a_reader_that_knows_an_old_state_goes_on_from_a_checkpoint() -> None:
    world = World()
    main = grown(world)
    reader = Volumes(world.store)
    reader.snapshot(main.vid, 1)
    world.now_ms += 50 * HOUR_MS
    settle(world)
    assert reader.snapshot(main.vid) == Volumes(world.store).snapshot(main.vid)
    with pytest.raises(CatalogError):
        reader.snapshot(main.vid, 4)


def test_a_fork_that_stands_on_a_checkpoint_of_its_own_is_no_ground_to_fork_its_point_again() -> None:
    world = World()
    main = grown(world)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    for _ in range(3):
        world.now_ms += 10 * HOUR_MS
        world.offload(half)
        settle(world)
    assert world.boundary(half.vid) > 1
    assert [*world.store.list(f"{main.vid}/forks/")]
    with pytest.raises(OutOfWindow):
        check_kept(Volumes(world.store), ForkPoint(main.vid, 2))


def test_two_who_come_too_late_do_not_vouch_for_each_other() -> None:
    world = World()
    main = grown(world)
    world.now_ms += 50 * HOUR_MS
    settle(world)
    point = ForkPoint(main.vid, 3)
    steps = [world.tag_steps("v1", point), world.pin_steps("job", point, HOUR_MS), world.fork_steps("half", point)]
    assert [next(each) for each in steps] == ["tag", "pin", "control"]
    assert next(steps[2]) == "fork"
    assert [[*each] for each in steps] == [[], [], []]
    assert world.refused == 3
    settle(world)
    assert world.left_over() == []


def test_a_mark_that_was_taken_away_before_a_holder_was_seen_is_put_back() -> None:
    world = World()
    main = grown(world)
    [*world.tag_steps("v1", ForkPoint(main.vid, 2))]
    world.now_ms += 50 * HOUR_MS
    settle(world)
    world.drop_a_tag()
    world.collect()
    pin = world.pin_steps("job", ForkPoint(main.vid, 2), 9 * HOUR_MS)
    held: list[str] = []

    class Holding(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method == "swap" and key == checkpoints_key(main.vid):
                held.extend(pin)  # and it looked: the mark was there
            return act()

    world.now_ms += 1
    world.collect(store=Holding(world.store))
    assert (held, world.refused) == (["pin"], 0)
    world.check()
    assert [mark.lsn for mark in Volumes(world.store).checkpoints(main.vid).marks] == [2, 10]


def test_a_branch_that_is_made_right_before_the_mark_goes_has_its_point() -> None:
    world = World()
    main = grown(world)
    [*world.tag_steps("v1", ForkPoint(main.vid, 2))]
    world.now_ms += 50 * HOUR_MS
    settle(world)
    world.drop_a_tag()
    world.collect()
    steps = world.fork_steps("half", ForkPoint(main.vid, 2))
    ends = count(1)

    class Forking(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method == "swap" and key == checkpoints_key(main.vid):
                list(steps)
                act()
                if next(ends) == 1:
                    raise unreachable(key)  # the run ends right after it took the mark away
                return None
            return act()

    world.now_ms += 1
    with pytest.raises(StoreUnreachable):
        world.collect(store=Forking(world.store))
    world.check()
    settle(world)
    world.check()
    assert world.left_over() == []


def test_what_a_tag_holds_of_a_dead_volume_can_be_forked() -> None:
    world = World()
    main = grown(world)
    half = fork(world, "half", ForkPoint(main.vid, 9))
    world.offload(half)
    [*world.tag_steps("v1", ForkPoint(half.vid, 1))]
    world.delete_ref("half")
    world.now_ms += 20 * HOUR_MS
    settle(world)
    assert world.boundary(half.vid) == DEAD
    again = fork(world, "again", ForkPoint(half.vid, 1))
    world.drop_a_tag()
    settle(world)
    world.check()
    assert Volumes(world.store).snapshot(again.vid).bounds.head_seq == 100


# ---------------------------------------------------------------- what it says, and what it costs


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


def test_a_fault_of_the_store_is_no_damage() -> None:
    world = World()
    grown(world)
    with pytest.raises(StoreUnreachable):
        world.collect(store=FaultyStore(world.store, [Fault(3, error=unreachable, method="get")]))


def test_a_writer_on_a_dead_volume_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    main = grown(world, 2)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    commit = world.offload(half, prepare_only=True)
    world.delete_ref("half")
    world.now_ms += 20 * HOUR_MS
    for _ in range(2):
        world.collect()
    monkeypatch.setattr("catalog.volume._full_name", lambda _: "half")
    with pytest.raises((Diverged, CatalogError)):
        Volumes(world.store).publish(half.vid, commit.lsn, _body(replace(commit)))
    settle(world)
    assert world.left_over() == []


def _body(commit: object) -> bytes:
    from catalog.encoding import encode_commit

    body, _ = encode_commit(commit)  # type: ignore[arg-type]
    assert decode_commit_at(body, commit.vid, commit.lsn).commit == commit  # type: ignore[attr-defined]
    return body
