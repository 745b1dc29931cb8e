"""A volume has one live name. No operation, no race of two operations and no crash gives it two for good."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from catalog import ForkPoint, MemoryStore, Vid
from catalog.errors import NotUndone, StoreUnreachable, VolumeHasName
from catalog.refs.name_undo import check_undo, find_operation
from catalog.refs.oplog import Oplog
from catalog.volume import Volumes
from tests.faults.ends import CRASHES, crashed, tried
from tests.faults.meanwhile import Meanwhile
from tests.faults.store import Fault, FaultyStore, unreachable
from tests.worlds.branches import NOW_MS, branches_of, names, names_of, rename, take_back, topic_of_three


@pytest.fixture
def store(no_pauses: None) -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def half(store: MemoryStore) -> Vid:
    return branches_of(store).create("orders", "half", ForkPoint(topic_of_three(store), 2), now_ms=NOW_MS)


def undelete(store: object, name: str = "half") -> None:
    branches_of(store).undelete("orders", name, now_ms=NOW_MS + 3)  # type: ignore[arg-type]


def delete(store: MemoryStore, name: str) -> int:
    """Delete the branch. Return the number of the operation."""
    branches_of(store).delete("orders", name, now_ms=NOW_MS + 2)
    return next(Oplog(store).entries()).number


def test_the_old_name_of_a_renamed_branch_is_not_undeleted(store: MemoryStore, half: Vid) -> None:
    rename(store)
    before = store.list("")
    with pytest.raises(VolumeHasName, match=r"orders@half was not created.* the name orders@fix now") as refused:
        undelete(store)
    assert refused.value.hint == (
        "a volume has one name: use orders@fix, or run `seglog branch rename orders fix half`"
    )
    assert list(before) == list(store.list(""))
    rename(store, "fix", "half")
    assert names_of(store, half) == ["half"]


def test_a_delete_whose_volume_has_another_name_is_not_undone(store: MemoryStore, half: Vid) -> None:
    rename(store)
    deleted = delete(store, "fix")
    undelete(store)
    with pytest.raises(NotUndone, match="the name orders@half now"):
        check_undo(Volumes(store), find_operation(Volumes(store), deleted))
    with pytest.raises(NotUndone, match="the name orders@half now"):
        take_back(store, deleted)
    assert names_of(store, half) == ["half"]


def test_an_undelete_is_not_undone_and_done_again_beside_another_name(store: MemoryStore, half: Vid) -> None:
    delete(store, "half")
    undelete(store)
    take_back(store)
    undone = next(Oplog(store).entries()).number
    undelete(store)
    rename(store)
    with pytest.raises(NotUndone):
        take_back(store, undone)
    assert names_of(store, half) == ["fix"]


def test_a_deleted_name_comes_back_when_the_other_one_is_deleted(store: MemoryStore, half: Vid) -> None:
    rename(store)
    delete(store, "fix")
    undelete(store)
    assert names_of(store, half) == ["half"]


def test_a_branch_that_is_alive_is_undeleted_in_vain(store: MemoryStore, half: Vid) -> None:
    undelete(store)
    assert names_of(store, half) == ["half"]


@pytest.mark.parametrize("effect", range(1, 6))
@pytest.mark.parametrize(
    "other",
    [
        lambda store: undelete(store, "fix"),
        lambda store: take_back(store),
        lambda store: (undelete(store, "fix"), rename(store, "fix", "third")),
    ],
    ids=["undelete", "undo", "rename"],
)
def test_of_racing_gifts_of_a_name_one_at_most_wins(
    store: MemoryStore, half: Vid, effect: int, other: Callable[[MemoryStore], object]
) -> None:
    rename(store)
    delete(store, "fix")  # half and fix are deleted names of one volume
    tried(lambda: undelete(Meanwhile(store, effect, lambda: tried(lambda: other(store)))))
    assert len(names_of(store, half)) <= 1
    assert names(store, deleted=True)[:2] == ["fix", "half"]  # a refused name can be undeleted later


@pytest.mark.parametrize("effect", range(1, 6))
def test_a_rename_beside_an_undelete_of_a_third_name(store: MemoryStore, half: Vid, effect: int) -> None:
    rename(store)
    tried(lambda: rename(Meanwhile(store, effect, lambda: tried(lambda: undelete(store))), "fix", "mended"))
    assert len(names_of(store, half)) == 1


@pytest.mark.parametrize(("effect", "when"), CRASHES)
def test_an_undelete_that_ends_anywhere_gives_one_name(store: MemoryStore, half: Vid, effect: int, when: str) -> None:
    rename(store)
    delete(store, "fix")
    crashed(lambda faulty: undelete(faulty), store, effect, when)
    with pytest.raises(VolumeHasName) if names_of(store, half) else nullcontext():
        undelete(store, "fix")
    assert len(names_of(store, half)) == 1


def test_a_race_in_which_one_crashes_is_ended_by_a_rename(store: MemoryStore, half: Vid) -> None:
    rename(store)
    delete(store, "fix")
    crashing = FaultyStore(store, [Fault(2, "after", unreachable)])
    with pytest.raises(StoreUnreachable):
        undelete(Meanwhile(crashing, 2, lambda: undelete(store, "fix")))  # type: ignore[arg-type]
    assert names_of(store, half) == ["fix", "half"]  # no caller got an ack for half
    with pytest.raises(VolumeHasName, match="the name orders@fix now"):
        undelete(store)
    rename(store, "half", "fix")
    assert names_of(store, half) == ["fix"]
