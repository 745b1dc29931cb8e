"""Checkpoints: their records, their cost, and a crash or a rival checkpointer at each step."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Literal

import pytest

from catalog.checkpointer import CheckpointPolicy, checkpoint_due, make_checkpoint
from catalog.errors import CatalogError, InvalidObject, NoSuchObject, OutOfWindow
from catalog.format.commit import ForkPoint
from catalog.format.control import CheckpointSet, Control, Mark
from catalog.format.encoding import StoredCommit, decode_commit_at, encode_commit, encode_views
from catalog.format.envelope import MessageType, wrap
from catalog.format.keys import checkpoints_key, commit_key, list_key, lists_prefix
from catalog.format.small_objects import encode_checkpoint_set
from catalog.local_catalog import LocalCatalog
from catalog.objects import MemoryStore, ObjectStore
from catalog.volume import Volumes
from tests.catalog.samples import START_MS, HistoryMaker, ts_of, vid
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, unreachable
from tests.seams.limits import Limit, set_limit

MAIN, FORK = vid(1), vid(2)


def push(store: ObjectStore, history: HistoryMaker, parent: ForkPoint | None = None) -> None:
    volumes = Volumes(store)
    volumes.create(Control(history.vid, parent, START_MS, "orders", "main" if parent is None else "half"))
    for stored in history.stored:
        volumes.publish(history.vid, stored.commit.lsn, encode_commit(stored.commit)[0])


def busy(commits: int = 40) -> HistoryMaker:
    """Return a history of offloads, with deletes and a truncation among them."""
    history = HistoryMaker(MAIN)
    head = 0
    while len(history.stored) < commits:
        last = history.offload((head + 1, head + 10)).segments[0]
        head += 10
        if len(history.stored) % 5 == 0:
            history.delete(head, before=head - 25, seqs=[head - 3], of=last)
        if len(history.stored) == 21:
            head -= 4
            history.truncate(head + 4, head + 1)
    return history


@pytest.mark.parametrize("lsn", [1, 7, 22, 40])
def test_every_state_from_a_checkpoint_on_is_what_folding_all_commits_gives(lsn: int) -> None:
    store = MemoryStore()
    history = busy()
    push(store, history)
    before = {at: Volumes(store).snapshot(MAIN, at) for at in range(lsn, len(history.stored) + 1)}
    mark = make_checkpoint(Volumes(store), MAIN, lsn, now_ms=START_MS)
    assert (mark.lsn, mark.max_seq) == (lsn, before[lsn].max_seq)
    for at in range(1, lsn):
        store.delete(commit_key(MAIN, at))
    for at, snapshot in before.items():
        assert Volumes(store).snapshot(MAIN, at) == snapshot


def test_a_checkpoint_has_all_of_a_state() -> None:
    history = busy(10)
    history.configure('{"attributes": {}}', collected_before_ms=START_MS - 7)
    store = MemoryStore()
    push(store, history)
    whole = Volumes(store).snapshot(MAIN)
    assert whole.config
    assert whole.put_out_ms
    assert whole.collected_before_ms == START_MS - 7
    make_checkpoint(Volumes(store), MAIN, whole.lsn, now_ms=START_MS)
    for lsn in range(1, whole.lsn):
        store.delete(commit_key(MAIN, lsn))
    assert Volumes(store).snapshot(MAIN) == whole


def test_becoming_a_checkpoint_changes_neither_hash_nor_commit() -> None:
    store = MemoryStore()
    history = busy()
    push(store, history)
    make_checkpoint(Volumes(store), MAIN, 7, now_ms=START_MS)
    found = decode_commit_at(store.get(commit_key(MAIN, 7)), MAIN, 7)
    assert found.checkpoint is not None
    assert StoredCommit(found.commit, found.hash) == history.stored[6]
    Volumes(store).publish(MAIN, 7, encode_commit(history.stored[6].commit)[0])  # the writer still finds its own


def test_a_fork_reads_its_own_checkpoint_and_nothing_of_its_parent() -> None:
    store = MemoryStore()
    main = busy()
    push(store, main)
    branch = HistoryMaker(FORK, head_seq=25, parent_hash=main.stored[2].hash)
    branch.offload((26, 40))
    push(store, branch, ForkPoint(MAIN, 3, 25))
    shown = Volumes(store).snapshot(FORK)
    make_checkpoint(Volumes(store), FORK, 1, now_ms=START_MS)
    for key in [*store.list(f"{MAIN}/")]:
        store.delete(key)  # type: ignore[arg-type]
    assert Volumes(store).snapshot(FORK) == shown
    assert {view.vid for view in shown.segments} == {MAIN, FORK}


@pytest.mark.parametrize("commits", [100, 1_000])
def test_opening_costs_the_commits_since_the_checkpoint_whatever_lies_before(commits: int) -> None:
    store = MemoryStore()
    history = HistoryMaker(MAIN)
    for number in range(commits):
        history.offload((number * 10 + 1, number * 10 + 10))
    push(store, history)
    make_checkpoint(Volumes(store), MAIN, commits - 9, now_ms=START_MS)
    counting = CountingStore(store)
    assert Volumes(counting).snapshot(MAIN).bounds.head_seq == commits * 10
    # The requests read the newest marks, the checkpoint, and the nine commits after it.
    assert counting.counts == {"list": 1, "get_range": 1, "get": 1 + 9}


def test_a_large_list_is_an_object_of_its_own_and_its_damage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.SEGMENTS_IN_CHECKPOINT_BYTES, 100)
    store = MemoryStore()
    push(store, busy())
    shown = Volumes(store).snapshot(MAIN)
    make_checkpoint(Volumes(store), MAIN, 40, now_ms=START_MS)
    [key] = store.list(lists_prefix(MAIN))
    found = decode_commit_at(store.get(commit_key(MAIN, 40)), MAIN, 40).checkpoint
    assert found is not None
    assert found.views is None
    assert key == list_key(MAIN, 40, found.views_hash)
    assert Volumes(store).snapshot(MAIN) == shown
    body = store.get(list_key(MAIN, 40, found.views_hash))
    of_another = wrap(MessageType.SEGMENT_LIST, encode_views(shown.segments[1:]))
    for damaged in (body[:-1], body[:20] + bytes([body[20] ^ 1]) + body[21:], of_another):
        store.put(list_key(MAIN, 40, found.views_hash), damaged, {})
        with pytest.raises(InvalidObject, match=key):
            Volumes(store).snapshot(MAIN)
    store.delete(list_key(MAIN, 40, found.views_hash))
    with pytest.raises(NoSuchObject, match=key):
        Volumes(store).snapshot(MAIN)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_end_at_any_step_leaves_what_readers_read_and_the_next_try_makes_it(
    when: Literal["before", "after"], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.SEGMENTS_IN_CHECKPOINT_BYTES, 100)
    for at in count(1):
        store = MemoryStore()
        push(store, busy())
        shown = Volumes(store).snapshot(MAIN)
        faulty = FaultyStore(store, [Fault(at, when, unreachable)])
        try:
            make_checkpoint(Volumes(faulty), MAIN, 20, now_ms=START_MS)
        except CatalogError:
            assert Volumes(store).snapshot(MAIN) == shown
        else:
            assert at == 4  # three effects before: the list, the commit, the marks
            return
        make_checkpoint(Volumes(store), MAIN, 20, now_ms=START_MS + 1)
        assert Volumes(store).snapshot(MAIN) == shown
        assert [mark.lsn for mark in Volumes(store).checkpoints(MAIN).marks] == [20]


def test_a_mark_without_a_checkpoint_is_damage() -> None:
    store = MemoryStore()
    push(store, busy())
    make_checkpoint(Volumes(store), MAIN, 20, now_ms=START_MS)
    store.put(commit_key(MAIN, 20), encode_commit(busy().stored[19].commit)[0], {})
    with pytest.raises(InvalidObject, match="it is no checkpoint"):
        Volumes(store).snapshot(MAIN)


def test_a_local_copy_of_before_is_fetched_again(tmp_path: Path) -> None:
    store = MemoryStore()
    push(store, busy())
    with LocalCatalog(tmp_path / "catalog.db") as cache:
        Volumes(store, cache).snapshot(MAIN)
        make_checkpoint(Volumes(store), MAIN, 30, now_ms=START_MS)  # by another process
        assert Volumes(store, cache).snapshot(MAIN) == Volumes(store).snapshot(MAIN)


@pytest.mark.parametrize(
    ("policy", "due"),
    [
        (CheckpointPolicy(64), None),
        (CheckpointPolicy(40), 40),
        (CheckpointPolicy(15), 15),
        (CheckpointPolicy(64, 1), 1),
    ],
)
def test_which_commit_is_due_follows_from_the_commits(
    policy: CheckpointPolicy, due: int | None, tmp_path: Path
) -> None:
    store = MemoryStore()
    push(store, busy(40))
    with LocalCatalog(tmp_path / "catalog.db") as cache:
        volumes = Volumes(store, cache)
        lsn = volumes.snapshot(MAIN).lsn
        assert checkpoint_due(volumes, MAIN, lsn, policy) == due
        if due:
            assert checkpoint_due(volumes, MAIN, due, policy) == due
            assert checkpoint_due(volumes, MAIN, due - 1, policy) is None
            make_checkpoint(volumes, MAIN, due, now_ms=START_MS)
            assert checkpoint_due(volumes, MAIN, lsn, policy) != due
        sizes = [len(body) for body in cache.commit_bodies(MAIN, 1, 3).values()]
        assert due or checkpoint_due(volumes, MAIN, 10, CheckpointPolicy(64, sum(sizes))) == 3


def test_marks_tell_the_latest_time_and_the_highest_seq_up_to_them() -> None:
    store = MemoryStore()
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.truncate(20, 11)
    history.offload((11, 15))
    push(store, history)
    for lsn in (1, 2, 3):
        make_checkpoint(Volumes(store), MAIN, lsn, now_ms=START_MS)
    assert Volumes(store).checkpoints(MAIN).marks == tuple(Mark(lsn, ts_of(20), 20) for lsn in (1, 2, 3))


def test_rivals_make_one_checkpoint() -> None:
    store = MemoryStore()
    push(store, busy())
    marks = {make_checkpoint(Volumes(store), MAIN, 12, now_ms=START_MS + n) for n in range(3)}
    assert len(marks) == 1
    assert checkpoints_key(MAIN) in [*store.list(f"{MAIN}/")]


def test_a_rivals_checkpoint_that_came_first_stays() -> None:
    store = MemoryStore()
    push(store, busy())

    class Faster(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method == "get_with_etag" and key == commit_key(MAIN, 12):
                make_checkpoint(Volumes(store), MAIN, 12, now_ms=START_MS + 5)
            return act()

    make_checkpoint(Volumes(Faster(store)), MAIN, 12, now_ms=START_MS)
    found = decode_commit_at(store.get(commit_key(MAIN, 12)), MAIN, 12).checkpoint
    assert found is not None
    assert found.made_at_ms == START_MS + 5


def test_below_the_floor_only_the_run_that_pruned_last_puts_marks() -> None:
    store = MemoryStore()
    push(store, busy())
    pruned = CheckpointSet(MAIN, (), 0, 20, bytes(range(16)))
    store.put_new(checkpoints_key(MAIN), encode_checkpoint_set(pruned))
    for nonce in (None, bytes(16)):
        with pytest.raises(OutOfWindow, match="lsn 20 of its volume"):
            make_checkpoint(Volumes(store), MAIN, 12, now_ms=START_MS, pruned=nonce)
    make_checkpoint(Volumes(store), MAIN, 20, now_ms=START_MS)
    make_checkpoint(Volumes(store), MAIN, 12, now_ms=START_MS, pruned=pruned.nonce)
    found = Volumes(store).checkpoints(MAIN)
    assert ([mark.lsn for mark in found.marks], found.floor, found.nonce) == ([12, 20], 20, pruned.nonce)
