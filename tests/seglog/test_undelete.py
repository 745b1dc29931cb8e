"""Records that deletes took are there again: an undelete, over crashes, listed deletes, truncations and old files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog import DiskFull, Gap, Log, LogSettings, Record, SeqOutOfRange, SeqSet, Topic, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.format.frame import HEADER, FrameType
from seglog.tiers.segment_store import LocalSegmentStore
from seglog.values.layout import Layout
from tests.faults.disk import SimulatedDisk
from tests.golden.directories import SETTINGS, golden, on_disk
from tests.golden.make_seglog import UNDELETED, make_undeleted
from tests.seams.log import after_each_front_search, after_each_unflagging, checkpoints_fail, engine_of
from tests.seglog.totals import check_totals
from tests.worlds.clock import HandClock

_SMALL = LogSettings(segment_max_events=4)
KEPT = TopicConfig(keep_history=True)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log with ten records in `t`, of which eight are sealed. Even ones have the tag `even`."""
    with seglog.open(tmp_path / "data", settings=_SMALL, upkeep=InCaller) as log:
        topic = log.create_topic("t", KEPT)
        for seq in range(1, 11):
            topic.append([b"%d" % seq], tag=None if seq % 2 else "even")
        topic.seal()
        yield log


def _seqs(topic: Topic) -> list[int]:
    return [item.seq for item in topic.read(gaps=True) if isinstance(item, Record)]


def _settle(topic: Topic) -> None:
    for op in topic.inner.delete_ops():
        topic.inner.settle_deletes(op.op)


def test_readers_find_the_records_at_once_and_after_a_restart(log: Log, tmp_path: Path) -> None:
    topic = log.topic("t")
    topic.delete(before=4)
    topic.delete(tag="even")
    _settle(topic)
    topic.append([b"11"])
    reader = topic.read()
    assert next(reader).value == b"5"
    topic.inner.undelete(SeqSet.of_seqs([1, 2, 8]))
    assert [record.value for record in reader] == [b"7", b"8", b"9", b"11"]
    assert (_seqs(topic), topic.earliest_seq) == ([1, 2, 5, 7, 8, 9, 11], 1)
    check_totals(log)
    log.close()
    with seglog.open(tmp_path / "data", settings=_SMALL) as again:
        assert _seqs(again.topic("t")) == [1, 2, 5, 7, 8, 9, 11]


def test_a_record_that_two_deletes_took_stays_deleted_until_both_are_undone(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(before=4)
    topic.delete(tag="even")
    first, second = topic.inner.delete_ops()
    topic.inner.settle_deletes(first.op)
    topic.inner.undelete(SeqSet.of([(1, 3)]))
    assert _seqs(topic) == [1, 3, 5, 7, 9]
    log.checkpoint()
    assert _seqs(topic) == [1, 3, 5, 7, 9]
    topic.inner.settle_deletes(second.op)
    topic.inner.undelete(SeqSet.of_seqs([2, 4]))
    assert _seqs(topic) == [1, 2, 3, 4, 5, 7, 9]


def test_a_listed_delete_of_a_front_holds_the_front(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(seqs=[1, 5])
    _settle(topic)
    topic.delete(before=3)
    topic.inner.undelete(SeqSet.of_seqs([1, 5]))
    assert (_seqs(topic), topic.earliest_seq) == ([3, 4, 5, 6, 7, 8, 9, 10], 3)


def test_a_listed_delete_holds_the_front_in_the_cold_tier_too(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(seqs=[1, 5])
    _settle(topic)
    topic.inner.release(4)
    topic.delete(before=3)
    topic.inner.undelete(SeqSet.of_seqs([1, 5]))
    assert (topic.earliest_seq, topic.inner.hot_floor) == (3, 5)


def test_evicted_records_are_no_gap_any_more(log: Log) -> None:
    topic = log.topic("t")
    topic.evict(3)
    _settle(topic)
    topic.evict(6)
    _settle(topic)
    assert next(iter(topic.read(1, gaps=True))) == Gap(1, 5)
    topic.inner.undelete(SeqSet.of([(3, 5)]), evict_floor=3)
    assert next(iter(topic.read(1, gaps=True))) == Gap(1, 2)
    topic.inner.undelete(SeqSet.of([(1, 2)]), evict_floor=1)
    assert _seqs(topic) == [*range(1, 11)]
    assert (topic.earliest_seq, topic.inner.evict_floor) == (1, 1)


def test_a_listed_eviction_keeps_its_gap(log: Log) -> None:
    topic = log.topic("t")
    topic.evict(3)
    topic.evict(6)
    topic.inner.settle_deletes(topic.inner.delete_ops()[1].op)
    topic.inner.undelete(SeqSet.of([(1, 5)]), evict_floor=1)
    assert next(iter(topic.read(1, gaps=True))) == Gap(1, 2)
    assert _seqs(topic) == [*range(3, 11)]


def test_a_seq_above_the_sealed_ones_is_refused(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"11"])
    with pytest.raises(SeqOutOfRange):
        topic.inner.undelete(SeqSet.of([(10, 11)]))
    assert _seqs(topic) == [*range(1, 12)]


def test_a_truncation_after_an_undelete_whose_flags_are_still_there(log: Log, tmp_path: Path) -> None:
    """The manifest of a truncation hides the frames before it from recovery. So the flags go first."""
    topic = log.topic("t")
    topic.delete(before=9)
    _settle(topic)
    with checkpoints_fail():
        topic.inner.undelete(SeqSet.of([(2, 3)]))
        assert _seqs(topic) == [2, 3, 9, 10]
        with pytest.raises(DiskFull):
            topic.truncate(4)
        shutil.copytree(tmp_path / "data", tmp_path / "left", ignore=shutil.ignore_patterns("LOCK"))
    topic.truncate(4)
    topic.append([b"new"])
    assert _seqs(topic) == [2, 3, 4]
    log.close()
    for name, seqs in (("data", [2, 3, 4]), ("left", [2, 3, 9, 10])):
        with seglog.open(tmp_path / name, settings=_SMALL) as again:
            assert _seqs(again.topic("t")) == seqs
            check_totals(again)


def test_the_log_says_if_a_reclaim_took_the_bytes(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=_SMALL, upkeep=InCaller) as log:
        topic = log.topic("t")
        topic.append([b"%d" % seq for seq in range(8)])
        topic.seal()
        topic.delete(seqs=[2, 3, 4])
        log.reclaim()
        log.configure("t", replace(topic.config, keep_history=True))
        assert topic.inner.has_bytes(SeqSet.of_seqs([1, 5, 8]))
        assert not topic.inner.has_bytes(SeqSet.of_seqs([1, 3]))
        topic.inner.undelete(SeqSet.of_seqs([3, 5]))
        assert _seqs(topic) == [1, 5, 6, 7, 8]
        check_totals(log)


def test_a_relocated_segment_is_hot_again(tmp_path: Path) -> None:
    disk, settings = SimulatedDisk(), replace(_SMALL, hot_retain_segments=0)

    def opened() -> Log:
        return seglog.open(
            "/log", files=disk, settings=settings, upkeep=InCaller, clock=HandClock(1_000),
            warm_stores=lambda topic_id: LocalSegmentStore(disk, Layout(Path("/cold")), topic_id),
        )  # fmt: skip

    disk.make_dir(Path("/cold"))
    with opened() as log:
        topic = log.create_topic("t", KEPT)
        topic.append([b"%d" % seq for seq in range(8)], tag="x")
        topic.seal()
        assert not any(info.is_hot for info in topic.inner.segments())
        topic.delete(tag="x")
        _settle(topic)
        topic.inner.undelete(SeqSet.of_seqs([2, 3]))
        assert _seqs(topic) == [2, 3]
        assert not any(info.is_hot for info in topic.inner.segments())
    with opened() as log:
        assert _seqs(log.topic("t")) == [2, 3]


def test_a_view_shows_what_is_there_again_before_the_flags_are_gone(log: Log, tmp_path: Path) -> None:
    topic = log.topic("t")
    topic.delete(before=9)
    _settle(topic)
    with checkpoints_fail():
        topic.inner.undelete(SeqSet.of([(2, 3)]))
    with seglog.open(tmp_path / "data", settings=_SMALL, read_only=True) as view:
        assert _seqs(view.topic("t")) == [2, 3, 9, 10]
    assert engine_of(log).state("t").undeleted == SeqSet.of([(2, 3)])
    log.checkpoint()
    assert engine_of(log).state("t").undeleted is None
    assert _seqs(topic) == [2, 3, 9, 10]


def test_the_golden_directory_is_written_and_read() -> None:
    assert make_undeleted() == golden(UNDELETED)
    clock = HandClock(1_720_000_000_100)
    with seglog.open("/log", files=on_disk(golden(UNDELETED)), settings=SETTINGS, clock=clock) as log:
        assert _seqs(log.topic("orders")) == [1, 3, 4, 5, 6, 7, 8]
        assert log.topic("orders").inner.evict_floor == 1


def test_older_software_finds_a_frame_that_it_does_not_know() -> None:
    wal = b"".join(body for name, body in sorted(golden(UNDELETED).items()) if name.startswith("wal/"))
    body = wal.index(b'{"evict_floor":1,"op":3,"seqs":[1,3]}')
    assert wal[body - HEADER.size + 4] == FrameType.UNDELETE == 18


def test_a_delete_whose_search_for_the_front_is_under_way_hides_nothing_that_comes_back(
    log: Log, tmp_path: Path
) -> None:
    topic = log.topic("t")
    topic.delete(seqs=[1, 2, 3, 4])
    _settle(topic)
    back = iter([SeqSet.of([(1, 4)])])
    with after_each_front_search(lambda: [topic.inner.undelete(seqs) for seqs in back]):
        topic.delete(seqs=[5])
    there = (1, [1, 2, 3, 4, 6, 7, 8, 9, 10])
    assert (topic.earliest_seq, _seqs(topic)) == there
    log.close()
    with seglog.open(tmp_path / "data", settings=_SMALL) as again:
        assert (again.topic("t").earliest_seq, _seqs(again.topic("t"))) == there


def test_a_view_never_sees_a_record_that_a_listed_delete_took_too(log: Log, tmp_path: Path) -> None:
    topic = log.topic("t")
    topic.delete(seqs=[6, 7])
    topic.delete(tag="even")
    topic.inner.settle_deletes(topic.inner.delete_ops()[0].op)
    log.checkpoint()
    with seglog.open(tmp_path / "data", read_only=True) as view:
        assert _seqs(view.topic("t")) == [1, 3, 5, 9]
        meanwhile = list[list[int]]()
        with after_each_unflagging(lambda: meanwhile.append(_seqs(view.topic("t")))):
            topic.inner.undelete(SeqSet.of_seqs([6, 7]))
        assert meanwhile == [[1, 3, 5, 7, 9]]
        assert _seqs(topic) == [1, 3, 5, 7, 9]
