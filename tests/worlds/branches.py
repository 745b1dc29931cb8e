"""A topic with branches in a store, its names, and renames of them."""

from __future__ import annotations

from catalog.format.encoding import encode_commit
from catalog.format.ids import Vid
from catalog.objects import MemoryStore, ObjectStore
from catalog.objects.wrapped import WrappedStore
from catalog.refs.branch import Branches
from catalog.refs.name_undo import undo
from catalog.volume import Volumes
from tests.catalog.samples import START_MS, HistoryMaker

__all__ = ["NOW_MS", "branches_of", "names", "names_of", "rename", "take_back", "topic_of_three"]

NOW_MS = START_MS + 1_000


def branches_of(store: ObjectStore) -> Branches:
    return Branches(Volumes(store), "host-1")


def topic_of_three(store: ObjectStore) -> Vid:
    main = branches_of(store).create("orders", now_ms=START_MS)
    history = HistoryMaker(main)
    for first in (1, 11, 21):
        history.offload((first, first + 9))
    for stored in history.stored:
        Volumes(store).publish(main, stored.commit.lsn, encode_commit(stored.commit)[0])
    return main


def names(store: ObjectStore, *, deleted: bool = False) -> list[str]:
    return [branch.branch for branch in branches_of(store).branches("orders", deleted=deleted)]


def rename(store: MemoryStore | WrappedStore, old: str = "half", new: str = "fix") -> None:
    branches_of(store).rename("orders", old, new, now_ms=NOW_MS + 1)  # type: ignore[arg-type]


def take_back(store: MemoryStore | WrappedStore, number: int | None = None) -> int:
    return undo(Volumes(store), number, now_ms=NOW_MS + 2).number  # type: ignore[arg-type]


def names_of(store: MemoryStore, vid: Vid) -> list[str]:
    return [name for name in names(store) if branches_of(store).resolve("orders", name) == vid]
