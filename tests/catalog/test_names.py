"""Deletes, renames and undeletes of branches; tags, pins, the oplog and undo; and the race with GC."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.checkpointer import make_checkpoint
from catalog.errors import (
    BranchExists,
    CatalogError,
    Conflict,
    HistoryCollected,
    KeyChanged,
    KeyTaken,
    Misuse,
    NoSuchBranch,
    NoSuchPin,
    NoSuchTag,
    NoSuchTopic,
    NotUndone,
    OutcomeUnknown,
    OutOfWindow,
    PinLost,
    StoreUnreachable,
)
from catalog.format.commit import ForkPoint
from catalog.format.control import Boundary
from catalog.format.encoding import encode_commit
from catalog.format.ids import Vid
from catalog.format.keys import (
    Key,
    boundary_key,
    commit_key,
    control_key,
    oplog_key,
    pins_prefix,
    ref_key,
    tag_key,
    volume_in_pin,
)
from catalog.format.small_objects import decode_pin, encode_boundary
from catalog.gc.roots import read_roots
from catalog.objects import MemoryStore, ObjectStore
from catalog.refs.branch import Branches, Distance
from catalog.refs.name_undo import check_undo, find_operation, undo
from catalog.refs.oplog import Oplog
from catalog.refs.state_names import HeldPin, Pins, Tags
from catalog.volume import DEAD, Volumes
from tests.catalog.samples import HistoryMaker
from tests.faults.store import (
    EFFECTS,
    CountingStore,
    Fault,
    FaultyStore,
    StrayKeysStore,
    WrappedStore,
    lost,
    unreachable,
)
from tests.worlds.branches import NOW_MS, branches_of, names, topic_of_three

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def pins_in(store: ObjectStore) -> list[HeldPin]:
    """Return all pins in the store, also expired ones that GC has not deleted yet."""
    return [
        HeldPin(key.rpartition("/")[2], decode_pin(store.get(Key(key)), key))
        for key in store.list(pins_prefix())
        if volume_in_pin(key)
    ]


def raise_boundary(store: MemoryStore, vid: Vid, lsn: int) -> None:
    store.put(boundary_key(vid), encode_boundary(Boundary(vid, lsn)), {})


# ---------------------------------------------------------------- branches


def test_a_deleted_branch_is_not_found_and_comes_back_as_it_was(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches = branches_of(store)
    half = branches.create("orders", "half", ForkPoint(main, 2, 15), now_ms=NOW_MS)
    assert branches.delete("orders", "half", now_ms=NOW_MS + 1).deleted_at_ms == NOW_MS + 1
    with pytest.raises(NoSuchBranch, match="orders@half"):
        branches.resolve("orders", "half")
    assert names(store) == ["main"]
    assert names(store, deleted=True) == ["half", "main"]
    with pytest.raises(NoSuchBranch):
        branches.delete("orders", "half", now_ms=NOW_MS + 2)
    assert branches.undelete("orders", "half", now_ms=NOW_MS + 3).vid == half
    assert branches.resolve("orders", "half") == half


def test_an_undo_of_an_undelete_gives_back_the_time_of_the_deletion(store: MemoryStore) -> None:
    branches = branches_of(store)
    branches.create("orders", "half", ForkPoint(topic_of_three(store), 2, 15), now_ms=NOW_MS)
    branches.delete("orders", "half", now_ms=NOW_MS + 1)
    branches.undelete("orders", "half", now_ms=NOW_MS + 2)
    undo(Volumes(store), now_ms=NOW_MS + 3)
    assert {branch.deleted_at_ms for branch in branches.branches("orders", deleted=True)} == {NOW_MS + 1, None}


def test_the_name_of_a_deleted_branch_is_free(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches = branches_of(store)
    first = branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    branches.delete("orders", "half", now_ms=NOW_MS)
    second = branches.create("orders", "half", ForkPoint(main, 1), now_ms=NOW_MS + 1)
    assert branches.resolve("orders", "half") == second != first


def test_a_branch_is_renamed_and_its_old_name_is_free(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches = branches_of(store)
    half = branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    other = branches.create("orders", "other", ForkPoint(main, 2), now_ms=NOW_MS)
    assert branches.rename("orders", "half", "half", now_ms=NOW_MS).vid == half
    assert names(store) == ["half", "main", "other"]
    assert branches.rename("orders", "half", "fix", now_ms=NOW_MS + 1).vid == half
    assert names(store) == ["fix", "main", "other"]
    with pytest.raises(BranchExists):
        branches.rename("orders", "fix", "other", now_ms=NOW_MS + 2)
    assert branches.resolve("orders", "other") == other
    with pytest.raises(NoSuchBranch):
        branches.rename("orders", "half", "again", now_ms=NOW_MS + 2)


@pytest.mark.parametrize("effect", [1, 2, 3])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rename_that_ends_anywhere_is_finished_by_the_next(store: MemoryStore, effect: int, when: str) -> None:
    main = topic_of_three(store)
    half = branches_of(store).create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    faulty = branches_of(FaultyStore(store, [Fault(effect, when, unreachable)]))  # type: ignore[arg-type]
    with pytest.raises(StoreUnreachable):
        faulty.rename("orders", "half", "fix", now_ms=NOW_MS + 1)
    assert half in {branch.vid for branch in branches_of(store).branches("orders")}
    if "half" in names(store):
        branches_of(store).rename("orders", "half", "fix", now_ms=NOW_MS + 2)
    assert names(store) == ["fix", "main"]
    assert branches_of(store).resolve("orders", "fix") == half


def test_main_is_the_topic_itself(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches = branches_of(store)
    branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    for act in (
        lambda: branches.delete("orders", "main", now_ms=NOW_MS),
        lambda: branches.rename("orders", "main", "old", now_ms=NOW_MS),
        lambda: branches.rename("orders", "half", "main", now_ms=NOW_MS),
    ):
        with pytest.raises(Misuse, match="the branch main of orders cannot"):
            act()
    assert names(store) == ["half", "main"]


def test_how_far_a_branch_and_its_parent_went(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches = branches_of(store)
    half = branches.create("orders", "half", ForkPoint(main, 1), now_ms=NOW_MS)
    history = HistoryMaker(half, head_seq=10, parent_hash=Volumes(store).snapshot(main, 1).head_hash)
    history.offload((11, 12))
    Volumes(store).publish(half, 1, encode_commit(history.stored[0].commit)[0])
    both = branches.branches("orders")
    assert branches.distances(both) == [Distance(1, 2), Distance(3, 0)]
    store.delete_many([commit_key(main, lsn) for lsn in (1, 2, 3)])  # GC took the parent
    assert branches.distances(both)[0] == Distance(1, 0)


def test_a_branch_is_four_puts_whatever_the_size_of_the_topic(store: MemoryStore) -> None:
    main = topic_of_three(store)
    counting = CountingStore(store)
    branches_of(counting).create("orders", "half", ForkPoint(main, 3), now_ms=NOW_MS)
    assert counting.counts["put_new"] + counting.counts["swap"] + counting.counts["put"] == 4
    assert counting.counts.total() <= 9


# ---------------------------------------------------------------- the race with GC


@pytest.mark.parametrize("boundary", [3, DEAD])
def test_a_fork_point_that_gc_has_passed_makes_no_branch(store: MemoryStore, boundary: int) -> None:
    main = topic_of_three(store)
    raise_boundary(store, main, boundary)
    with pytest.raises(OutOfWindow, match="lsn:2"):
        branches_of(store).create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    assert names(store) == ["main"]
    if boundary < DEAD:
        branches_of(store).create("orders", "late", ForkPoint(main, 3), now_ms=NOW_MS)


def test_what_a_fork_a_tag_or_a_pin_holds_can_be_forked_below_the_boundary(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches_of(store).create("orders", "half", ForkPoint(main, 1, 5), now_ms=NOW_MS)
    Tags(Volumes(store)).create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)
    for lsn in (1, 2):  # GC makes these checkpoints before it raises the boundary
        make_checkpoint(Volumes(store), main, lsn, now_ms=NOW_MS)
    raise_boundary(store, main, 3)
    for lsn in (1, 2):
        branches_of(store).create("orders", f"again-{lsn}", ForkPoint(main, lsn), now_ms=NOW_MS)


def test_a_volume_that_gc_took_while_its_name_was_made_is_no_branch(store: MemoryStore) -> None:
    main = topic_of_three(store)

    class Stalled(CountingStore):
        """A store where GC runs right before the ref is put, and finds a volume without a name."""

        def put_new(self, key, body):  # type: ignore[no-untyped-def]
            if key == ref_key("orders", "half"):
                [fork] = [Vid.parse(each.rpartition("/")[2]) for each in store.list(f"{main}/forks/")]
                raise_boundary(store, fork, DEAD)
                store.delete(control_key(fork))
            super().put_new(key, body)

    with pytest.raises(HistoryCollected, match="orders@half") as caught:
        branches_of(Stalled(store)).create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    assert caught.value.fields() | {"vid": ""} == {
        "vid": "",
        "lsn": 0,
        "boundary": DEAD,
        "topic": "orders",
        "branch": "half",
    }
    assert names(store, deleted=True) == ["main"]
    branches_of(store).create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)


def test_only_a_name_that_leads_to_the_dead_volume_is_taken_back(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches = branches_of(store)
    alive = branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    branches.take_back("orders", "half", Vid.new(1), now_ms=NOW_MS)
    assert branches.resolve("orders", "half") == alive
    branches.take_back("orders", "half", alive, now_ms=NOW_MS)
    assert names(store) == ["main"]


def test_an_answer_that_nobody_has_after_the_name_was_made_is_unknown(store: MemoryStore) -> None:
    main = topic_of_three(store)
    counting = CountingStore(store)
    branches_of(counting).create("orders", "first", ForkPoint(main, 2), now_ms=NOW_MS)
    looks = counting.counts["get_with_etag"]
    assert looks == 2  # the ref, once, and the new volume's boundary
    faulty = FaultyStore(store, [Fault(looks, error=unreachable, method="get_with_etag")])
    with pytest.raises(OutcomeUnknown, match="refs/orders/half"):
        branches_of(faulty).create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    assert "half" in names(store)


# ---------------------------------------------------------------- tags


def test_a_tag_names_a_point_for_good(store: MemoryStore) -> None:
    main = topic_of_three(store)
    tags = Tags(Volumes(store), "host-1")
    made = tags.create("orders", "v1", ForkPoint(main, 2, 15), branch="main", now_ms=NOW_MS, message="before")
    assert tags.get("orders", "v1") == made
    with pytest.raises(Conflict, match="orders has a tag v1 already"):
        tags.create("orders", "v1", ForkPoint(main, 3), branch="main", now_ms=NOW_MS)
    assert [(each.name, each.tag) for each in tags.list("orders")] == [("v1", made)]
    assert tags.delete("orders", "v1", now_ms=NOW_MS) == made
    for ask in (lambda: tags.get("orders", "v1"), lambda: tags.delete("orders", "v1", now_ms=NOW_MS)):
        with pytest.raises(NoSuchTag, match="v1"):
            ask()


def test_what_is_not_kept_gets_no_tag(store: MemoryStore) -> None:
    main = topic_of_three(store)
    raise_boundary(store, main, 3)
    with pytest.raises(OutOfWindow):
        Tags(Volumes(store)).create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)
    assert Tags(Volumes(store)).list("orders") == []


def test_a_tag_that_was_deleted_does_not_come_back_by_a_request_that_lands_late(store: MemoryStore) -> None:
    main = topic_of_three(store)
    late: list[Callable[[], None]] = []

    class Slow(CountingStore):
        """A store that loses the answer to the tag's PUT. `late` repeats the request later."""

        def put_new(self, key, body):  # type: ignore[no-untyped-def]
            super().put_new(key, body)
            if key.startswith("tags/"):
                late.append(lambda: store.put_new(key, body))
                raise lost(key)

    tags = Tags(Volumes(Slow(store)))
    tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)
    tags.delete("orders", "v1", now_ms=NOW_MS)
    [again] = late
    with pytest.raises(KeyTaken):
        again()
    assert tags.list("orders") == []


def test_a_deleted_tag_frees_its_name_and_holds_nothing(store: MemoryStore) -> None:
    main = topic_of_three(store)
    tags = Tags(Volumes(store))
    tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)
    tags.delete("orders", "v1", now_ms=NOW_MS)
    assert not read_roots(store, NOW_MS).points
    made = tags.create("orders", "v1", ForkPoint(main, 3), branch="main", now_ms=NOW_MS)
    assert tags.get("orders", "v1") == made
    assert [*read_roots(store, NOW_MS).points] == [(main, 3)]


def test_of_racing_creators_of_a_tag_one_wins(store: MemoryStore) -> None:
    main = topic_of_three(store)

    def create(lsn: int) -> int:
        try:
            return Tags(Volumes(store)).create("orders", "v1", ForkPoint(main, lsn), branch="", now_ms=0).point.lsn
        except Conflict as error:
            if not isinstance(error, KeyChanged) and "has a tag v1 already" not in str(error):
                raise
            return 0

    for _ in range(2):
        with ThreadPoolExecutor(3) as pool:
            [winner] = [lsn for lsn in pool.map(create, (1, 2, 3)) if lsn]
        assert Tags(Volumes(store)).delete("orders", "v1", now_ms=1).point.lsn == winner


class Between(WrappedStore):
    """A store that calls `act` before the first write of a key."""

    def __init__(self, inner: ObjectStore, key: str, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._key = key
        self._acts = [act]

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        if key == self._key and method in EFFECTS and self._acts:
            self._acts.pop()()
        return act()


def test_a_tag_that_became_another_one_meanwhile_stays(store: MemoryStore) -> None:
    main = topic_of_three(store)
    tags = Tags(Volumes(store))
    tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)

    def other() -> None:
        tags.delete("orders", "v1", now_ms=NOW_MS)
        tags.create("orders", "v1", ForkPoint(main, 3), branch="main", now_ms=NOW_MS)

    slow = Between(store, tag_key("orders", "v1"), other)
    with pytest.raises(KeyChanged):
        Tags(Volumes(slow)).delete("orders", "v1", now_ms=NOW_MS)
    assert tags.get("orders", "v1").point == ForkPoint(main, 3)


def test_no_state_of_a_name_comes_back(store: MemoryStore) -> None:
    main = topic_of_three(store)
    tags, key = Tags(Volumes(store)), tag_key("orders", "v1")
    states = []
    for _ in range(2):
        tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)
        states.append(store.get(key))
        tags.delete("orders", "v1", now_ms=NOW_MS)
        states.append(store.get(key))
    assert len(set(states)) == 4


# ---------------------------------------------------------------- pins


def test_a_pin_is_renewed_until_it_ends(store: MemoryStore) -> None:
    main = topic_of_three(store)
    pins = Pins(Volumes(store))
    held = pins.hold(ForkPoint(main, 2), "a job", ttl_ms=1_000, now_ms=NOW_MS)
    held = pins.renew(held, ttl_ms=1_000, now_ms=NOW_MS + 900)
    assert [each.pin.expires_at_ms for each in pins_in(store)] == [NOW_MS + 1_900]
    with pytest.raises(PinLost):
        pins.renew(held, ttl_ms=1_000, now_ms=NOW_MS + 1_900)


def test_a_pin_holds_up_to_the_moment_that_it_says(store: MemoryStore) -> None:
    main = topic_of_three(store)
    Pins(Volumes(store)).hold(ForkPoint(main, 2), "a job", ttl_ms=1_000, now_ms=NOW_MS)
    assert [*read_roots(store, NOW_MS + 999).points] == [(main, 2)]
    roots = read_roots(store, NOW_MS + 1_000)
    assert not roots.points
    assert [(vid, ended_ms) for vid, _, ended_ms in roots.expired_pins] == [(main, NOW_MS + 1_000)]


def test_a_pin_that_is_released_holds_nothing(store: MemoryStore) -> None:
    main = topic_of_three(store)
    pins = Pins(Volumes(store))
    held = pins.hold(ForkPoint(main, 2), "a job", ttl_ms=1_000, now_ms=NOW_MS)
    pins.release(held, now_ms=NOW_MS + 1)
    assert [each.pin.expires_at_ms for each in pins_in(store)] == [NOW_MS + 1]
    with pytest.raises(PinLost):
        pins.renew(held, ttl_ms=1_000, now_ms=NOW_MS + 2)


def test_what_is_not_kept_is_never_pinned(store: MemoryStore) -> None:
    main = topic_of_three(store)
    raise_boundary(store, main, 3)
    pins = Pins(Volumes(store))
    with pytest.raises(OutOfWindow):
        pins.hold(ForkPoint(main, 2), "a job", ttl_ms=1_000, now_ms=NOW_MS)
    assert all(each.pin.expires_at_ms <= NOW_MS for each in pins_in(store))
    assert pins.hold(ForkPoint(main, 3), "a job", ttl_ms=1_000, now_ms=NOW_MS)


def test_pins_are_listed_and_found_by_name_beside_other_keys(store: MemoryStore) -> None:
    main = topic_of_three(store)
    pins = Pins(Volumes(store))
    assert pins.list() == []
    held = [pins.hold(ForkPoint(main, lsn), "a job", ttl_ms=1_000, now_ms=NOW_MS) for lsn in (1, 2)]
    store.put_new(Key("pins/README"), b"no pin")
    assert sorted(held, key=lambda each: each.name) == pins.list()
    assert pins.find(held[1].name) == held[1]
    pins.release(held[0], now_ms=NOW_MS + 1)
    assert pins.find(held[0].name).pin.expires_at_ms == NOW_MS + 1
    with pytest.raises(NoSuchPin, match="none"):
        pins.find("none")


# ---------------------------------------------------------------- oplog and undo


def test_every_change_of_a_name_is_in_the_oplog_newest_first(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches, tags = branches_of(store), Tags(Volumes(store), "host-1")
    branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)
    branches.rename("orders", "half", "fix", now_ms=NOW_MS)
    branches.delete("orders", "fix", now_ms=NOW_MS)
    tags.delete("orders", "v1", now_ms=NOW_MS)
    entries = [*Oplog(store).entries()]
    assert [each.number for each in entries] == [6, 5, 4, 3, 2, 1]
    assert [each.entry.operation for each in entries] == [
        "tag delete",
        "branch delete",
        "branch rename",
        "tag create",
        "branch create",
        "topic create",
    ]
    assert {each.entry.writer_id for each in entries} == {"host-1"}


def test_racing_entries_get_numbers_without_a_gap(store: MemoryStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(
            lambda n: Oplog(store).note("test", ref_key("t", f"b{n}"), None, b"x", now_ms=NOW_MS), range(40)
        )
    assert sorted(found) == [*range(1, 41)]


def test_an_entry_whose_number_is_taken_meanwhile_gets_the_next_one(store: MemoryStore) -> None:
    def note(to: ObjectStore, branch: str) -> int:
        return Oplog(to).note("test", ref_key("t", branch), None, b"x", now_ms=NOW_MS)

    slow = Between(store, oplog_key(1), lambda: note(store, "faster"))
    assert note(slow, "slower") == 2
    assert [each.entry.subject for each in Oplog(store).entries()] == ["refs/t/slower", "refs/t/faster"]


def test_undo_takes_back_the_last_change_of_a_name(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches = branches_of(store)
    half = branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    branches.delete("orders", "half", now_ms=NOW_MS + 1)
    assert undo(Volumes(store), now_ms=NOW_MS + 2).entry.operation == "branch delete"
    assert branches.resolve("orders", "half") == half
    assert undo(Volumes(store), 2, now_ms=NOW_MS + 3).entry.operation == "branch create"
    assert names(store) == ["main"]


def refused_alike(store: MemoryStore, number: int, reason: str) -> None:
    """See that an undo is refused, and its preview with the same words."""
    with pytest.raises(NotUndone, match=reason) as seen:
        check_undo(Volumes(store), find_operation(Volumes(store), number))
    with pytest.raises(NotUndone) as refused:
        undo(Volumes(store), number, now_ms=NOW_MS + 9)
    assert str(seen.value) == str(refused.value)


def test_an_undo_whose_state_was_collected_is_refused(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches, tags = branches_of(store), Tags(Volumes(store))
    half = branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    branches.delete("orders", "half", now_ms=NOW_MS + 1)
    tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS + 2)
    tags.delete("orders", "v1", now_ms=NOW_MS + 3)
    for number in (3, 5):
        check_undo(Volumes(store), find_operation(Volumes(store), number))
    raise_boundary(store, half, DEAD)
    raise_boundary(store, main, 3)
    refused_alike(store, 3, "nothing of its volume, which was collected")
    refused_alike(store, 5, "lsn 3 of its volume and what came later")


def test_each_undo_goes_one_step_further_back(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches, tags = branches_of(store), Tags(Volumes(store))
    branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)
    branches.delete("orders", "half", now_ms=NOW_MS + 1)
    faulty = FaultyStore(store, [Fault(error=unreachable, method="swap")])
    with pytest.raises(StoreUnreachable):  # the oplog has the change, but the change never happens
        branches_of(faulty).undelete("orders", "half", now_ms=NOW_MS + 2)
    undone = [undo(Volumes(store), now_ms=NOW_MS + number).entry.operation for number in range(3, 6)]
    assert undone == ["branch delete", "tag create", "branch create"]
    assert (names(store), tags.list("orders")) == (["main"], [])
    with pytest.raises(NotUndone, match="no change of a name is left"):
        undo(Volumes(store), now_ms=NOW_MS + 6)


def test_an_undo_passes_over_a_change_whose_volume_was_collected(store: MemoryStore) -> None:
    main = topic_of_three(store)
    branches, tags = branches_of(store), Tags(Volumes(store))
    half = branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    branches.delete("orders", "half", now_ms=NOW_MS + 1)
    tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS + 2)
    raise_boundary(store, half, DEAD)
    for _ in range(2):
        with pytest.raises(OutOfWindow, match="orders@half"):
            branches.undelete("orders", "half", now_ms=NOW_MS + 3)
    newest = next(Oplog(store).entries())
    assert (newest.entry.operation, newest.entry.message) == ("undo", "of operation 7: its volume was collected")
    assert undo(Volumes(store), now_ms=NOW_MS + 4).entry.operation == "tag create"
    with pytest.raises(NotUndone, match="operation 3 cannot be undone"):
        undo(Volumes(store), now_ms=NOW_MS + 5)


def test_undo_of_tags(store: MemoryStore) -> None:
    main = topic_of_three(store)
    tags = Tags(Volumes(store))
    made = tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS, message="why")
    tags.delete("orders", "v1", now_ms=NOW_MS)
    undo(Volumes(store), 3, now_ms=NOW_MS)
    assert tags.get("orders", "v1").point == made.point
    undo(Volumes(store), 4, now_ms=NOW_MS)
    assert tags.list("orders") == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda branches: branches.create("audit", now_ms=NOW_MS), "a topic's own history stays"),
        (lambda branches: branches.undelete("orders", "half", now_ms=NOW_MS + 5), "has changed since"),
    ],
)
def test_what_cannot_be_undone_says_why(store: MemoryStore, change: Callable[[Branches], object], reason: str) -> None:
    main = topic_of_three(store)
    branches = branches_of(store)
    branches.create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    branches.delete("orders", "half", now_ms=NOW_MS + 1)
    deleted = next(Oplog(store).entries()).number
    change(branches)
    newest = next(Oplog(store).entries())
    number = newest.number if newest.entry.operation == "topic create" else deleted
    refused_alike(store, number, reason)


def test_nothing_is_changed_that_was_not_put_down_before(store: MemoryStore) -> None:
    main = topic_of_three(store)
    before = {key: store.get(key) for key in [*store.list("refs/")]}  # type: ignore[arg-type]
    faulty = FaultyStore(store, [Fault(3, "before", unreachable)])  # the effects are: control, fork, oplog
    with pytest.raises(StoreUnreachable):
        branches_of(faulty).create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    assert {key: store.get(key) for key in [*store.list("refs/")]} == before  # type: ignore[arg-type]


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_lost_answer_while_a_branch_is_deleted_leaves_it_deleted_once(store: MemoryStore, nth: int) -> None:
    main = topic_of_three(store)
    branches_of(store).create("orders", "half", ForkPoint(main, 2), now_ms=NOW_MS)
    faulty = FaultyStore(store, [Fault(nth, "after", lost)])
    try:
        branches_of(faulty).delete("orders", "half", now_ms=NOW_MS + 1)
    except CatalogError as error:
        raise AssertionError(f"a lost answer is settled by reading back: {error}") from error
    assert names(store) == ["main"]
    assert len([each for each in Oplog(store).entries() if each.entry.operation == "branch delete"]) == 1


# ---------------------------------------------------------------- unknown keys

STRAYS = (
    *("refs/", "refs/README", "refs/orders/", "refs/orders/a/b", "refs/empty/", "refs/orders/.x"),
    *("tags/", "tags/README", "tags/orders/", "tags/orders/v1/x"),
    *("pins/", "pins/README", "pins/orders/x"),
    *("oplog/", "oplog/00README", "oplog/FFFFFFFFFFFFFFFF", "oplog/README", "oplog/x/FFFFFFFFFFFFFFFE"),
)


def test_keys_that_are_none_of_ours_are_passed_by(store: MemoryStore) -> None:
    main = topic_of_three(store)
    among = StrayKeysStore(store, [*STRAYS, f"pins/{main}/", f"{main}/log/", f"{main}/log/00README"])
    branches, tags, pins = branches_of(among), Tags(Volumes(among)), Pins(Volumes(among))
    branches.create("orders", "half", ForkPoint(main, 2, 15), now_ms=NOW_MS)
    branches.rename("orders", "half", "part", now_ms=NOW_MS)
    tag = tags.create("orders", "v1", ForkPoint(main, 2), branch="main", now_ms=NOW_MS)
    pin = pins.hold(ForkPoint(main, 2), "job", ttl_ms=1_000, now_ms=NOW_MS)
    branches.delete("orders", "part", now_ms=NOW_MS)
    undo(Volumes(among), now_ms=NOW_MS)

    assert {topic for topic, _ in branches.names()} == {"orders"}
    assert branches.names() == [("orders", "half"), ("orders", "main"), ("orders", "part")]
    assert names(among) == ["main", "part"]
    assert [(each.name, each.tag) for each in tags.list("orders")] == [("v1", tag)]
    assert pins_in(among) == [pin]
    numbers = [each.number for each in Oplog(among).entries()]
    assert (
        numbers == sorted(range(1, len(numbers) + 1), reverse=True) == [each.number for each in Oplog(store).entries()]
    )
    assert Volumes(among).newest_lsn(main) == 3
    roots = read_roots(among, NOW_MS)
    assert dict(roots.points) == dict(read_roots(store, NOW_MS).points)
    assert set(roots.unknown_keys) == {key for key in among.strays if key.startswith(("refs/", "tags/", "pins/"))}


def test_a_folder_of_a_topic_is_no_topic(store: MemoryStore) -> None:
    branches = branches_of(StrayKeysStore(store, ["refs/empty/"]))
    for ask in (branches.resolve, branches.branches):
        with pytest.raises(NoSuchTopic):
            ask("empty")


@pytest.mark.parametrize(("strays", "lists"), [((), 1), (("oplog/",), 2), (("oplog/", "oplog/0", "oplog/README"), 2)])
def test_the_newest_operation_is_found_behind_any_number_of_strays(
    store: MemoryStore, strays: tuple[str, ...], lists: int
) -> None:
    topic_of_three(store)
    counting = CountingStore(StrayKeysStore(store, strays))
    number = Oplog(counting).note("test", ref_key("orders", "main"), None, None, now_ms=NOW_MS)
    assert (number, counting.counts["list"], counting.counts["put_new"]) == (2, lists, 1)
