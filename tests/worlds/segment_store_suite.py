"""The promises of every segment store (SEGSTORE-1 to SEGSTORE-4): tests that ask the fixture `store`."""

from __future__ import annotations

import threading

import pytest

from seglog.errors import NoSuchSegment, SegmentCut
from seglog.tiers.segment_store import Part, SegmentId, SegmentStore

__all__ = [
    "ONE",
    "TEN",
    "TWO",
    "test_a_delete_takes_the_whole_segment_and_may_be_repeated",
    "test_a_large_segment_is_whole",
    "test_a_range_past_the_end_is_told_and_never_cut_short",
    "test_a_segment_may_be_put_again_with_other_flags",
    "test_an_empty_store_has_nothing",
    "test_both_parts_come_back_in_ranges",
    "test_segments_are_listed_oldest_first",
    "test_threads_share_a_store",
    "test_what_is_not_there_is_no_such_segment",
    "test_what_was_put_is_not_the_callers_any_more",
]

ONE, TWO, TEN = SegmentId(1), SegmentId(2), SegmentId(10)


def test_both_parts_come_back_in_ranges(store: SegmentStore) -> None:
    store.put(TEN, bytes(range(256)), b"index")
    assert store.length(TEN, Part.DATA) == 256
    assert store.length(TEN, Part.IDX) == 5
    assert store.read_range(TEN, Part.DATA, 0, 256) == bytes(range(256))
    assert store.read_range(TEN, Part.DATA, 250, 6) == bytes(range(250, 256))
    assert store.read_range(TEN, Part.IDX, 1, 3) == b"nde"
    for offset in (0, 5):
        assert store.read_range(TEN, Part.IDX, offset, 0) == b""


def test_a_large_segment_is_whole(store: SegmentStore) -> None:
    data = bytes(range(256)) * 20_000
    store.put(ONE, data, b"")
    assert store.read_range(ONE, Part.DATA, 0, len(data)) == data
    assert store.length(ONE, Part.IDX) == 0


@pytest.mark.parametrize(("offset", "length"), [(0, 6), (5, 1), (9, 1), (4, 2)])
def test_a_range_past_the_end_is_told_and_never_cut_short(store: SegmentStore, offset: int, length: int) -> None:
    store.put(ONE, b"12345", b"12345")
    for part in Part:
        with pytest.raises(SegmentCut) as caught:
            store.read_range(ONE, part, offset, length)
        assert (caught.value.segment, caught.value.part) == (ONE, part.value)


def test_what_is_not_there_is_no_such_segment(store: SegmentStore) -> None:
    store.put(ONE, b"data", b"idx")
    for part in Part:
        assert store.exists(ONE, part)
        assert not store.exists(TWO, part)
        with pytest.raises(NoSuchSegment):
            store.read_range(TWO, part, 0, 0)
        with pytest.raises(NoSuchSegment):
            store.length(TWO, part)


def test_an_empty_store_has_nothing(store: SegmentStore) -> None:
    assert store.list() == []
    store.delete(ONE)
    assert not store.exists(ONE, Part.DATA)


def test_segments_are_listed_oldest_first(store: SegmentStore) -> None:
    for segment in (TEN, ONE, SegmentId(10**15), TWO):
        store.put(segment, b"data", b"idx")
    assert store.list() == [1, 2, 10, 10**15]


def test_a_delete_takes_the_whole_segment_and_may_be_repeated(store: SegmentStore) -> None:
    for segment in (ONE, TWO):
        store.put(segment, b"data", b"idx")
    for _ in range(2):
        store.delete(ONE)
        assert store.list() == [TWO]
        assert not any(store.exists(ONE, part) for part in Part)
    store.put(ONE, b"again", b"idx")
    assert store.read_range(ONE, Part.DATA, 0, 5) == b"again"


def test_a_segment_may_be_put_again_with_other_flags(store: SegmentStore) -> None:
    store.put(ONE, b"data", b"idx")
    store.put(ONE, b"data", b"IDX")
    assert store.read_range(ONE, Part.IDX, 0, 3) == b"IDX"
    assert store.list() == [ONE]


def test_what_was_put_is_not_the_callers_any_more(store: SegmentStore) -> None:
    body = bytearray(b"data")
    store.put(ONE, body, body)  # type: ignore[arg-type]
    body[:] = b"XXXX"
    assert store.read_range(ONE, Part.DATA, 0, 4) == b"data"


def test_threads_share_a_store(store: SegmentStore) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for round_number in range(10):
                segment = SegmentId(number * 1000 + round_number)
                store.put(segment, b"%d" % segment * 50, b"idx")
                assert segment in store.list()
                assert store.read_range(segment, Part.DATA, 0, 4) == (b"%d" % segment * 50)[:4]
                if round_number % 2:
                    store.delete(segment)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(store.list()) == 20
