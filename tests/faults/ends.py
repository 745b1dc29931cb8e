"""Calls that end at one of their effects, or with a refusal that a race allows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from catalog import MemoryStore
from catalog.errors import BranchExists, CatalogError, KeyChanged, NoSuchBranch, NotUndone, VolumeHasName
from tests.faults.store import Fault, FaultyStore, unreachable

__all__ = ["CRASHES", "crashed", "tried"]

CRASHES = [(effect, when) for effect in range(1, 6) for when in ("before", "after")]


def tried(act: Callable[[], object]) -> None:
    with suppress(KeyChanged, NoSuchBranch, BranchExists, NotUndone, VolumeHasName):
        act()


def crashed(act: Callable[[FaultyStore], object], store: MemoryStore, effect: int, when: str) -> bool:
    faulty = FaultyStore(store, [Fault(effect, when, unreachable)])  # type: ignore[arg-type]
    try:
        act(faulty)
    except CatalogError:
        return True
    return False
