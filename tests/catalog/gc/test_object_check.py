"""The check of each object, while GC runs beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog.format.keys import commit_key
from catalog.gc.object_check import ObjectCheck
from tests.catalog.gc_world import HOUR_MS, World, grown
from tests.faults.store import WrappedStore

T = TypeVar("T")


class Collected(WrappedStore):
    """The store of a world in which GC carries a plan out after the check has marked."""

    def __init__(self, world: World) -> None:
        super().__init__(world.store)
        self._world = world

    def _call(self, method: str, _key: str, act: Callable[[], T]) -> T:
        if method == "list_uploads":
            self._world.collect()
        return act()


def test_a_boundary_that_rises_during_the_check_is_no_damage_and_hides_no_object() -> None:
    world = World()
    main = grown(world)
    world.now_ms += 10 * HOUR_MS
    world.collect()
    assert commit_key(main.vid, 1) in world.objects()
    found = list(ObjectCheck(Collected(world), world.now_ms, 0, 1).run())
    assert commit_key(main.vid, 1) not in world.objects()
    assert {each.state for each in found} == {"found"}
    keys = [each.key for each in found]
    assert len(keys) == len({*keys}) == 2 * len({view.ref.sid for view in main.tip.segments})
