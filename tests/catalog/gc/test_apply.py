"""One plan of GC, applied as it is or not at all, and why GC keeps an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from catalog.errors import (
    AccessDenied,
    ClocksDisagree,
    Conflict,
    InvalidObject,
    Missing,
    NoSuchObject,
)
from catalog.format.commit import ForkPoint
from catalog.format.keys import Key, checkpoints_key, commit_key, control_key, data_key, page_key, tag_key
from catalog.gc.collector import Collector
from catalog.gc.plan import Garbage, planned_keys
from catalog.gc.policy import GcPolicy, GcReport
from catalog.objects import ObjectStore
from catalog.objects.object_store import sizes_of
from tests.catalog.gc_world import HOUR_MS, TOPIC, Branch, World, fork, grown
from tests.faults.store import WrappedStore

T = TypeVar("T")


class NoDeletes(WrappedStore):
    def _call(self, method: str, _key: str, act: Callable[[], T]) -> T:
        if method == "delete_many":
            raise AccessDenied("memory", "no deletes")
        return act()


def collector(world: World, *, grace_s: int = 0, store: ObjectStore | None = None) -> Collector:
    world.latest_ms = max(world.latest_ms, world.now_ms)  # what `World.check` has to know of GC
    policy = GcPolicy(world.window_ms // 1000, grace_s, skew_s=0)
    return Collector(store or world.store, policy, clock=lambda: world.now_ms, writer_id="gc")


def planned(world: World) -> int:
    """Write a plan of the garbage of now, and return its number."""
    number = collector(world).run(plans_only=True).new_plan
    assert number is not None
    return number


def merged(world: World) -> Branch:
    """Return a branch with segments that only states before the window show."""
    main = grown(world, 3)
    for _ in range(2):
        world.merge(main)
    world.now_ms += 10 * HOUR_MS
    return main


def keys(world: World) -> set[str]:
    return {key for key, _ in sizes_of(world.store, "")}


def test_a_plan_goes_as_a_whole_and_a_dry_run_counts_the_same() -> None:
    world = World()
    merged(world)
    number, before = planned(world), keys(world)
    dry = collector(world).apply(number, dry_run=True)
    assert keys(world) == before
    done = collector(world).apply(number)
    assert (done.deleted, done.deleted_bytes) == (dry.planned, dry.planned_bytes)
    assert done.deleted["segments"] == 4
    assert not {key for key in keys(world) if key.startswith("gc/")}
    assert world.check() == 1
    with pytest.raises(Missing, match="there is no plan"):
        collector(world).apply(number)


def test_a_plan_that_something_needs_now_is_refused_and_nothing_goes() -> None:
    world = World()
    main = grown(world)
    number = planned(world)
    for _ in world.tag_steps("v1", ForkPoint(main.vid, 2)):
        pass
    before = keys(world)
    for dry_run in (False, True):
        with pytest.raises(Conflict, match="1 object") as refused:
            collector(world).apply(number, dry_run=dry_run)
        assert commit_key(main.vid, 2) in str(refused.value)
    assert keys(world) == before
    assert world.collect().deleted == {"commits": 3}  # GC deletes the rest of the plan
    assert world.check() > 1


def test_a_holder_that_comes_after_the_check_keeps_its_state() -> None:
    world = World()
    main = grown(world)
    number = planned(world)

    class Late(Collector):
        def _check_not_outgrown(self, *arguments: object) -> None:
            super()._check_not_outgrown(*arguments)  # type: ignore[arg-type]
            for _ in world.tag_steps("late", ForkPoint(main.vid, 2)):
                pass

    policy = GcPolicy(world.window_ms // 1000, 0, skew_s=0)
    done = Late(world.store, policy, clock=lambda: world.now_ms, writer_id="gc").apply(number)
    assert done.deleted == {"commits": 3}
    assert commit_key(main.vid, 2) in keys(world)
    assert world.check() > 1


def test_a_plan_that_is_young_or_of_the_future_is_refused() -> None:
    world = World()
    merged(world)
    number, before = planned(world), keys(world)
    world.now_ms += 59_500
    with pytest.raises(Conflict, match="younger than the grace") as refused:
        collector(world, grace_s=60).apply(number)
    assert refused.value.hint == "apply it in 1 s"
    world.now_ms -= 120_000
    with pytest.raises(Conflict, match="younger than the grace"):
        collector(world).apply(number)
    world.off_ms = 120_000
    with pytest.raises(ClocksDisagree):
        collector(world).apply(number)
    assert keys(world) == before


def test_damage_in_a_plan_or_in_its_volume_stops_it_before_any_delete() -> None:
    world = World()
    main = merged(world)
    number, before = planned(world), keys(world)
    commit = world.store.get(commit_key(main.vid, 5))
    world.store.put(commit_key(main.vid, 5), b"damaged", {})
    with pytest.raises(Conflict, match="may need now"):
        collector(world).apply(number)
    world.store.put(commit_key(main.vid, 5), commit, {})
    world.store.put(page_key(number, 0), b"damaged", {})
    with pytest.raises(InvalidObject):
        collector(world).apply(number)
    assert keys(world) == before


def test_a_store_that_fails_leaves_a_plan_that_the_next_call_finishes() -> None:
    world = World()
    merged(world)
    number = planned(world)
    wanted = collector(world).apply(number, dry_run=True).planned
    with pytest.raises(AccessDenied):
        collector(world, store=NoDeletes(world.store)).apply(number)
    assert collector(world).apply(number).deleted == wanted
    assert world.check() == 1


def test_every_object_is_garbage_to_explain_just_if_a_plan_would_name_it() -> None:
    world = World()
    main = grown(world)
    side = fork(world, "side", ForkPoint(main.vid, 3))
    for _ in world.tag_steps("v1", ForkPoint(main.vid, 2)):
        pass
    world.merge(main)
    orphan = world.upload(main.vid, 99, 99)
    world.now_ms += 10 * HOUR_MS
    young = world.upload(main.vid, 100, 100)
    gc, pages = collector(world, grace_s=3600), list[list[Garbage]]()
    report: GcReport = gc.run(dry_run=True, on_page=pages.append)
    named = {each.key for page in pages for garbage in page for each in planned_keys(garbage)}
    assert data_key(main.vid, orphan.sid) in named
    assert report.young_segments == 1
    found = {key: gc.explain(Key(key)) for key in keys(world)}
    assert all(each.reasons for each in found.values())
    garbage = {key.removesuffix(".index") for key, each in found.items() if each.verdict == "garbage"}
    assert garbage == named
    assert found[data_key(main.vid, young.sid)].verdict == "young"
    assert "tag orders/v1 holds lsn 2" in found[commit_key(main.vid, 2)].reasons
    assert any("fork" in told for told in found[commit_key(main.vid, 3)].reasons)
    assert "branch orders" in found[control_key(main.vid)].reasons[0]
    first = main.shown[1].segments[0].ref.sid
    assert any("v1 holds that state" in told for told in found[data_key(main.vid, first)].reasons)
    assert any(f"{TOPIC}@side" in told for told in found[data_key(main.vid, first)].reasons)
    assert found[tag_key(TOPIC, "v1")].verdict == "kept"
    assert side.vid != main.vid
    with pytest.raises(NoSuchObject):
        gc.explain(commit_key(main.vid, 999))


def test_a_planned_object_is_explained_with_its_plan_and_a_foreign_one_as_unknown() -> None:
    world = World()
    main = grown(world)
    number = planned(world)
    told = collector(world).explain(commit_key(main.vid, 1))
    assert (told.verdict, f"plan {number}" in told.reasons[-1]) == ("garbage", True)
    world.store.put(Key("notes"), b"", {})
    world.store.put(Key(f"{main.vid}/notes"), b"", {})
    assert collector(world).explain(Key("notes")).verdict == "unknown"
    assert collector(world).explain(Key(f"{main.vid}/notes")).verdict == "unknown"
    world.store.put(commit_key(main.vid, 8), b"damaged", {})
    assert collector(world).explain(commit_key(main.vid, 1)).verdict == "blocked"


def test_the_last_objects_of_a_volume_stay_while_a_tag_holds_one_of_its_states() -> None:
    world = World()
    main = grown(world)
    for _ in world.tag_steps("v1", ForkPoint(main.vid, 2)):
        pass
    world.delete_ref("main")
    world.now_ms += 10 * HOUR_MS
    planned(world)
    told = collector(world).explain(control_key(main.vid))
    assert (told.verdict, told.reasons) == ("kept", ("tag orders/v1 holds lsn 2 of its volume",))
    world.collect()
    last = [control_key(main.vid), checkpoints_key(main.vid)]
    assert keys(world) >= {*last}
    world.delete_tag(tag_key(TOPIC, "v1"))
    world.now_ms += 10 * HOUR_MS
    assert [collector(world).explain(key).verdict for key in last] == ["garbage", "garbage"]
    for _ in range(3):
        world.collect()
    assert not keys(world) & {*last}
