"""The survey of a prefix: each byte counts once, and its garbage is what GC would delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog.format.commit import ForkPoint
from catalog.format.keys import commit_key
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.gc.survey import Survey
from catalog.objects.object_store import sizes_of
from tests.catalog.gc_world import HOUR_MS, World, fork, grown
from tests.faults.store import WrappedStore

T = TypeVar("T")


class Silent(WrappedStore):
    """A store whose listings tell keys only."""

    sizes = None  # type: ignore[assignment]

    def _call(self, _method: str, _key: str, act: Callable[[], T]) -> T:
        return act()


def surveyed(world: World) -> Survey:
    policy = GcPolicy(world.window_ms // 1000, 0)
    return Collector(world.store, policy, clock=lambda: world.now_ms, writer_id="gc").survey()


def test_each_object_counts_once_and_a_fork_tells_what_it_shares() -> None:
    world = World()
    main = grown(world, 3)
    side = fork(world, "side", ForkPoint(main.vid, 3))
    found = surveyed(world)
    uses = [*(each.use for each in found.volumes), *found.others.values()]
    stored = dict(sizes_of(world.store, ""))
    assert sum(each.objects for each in uses) == len(stored)
    assert sum(each.size_bytes for each in uses) == sum(stored.values())
    by_vid = {each.vid: each for each in found.volumes}
    assert by_vid[main.vid].names == (("orders", "main"),)
    assert (by_vid[main.vid].shared_bytes, by_vid[side.vid].shared_bytes) == (0, 3 * 32)


def test_the_garbage_is_what_two_runs_of_gc_delete() -> None:
    world = World()
    main = grown(world, 3)
    for _ in range(2):
        world.merge(main)
    world.now_ms += 10 * HOUR_MS
    before = dict(sizes_of(world.store, f"{main.vid}/"))
    use = {each.vid: each.use for each in surveyed(world).volumes}[main.vid]
    world.collect()
    assert {each.vid: each.use for each in surveyed(world).volumes}[main.vid] == use  # a waiting plan is garbage, too
    world.collect()
    gone = before.keys() - dict(sizes_of(world.store, f"{main.vid}/")).keys()
    assert (use.garbage_objects, use.garbage_bytes) == (len(gone), sum(before[key] for key in gone))
    assert len(gone) > 4


def test_a_damaged_volume_counts_and_its_garbage_is_unknown() -> None:
    world = World()
    main = grown(world, 3)
    world.store.put(commit_key(main.vid, 2), b"damaged", {})
    found = surveyed(world)
    assert (found.blocked, found.volumes[0].use.garbage_objects) == (1, 0)


def test_a_store_whose_listing_tells_no_sizes_is_asked_for_each() -> None:
    world = World()
    grown(world, 2)
    assert dict(sizes_of(Silent(world.store), "")) == dict(sizes_of(world.store, ""))
