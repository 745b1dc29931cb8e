"""GC against another task that acts between any two of its requests.

The other task names a volume or state that GC is about to delete, or lists a checkpoint's mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from catalog.errors import CatalogError, NoSuchObject, OutOfWindow
from catalog.format.commit import ForkPoint
from catalog.format.control import DEAD, Control
from catalog.format.ids import Vid
from catalog.format.keys import boundary_key, commit_key, ref_key
from catalog.format.small_objects import decode_ref
from catalog.objects import ObjectStore
from catalog.refs.branch import Branches
from catalog.refs.kept_points import check_kept
from catalog.refs.state_names import Pins, Tags
from catalog.volume import Volumes
from tests.catalog.gc_world import HOUR_MS, TOPIC, Branch, World, fork, grown, live_seqs, settle
from tests.faults.store import WrappedStore


def _waking(world: World, nth: int, wake: Callable[[], None]) -> WrappedStore:
    """Return a store that calls `wake` before its request number `nth`."""
    calls = count(1)

    class Waking(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if next(calls) == nth:
                wake()
            return act()

    return Waking(world.store)


def _forking(world: World, main: Branch) -> Iterator[object]:
    """Return the rest of a fork that stalls before its ref for longer than the grace."""
    steps = world.fork_steps("half", ForkPoint(main.vid, 2))
    assert [next(steps) for _ in range(3)] == ["control", "fork", "looked"]
    world.now_ms += 30 * HOUR_MS
    return steps


def _undeleting(world: World, main: Branch) -> Iterator[object]:
    """Return the undelete of a branch that was deleted longer than a window ago and is not collected yet."""
    fork(world, "half", ForkPoint(main.vid, 2))
    world.delete_ref("half")
    world.now_ms += 30 * HOUR_MS
    return world.undelete_steps("half")


@pytest.mark.parametrize("naming", [_forking, _undeleting])
@pytest.mark.parametrize("steps_at_once", [1, 2])
def test_whoever_names_a_volume_while_gc_closes_it_has_it_open_or_is_refused(
    naming: Callable[[World, Branch], Iterator[object]], steps_at_once: int
) -> None:
    """The naming continues at one request of GC. It runs one or two steps there, and the rest after the run."""
    named = refused = 0
    for nth in count(steps_at_once, 4):
        world = World()
        main = grown(world, 2)
        steps = naming(world, main)
        world.collect()
        woken: list[object] = []

        def wake(steps: Iterator[object] = steps, woken: list[object] = woken) -> None:
            woken += [next(steps, "done") for _ in range(steps_at_once)]

        world.now_ms += 1
        world.collect(store=_waking(world, nth, wake))
        if not woken:
            break
        for _ in steps:
            pass
        world.check()
        half = [branch for branch in world.branches.values() if branch.name == "half"]
        if world.refused:
            refused += 1
            assert bool(half) == (naming is _undeleting)
            assert naming is _forking or world.is_deleted("half")
        else:
            named += 1
            world.offload(half[0])
            assert half[0].tip.lsn == 1
        settle(world)
        world.check()
        assert world.left_over() == []
    assert min(named, refused) > 0


def test_who_stops_right_after_the_ref_of_a_closed_volume_leaves_no_branch() -> None:
    world = World()
    steps = _forking(world, grown(world, 2))
    for _ in range(2):
        world.collect()
        world.now_ms += 1
    assert next(steps) == "ref"  # the forker crashes here
    key = ref_key(TOPIC, "half")
    vid = decode_ref(world.store.get(key), key).vid
    assert world.boundary(vid) == DEAD
    assert [each for each in world.collect().refused if each.startswith("branch ")] == [
        f"branch {TOPIC}@half, of volume {vid}"
    ]
    assert world.is_deleted("half")
    settle(world)
    assert [*world.store.list(f"{vid}/")] == [boundary_key(vid)]
    assert world.left_over() == []


def test_a_ref_that_a_list_does_not_show_keeps_its_volume_open() -> None:
    world = World()
    main = grown(world, 2)
    half = fork(world, "half", ForkPoint(main.vid, 2))
    world.now_ms += 30 * HOUR_MS

    class Behind(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            answer = act()
            hides = method == "list" and key.startswith("refs/")
            return iter([each for each in answer if not each.endswith("/half")]) if hides else answer

    for _ in range(3):
        world.collect(store=Behind(world.store))
        world.now_ms += 1
    world.offload(half)
    world.check()


# ---------------------------------------------------------------- holding a state that leaves the window


def _hold(world: World, point: ForkPoint, how: str, store: ObjectStore | None = None) -> ForkPoint | None:
    """Hold the state by a pin, a tag or a fork. Return the held point, or None if the hold is refused."""
    volumes = Volumes(store or world.store)
    try:
        if how == "pin":
            return Pins(volumes).hold(point, "job", ttl_ms=100 * HOUR_MS, now_ms=world.now_ms).pin.point
        if how == "tag":
            return Tags(volumes).create(TOPIC, "v1", point, branch="main", now_ms=world.now_ms).point
        return ForkPoint(Branches(volumes).create(TOPIC, "half", point, now_ms=world.now_ms), 0)
    except (OutOfWindow, NoSuchObject):
        return None


def _hold_at_each_request(how: str) -> None:
    held = refused = 0
    for nth in count(1, 3):
        world = World()
        main = grown(world, 3)
        world.now_ms += 30 * HOUR_MS
        shown = live_seqs(Volumes(world.store).snapshot(main.vid, 2))
        world.collect()
        found: list[ForkPoint | None] = []

        def wake(world: World = world, vid: Vid = main.vid, found: list[ForkPoint | None] = found) -> None:
            found.append(_hold(world, ForkPoint(vid, 2), how))

        world.now_ms += 1
        world.collect(store=_waking(world, nth, wake))
        if not found:
            break
        [point] = found
        settle(world)
        if point is None:
            refused += 1
        else:
            held += 1
            assert live_seqs(Volumes(world.store).snapshot(point.vid, point.lsn)) == shown
    assert min(held, refused) > 0


def _collect_at_each_request(how: str) -> None:
    """Run GC before each request of the task that holds the state."""
    held = refused = 0
    for nth in count(1):
        world = World()
        main = grown(world, 3)
        world.now_ms += 30 * HOUR_MS
        shown = live_seqs(Volumes(world.store).snapshot(main.vid, 2))
        world.collect()
        world.now_ms += 1
        reports: list[object] = []

        def collect(world: World = world, reports: list[object] = reports) -> None:
            reports.append(world.collect())

        point = _hold(world, ForkPoint(main.vid, 2), how, _waking(world, nth, collect))
        if not reports:
            break
        settle(world)
        if point is None:
            refused += 1
        else:
            held += 1
            assert live_seqs(Volumes(world.store).snapshot(point.vid, point.lsn)) == shown
    assert min(held, refused) > 0


@pytest.mark.parametrize("how", ["pin", "tag", "fork"])
def test_who_wants_a_state_while_gc_passes_it_has_it_or_is_refused(how: str) -> None:
    _hold_at_each_request(how)
    _collect_at_each_request(how)


def test_a_fork_that_looks_before_it_writes_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above find this mistake: a fork that checks its parent's boundary before its write, not after."""
    create = Volumes.create

    def looks_first(self: Volumes, control: Control) -> None:
        if control.parent is not None:
            check_kept(self, control.parent)
        create(self, control)

    monkeypatch.setattr(Volumes, "create", looks_first)
    monkeypatch.setattr("catalog.refs.branch.check_kept", lambda *_: None)
    with pytest.raises((AssertionError, CatalogError)):
        _collect_at_each_request("fork")


@pytest.mark.parametrize("how", ["pin", "tag"])
def test_who_does_not_look_is_found_out(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above find this mistake: a pin or a tag whose maker never checks the boundary."""
    monkeypatch.setattr("catalog.refs.state_names.check_kept", lambda *_: None)
    with pytest.raises((AssertionError, CatalogError)):
        _hold_at_each_request(how)


# ---------------------------------------------------------------- marks of a stalled checkpointer


def test_a_mark_that_comes_after_gc_has_passed_its_commit_lets_nobody_in() -> None:
    """At each request of GC, a checkpointer lists its mark, and then another task pins the state."""
    pinned = refused = 0
    for nth in count(1):
        world = World()
        main = grown(world, 3)
        world.now_ms += 30 * HOUR_MS
        world.collect()
        checkpointing = world.checkpoint_steps(main.vid, 2)
        assert next(checkpointing) == "rewritten"
        woken: list[object] = []

        def wake(world: World = world, rest: Iterator[object] = checkpointing, woken: list[object] = woken) -> None:
            woken += [*rest, *world.pin_steps("job", ForkPoint(main.vid, 2), 100 * HOUR_MS)]  # noqa: B023

        world.now_ms += 1
        world.collect(store=_waking(world, nth, wake))
        if not woken:
            break
        world.check()
        settle(world)
        world.check()
        assert world.left_over() == []
        pinned, refused = pinned + any(world.points()), refused + (world.refused > 0)
    assert min(pinned, refused) > 0


def test_gc_vouches_for_nobody_who_comes_too_late() -> None:
    """A late request has put a collected commit back. The objects that the commit names may be gone."""
    world = World()
    main = grown(world)
    body = world.store.get(commit_key(main.vid, 1))
    world.now_ms += 50 * HOUR_MS
    settle(world)
    world.store.put_new(commit_key(main.vid, 1), body)
    point = ForkPoint(main.vid, 1)
    late = world.pin_steps("late", point, 100 * HOUR_MS)
    assert next(late) == "pin"  # the pin's maker has not checked the boundary yet
    for _ in range(3):
        world.offload(main)
        world.now_ms += 9 * HOUR_MS
        world.collect()
    assert 1 not in [mark.lsn for mark in Volumes(world.store).checkpoints(main.vid).marks]
    assert [*world.pin_steps("later", point, 100 * HOUR_MS), *late] == ["pin"]
    assert world.refused == 2
    settle(world)
    assert world.left_over() == []


def test_a_late_mark_is_refused_with_the_window() -> None:
    world = World()
    main = grown(world)
    world.now_ms += 30 * HOUR_MS
    steps = world.checkpoint_steps(main.vid, 2)
    next(steps)
    settle(world)
    assert ([*steps], world.refused) == ([], 1)
    found = Volumes(world.store).checkpoints(main.vid)
    assert ([mark.lsn for mark in found.marks], found.floor) == ([10], 10)
