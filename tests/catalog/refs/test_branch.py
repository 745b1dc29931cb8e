"""Names of branches: the first creator wins, and no name leads to an incomplete volume."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.errors import (
    BranchExists,
    InvalidName,
    InvalidObject,
    NoSuchBranch,
    NoSuchObject,
    NoSuchTopic,
    OutcomeUnknown,
    StoreUnreachable,
)
from catalog.format.commit import ForkPoint
from catalog.format.control import MAIN
from catalog.format.encoding import encode_commit
from catalog.format.ids import Vid
from catalog.format.keys import ref_key
from catalog.objects import MemoryStore, ObjectStore
from catalog.refs.branch import Branch, Branches
from catalog.volume import Volumes
from tests.catalog.samples import START_MS, HistoryMaker
from tests.faults.store import Fault, FaultyStore, lost, unreachable


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


pytestmark = pytest.mark.usefixtures("no_pauses")


def branches_of(store: ObjectStore) -> Branches:
    return Branches(Volumes(store))


def topic_with_a_commit(store: MemoryStore) -> ForkPoint:
    main = branches_of(store).create("orders", now_ms=START_MS)
    history = HistoryMaker(main)
    history.offload((1, 20))
    Volumes(store).publish(main, 1, encode_commit(history.stored[0].commit)[0])
    return ForkPoint(main, 1, 14)


def test_a_name_leads_to_its_volume(store: MemoryStore) -> None:
    branches = branches_of(store)
    main = branches.create("orders", now_ms=START_MS)
    assert branches.resolve("orders") == branches.resolve("orders", MAIN) == main
    assert main.created_ms == START_MS
    assert Volumes(store).control(main).topic == "orders"


def test_topics_and_branches_are_listed_by_name(store: MemoryStore) -> None:
    point = topic_with_a_commit(store)
    branches = branches_of(store)
    half = branches.create("orders", "half", point, now_ms=START_MS + 5)
    branches.create("audit", now_ms=START_MS)
    branches.create("orders-eu", now_ms=START_MS)
    assert sorted({topic for topic, _ in branches.names()}) == ["audit", "orders", "orders-eu"]
    assert branches.branches("orders") == [
        Branch("orders", "half", half, point, START_MS + 5),
        Branch("orders", "main", point.vid, None, START_MS),
    ]


def test_unknown_names_are_told_apart(store: MemoryStore) -> None:
    branches = branches_of(store)
    branches.create("orders", now_ms=START_MS)
    with pytest.raises(NoSuchBranch, match="orders@half"):
        branches.resolve("orders", "half")
    for ask in (branches.resolve, branches.branches):
        with pytest.raises(NoSuchTopic, match="order in memory://"):
            ask("order")
    assert branches_of(MemoryStore()).names() == []


def test_trouble_is_never_an_unknown_name(store: MemoryStore) -> None:
    faulty = branches_of(FaultyStore(store, [Fault(error=unreachable, method=m) for m in ("get", "list")]))
    for ask in (lambda: faulty.resolve("orders"), lambda: faulty.branches("orders"), faulty.names):
        with pytest.raises(StoreUnreachable):
            ask()


@pytest.mark.parametrize("name", ["", "..", "a/b", "a@b", "a" * 129])
def test_a_bad_name_changes_nothing(store: MemoryStore, name: str) -> None:
    branches = branches_of(store)
    for topic, branch in ((name, "main"), ("orders", name)):
        with pytest.raises(InvalidName):
            branches.create(topic, branch, now_ms=START_MS)
        with pytest.raises(InvalidName):
            branches.resolve(topic, branch)
    assert list(store.list("")) == []


def test_a_branch_name_that_is_taken_is_refused_and_nothing_is_written(store: MemoryStore) -> None:
    point = topic_with_a_commit(store)
    half = branches_of(store).create("orders", "half", point, now_ms=START_MS)
    before = list(store.list(""))
    with pytest.raises(BranchExists, match="orders@half"):
        branches_of(store).create("orders", "half", point, now_ms=START_MS + 9)
    assert list(store.list("")) == before
    assert branches_of(store).resolve("orders", "half") == half


def test_main_is_adopted_by_whoever_comes_later(store: MemoryStore) -> None:
    first = branches_of(store).create("orders", now_ms=START_MS)
    assert branches_of(store).create("orders", now_ms=START_MS + 9) == first


def test_a_fork_point_that_is_not_there_makes_no_branch(store: MemoryStore) -> None:
    point = topic_with_a_commit(store)
    with pytest.raises(NoSuchObject):
        branches_of(store).create("orders", "half", ForkPoint(point.vid, 2), now_ms=START_MS)
    assert [branch.branch for branch in branches_of(store).branches("orders")] == ["main"]


def test_racing_creators_of_main_get_one_volume(store: MemoryStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: branches_of(store).create("orders", now_ms=START_MS), range(8)))
    assert made == {branches_of(store).resolve("orders")}


def test_of_racing_creators_of_a_branch_one_wins(store: MemoryStore) -> None:
    point = topic_with_a_commit(store)

    def create(_: int) -> Vid | None:
        try:
            return branches_of(store).create("orders", "half", point, now_ms=START_MS)
        except BranchExists:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [made for made in pool.map(create, range(8)) if made]
    assert winners == [branches_of(store).resolve("orders", "half")]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("effect", [1, 2, 3, 4])
def test_a_lost_answer_at_any_step_still_makes_the_branch(store: MemoryStore, effect: int, when: str) -> None:
    point = topic_with_a_commit(store)
    faulty = FaultyStore(store, [Fault(effect, when, lost)])  # type: ignore[arg-type]
    half = branches_of(faulty).create("orders", "half", point, now_ms=START_MS)
    assert branches_of(store).resolve("orders", "half") == half
    assert Volumes(store).snapshot(half).bounds.head_seq == 14


@pytest.mark.parametrize("effect", [1, 2, 3, 4])
def test_a_step_that_fails_leaves_no_name_and_can_be_repeated(store: MemoryStore, effect: int) -> None:
    point = topic_with_a_commit(store)
    faulty = FaultyStore(store, [Fault(effect, "before", unreachable)])
    with pytest.raises(StoreUnreachable):
        branches_of(faulty).create("orders", "half", point, now_ms=START_MS)
    with pytest.raises(NoSuchBranch):
        branches_of(store).resolve("orders", "half")
    branches_of(store).create("orders", "half", point, now_ms=START_MS)


def test_a_name_that_nobody_can_say_was_made_is_unknown(store: MemoryStore) -> None:
    faulty = FaultyStore(store, [Fault(3, "after", lost), Fault(2, error=unreachable, method="get_with_etag")])
    with pytest.raises(OutcomeUnknown, match="refs/orders/main"):
        branches_of(faulty).create("orders", now_ms=START_MS)


def test_a_fork_that_nobody_can_say_was_made_is_told_by_its_volume(store: MemoryStore) -> None:
    point = topic_with_a_commit(store)
    faulty = FaultyStore(store, [Fault(4, "after", lost), Fault(2, error=unreachable, method="get_with_etag")])
    with pytest.raises(OutcomeUnknown, match="refs/orders/half") as raised:
        branches_of(faulty).create("orders", "half", point, now_ms=START_MS)
    assert raised.value.hint is not None
    assert f"shows half with volume {branches_of(store).resolve('orders', 'half')}" in raised.value.hint


def test_a_damaged_ref_is_named(store: MemoryStore) -> None:
    branches_of(store).create("orders", now_ms=START_MS)
    key = ref_key("orders", MAIN)
    store.put(key, store.get(key)[:-1], {})
    with pytest.raises(InvalidObject, match=key):
        branches_of(store).resolve("orders")
