"""A rename is one operation and one undo, wherever it crashes and whatever other renames run at the same time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog import ForkPoint, MemoryStore, Vid
from catalog.errors import KeyChanged, NotUndone
from catalog.format.control import Ref
from catalog.format.keys import ref_key
from catalog.format.small_objects import encode_ref
from catalog.refs.oplog import Oplog
from tests.faults.ends import CRASHES, crashed, tried
from tests.faults.meanwhile import Meanwhile
from tests.faults.store import Fault, FaultyStore, lost
from tests.worlds.branches import NOW_MS, branches_of, names, names_of, rename, take_back, topic_of_three


@pytest.fixture
def store(no_pauses: None) -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def half(store: MemoryStore) -> Vid:
    return branches_of(store).create("orders", "half", ForkPoint(topic_of_three(store), 2), now_ms=NOW_MS)


def test_a_rename_is_one_operation_and_one_undo(store: MemoryStore, half: Vid) -> None:
    rename(store)
    [renamed] = [each for each in Oplog(store).entries() if each.entry.operation == "branch rename"]
    assert [change.subject for change in renamed.entry.changes] == ["refs/orders/fix", "refs/orders/half"]
    assert take_back(store) == renamed.number
    assert names_of(store, half) == ["half"]
    assert take_back(store) == renamed.number - 1  # the creation of the branch
    assert names(store) == ["main"]


def test_an_undo_of_a_rename_is_undone_by_its_number_and_so_on(store: MemoryStore, half: Vid) -> None:
    rename(store)
    number = next(iter(Oplog(store).entries())).number
    for expected in ("half", "fix") * 3:
        number = take_back(store, number) and next(iter(Oplog(store).entries())).number
        assert names_of(store, half) == [expected]
    # The last undo redid the rename, so an undo without a number reverts the rename.
    take_back(store)
    assert names_of(store, half) == ["half"]


def test_renames_in_a_row_are_taken_back_one_by_one(store: MemoryStore, half: Vid) -> None:
    for old, new in (("half", "a"), ("a", "b"), ("b", "half"), ("half", "a")):
        rename(store, old, new)
    for expected in ("half", "b", "a", "half"):
        take_back(store)
        assert names_of(store, half) == [expected]


@pytest.mark.parametrize(("effect", "when"), CRASHES)
def test_a_rename_that_ends_anywhere_is_taken_back_as_a_whole(
    store: MemoryStore, half: Vid, effect: int, when: str
) -> None:
    if not crashed(lambda faulty: rename(faulty), store, effect, when):
        return
    assert names_of(store, half) in (["half"], ["fix"], ["fix", "half"])
    if names(store) == ["half", "main"]:  # the rename had no effect, so undo would revert the branch's creation
        return
    take_back(store)
    assert names_of(store, half) == ["half"]


@pytest.mark.parametrize(("effect", "when"), CRASHES)
def test_a_rename_that_is_repeated_is_taken_back_as_a_whole(
    store: MemoryStore, half: Vid, effect: int, when: str
) -> None:
    crashed(lambda faulty: rename(faulty), store, effect, when)
    if "half" in names(store):
        rename(store)
    assert names_of(store, half) == ["fix"]
    take_back(store)
    assert names_of(store, half) == ["half"]


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize(("effect", "when"), CRASHES)
def test_an_undo_that_ends_anywhere_is_finished_by_the_next(
    store: MemoryStore, half: Vid, effect: int, when: str, numbered: bool
) -> None:
    rename(store)
    number = next(iter(Oplog(store).entries())).number if numbered else None
    if not crashed(lambda faulty: take_back(faulty, number), store, effect, when):
        return
    assert names_of(store, half) in (["half"], ["fix"], ["fix", "half"])
    if names_of(store, half) != ["half"]:
        take_back(store, number)
    assert names_of(store, half) == ["half"]


@pytest.mark.parametrize("effect", range(1, 6))
def test_a_lost_answer_is_settled_by_looking(store: MemoryStore, half: Vid, effect: int) -> None:
    rename(FaultyStore(store, [Fault(effect, "after", lost)]))
    assert names_of(store, half) == ["fix"]
    take_back(FaultyStore(store, [Fault(effect, "after", lost)]))
    assert names_of(store, half) == ["half"]


def _delete(name: str) -> Callable[[MemoryStore], object]:
    return lambda store: branches_of(store).delete("orders", name, now_ms=NOW_MS)


@pytest.mark.parametrize("effect", range(1, 5))
@pytest.mark.parametrize(
    "other", [lambda store: rename(store, "half", "b"), lambda store: rename(store, "half", "fix"), _delete("half")]
)
def test_of_racing_changes_of_a_name_one_wins(
    store: MemoryStore, half: Vid, effect: int, other: Callable[[MemoryStore], object]
) -> None:
    def act() -> None:
        tried(lambda: other(store))

    tried(lambda: rename(Meanwhile(store, effect, act)))
    assert len(names_of(store, half)) <= 1
    assert names_of(store, half) != [] or other.__qualname__.startswith("_delete")


def test_a_rename_of_a_branch_that_is_deleted_meanwhile_is_refused_and_leaves_no_name(
    store: MemoryStore, half: Vid
) -> None:
    with pytest.raises(KeyChanged):
        rename(Meanwhile(store, 3, lambda: _delete("half")(store)))  # the new name exists by then
    assert names_of(store, half) == []


@pytest.mark.parametrize("effect", range(1, 5))
def test_two_callers_who_make_the_same_rename_leave_the_new_name(store: MemoryStore, half: Vid, effect: int) -> None:
    assert crashed(lambda faulty: rename(faulty), store, 2, "after")  # the first caller has given the new name,
    tried(lambda: rename(Meanwhile(store, effect, lambda: _delete("half")(store))))  # and takes the old one away now
    assert names_of(store, half) == ["fix"]


@pytest.mark.parametrize("effect", range(1, 5))
@pytest.mark.parametrize(
    "other", [lambda store: rename(store, "fix", "b"), lambda store: take_back(store), _delete("fix")]
)
def test_an_undo_races_as_a_rename_does(
    store: MemoryStore, half: Vid, effect: int, other: Callable[[MemoryStore], object]
) -> None:
    rename(store)
    tried(lambda: take_back(Meanwhile(store, effect, lambda: tried(lambda: other(store)))))
    assert len(names_of(store, half)) <= 1


def test_an_undo_beside_its_rename_leaves_the_branch_a_name(store: MemoryStore, half: Vid) -> None:
    with pytest.raises(KeyChanged):
        rename(Meanwhile(store, 3, lambda: take_back(store)))  # the branch has both names by then
    assert names_of(store, half) == ["half"]


def test_a_rename_whose_new_name_was_given_to_another_since_is_not_taken_back(store: MemoryStore, half: Vid) -> None:
    rename(store)
    other = branches_of(store).create("orders", "half", ForkPoint(half, 0), now_ms=NOW_MS + 2)
    [number] = [each.number for each in Oplog(store).entries() if each.entry.operation == "branch rename"]
    with pytest.raises(NotUndone, match="has changed since"):
        take_back(store, number)
    assert names_of(store, half) == ["fix"]
    assert names_of(store, other) == ["half"]


def test_one_half_of_a_rename_by_an_older_version_is_refused(store: MemoryStore, half: Vid) -> None:
    key, value = ref_key("orders", "fix"), encode_ref(Ref(half, NOW_MS, nonce=bytes(16)))
    Oplog(store).note("branch rename", key, None, value, now_ms=NOW_MS, message="was half")
    store.put_new(key, value)
    with pytest.raises(NotUndone, match="one half of a rename"):
        take_back(store)
