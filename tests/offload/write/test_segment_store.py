"""Test segments on object storage: the conformance suite of every segment store, and a log that uses one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from catalog.errors import InvalidName, StoreUnreachable
from catalog.format.keys import Key
from catalog.objects.local import LocalStore
from catalog.objects.memory import MemoryStore
from catalog.objects.object_store import ObjectStore
from catalog.objects.s3 import S3Store
from offload.write.warm_object_store import ObjectSegmentStore, warm_stores
from seglog import FileCorrupt, LogSettings, WarmStoreFailed
from seglog.engine.work_thread import InCaller
from seglog.tiers.segment_store import Part, SegmentId, SegmentStore
from tests.worlds.segment_store_suite import (
    test_a_delete_takes_the_whole_segment_and_may_be_repeated,
    test_a_large_segment_is_whole,
    test_a_range_past_the_end_is_told_and_never_cut_short,
    test_a_segment_may_be_put_again_with_other_flags,
    test_an_empty_store_has_nothing,
    test_both_parts_come_back_in_ranges,
    test_segments_are_listed_oldest_first,
    test_threads_share_a_store,
    test_what_is_not_there_is_no_such_segment,
    test_what_was_put_is_not_the_callers_any_more,
)

__all__ = [
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

ONE, TWO = SegmentId(1), SegmentId(2)
SETTINGS = LogSettings(segment_max_events=10, hot_retain_segments=1)


@pytest.fixture(params=["file", "memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    opened: ObjectStore
    if request.param == "file":
        opened = LocalStore(tmp_path / "remote")
    elif request.param == "memory":
        opened = MemoryStore()
    else:
        opened = S3Store(request.getfixturevalue("s3_remote"))
    yield opened
    opened.close()


@pytest.fixture
def store(objects: ObjectStore) -> SegmentStore:
    return ObjectSegmentStore(objects, "log-1", 0xA)


def test_stores_of_topics_and_places_keep_apart(objects: ObjectStore) -> None:
    stores = [ObjectSegmentStore(objects, place, topic) for place in ("a", "b") for topic in (1, 2)]
    for number, each in enumerate(stores):
        each.put(ONE, b"data %d" % number, b"idx")
    stores[0].delete(ONE)
    assert [each.list() for each in stores] == [[], [ONE], [ONE], [ONE]]
    assert stores[3].read_range(ONE, Part.DATA, 0, 6) == b"data 3"
    assert list(objects.list("")) == [
        f"cold/{place}/{topic:08X}/{1:016d}.{part}"
        for place, topic in (("a", 2), ("b", 1), ("b", 2))
        for part in ("data", "idx")
    ]
    with pytest.raises(InvalidName):
        warm_stores(objects, "../elsewhere")


def test_half_a_segment_is_not_listed_and_may_be_deleted(objects: ObjectStore) -> None:
    store = ObjectSegmentStore(objects, "log-1", 1)
    for segment in (ONE, TWO):
        store.put(segment, b"data", b"idx")
    objects.delete(Key(f"cold/log-1/00000001/{1:016d}.idx"))
    objects.put(Key("cold/log-1/00000001/other"), b"not ours", {})
    assert store.list() == [TWO]
    store.delete(ONE)
    assert not store.exists(ONE, Part.DATA)


def test_a_put_that_breaks_off_leaves_no_segment_or_the_one_before() -> None:
    class Breaking(MemoryStore):
        puts = 0

        def put(self, *args: Any) -> None:
            self.puts += 1
            if self.puts % 2 == 0:
                raise StoreUnreachable("memory://", "it broke off")
            super().put(*args)

    store = ObjectSegmentStore(Breaking(), "log-1", 1)
    with pytest.raises(StoreUnreachable):
        store.put(ONE, b"data", b"idx")
    assert store.list() == []


def test_a_log_goes_on_over_segments_in_a_bucket(tmp_path: Path, objects: ObjectStore) -> None:
    stores = warm_stores(objects, "log-1")
    for life in range(2):
        with seglog.open(tmp_path / "data", settings=SETTINGS, warm_stores=stores, upkeep=InCaller) as log:
            topic = log.topic("t")
            for number in range(25):
                topic.append([b"%d" % (25 * life + number + 1)], tag="ab"[number % 2])
            topic.seal()
            assert [record.value for record in topic.read()] == [b"%d" % seq for seq in range(1, 25 * life + 26)]
    assert stores(1).list() == [1, 11, 21, 26, 36]
    with seglog.open(tmp_path / "data", settings=SETTINGS, warm_stores=stores, upkeep=InCaller) as log:
        topic = log.topic("t")
        topic.delete(tag="a")
        topic.delete(before=12)
        log.checkpoint()
        assert [record.seq for record in topic.read()] == [*range(12, 26, 2), *range(27, 51, 2)]
        assert stores(1).list() == [11, 21, 26, 36]
        topic.truncate(24)
        assert topic.append([b"new"]) == range(24, 25)
        assert [record.seq for record in topic.read()] == [*range(12, 24, 2), 24]
        objects.delete(Key(f"cold/log-1/00000001/{11:016d}.data"))
        with pytest.raises(FileCorrupt, match="missing in the warm store"):
            list(topic.read())


def test_a_bucket_out_of_reach_is_told_to_who_reads_there(tmp_path: Path, objects: ObjectStore) -> None:
    class Unreachable(MemoryStore):
        def get_range(self, key: Key, start: int, length: int) -> bytes:
            raise StoreUnreachable("s3://bucket", "no route")

    def opened(store: ObjectStore) -> seglog.Log:
        return seglog.open(
            tmp_path / "data", settings=SETTINGS, warm_stores=warm_stores(store, "log-1"), upkeep=InCaller
        )

    with opened(objects) as log:
        log.topic("t").append([b"%d" % number for number in range(35)])
        log.topic("t").seal()
    with opened(Unreachable()) as log:
        topic = log.topic("t")
        with pytest.raises(WarmStoreFailed, match="no route"):
            list(topic.read(1))
        assert topic.append([b"goes on"]) == range(36, 37)
        assert [record.seq for record in topic.read(31)] == list(range(31, 37))


def test_two_logs_do_not_share_a_place(tmp_path: Path, objects: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    def opened(name: str) -> seglog.Log:
        stores = warm_stores(objects, "log-1")
        return seglog.open(tmp_path / name, settings=SETTINGS, warm_stores=stores, upkeep=InCaller)

    for life in range(2):
        with opened("one") as log:
            log.topic("t").append([b"one"] * 35)
            log.topic("t").seal()
            assert not all(info.is_hot for info in log.topic("t").inner.segments())
        before = [(key, objects.get(Key(key))) for key in objects.list("")]
        with opened("two") as log:
            log.topic("t").append([b"two"] * 35)
            log.topic("t").seal()
            assert all(info.is_hot for info in log.topic("t").inner.segments())
            assert {record.value for record in log.topic("t").read()} == {b"two"}
        assert [(key, objects.get(Key(key))) for key in objects.list("")] == before
        assert "cold/log-1 is the warm directory of" in caplog.text
        if life == 0:
            objects.delete(Key("cold/log-1/owner"))  # an earlier version left a warm directory without an owner
            with opened("two") as log:
                log.checkpoint()
                assert all(info.is_hot for info in log.topic("t").inner.segments())
    with opened("one") as log:
        assert {record.value for record in log.topic("t").read()} == {b"one"}
