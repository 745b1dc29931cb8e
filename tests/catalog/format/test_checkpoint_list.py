"""The list of checkpoints: opening a volume reads its beginning, and a read of older states finds all of it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from catalog import LocalCatalog
from catalog.checkpointer import make_checkpoint
from catalog.errors import InvalidObject, StoreUnreachable
from catalog.format.control import CheckpointSet, Control, Mark
from catalog.format.encoding import encode_commit
from catalog.format.envelope import MessageType, unwrap, wrap
from catalog.format.keys import checkpoints_key
from catalog.format.small_objects import (
    NEWEST_BYTES,
    decode_checkpoint_set,
    decode_down_to,
    decode_newest_checkpoints,
    encode_checkpoint_set,
)
from catalog.objects.memory import MemoryStore
from catalog.volume import Volumes
from tests.catalog.samples import START_MS, HistoryMaker, vid
from tests.faults.store import CountingStore, WrappedStore, unreachable

MAIN, FORK = vid(1), vid(2)
_T = TypeVar("_T")


def long(count: int) -> CheckpointSet:
    marks = tuple(Mark(64 * n, START_MS + n, 640 * n) for n in range(1, count + 1))
    return CheckpointSet(MAIN, marks, floor=7, nonce=bytes(range(16)))


@pytest.mark.parametrize("count", [0, 1, 39, 40, 41, 100, 1_000])
def test_the_whole_and_its_beginning_say_the_same(count: int) -> None:
    body = encode_checkpoint_set(long(count))
    assert decode_checkpoint_set(body, MAIN) == long(count)
    newest = decode_newest_checkpoints(body[:NEWEST_BYTES], MAIN)
    assert newest == replace(long(count), marks=long(count).marks[-40:], older=max(count - 40, 0))
    for lsn in (0, 63, 64, 65, 64 * count - 1, 64 * count, 64 * count + 1):
        assert decode_down_to(lsn, body, MAIN).at_or_below(lsn) == long(count).at_or_below(lsn)


def test_the_docstring_is_what_is_written() -> None:
    marks = long(42).marks
    begins = b"SGL1" + bytes(3) + b"\x03" + MAIN.raw + struct.pack("<QQ", 42, 7) + bytes(range(16))
    begins += b"".join(struct.pack("<QQQ", *mark) for mark in reversed(marks[2:]))
    goes_on = b"SGL1" + bytes(3) + b"\x18" + struct.pack("<QQQQQQ", *marks[1], *marks[0])
    whole = b"".join(part + struct.pack("<Q", xxhash.xxh3_64_intdigest(part)) for part in (begins, goes_on))
    assert encode_checkpoint_set(long(42)) == whole
    assert len(encode_checkpoint_set(long(3))) == NEWEST_BYTES


@given(st.sets(st.integers(1, 2**64 - 1), max_size=90), st.integers(0, 2**64 - 1))
def test_sets_round_trip(lsns: set[int], number: int) -> None:
    found = CheckpointSet(MAIN, tuple(Mark(lsn, number, lsn ^ number) for lsn in sorted(lsns)))
    assert decode_checkpoint_set(encode_checkpoint_set(found), MAIN) == found


@pytest.mark.parametrize(
    ("lsns", "reason"),
    [((0, 5), "ascend"), ((7, 5), "ascend"), ((5, 5), "ascend"), ((9, *range(1, 42)), "ascend")],
)
def test_lsns_that_do_not_ascend_are_damage(lsns: tuple[int, ...], reason: str) -> None:
    body = encode_checkpoint_set(CheckpointSet(MAIN, tuple(Mark(lsn, 0, 0) for lsn in lsns)))
    with pytest.raises(InvalidObject, match=reason):
        decode_checkpoint_set(body, MAIN)


def test_parts_that_do_not_belong_together_are_damage() -> None:
    body, longer = encode_checkpoint_set(long(50)), encode_checkpoint_set(long(51))
    head, short = body[:NEWEST_BYTES], encode_checkpoint_set(long(5))
    rests = (b"", longer[NEWEST_BYTES:], wrap(MessageType.OLDER_CHECKPOINTS, b"x"))
    for damaged in (*(head + rest for rest in rests), short + body[NEWEST_BYTES:], short + b"x"):
        with pytest.raises(InvalidObject, match=checkpoints_key(MAIN)):
            decode_checkpoint_set(damaged, MAIN)
    with pytest.raises(InvalidObject, match="another volume"):
        decode_newest_checkpoints(head, FORK)
    for data in (bytes(1007), MAIN.raw + struct.pack("<Q", 1) + bytes(976) + b"\x01" + bytes(7)):
        with pytest.raises(InvalidObject, match=r"first part|LSNs|zeros"):
            decode_newest_checkpoints(wrap(MessageType.CHECKPOINT_SET, data), MAIN)


def test_a_beginning_is_not_written_as_a_whole() -> None:
    with pytest.raises(ValueError, match="3 marks are missing"):
        encode_checkpoint_set(replace(long(2), older=3))


class Out(WrappedStore):
    is_out = False

    def _call(self, method: str, key: str, act: Callable[[], _T]) -> _T:
        if self.is_out:
            raise unreachable(key)
        return act()


class Weighing(WrappedStore):
    """A store that counts the bytes read of the list."""

    read_bytes = 0

    def _call(self, method: str, key: str, act: Callable[[], _T]) -> _T:
        answer = act()
        if key == checkpoints_key(MAIN) and isinstance(answer, bytes):
            self.read_bytes += len(answer)
        return answer


def pushed(commits: int) -> MemoryStore:
    """Return a store with a volume of which each commit is a checkpoint."""
    store, history = MemoryStore(), HistoryMaker(MAIN)
    for number in range(commits):
        history.offload((number * 10 + 1, number * 10 + 10))
    volumes = Volumes(store)
    volumes.create(Control(MAIN, None, START_MS, "orders", "main"))
    for stored in history.stored:
        volumes.publish(MAIN, stored.commit.lsn, encode_commit(stored.commit)[0])
        make_checkpoint(volumes, MAIN, stored.commit.lsn, now_ms=START_MS)
    return store


@pytest.mark.parametrize("commits", [2, 60])
def test_opening_reads_as_much_of_a_long_list_as_of_a_short_one(commits: int) -> None:
    weighing = Weighing(pushed(commits))
    assert Volumes(weighing).snapshot(MAIN).lsn == commits
    assert Volumes(weighing).last_checkpoint(MAIN) == commits
    assert weighing.read_bytes == 2 * NEWEST_BYTES


def test_a_state_before_the_newest_marks_costs_one_request_more() -> None:
    counting = CountingStore(pushed(60))
    assert Volumes(counting).snapshot(MAIN, 60 - 39).bounds.head_seq == 210
    assert counting.counts == {"get_range": 1, "get": 1}
    counting.counts.clear()
    assert Volumes(counting).snapshot(MAIN, 60 - 40).bounds.head_seq == 200
    assert counting.counts == {"get_range": 1, "get": 2}


def test_what_is_kept_here_of_the_list_is_asked_for_no_more(tmp_path: Path) -> None:
    store = pushed(60)
    with LocalCatalog(tmp_path / "catalog.db") as cache:
        Volumes(store, cache).snapshot(MAIN)
        assert len(cache.object(checkpoints_key(MAIN)) or b"") == NEWEST_BYTES
        Volumes(store, cache).history(MAIN, 60)
        whole = store.get(checkpoints_key(MAIN))
        assert cache.object(checkpoints_key(MAIN)) == whole
        Volumes(store, cache).snapshot(MAIN, 3)
        Volumes(store, cache).newest_checkpoints(MAIN)  # the whole list is cached already
        assert cache.object(checkpoints_key(MAIN)) == whole
        counting = CountingStore(store)
        assert Volumes(counting, cache).snapshot(MAIN, 3).lsn == 3
        assert counting.counts == {}


def test_a_history_is_shown_without_the_store_only_if_the_whole_list_is_here(tmp_path: Path) -> None:
    store = pushed(60)
    out = Out(store)
    with LocalCatalog(tmp_path / "catalog.db") as cache:
        volumes = Volumes(out, cache)
        volumes.boundary(MAIN)
        volumes.snapshot(MAIN)
        out.is_out = True
        with pytest.raises(StoreUnreachable):
            volumes.history(MAIN, 60)
        out.is_out = False
        whole = volumes.history(MAIN, 60).spans
        out.is_out = True
        assert volumes.history(MAIN, 60).spans == whole


def test_the_two_parts_are_in_one_order() -> None:
    for lsns in ([1, 2, 3, 5, *range(5, 45)], [1, 2, 3, 6, *range(5, 45)]):
        body = encode_checkpoint_set(CheckpointSet(vid(1), tuple(Mark(lsn, START_MS, lsn) for lsn in lsns)))
        assert len(decode_newest_checkpoints(body[:NEWEST_BYTES], vid(1)).marks) == 40
        with pytest.raises(InvalidObject, match="do not ascend"):
            decode_checkpoint_set(body, vid(1))


def test_bytes_behind_the_marks_that_are_counted_are_damage() -> None:
    data = unwrap(MessageType.CHECKPOINT_SET, encode_checkpoint_set(long(2)), "here")
    fewer = data[:16] + struct.pack("<Q", 1) + data[24:]
    with pytest.raises(InvalidObject, match="followed by other bytes than zeros"):
        decode_newest_checkpoints(wrap(MessageType.CHECKPOINT_SET, fewer), vid(1))
