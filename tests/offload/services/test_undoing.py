"""Test the undo of a delete, an eviction or a truncation, beside appends, other writers, crashes and lost objects."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyroaring import BitMap

from catalog import CommitKind
from catalog.errors import (
    CatalogError,
    Fenced,
    NoSuchTopic,
    NotUndone,
    OutOfWindow,
    RecordsGone,
    StoreUnreachable,
)
from catalog.format import keys
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload.archive import Archive
from offload.errors import OffloadError
from offload.write.publisher import UNDO_LATE_MS
from seglog import Log, ProducerBatch, Record, WrittenElsewhere
from tests import work
from tests.faults.meanwhile import Meanwhile
from tests.faults.steps import Place, crashes
from tests.faults.store import unreachable
from tests.faults.stride import every as strided
from tests.offload.replicas import opened, ship, values
from tests.worlds.clock import HandClock
from tests.worlds.snapshots import visible

T = TypeVar("T")

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def _topic(log: Log, archive: Archive) -> None:
    """Make a topic of three objects, `a` to `f`, with tags."""
    for first, second in ("ab", "cd", "ef"):
        ship(archive, log, "t", first.encode(), tag="odd")
        ship(archive, log, "t", second.encode(), tag="even")


class _NoCommits(WrappedStore):
    """A store that takes no commit."""

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method == "put_new" and "/log/" in key:
            raise unreachable(key)
        return act()


def _records(archive: Archive, name: str = "t") -> list[Record]:
    return list(archive.read(name))


def _bytes(store: MemoryStore) -> dict[str, bytes]:
    return {key: store.get(keys.Key(key)) for key in store.list("")}


@pytest.mark.parametrize("kind", ["below", "tag", "evict", "truncate"])
@pytest.mark.parametrize("is_erased", [False, True])
def test_the_records_are_back_with_their_seqs_and_times(
    tmp_path: Path, store: MemoryStore, kind: str, *, is_erased: bool
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        before, bounds = _records(archive), archive.history.snapshot("t").bounds
        removed = {
            "below": lambda: archive.delete("t", before=4),
            "tag": lambda: archive.delete("t", tag="odd"),
            "evict": lambda: archive.evict("t", 4),
            "truncate": lambda: archive.truncate("t", 4),
        }[kind]()
        assert removed.lsn is not None
        if is_erased:
            archive.upkeep.erase("t")
        assert len(_records(archive)) == 3
        seen = archive.history.preview_undo("t", removed.lsn)
        assert (seen.lsn, seen.records, seen.gone, seen.away) == (None, 3, 0, 0)
        done = archive.history.undo_removal("t", removed.lsn, message="wrong topic")
        assert (done.records, done.first_seq, done.last_seq) == (3, seen.first_seq, seen.last_seq)
        assert _records(archive) == before
        assert archive.history.snapshot("t").bounds == bounds
        [made] = [past.commit for past in archive.history.commits("t") if past.commit.kind is CommitKind.RESTORE]
        assert (made.lsn, made.message) == (done.lsn, "wrong topic")
        assert archive.history.newest_removal("t") is None
        assert log.topics() == ["t"]
        ship(archive, log, "t", b"g")
        assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        assert archive.history.undo_removal("t", removed.lsn).is_earlier
    with opened(tmp_path / "two", store) as (_, other):
        assert values(other, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        assert len(values(other, "t", at=f"lsn:{removed.lsn}")) == 3


@pytest.mark.parametrize("kind", ["below", "tag", "evict"])
def test_the_writer_writes_on_with_its_hot_copies_producers_and_keys(
    tmp_path: Path, store: MemoryStore, kind: str
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        topic = log.topic("t")
        keyed = topic.append([b"keyed"], key="k")
        made = topic.append([b"made"], producer=ProducerBatch("p", 1, 0))
        before, hot = (topic.inner.topic_id, topic.epoch, topic.inner.hot_floor), [*topic.read(1, gaps=True)]
        topic.seal()
        archive.offload("t")
        removed = {
            "below": lambda: archive.delete("t", before=4),
            "tag": lambda: archive.delete("t", tag="odd"),
            "evict": lambda: archive.evict("t", 4),
        }[kind]()
        assert removed.lsn is not None
        done = archive.history.undo_removal("t", removed.lsn)
        assert (done.lsn, done.is_replica) == (removed.lsn + 1, False)
        assert (topic.inner.topic_id, topic.epoch, topic.inner.hot_floor) == before
        assert [*topic.read(1, gaps=True)] == hot
        assert topic.append([b"keyed"], key="k") == keyed
        assert topic.append([b"made"], producer=ProducerBatch("p", 1, 0)) == made
        assert archive.history.newest_removal("t") is None
        log.checkpoint()
    with opened(tmp_path / "one", store) as (log, archive):
        assert [*log.topic("t").read(1, gaps=True)] == hot
        ship(archive, log, "t", b"g")
        kinds = [past.commit.kind for past in archive.history.commits("t")]
        assert kinds[:2] == [CommitKind.OFFLOAD, CommitKind.RESTORE]


def test_hot_segments_show_only_what_the_undo_brings_back(tmp_path: Path, store: MemoryStore) -> None:
    """Two deletes took records of one segment."""
    with opened(tmp_path / "one", store) as (log, archive):
        archive.open_for_append("t").append([b"a", b"c"], tag="odd")
        ship(archive, log, "t", b"b", b"d", tag="even")
        lsns = [archive.delete("t", tag=tag).lsn for tag in ("odd", "even")]
        for lsn, back in zip(lsns, ([b"a", b"c"], [b"a", b"c", b"b", b"d"]), strict=True):
            assert lsn is not None
            archive.history.undo_removal("t", lsn)
            assert values(archive, "t") == back
        assert log.topic("t").inner.hot_floor == 1


_DELETES: dict[str, dict[str, Any]] = {
    "odd": {"tag": "odd"},
    "some": {"seqs": [1, 2, 4]},
    "below": {"before": 4},
    "range": {"start": 2, "end": 5},
}


@pytest.mark.parametrize("is_erased", [False, True])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["first", "second"])
@pytest.mark.parametrize("kinds", list(permutations(_DELETES, 2)), ids="-".join)
def test_a_record_that_two_commits_took_stays_deleted_until_both_are_undone(
    tmp_path: Path, store: MemoryStore, kinds: tuple[str, str], order: tuple[int, int], *, is_erased: bool
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        before = _records(archive)
        lsns = [archive.delete("t", **_DELETES[kind]).lsn or 0 for kind in kinds]
        if is_erased:
            archive.upkeep.erase("t")
        shown = _undone(archive, lsns[order[0]])
        # A delete below a seq drops segments from the state, and a later delete names only what the state has.
        if kinds[0] != "below" or order[0] == 1:
            assert shown == [record for record in before if not _takes(record, kinds[order[1]])]
        assert _undone(archive, lsns[order[1]]) == before == [*log.topic("t").read()]
    with opened(tmp_path / "two", store) as (_, other):
        assert _records(other) == before


def _undone(archive: Archive, lsn: int) -> list[Record]:
    """Undo a commit as its preview says, and return what the topic shows."""
    shown, seen = len(_records(archive)), archive.history.preview_undo("t", lsn)
    done = archive.history.undo_removal("t", lsn)
    assert (done.records, done.first_seq, done.last_seq) == (seen.records, seen.first_seq, seen.last_seq)
    assert len(_records(archive)) == shown + done.records
    return _records(archive)


def test_a_commit_whose_records_another_one_took_is_undone_after_that(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        before = _records(archive)
        first, second, third = (
            archive.delete("t", **each).lsn or 0 for each in ({"tag": "odd"}, {"start": 1}, {"seqs": [1]})
        )
        assert archive.history.newest_removal("t").commit.lsn == third
        for lsn, takers in ((first, f"lsn {second}, lsn {third}"),):
            for call in (archive.history.preview_undo, archive.history.undo_removal):
                with pytest.raises(NotUndone, match=f"{takers} took its records as well") as refused:
                    call("t", lsn)
                assert refused.value.hint == f"first undo {takers}"
        assert archive.history.undo_removal("t", third).records == 0
        assert archive.history.undo_removal("t", third).is_earlier
        assert archive.history.undo_removal("t", second).records == 3
        assert archive.history.undo_removal("t", first).records == 3
        assert _records(archive) == before == [*log.topic("t").read()]
        assert archive.history.newest_removal("t") is None
        assert archive.delete("t", tag="nobody").lsn is None, "a delete that reaches nothing has no commit"


def test_a_record_that_three_commits_took_is_back_once_all_are_undone(tmp_path: Path, store: MemoryStore) -> None:
    """The third kept nothing from the first undo, but from the second, which kept a record from the first."""
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        before = _records(archive)
        first, second = (archive.delete("t", seqs=seqs).lsn or 0 for seqs in ([1, 2], [1]))
        assert [record.seq for record in _undone(archive, first)] == [2, 3, 4, 5, 6]
        third = archive.delete("t", seqs=[1, 2]).lsn or 0
        _undone(archive, second)
        assert _undone(archive, third) == before == [*log.topic("t").read()]


def test_a_truncation_of_deleted_records_is_undone(tmp_path: Path, store: MemoryStore) -> None:
    """It brings nothing back, but the delete before it can be undone then."""
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        before = _records(archive)
        first, cut = archive.delete("t", seqs=[6]).lsn or 0, archive.truncate("t", 6).lsn or 0
        with pytest.raises(NotUndone, match=f"lsn {cut} took its records as well"):
            archive.history.undo_removal("t", first)
        assert _undone(archive, cut) == before[:5]
        assert _undone(archive, first) == before == [*log.topic("t").read()]


@strided(61, part=8)
def test_an_undo_that_ends_at_any_step_brings_back_what_an_earlier_one_left(tmp_path: Path, every: int) -> None:
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        _topic(log, archive)
        first, second = (archive.delete("t", **each).lsn or 0 for each in ({"tag": "odd"}, {"start": 3}))
        archive.history.undo_removal("t", first)
        assert values(archive, "t") == [b"a", b"b"]

    for name, place in crashes(base, tmp_path, lambda _, archive: archive.history.undo_removal("t", second), every):
        with place.opened() as (log, archive):
            archive.history.undo_removal("t", second)
            assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f"], name
            assert values(archive, "t") == [record.value for record in log.topic("t").read()], name


def _takes(record: Record, kind: str) -> bool:
    return {
        "odd": record.tag == "odd",
        "some": record.seq in {1, 2, 4},
        "below": record.seq < 4,
        "range": 2 <= record.seq <= 5,
    }[kind]


class _LostAnswers(_NoCommits):
    """A store that takes a commit, and does not say so."""

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        done = act()
        if (method == "put_new" and "/log/" in key) or (method == "get" and "/log/" in key):
            raise unreachable(key)
        return done


def test_the_next_call_completes_an_undo_whose_answer_was_lost(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        lsn = archive.delete("t", before=4).lsn
        assert lsn is not None
    with opened(tmp_path / "one", _LostAnswers(store)) as (log, archive), pytest.raises(StoreUnreachable):
        archive.history.undo_removal("t", lsn)
    with opened(tmp_path / "one", store) as (log, archive):
        assert [record.value for record in log.topic("t").read()] == [b"d", b"e", b"f"]
        assert archive.history.undo_removal("t", lsn).is_earlier
        assert [record.value for record in log.topic("t").read()] == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("kind", ["truncate", "promote"])
def test_the_writer_writes_on_after_it_took_the_topic_over_again(tmp_path: Path, store: MemoryStore, kind: str) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        keyed = log.topic("t").append([b"keyed"], key="k")
        made = log.topic("t").append([b"made"], producer=ProducerBatch("p", 1, 0))
        ship(archive, log, "t", b"x")
        if kind == "truncate":
            removed = archive.truncate("t", 9).lsn
            assert removed is not None
            archive.history.undo_removal("t", removed)
        else:
            archive.restore("t", to="head", name="good")
            archive.branches.promote_branch("t", "good")
        assert (log.topics(), archive.replication.replicas()) == (["t"], [])
        topic = log.topic("t")
        assert topic.append([b"keyed"], key="k") == keyed
        assert topic.append([b"made"], producer=ProducerBatch("p", 1, 0)) == made
        assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"keyed", b"made", b"x"]


def test_an_eviction_that_came_with_a_takeover_is_no_local_change(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        lsn = archive.evict("t", 3).lsn or 0
        vid = archive.history.snapshot("t").vid
        archive.restore("t", to="head", name="good")
        archive.branches.promote_branch("t", "good")
        assert (log.topic("t").inner.evict_floor, log.topic("t").inner.delete_ops()) == (3, ())
        archive.replication.reset("t")
        archive.replication.take_over("t")
        ship(archive, log, "t", b"g")
        assert archive.history.undo_removal("t", lsn, vid).records == 2
        assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


def test_a_reclaim_that_took_the_bytes_costs_the_hot_copies(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        removed = archive.delete("t", tag="odd").lsn
        assert removed is not None
        log.configure("t", replace(log.topic("t").config, keep_history=False))
        log.reclaim()
        log.topic("t").append([b"g"])
        assert archive.history.undo_removal("t", removed).records == 3
        assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        assert (log.topics(), log.topic("t").inner.record_count_hot) == (["t"], 0)


def test_an_undo_that_did_not_land_is_given_up_when_its_lease_may_have_ended(
    tmp_path: Path, store: MemoryStore
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        removed = archive.delete("t", before=4).lsn
        assert removed is not None
    with opened(tmp_path / "one", _NoCommits(store)) as (log, archive), pytest.raises(StoreUnreachable):
        archive.history.undo_removal("t", removed)
    clock = HandClock(int(time.time() * 1000) + UNDO_LATE_MS + 60_000)
    with opened(tmp_path / "one", store, clock=clock) as (log, archive):
        ship(archive, log, "t", b"g")
        assert values(archive, "t") == [b"d", b"e", b"f", b"g"]
        assert archive.history.undo_removal("t", removed).records == 3
        assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


def test_what_came_after_the_delete_stays(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        first = archive.delete("t", tag="odd").lsn
        ship(archive, log, "t", b"g", tag="odd")
        second = archive.delete("t", before=5).lsn
        log.topic("t").append([b"not offloaded"])
        assert first is not None
        assert second is not None
        done = archive.history.undo_removal("t", first)
        assert (done.records, done.away, done.taken_by) == (1, 2, (second,))
        assert values(archive, "t") == [b"e", b"f", b"g", b"not offloaded"]
        assert archive.history.undo_removal("t", second).records == 4
        assert archive.history.undo_removal("t", first).is_earlier
        assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"not offloaded"]


def test_a_second_undo_leaves_what_a_delete_by_tag_took_after_the_first(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        first = archive.delete("t", before=4).lsn
        assert first is not None
        assert archive.history.undo_removal("t", first).records == 3
        archive.open_for_append("t")
        second = archive.delete("t", tag="odd").lsn
        assert second is not None
        done = archive.history.undo_removal("t", first)
        assert (done.is_earlier, done.records) == (True, 0)
        assert values(archive, "t") == [b"b", b"d", b"f"]
        assert archive.history.undo_removal("t", second).records == 3
        assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_a_delete_by_tag_takes_the_records_of_a_segment_in_pieces(tmp_path: Path, store: MemoryStore) -> None:
    """Two undos show one segment in two pieces. An earlier version deleted only from the last piece."""
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"b", b"c", b"d", b"e", b"f", tag="x")
        lsns = [archive.delete("t", before=4).lsn, archive.truncate("t", 5).lsn]
        for lsn in lsns:
            assert lsn is not None
            archive.history.undo_removal("t", lsn)
        pieces = [(view.first, view.last) for view in archive.history.snapshot("t").segments]
        assert pieces == [(1, 3), (4, 6)]
        archive.open_for_append("t")
        assert archive.delete("t", tag="x").records == 6
        assert values(archive, "t") == []


def test_a_branch_undoes_its_own_delete_and_one_that_it_has_from_its_parent(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        above = archive.delete("t", before=3).lsn
        archive.restore("t", to="head", name="fix")
        log_topic = archive.open_for_append("t@fix")
        own = archive.delete(log_topic.name, tag="even").lsn
        assert above is not None
        assert own is not None
        assert values(archive, "t@fix") == [b"c", b"e"]
        assert archive.history.undo_removal("t@fix", above).records == 2
        assert archive.history.undo_removal("t@fix", own).records == 2
        assert values(archive, "t@fix") == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert values(archive, "t") == [b"c", b"d", b"e", b"f"]


def test_what_cannot_be_undone_changes_nothing(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        cut = archive.truncate("t", 5).lsn
        assert cut is not None
        log.topic("t").append([b"new"])
        kept = _bytes(store)
        for lsn, error, words in (
            (1, NotUndone, "a commit of kind offload takes no records away"),
            (99, OutOfWindow, "lsn:99 of t"),
            (cut, NotUndone, "new records have the seqs from 5 on"),
        ):
            for call in (archive.history.undo_removal, archive.history.preview_undo):
                with pytest.raises(error, match=words):
                    call("t", lsn)
            assert (log.topics(), _bytes(store)) == (["t"], kept)
        with pytest.raises(NoSuchTopic):
            archive.history.undo_removal("nope", 1)
        log.topic("t").seal()
        archive.offload("t")
        with pytest.raises(NotUndone, match="has new records") as refused:
            archive.history.preview_undo("t", cut)
        assert refused.value.hint == f"`seglog restore t --to lsn:{cut - 1} --as NAME` makes a branch with the old ones"
        first = archive.delete("t", tag="odd").lsn
        second = archive.delete("t", before=9).lsn
        assert first is not None
        assert second is not None
        archive.history.undo_removal("t", second)
        third = archive.evict("t", 9).lsn
        for call in (archive.history.undo_removal, archive.history.preview_undo):
            with pytest.raises(NotUndone, match=f"lsn {third} took its records as well"):
                call("t", first)
        assert archive.history.preview_undo("t", second).is_earlier


def test_lost_objects_are_named_and_a_part_comes_back_only_if_the_caller_says_so(
    tmp_path: Path, store: MemoryStore
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        shown = archive.history.snapshot("t").segments
        removed = archive.delete("t", before=5).lsn
        assert removed is not None
        store.delete(keys.data_key(shown[1].vid, shown[1].ref.sid))
        kept = _bytes(store)
        assert archive.history.preview_undo("t", removed).gone == 1
        with pytest.raises(RecordsGone, match="1 record that lsn 7 of t took away are in no object any more: seq 2;"):
            archive.history.undo_removal("t", removed)
        assert (log.topics(), _bytes(store)) == (["t"], kept)
    with opened(tmp_path / "two", store) as (_, other):
        done = other.history.undo_removal("t", removed, partial=True)
        assert (done.records, done.gone) == (3, 1)
        assert values(other, "t") == [b"a", b"c", b"d", b"e", b"f"]


def test_an_undo_counts_what_is_lost_of_the_earlier_undo_that_it_completes(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        shown = archive.history.snapshot("t").segments
        first, second = (archive.delete("t", seqs=seqs).lsn or 0 for seqs in ([1, 2, 3], [1, 3, 5]))
        archive.history.undo_removal("t", first)
        archive.upkeep.erase("t")
        store.delete(keys.data_key(shown[2].vid, shown[2].ref.sid))
        seen = archive.history.preview_undo("t", second)
        done = archive.history.undo_removal("t", second)
        assert (seen.records, seen.gone) == (done.records, done.gone) == (2, 1)
        assert values(archive, "t") == [b"a", b"b", b"d", b"e", b"f"]


@pytest.mark.parametrize("effect", range(1, 12, 2))
def test_a_record_that_is_appended_meanwhile_is_kept(tmp_path: Path, store: MemoryStore, effect: int) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        archive.delete("t", before=4)

    def act() -> None:
        if log.has_topic("t"):
            acked.extend(log.topic("t").append([b"new"]))

    acked: list[int] = []
    with opened(tmp_path / "one", Meanwhile(store, effect, act)) as (log, archive):
        archive.history.undo_removal("t", 7)
        assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", *[b"new"] * len(acked)]


@pytest.mark.parametrize("effect", [0, 1, 2])
def test_another_writer_is_fenced_or_comes_first(tmp_path: Path, store: MemoryStore, effect: int) -> None:
    with opened(tmp_path / "one", store) as (log, archive), opened(tmp_path / "two", store) as (_, two):
        _topic(log, archive)
        archive.delete("t", before=4)
        two.replication.sync("t")

        def act() -> None:
            with suppress(CatalogError, OffloadError):
                log.topic("t").append([b"late"])
                log.topic("t").seal()
                archive.offload("t")

        if effect == 0:
            two.history.undo_removal("t", 7)
            act()
        else:
            with opened(tmp_path / "three", Meanwhile(store, effect, act)) as (_, three):
                three.history.undo_removal("t", 7)
        with suppress(WrittenElsewhere):  # perhaps it knows already that the undo has fenced it
            log.topic("t").append([b"more"])
        log.topic("t").seal()
        with pytest.raises(Fenced):
            archive.offload("t")
        here = {b"late", *(record.value for record in log.topic("t").read())}
        with opened(tmp_path / "four", store) as (_, fresh):
            found = values(fresh, "t")
            assert found[:6] == [b"a", b"b", b"c", b"d", b"e", b"f"]
            archive.replication.reset("t", as_branch="rest")
            assert set(values(archive, "t@rest")) | set(found) >= here


@pytest.fixture
def forked(tmp_path: Path, store: MemoryStore) -> Iterator[tuple[Log, Archive]]:
    """A topic with a record `odd` and two others, lsn 1 and 2. Lsn 3 deletes `odd`, and branch f inherits that."""
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"odd", tag="odd")
        ship(archive, log, "t", b"secret", b"rest", tag="secret")
        assert archive.delete("t", tag="odd").lsn == 3
        archive.restore("t", to="head", name="f")
        yield log, archive


def test_an_undo_on_a_branch_takes_back_the_commit_of_its_preview(forked: tuple[Log, Archive]) -> None:
    """Its own offload makes the branch's commits 1 to 3, and 3 is a delete, too."""
    _, archive = forked
    archive.open_for_append("t@f").append([b"new"])
    assert archive.delete("t@f", tag="secret").lsn is None, "it waits for the offload of the record"
    archive.open_for_append("t@f").append([b"newer"])
    seen = archive.history.preview_undo("t@f", 3)
    done = archive.history.undo_removal("t@f", 3)
    assert (done.undone, done.records, done.first_seq) == (seen.undone, seen.records, seen.first_seq)
    assert values(archive, "t@f") == [b"odd", b"new", b"newer"]


def test_the_repetition_of_an_undo_on_a_branch_takes_back_no_other_commit(forked: tuple[Log, Archive]) -> None:
    """The answer to the first call is lost. The branch's own commit of the same LSN is the undo, or a later delete."""
    log, archive = forked
    ship(archive, log, "t@f", b"new")
    archive.open_for_append("t@f").append([b"newer"])
    first = archive.history.undo_removal("t@f", 3)
    assert (first.records, first.lsn, first.is_earlier) == (1, 3, False)
    for vid in (None, first.undone.vid):
        again = archive.history.undo_removal("t@f", 3, vid)
        assert (again.is_earlier, again.lsn, again.undone) == (True, 3, first.undone)
    assert values(archive, "t@f") == [b"odd", b"secret", b"rest", b"new", b"newer"]


def test_an_lsn_that_may_mean_two_deletes_is_refused_with_both_names(forked: tuple[Log, Archive]) -> None:
    _, archive = forked
    first = archive.history.undo_removal("t@f", 3)
    assert first.lsn == 1
    archive.open_for_append("t@f")
    own = archive.delete("t@f", tag="secret")
    assert own.lsn == 3
    before = values(archive, "t@f")
    with pytest.raises(NotUndone, match="an earlier undo took back the commit of that number") as caught:
        archive.history.undo_removal("t@f", 3)
    vids = [archive.history.snapshot("t@f").vid, first.undone.vid]
    assert all(f"`seglog undo t@f lsn:3@{vid}`" in (caught.value.hint or "") for vid in vids)
    assert values(archive, "t@f") == before == [b"odd"]
    assert archive.history.undo_removal("t@f", 3, vids[1]).is_earlier
    assert archive.history.undo_removal("t@f", 3, vids[0]).records == 2
    assert values(archive, "t@f") == [b"odd", b"secret", b"rest"]


@strided(43, part=8)
def test_an_undo_that_ends_at_any_step_is_completed_by_the_next(tmp_path: Path, every: int) -> None:
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        _topic(log, archive)
        archive.delete("t", tag="odd")
        archive.upkeep.erase("t")
        log.topic("t").append([b"new"])

    def act(_: Log, archive: Archive) -> None:
        archive.history.undo_removal("t", 7)

    for name, place in crashes(base, tmp_path, act, every):
        with place.opened() as (log, archive):
            act(log, archive)
            assert values(archive, "t") == [b"a", b"b", b"c", b"d", b"e", b"f", b"new"], name
            kinds = [past.commit.kind for past in archive.history.commits("t")]
            assert kinds.count(CommitKind.RESTORE) == 1, name
            ship(archive, log, "t", b"g")
            assert values(archive, "t")[-2:] == [b"new", b"g"], name


@work.amounts(6, soak=800, part=8)
def test_any_order_of_changes_and_undos_shows_what_the_model_says(tmp_path: Path, amount: int) -> None:
    """An undo right after its commit restores the state before. Later, it brings back what no later commit took."""
    seed, counts = work.seed_of("undo of topics"), Counter[str]()
    for number in range(amount):
        rng = random.Random(f"{seed} {number}")
        with opened(tmp_path / f"{number}", MemoryStore()) as (log, archive):
            counts += _history(log, archive, rng)
    work.tell(f"undo of topics: {amount:,} histories, {dict(counts)}")
    assert counts["undone"]


@dataclass
class _Removal:
    """A delete: what it took, the entries that it names, and the seq below which it takes all. `back` came back."""

    lsn: int
    taken: dict[int, bytes]
    named: set[tuple[bytes, int]]
    below: int
    is_undone: bool = False
    back: set[int] = field(default_factory=set)

    def returns(self, removals: list[_Removal], live: set[int]) -> set[int]:
        later = [each for each in removals if each.lsn > self.lsn and not each.is_undone]
        away = {
            seq
            for seq, sid in self.taken.items()
            if any(seq < each.below or (sid, seq) in each.named for each in later)
        }
        return self.taken.keys() - away - live - self.back


def _history(log: Log, archive: Archive, rng: random.Random) -> Counter[str]:
    """Run one history of deletes by tag and by seq, erasures, and undos. Count the undos."""
    removals: list[_Removal] = []
    live: set[int] = set()
    counts = Counter[str]()
    head = 0
    for _ in range(14):
        act = rng.choice(["append", "append", "tag", "tag", "below", "erase", "compact", "undo", "undo", "undo"])
        if act == "append" or not head:
            for tag in rng.sample("abc", 2):
                ship(archive, log, "t", b"%d" % head, tag=tag)
                head += 1
                live.add(head)
        elif act in {"tag", "below"}:
            seq = rng.randint(2, head + 1)
            tag = rng.choice("abc") if act == "tag" else None
            archive.open_for_append("t")
            sids = visible(archive.history.snapshot("t"))
            lsn = archive.delete("t", tag=tag, before=None if tag else seq).lsn
            left = {record.seq for record in archive.read("t")}
            if lsn is not None:
                taken = {seq: sids[seq] for seq in live - left}
                removals.append(_Removal(lsn, taken, _named(archive, lsn), 0 if tag else seq))
                assert not tag or {(sid, seq) for seq, sid in taken.items()} <= removals[-1].named
            live = left
        elif act in {"erase", "compact"}:
            archive.open_for_append("t")
            archive.upkeep.erase("t") if act == "erase" else archive.upkeep.compact("t")
        elif removals:
            removal = rng.choice(removals)
            back = removal.returns(removals, live)
            if not back and (removal.is_undone or removal.taken.keys() - live):
                with suppress(NotUndone):
                    assert archive.history.undo_removal("t", removal.lsn).is_earlier
                continue
            removal.is_undone, removal.back = True, removal.back | back
            both = live | back
            for earlier in removals[: removals.index(removal)]:
                more = earlier.returns(removals, both) if earlier.is_undone else set[int]()
                earlier.back |= more
                both |= more
                counts["completed"] += bool(more)
            assert archive.history.undo_removal("t", removal.lsn).records == len(both - live)
            live = both
            counts["undone"] += 1
        assert [record.seq for record in archive.read("t")] == sorted(live)
        assert archive.history.count(archive.history.snapshot("t"))[0] == len(live)
    return counts


def _named(archive: Archive, lsn: int) -> set[tuple[bytes, int]]:
    commits = archive.history.commits("t")
    firsts = {ref.sid: ref.first_seq for past in commits for ref, _ in past.segments()}
    past = commits.at_lsn(lsn)
    assert past is not None
    bitmaps = past.commit.deletions.bitmaps.items()
    return {(sid.raw, firsts[sid] + entry) for sid, bits in bitmaps for entry in BitMap.deserialize(bits)}
