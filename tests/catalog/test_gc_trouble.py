"""GC of one prefix, with damaged or missing objects, with faults of the store, and beside other tasks."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from dataclasses import replace
from itertools import count

import pytest

from catalog.errors import CatalogError, InvalidKey, OutOfWindow, StoreUnreachable
from catalog.format.commit import ForkPoint
from catalog.format.control import DEAD
from catalog.format.encoding import encode_commit
from catalog.format.keys import (
    Key,
    boundary_key,
    check_key,
    checkpoints_key,
    commit_key,
    control_key,
    plan_key,
    plan_prefix,
    ref_key,
    tag_key,
)
from catalog.gc import plan as gc_plan
from catalog.gc.policy import GcReport
from catalog.refs.kept_points import check_kept
from catalog.volume import Volumes
from tests.catalog.gc_world import HOUR_MS, TOPIC, World, fork, grown, settle
from tests.faults.store import EFFECTS, Fault, FaultyStore, StrayKeysStore, When, WrappedStore, faults_of, unreachable
from tests.faults.stride import spread
from tests.work import amounts, tell

_IDS = re.compile(r"[0-9A-Za-z][\w-]{15,}")


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


@pytest.mark.parametrize("key", ["control", "commit"])
def test_a_fork_that_does_not_decode_is_no_ground_to_delete_what_it_stands_on(key: str) -> None:
    world = World()
    main = grown(world)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    world.offload(half)
    damaged = control_key(half.vid) if key == "control" else commit_key(half.vid, 1)
    world.store.put(damaged, b"not what it was", {})
    world.now_ms += 100 * HOUR_MS
    for _ in range(3):
        report = world.collect()
        assert {main.vid, half.vid} <= {*report.blocked}
        assert not report.deleted


@pytest.mark.parametrize("seed", [0, 1], ids=["ordered", "unordered"])
def test_a_missing_commit_is_damage_too(seed: int) -> None:
    """In a store with unordered LISTs, the search for the newest commit may end below the missing one."""
    for lsn in range(2, 10):
        world = World(seed)
        main = grown(world)
        world.store.delete(commit_key(main.vid, lsn))
        assert commit_key(main.vid, lsn) in str(world.collect().blocked[main.vid])


@pytest.mark.parametrize(
    "pattern",
    [
        *("refs/", "refs/README", f"refs/{TOPIC}/", f"refs/{TOPIC}/main/x", "refs/x/", "refs//main"),
        f"refs/{TOPIC}/.x",
        *("tags/", "tags/README", f"tags/{TOPIC}/", f"tags/{TOPIC}/v1/x", "pins/", "pins/README", "pins/x/y"),
        *("pins/{vid}/", "pins/{vid}/job/x", "gc/", "gc/README", "gc/FFFFFFFFFFFFFFFE/", "gc/FFFFFFFFFFFFFFFE/README"),
        *("{vid}/", "{vid}/README", "{vid}/control/x", "{vid}/log/", "{vid}/log/README"),
        *(
            "{vid}/log/x/FFFFFFFFFFFFFFFE",
            "{vid}/forks/",
            "{vid}/lists/",
            "{vid}/lists/README",
            "{vid}/segments/",
            "{vid}/segments/README",
        ),
    ],
)
def test_a_key_that_is_none_of_ours_stays_stops_nothing_and_is_told(pattern: str) -> None:
    report = _collect_among(pattern)
    assert report.unknown_keys == [pattern.format(vid=report.kept[0].vid)]


@pytest.mark.parametrize("key", ["oplog/", "oplog/README", "oplog/00"])
def test_one_in_the_oplog_stays_and_stops_nothing(key: str) -> None:
    assert _collect_among(key).unknown_keys == []


def _collect_among(pattern: str) -> GcReport:
    """Run GC, with plans and their execution, in a prefix that has such a key. Return the last report."""
    world = World()
    main = grown(world)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    world.delete_ref("half")
    [*world.tag_steps("v1", ForkPoint(main.vid, 3))]
    world.now_ms += 50 * HOUR_MS
    key = pattern.format(vid=main.vid)
    with contextlib.suppress(InvalidKey):  # only a LIST shows an invalid key; other requests fail
        world.store.put(check_key(key), b"hello", {})
    store = StrayKeysStore(world.store, [key])
    for _ in range(4):
        report = world.collect(store=store)
        assert not report.blocked
        world.now_ms += 1
    with contextlib.suppress(InvalidKey):
        assert world.store.get(Key(key)) == b"hello"
        world.store.delete(Key(key))
    world.check()
    assert world.boundary(half.vid) == DEAD
    assert world.left_over() == []
    assert not report.waiting
    return report


def test_what_lies_among_the_pages_of_a_plan_stays_when_the_plan_goes() -> None:
    world = World()
    grown(world)
    world.collect()
    [plan] = gc_plan.plans(world.store)
    note, folder = Key(f"{plan_prefix(plan.number)}README"), plan_prefix(plan.number)
    world.store.put(note, b"hello", {})
    for _ in range(3):
        world.now_ms += 1
        report = world.collect(store=StrayKeysStore(world.store, [folder]))
    assert report.unknown_keys == [folder, note]
    assert [*world.store.list("gc/")] == [note]
    assert world.left_over() == []


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

    world.collect(store=Behind(world.store))  # the plan of this run may be wrong
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


def _requests() -> list[tuple[str, int, str]]:
    """Return the requests of two runs that nothing disturbs: the method, its number for the method, and its thing."""
    found: list[tuple[str, int, str]] = []
    calls: Counter[str] = Counter()

    class Noting(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            calls[method] += 1
            found.append((method, calls[method], _IDS.sub("#", str(key))))
            return act()

    world = _busy()
    for _ in range(2):
        world.collect(store=Noting(world.store))
    return found


@pytest.mark.long
@amounts(1, soak=1_000, part=8)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_end_at_any_request_leaves_all_that_is_held_and_the_next_runs_finish(when: When, amount: int) -> None:
    """By default, a request of each method on each kind of object fails, and in the soak each one."""
    requests = [each for each in _requests() if when == "before" or each[0] in EFFECTS]
    assert len(requests) > (70 if when == "before" else 10)
    taken = spread([(method, thing) for method, _, thing in requests], amount)
    for method, nth, _ in (requests[index] for index in taken):
        world = _busy()
        faulty = FaultyStore(world.store, [Fault(nth, when, unreachable, method)])
        for _ in range(2):
            try:
                world.collect(store=faulty)
            except CatalogError:
                world.check()
        assert faulty.struck
        world.check()
        settle(world)
        assert world.left_over() == []
    assert len(taken) > 5


@pytest.mark.long
@amounts(1, soak=10_000, part=8)
def test_a_store_that_fails_in_any_way_costs_nothing_that_is_held(amount: int) -> None:
    """The faults are errors before and after the effect, lost and late requests, flipped bits, and empty LISTs.

    By default, a request of each method fails in each way that it can, and in the soak each request.
    """
    faults = [fault for method, nth, _ in _requests() for fault in faults_of(method, nth)]
    assert len(faults) > 330
    taken = spread([(each.method, each.when, each.error, each.is_late, each.answer) for each in faults], amount)
    for fault in (faults[index] for index in taken):
        world = _busy()
        faulty = FaultyStore(world.store, [fault])
        for _ in range(2):
            world.now_ms += 1
            with contextlib.suppress(CatalogError):
                world.collect(store=faulty)
            world.check()
        faulty.land()
        world.check()
        assert faulty.struck
        settle(world)
        world.check()
        assert world.left_over() == [], str(fault)
    assert len(taken) > 30
    tell(f"T6 of GC: {len(taken)} faults; reachable deleted: 0, orphans left: 0")


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


@pytest.mark.long
def test_two_runs_at_once_delete_nothing_that_is_held() -> None:
    for nth in range(1, 80, 7):
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
                held.extend(pin)  # the pin's maker checked too, and found the mark
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
                    raise unreachable(key)  # the run crashes right after it removed the mark
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


def test_a_late_commit_where_a_run_shuts_writers_out_ends_no_run_if_another_one_has_passed_it() -> None:
    world = World()
    main = grown(world)
    commit = world.offload(main, prepare_only=True)  # an orphan: GC takes LSN 11 to shut it out
    world.collect()

    class Passed(WrappedStore):
        """A store where a second GC run passes LSN 11 before this run puts its commit there.

        Then the stalled writer's commits take LSNs 11 and 12, below the boundary.
        """

        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method == "put_new" and key == commit_key(main.vid, 11):
                for _ in range(3):
                    world.offload(main)
                    world.now_ms += 9 * HOUR_MS
                settle(world)
                assert world.boundary(main.vid) > 12
                body, _ = encode_commit(replace(commit, lsn=11, nonce=bytes(16)))
                world.store.put(key, body, {})
                world.store.put(commit_key(main.vid, 12), encode_commit(replace(commit, lsn=12))[0], {})
            return act()

    world.now_ms += 1
    world.collect(store=Passed(world.store))
    world.check()
    settle(world)
    assert world.left_over() == []


def test_a_fault_of_the_store_is_no_damage() -> None:
    world = World()
    grown(world)
    with pytest.raises(StoreUnreachable):
        world.collect(store=FaultyStore(world.store, [Fault(3, error=unreachable, method="get")]))
