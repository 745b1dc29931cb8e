"""Test a promotion: one operation and one undo, wherever it crashes, and beside any other change of the names."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

import pytest

from catalog import ForkPoint, MemoryStore, Vid
from catalog.errors import BranchExists, KeyChanged, Misuse, NoSuchBranch
from catalog.objects.wrapped import WrappedStore
from catalog.refs.oplog import Oplog
from tests.faults.ends import CRASHES, crashed, tried
from tests.faults.meanwhile import Meanwhile
from tests.faults.store import EFFECTS, Fault, FaultyStore, lost
from tests.worlds.branches import NOW_MS, branches_of, names, names_of, rename, take_back, topic_of_three

T = TypeVar("T")
Act = Callable[[MemoryStore], object]


@pytest.fixture
def store(no_pauses: None) -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def main(store: MemoryStore) -> Vid:
    return topic_of_three(store)


@pytest.fixture
def half(store: MemoryStore, main: Vid) -> Vid:
    return branches_of(store).create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)


def promote(store: MemoryStore | WrappedStore, branch: str = "half", keep: str = "before") -> None:
    branches = branches_of(store)  # type: ignore[arg-type]
    vids = branches.resolve("orders"), branches.resolve("orders", branch)
    branches.promote("orders", branch, keep, vids, now_ms=NOW_MS + 1)


class Watched(Meanwhile):
    """The same, and both volumes have a live name before each effect."""

    def __init__(self, inner: MemoryStore, effect: int, act: Callable[[], object], vids: tuple[Vid, ...]) -> None:
        super().__init__(inner, effect, act)
        self._plain = inner
        self._vids = vids

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method in EFFECTS:
            for vid in self._vids:
                assert names_of(self._plain, vid)
        return super()._call(method, key, act)


def test_a_branch_becomes_main_and_the_former_main_is_kept(store: MemoryStore, main: Vid, half: Vid) -> None:
    promote(store)
    assert (names_of(store, half), names_of(store, main)) == (["main"], ["before"])
    newest = next(iter(Oplog(store).entries())).entry
    assert [change.subject for change in newest.changes] == [
        "refs/orders/before",
        "refs/orders/main",
        "refs/orders/half",
    ]
    take_back(store)
    assert (names_of(store, half), names_of(store, main)) == (["half"], ["main"])
    take_back(store)  # one step further: the creation of the branch
    assert names(store) == ["main"]


def test_an_undo_by_its_number_is_taken_back_too(store: MemoryStore, main: Vid, half: Vid) -> None:
    promote(store)
    number = next(iter(Oplog(store).entries())).number
    for expected in ("half", "main") * 2:
        number = take_back(store, number) and next(iter(Oplog(store).entries())).number
        assert names_of(store, half) == [expected]
        assert len(names_of(store, main)) == 1


def test_what_cannot_be_promoted_changes_nothing(store: MemoryStore, half: Vid) -> None:
    branches_of(store).create("orders", "other", ForkPoint(half, 0), now_ms=NOW_MS)
    before = names(store), len(list(Oplog(store).entries()))
    for branch, keep, error, text in (
        ("main", "before", Misuse, "the branch main of orders cannot"),
        ("half", "main", Misuse, "the branch main of orders cannot"),
        ("half", "half", BranchExists, "orders@half exists already"),
        ("half", "other", BranchExists, "orders@other exists already"),
        ("nope", "before", NoSuchBranch, "no branch orders@nope"),
    ):
        with pytest.raises(error, match=text):
            promote(store, branch, keep)
    assert (names(store), len(list(Oplog(store).entries()))) == before


@pytest.mark.parametrize(("effect", "when"), CRASHES)
def test_a_promotion_that_ends_anywhere_is_completed_or_taken_back(
    store: MemoryStore, main: Vid, half: Vid, effect: int, when: str
) -> None:
    if not crashed(promote, store, effect, when):
        return
    assert names_of(store, half) in (["half"], ["half", "main"], ["main"])
    assert names_of(store, main) in (["main"], ["before", "main"], ["before"])
    if names_of(store, half) != ["main"]:
        promote(store, keep="before" if effect % 2 or names_of(store, half) == ["half"] else "another")
    assert (names_of(store, half), names_of(store, main)) == (["main"], ["before"])
    take_back(store)
    assert (names_of(store, half), names_of(store, main)) == (["half"], ["main"])


@pytest.mark.parametrize(("effect", "when"), CRASHES)
def test_an_undo_that_ends_anywhere_is_finished_by_the_next(
    store: MemoryStore, main: Vid, half: Vid, effect: int, when: str
) -> None:
    promote(store)
    number = next(iter(Oplog(store).entries())).number
    if crashed(lambda faulty: take_back(faulty, number), store, effect, when) and names_of(store, half) != ["half"]:
        assert names_of(store, main)
        take_back(store, number)
    if names_of(store, main) != ["main"]:
        take_back(store, number)
    assert (names_of(store, half), names_of(store, main)) == (["half"], ["main"])


@pytest.mark.parametrize("effect", range(1, 6))
def test_a_lost_answer_is_settled_by_looking(store: MemoryStore, main: Vid, half: Vid, effect: int) -> None:
    promote(FaultyStore(store, [Fault(effect, "after", lost)]))
    assert (names_of(store, half), names_of(store, main)) == (["main"], ["before"])
    take_back(FaultyStore(store, [Fault(effect, "after", lost)]))
    assert (names_of(store, half), names_of(store, main)) == (["half"], ["main"])


OTHERS: dict[str, Act] = {
    "the same promotion": promote,
    "the same with another name": lambda store: promote(store, "half", "kept"),
    "a promotion of another branch": lambda store: promote(store, "other", "kept"),
    "a promotion of another branch, the same name": lambda store: promote(store, "other"),
    "a rename": lambda store: rename(store, "half", "b"),
    "undo": take_back,
}


@pytest.mark.parametrize("effect", range(1, 5))
@pytest.mark.parametrize("other", OTHERS)
def test_beside_another_change_each_volume_keeps_a_name(
    store: MemoryStore, main: Vid, half: Vid, effect: int, other: str
) -> None:
    third = branches_of(store).create("orders", "other", ForkPoint(main, 1), now_ms=NOW_MS)
    watched, left = ((), (main, half)) if other == "undo" else ((main, half, third),) * 2
    tried(lambda: promote(Watched(store, effect, lambda: tried(lambda: OTHERS[other](store)), watched)))
    for vid in left:
        assert names_of(store, vid)
    assert "main" in names(store)
    assert sum(names_of(store, vid) == ["main"] for vid in (main, half, third)) <= 1


def test_a_promotion_that_lost_leaves_the_name_that_the_winner_relies_on(
    store: MemoryStore, main: Vid, half: Vid
) -> None:
    """Both give the former main one name. The winner gives it first, and moves main after the loser gave it again."""
    given, move = Event(), Event()

    def wait() -> None:
        given.set()
        assert move.wait(60)

    with ThreadPoolExecutor(1) as pool:
        winner = pool.submit(promote, Meanwhile(store, 3, wait))
        assert given.wait(60)

        def win() -> None:
            move.set()
            winner.result()

        with pytest.raises(KeyChanged):
            promote(Meanwhile(store, 3, win))
    assert (names_of(store, half), names_of(store, main)) == (["main"], ["before"])


@pytest.mark.parametrize("effect", range(1, 5))
@pytest.mark.parametrize("other", ["promote again", "rename"])
def test_an_undo_beside_another_change_leaves_each_volume_a_name(
    store: MemoryStore, main: Vid, half: Vid, effect: int, other: str
) -> None:
    promote(store)

    def act() -> None:
        promote(store, "before", "half") if other == "promote again" else rename(store, "before", "b")

    tried(lambda: take_back(Watched(store, effect, lambda: tried(act), (main, half))))
    assert names_of(store, main)
    assert names_of(store, half)
    assert "main" in names(store)


def test_a_branch_that_is_deleted_meanwhile_is_promoted_all_the_same(store: MemoryStore, main: Vid, half: Vid) -> None:
    """The deletion comes after the last check, so it is as if it came after the promotion: the name is gone."""
    promote(Meanwhile(store, 4, lambda: branches_of(store).delete("orders", "half", now_ms=NOW_MS)))
    assert (names_of(store, half), names_of(store, main)) == (["main"], ["before"])


def test_a_promotion_whose_name_for_the_former_main_is_deleted_meanwhile_changes_nothing(
    store: MemoryStore, main: Vid, half: Vid
) -> None:
    """Main has moved by then, so the promotion takes that back."""
    with pytest.raises(KeyChanged):
        promote(Meanwhile(store, 3, lambda: branches_of(store).delete("orders", "before", now_ms=NOW_MS)))
    assert (names_of(store, half), names_of(store, main)) == (["half"], ["main"])
