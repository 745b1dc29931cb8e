"""Stores in which another acts in the middle of a call: between two effects, or at a read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog import MemoryStore
from catalog.objects.object_store import ObjectStore
from catalog.objects.wrapped import WrappedStore
from tests.faults.store import EFFECTS

__all__ = ["DuringReadBack", "Meanwhile"]

T = TypeVar("T")


class Meanwhile(WrappedStore):
    """A store that calls `act` before the nth effect."""

    def __init__(self, inner: MemoryStore, effect: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._left = effect
        self._act = act

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method in EFFECTS:
            self._left -= 1
            if not self._left:
                self._act()
        return act()


class DuringReadBack(WrappedStore):
    """A store that makes a change at a read of the read-back: after the last offload, before the log lets go."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.changes = list[Callable[[], object]]()

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method == "get_range" and "/segments/" in key and self.changes:
            self.changes.pop()()
        return act()
