"""The deletion of a volume by GC, against operations that give the volume a name, in every order of their requests."""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import TypeVar

import pytest
from greenlet import getcurrent, greenlet

from catalog.errors import CatalogError, HistoryCollected, NoSuchBranch, OutOfWindow
from catalog.format.commit import ForkPoint
from catalog.format.control import DEAD, Boundary, Control, Ref
from catalog.format.ids import Vid
from catalog.format.keys import boundary_key, control_key, ref_key, refs_prefix
from catalog.format.small_objects import decode_boundary, decode_ref, encode_boundary, encode_control, encode_ref
from catalog.gc.roots import read_roots
from catalog.objects import MemoryStore
from catalog.objects.wrapped import WrappedStore
from catalog.refs.branch import Branches
from catalog.refs.kept_points import begin_closing, close, keep_open
from catalog.volume import Volumes
from tests.catalog.samples import START_MS
from tests.faults.in_caller import InCaller
from tests.faults.store import CountingStore
from tests.seams.catalog import give_name, refs_of, store_of

T = TypeVar("T")
VID = Vid.new(START_MS)
KEY = boundary_key(VID)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.objects.settled_writes.backoff_s", lambda _: 0.0)
    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor", InCaller)


def boundary(store: MemoryStore) -> Boundary:
    return decode_boundary(store.get(KEY), VID)


# ---------------------------------------------------------------- the states


def test_a_volume_closes_in_two_steps_and_stays_dead() -> None:
    store = MemoryStore()
    begun = begin_closing(store, VID)
    assert (begun.lsn, begun.is_closing) == (0, True)
    assert begin_closing(store, VID) == begun  # a second run continues the closing
    assert close(store, begun).lsn == DEAD
    assert not keep_open(store, VID)
    dead = boundary(store)
    assert begin_closing(store, VID) == close(store, begun) == dead == boundary(store)


def test_what_was_kept_open_is_not_closed_by_who_looked_before() -> None:
    store = MemoryStore()
    store.put(KEY, encode_boundary(Boundary(VID, 7)), {})
    begun = begin_closing(store, VID)
    assert keep_open(store, VID)
    assert (boundary(store).lsn, boundary(store).is_closing) == (7, False)
    again = begin_closing(store, VID)
    assert close(store, begun) == again
    assert close(store, again).lsn == DEAD


def test_no_state_comes_back() -> None:
    store = MemoryStore()
    seen: set[bytes] = set()
    for _ in range(3):
        begin_closing(store, VID)
        seen.add(store.get(KEY))
        keep_open(store, VID)
        seen.add(store.get(KEY))
    assert len(seen) == 6


def test_an_open_volume_costs_who_names_it_one_look() -> None:
    store = CountingStore(MemoryStore())
    assert keep_open(store, VID)
    assert store.counts == {"get_with_etag": 1}


# ---------------------------------------------------------------- every order of requests


class _Turns(WrappedStore):
    """A store that hands over before each request to the boundary or to a ref."""

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if key == KEY or key.startswith("refs/"):
            getcurrent().parent.switch()  # type: ignore[union-attr]
        return act()


Act = Callable[[WrappedStore], None]


def _interleave(store: MemoryStore, acts: list[Act], choose: Callable[[int], int]) -> None:
    tasks = [greenlet(act) for act in acts]
    for task in tasks:
        task.switch(_Turns(store))
    while alive := [task for task in tasks if not task.dead]:
        alive[choose(len(alive))].switch()


def _every_order(world: Callable[[], tuple[MemoryStore, list[Act], Callable[[], None]]]) -> int:
    """Run every order of requests, depth first. Return the number of orders."""
    path: list[tuple[int, int]] = []
    runs = 0
    while True:
        store, acts, check = world()
        depth = 0

        def choose(of: int) -> int:
            nonlocal depth
            if depth == len(path):
                path.append((0, of))
            depth += 1
            return path[depth - 1][0]

        _interleave(store, acts, choose)
        check()
        runs += 1
        while path and path[-1][0] + 1 == path[-1][1]:
            path.pop()
        if not path:
            return runs
        path[-1] = (path[-1][0] + 1, path[-1][1])


def _gc(store: WrappedStore) -> None:
    begun = begin_closing(store, VID)
    if begun.lsn == DEAD:
        return
    roots = read_roots(store, START_MS)
    if VID in roots.refs:
        keep_open(store, VID)
    else:
        close(store, begun)


def _named(store: MemoryStore) -> bool:
    return any(
        (ref := decode_ref(store.get(key), key)).vid == VID and ref.deleted_at_ms is None  # type: ignore[arg-type]
        for key in store.list(refs_prefix())
    )


def _world(act: Callable[[Branches], object], *, gcs: int = 1) -> tuple[MemoryStore, list[Act], Callable[[], None]]:
    """Return a store, the tasks `act` and GC, and the final check. In the store, `half` was deleted long ago."""
    store = MemoryStore()
    parent = Vid.new(START_MS)
    store.put(control_key(VID), encode_control(Control(VID, ForkPoint(parent, 1), START_MS, "orders", "half")), {})
    store.put(ref_key("orders", "half"), encode_ref(Ref(VID, START_MS, START_MS, os.urandom(16))), {})
    acked: list[object] = []

    def name(turns: WrappedStore) -> None:
        try:
            acked.append(act(Branches(Volumes(turns))))
        except (OutOfWindow, HistoryCollected, NoSuchBranch):
            acked.append(None)

    def check() -> None:
        [answer] = acked
        assert _named(store) == (answer is not None)
        assert (boundary(store).lsn == DEAD) <= (not _named(store))

    return store, [name, *[_gc] * gcs], check


def _rename(branches: Branches) -> object:
    """Give the volume the new name `fix`, as a rename does whose old name is deleted meanwhile."""
    return give_name(branches, "orders", "fix", Ref(VID, START_MS), now_ms=START_MS)


@pytest.mark.parametrize("act", [lambda branches: branches.undelete("orders", "half", now_ms=START_MS), _rename])
def test_in_every_order_what_has_a_name_is_open_and_what_was_refused_has_none(
    act: Callable[[Branches], object],
) -> None:
    assert _every_order(lambda: _world(act)) > 200


def test_in_many_orders_with_three_runs_of_gc() -> None:
    random = Random(1)
    dead = 0
    for _ in range(400):
        store, acts, check = _world(lambda branches: branches.undelete("orders", "half", now_ms=START_MS), gcs=3)
        _interleave(store, acts, random.randrange)
        check()
        dead += boundary(store).lsn == DEAD
    assert 20 < dead < 380


def test_who_looks_before_he_names_it_is_found_out() -> None:
    """The tests above find this mistake: a look at the boundary before the ref is written."""

    def looks_first(branches: Branches) -> object:
        if not keep_open(store_of(branches), VID):
            raise OutOfWindow("half", "nothing")
        return refs_of(branches).change(
            "x", ref_key("orders", "half"), lambda _: Ref(VID, START_MS), now_ms=START_MS, message=""
        )

    with pytest.raises(AssertionError):
        _every_order(lambda: _world(looks_first))


# ---------------------------------------------------------------- names that a crash leaves


def _dead_and_named(branch: str) -> MemoryStore:
    """Return a store whose branch leads to a dead volume. Its creator crashed after the ref, before its check."""
    store = MemoryStore()
    store.put(KEY, encode_boundary(Boundary(VID, DEAD, nonce=b"x")), {})
    store.put(ref_key("orders", branch), encode_ref(Ref(VID, START_MS)), {})
    return store


@pytest.mark.parametrize("branch", ["main", "half"])
def test_a_name_of_a_dead_volume_is_free(branch: str) -> None:
    store = _dead_and_named(branch)
    vid = Branches(Volumes(store)).create("orders", branch, now_ms=START_MS)
    assert vid != VID
    assert Branches(Volumes(store)).resolve("orders", branch) == vid


def test_a_name_of_a_dead_volume_is_no_branch_and_is_taken_back_by_who_finds_it() -> None:
    store = _dead_and_named("half")
    branches = Branches(Volumes(store))
    assert branches.branches("orders") == []
    with pytest.raises(NoSuchBranch):
        branches.check_open("orders", "half", VID, now_ms=START_MS)
    with pytest.raises(CatalogError):
        branches.resolve("orders", "half")
    assert not _named(store)
