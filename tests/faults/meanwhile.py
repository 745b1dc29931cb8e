"""A store in which another acts between two effects of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog import MemoryStore
from catalog.objects.wrapped import WrappedStore
from tests.faults.store import EFFECTS

__all__ = ["Meanwhile"]

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
