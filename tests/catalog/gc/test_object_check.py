"""The check of each object, while GC runs beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from catalog.format.keys import commit_key
from catalog.gc.object_check import ObjectCheck
from tests.catalog.gc_world import HOUR_MS, World, grown
from tests.faults.store import WrappedStore

T = TypeVar("T")


class Collected(WrappedStore):
    """The store of a world in which GC carries a plan out at the first call of a method with a key that ends so."""

    def __init__(self, world: World, method: str, end: str) -> None:
        super().__init__(world.store)
        self._world = world
        self._waits_for: tuple[str, str] | None = (method, end)

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if self._waits_for is not None and method == self._waits_for[0] and key.endswith(self._waits_for[1]):
            self._waits_for = None
            self._world.collect()
        return act()


@pytest.mark.parametrize(("method", "end"), [("list", "/log/"), ("list_uploads", "")])
def test_a_boundary_that_rises_during_the_check_is_no_damage_and_hides_no_object(method: str, end: str) -> None:
    world = World()
    main = grown(world)
    world.now_ms += 10 * HOUR_MS
    world.collect()
    assert commit_key(main.vid, 1) in world.objects()
    found = list(ObjectCheck(Collected(world, method, end), world.now_ms, 0, 1).run())
    assert commit_key(main.vid, 1) not in world.objects()
    assert {each.state for each in found} == {"found"}
    keys = [each.key for each in found]
    assert len(keys) == len({*keys}) == 2 * len({view.ref.sid for view in main.tip.segments})
