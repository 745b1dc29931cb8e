"""Floors, gaps, ttl, caps and the age of segments, through the public API."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog import Evicted, Gap, Log, LogSettings, Record, Retention, TopicConfig, TopicFull
from seglog.engine.work_thread import InCaller
from seglog.maintenance.checkpoint_plan import Retained, due_seq, is_aged, passed_cap
from seglog.segments.segment import SegmentInfo
from tests.faults.disk import Moment, SimulatedDisk
from tests.seams.log import engine_of
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=10)
SEALED = [SegmentInfo(first, first + 9, 100, first * 10, first * 10 + 90, True) for first in (1, 11, 21)]
ALL = Retained(1, 35, 350)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000)


@pytest.fixture
def log(tmp_path: Path, clock: HandClock) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=clock) as log:
        yield log


def _again(log: Log, clock: HandClock) -> Log:
    log.close()
    return seglog.open(log.path, settings=SETTINGS, clock=clock)


def _shown(found: Iterator[Record | Gap]) -> list[int | tuple[int, int]]:
    return [item.seq if isinstance(item, Record) else (item.gap_from, item.gap_to) for item in found]


@pytest.mark.parametrize(
    ("config", "due"),
    [
        (TopicConfig(), 0),
        (TopicConfig(cap_records=35), 0),
        (TopicConfig(cap_records=26), 0),
        (TopicConfig(cap_records=25), 10),
        (TopicConfig(cap_records=1), 30),
        (TopicConfig(cap_bytes=251), 0),
        (TopicConfig(cap_bytes=250), 10),
        (TopicConfig(cap_bytes=1), 30),
        (TopicConfig(cap_records=1, discard="reject"), 0),
        (TopicConfig(ttl_ms=900), 0),
        (TopicConfig(ttl_ms=899), 10),
        (TopicConfig(ttl_ms=1, discard="reject"), 30),
        (TopicConfig(ttl_ms=799, cap_records=24), 20),
    ],
)  # fmt: skip
def test_whole_segments_are_due_from_the_front(config: TopicConfig, due: int) -> None:
    assert due_seq(config, SEALED, ALL, 1000) == due


def test_dead_records_do_not_count() -> None:
    assert due_seq(TopicConfig(cap_records=20), SEALED, Retained(16, 35, 250), 1000) == 0
    assert due_seq(TopicConfig(cap_records=15), SEALED, Retained(16, 35, 250), 1000) == 20


def test_a_cap_is_passed_above_it() -> None:
    assert passed_cap(TopicConfig(cap_records=35, cap_bytes=350), ALL) is None
    assert passed_cap(TopicConfig(cap_records=34), ALL) == ("cap_records", 34)
    assert passed_cap(TopicConfig(cap_bytes=349), ALL) == ("cap_bytes", 349)


def test_age_counts_from_the_oldest_record() -> None:
    assert not is_aged(None, 10, 100)
    assert not is_aged(1, 0, 100)
    assert not is_aged(90, 10, 100)
    assert is_aged(89, 10, 100)


def test_what_retention_took_is_told_in_band_or_raised(log: Log, clock: HandClock) -> None:
    log.create_topic("t", TopicConfig(ttl_ms=500))
    topic = log.topic("t")
    topic.append([b"old"] * 25)
    clock.ms += 500
    topic.append([b"new"] * 5)
    topic.seal()
    early, lazy = topic.read(5), topic.read(5, gaps=True)
    clock.ms += 1
    assert next(early) == next(lazy) == Record(5, 1000, b"old")
    assert topic.enforce_retention() == Retention("t", evicted_seq=20)
    for _ in range(2):
        assert _shown(topic.read(gaps=True)) == list(range(26, 31))
        assert (topic.earliest_seq, topic.inner.evict_floor, topic.inner.hot_floor, topic.head_seq) == (26, 26, 21, 30)
        assert _shown(topic.read(1, gaps=True)) == [(1, 25), *range(26, 31)]
        assert _shown(topic.read(5, 7, gaps=True)) == [(5, 7)]
        assert _shown(topic.read(26, 27, gaps=True)) == [26, 27]
        with pytest.raises(Evicted) as caught:
            next(topic.read(20))
        assert (caught.value.gap_from, caught.value.gap_to, caught.value.exit_code) == (20, 25, 3)
        log = _again(log, clock)
        topic = log.topic("t")
    log.close()


def test_no_reader_is_told_of_an_eviction_before_it_is_durable() -> None:
    """Otherwise a power cut could bring back records after a reader got a `Gap` for them."""
    told: list[tuple[int, Moment]] = []
    disk = SimulatedDisk()
    clock, settings = HandClock(1_000), replace(SETTINGS, wal_file_bytes=4096)
    log = seglog.open("/log", settings=settings, files=disk, clock=clock, upkeep=InCaller)
    topic = log.create_topic("t", TopicConfig(cap_records=10))
    log.configure("t", TopicConfig())
    topic.append([b"x"] * 30)
    topic.seal()
    log.configure("t", TopicConfig(cap_records=10))
    disk.note = lambda disk: told.append((engine_of(log).topics["t"].floors.earliest_seq, disk.moment()))
    topic.enforce_retention()
    disk.note = None
    assert {seq for seq, _ in told} == {1, 21}
    cut = next(moment for seq, moment in told if seq == 21).image(())
    with seglog.open("/log", settings=settings, files=SimulatedDisk(cut), clock=clock) as log:
        assert _shown(log.topic("t").read(1, gaps=True)) == [(1, 20), *range(21, 31)]


def test_a_reader_on_its_way_is_told_when_it_is_overtaken(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(cap_records=10))
    log.configure("t", TopicConfig())
    topic.append([b"x"] * 30)
    topic.seal()
    early, lazy = topic.read(5), topic.read(5, gaps=True)
    assert [next(early), next(lazy)] == [Record(5, 1000, b"x")] * 2
    log.configure("t", TopicConfig(cap_records=10))
    topic.enforce_retention()
    assert _shown(lazy) == [(6, 20), *range(21, 31)]
    with pytest.raises(Evicted, match="6 to 20"):
        next(early)


def test_deletes_are_no_loss(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(cap_records=10))
    log.configure("t", TopicConfig())
    topic.append([b"x"] * 13, tag="a")
    topic.append([b"x"] * 27)
    topic.delete(before=6)
    assert (topic.earliest_seq, topic.inner.evict_floor) == (6, 1)
    topic.delete(tag="a")
    assert (topic.earliest_seq, topic.inner.evict_floor) == (14, 1)
    log.checkpoint()
    log.checkpoint()
    assert topic.inner.hot_floor == 11
    assert _shown(topic.read(1)) == list(range(14, 41))
    log.configure("t", TopicConfig(cap_records=10))
    assert topic.enforce_retention().evicted_seq == 30
    assert _shown(topic.read(1, gaps=True)) == [(14, 30), *range(31, 41)]
    assert _shown(topic.read(1, 13)) == []
    assert topic.inner.delete_ops() == ()


def test_segments_without_a_live_record_go_with_the_next_checkpoint(log: Log, clock: HandClock) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 25)
    log.checkpoint()
    topic.delete(before=100)
    log.checkpoint()
    assert [segment.first_seq for segment in topic.inner.segments()] == [21]
    assert (topic.inner.hot_floor, topic.earliest_seq, topic.inner.evict_floor) == (21, 26, 1)
    log = _again(log, clock)
    topic = log.topic("t")
    assert _shown(topic.read(1)) == []
    assert topic.append([b"y"]) == range(26, 27)
    assert _shown(topic.read()) == [26]
    log.close()


def test_the_front_after_a_delete_by_tag_is_found_again_by_recovery(log: Log, clock: HandClock, tmp_path: Path) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 5, tag="a")
    topic.append([b"x"] * 5)
    topic.delete(tag="a")
    assert topic.earliest_seq == 6
    shutil.copytree(log.path, tmp_path / "copy")
    with seglog.open(tmp_path / "copy") as other:
        assert other.topic("t").earliest_seq == 6


def test_appends_keep_to_the_cap(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(cap_records=20))
    for number in range(100):
        topic.append([b"%d" % number])
        assert topic.inner.record_count_hot <= 20 + 10 + 10
    assert topic.inner.evict_floor > 50
    assert topic.earliest_seq == topic.inner.evict_floor == topic.inner.hot_floor
    assert _shown(topic.read()) == list(range(topic.inner.hot_floor, 101))


def test_a_cap_of_bytes_counts_frames(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(cap_bytes=47 * 20))
    topic.append([b"x"] * 95)
    assert topic.enforce_retention() == Retention("t")  # The append has evicted already.
    assert topic.inner.hot_floor == 71
    assert 20 * 47 <= topic.inner.bytes_hot <= 30 * 47


def test_a_full_topic_refuses_before_a_seq_is_taken(log: Log, clock: HandClock) -> None:
    topic = log.create_topic("t", TopicConfig(cap_records=10, discard="reject"))
    assert topic.append([b"x"] * 8) == range(1, 9)
    for _ in range(2):
        with pytest.raises(TopicFull, match="cap_records is 10"):
            topic.append([b"x"] * 3)
        assert (topic.head_seq, topic.earliest_seq) == (8, 1)
        log = _again(log, clock)
        topic = log.topic("t")
    assert topic.append([b"x"] * 2) == range(9, 11)
    topic.delete(before=4)
    assert topic.append([b"x"] * 3) == range(11, 14)
    log.configure("t", TopicConfig(cap_bytes=47 * 12, discard="reject"))
    with pytest.raises(TopicFull, match="cap_bytes"):
        topic.append([b"x"] * 3)
    log.configure("t", TopicConfig())
    topic.append([b"x"] * 3)
    log.close()


def test_many_appenders_do_not_pass_a_cap_together(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(cap_records=50, discard="reject"))
    refused = []

    def work() -> None:
        for _ in range(20):
            try:
                topic.append([b"x"])
            except TopicFull as error:
                refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (topic.head_seq, len(refused)) == (50, 50)


def test_what_has_a_history_waits_for_the_archive(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    topic = log.create_topic("t", TopicConfig(keep_history=True, cap_records=10))
    topic.append([b"x"] * 30)
    assert topic.enforce_retention() == Retention("t", waiting_seq=20)
    assert topic.inner.due_seq == 20
    assert "wait for the archive" in caplog.text
    assert (topic.inner.hot_floor, topic.inner.evict_floor) == (1, 1)
    topic.inner.release(20)
    assert topic.enforce_retention() == Retention("t")
    assert (topic.inner.hot_floor, topic.inner.evict_floor, topic.earliest_seq, topic.inner.due_seq) == (21, 1, 1, 0)


def test_what_the_cold_tier_has_counts_as_lost_once_the_disk_begins_above_a_gap(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(keep_history=True))
    topic.append([b"x"] * 40)
    topic.seal()
    topic.inner.release(10)
    log.configure("t", replace(topic.config, keep_history=False, cap_records=10))
    assert topic.enforce_retention().evicted_seq == 30
    assert _shown(topic.read(1, gaps=True)) == [(1, 30), *range(31, 41)]


def test_what_is_old_enough_is_sealed(tmp_path: Path, clock: HandClock) -> None:
    settings = replace(SETTINGS, segment_max_age_ms=100)
    with seglog.open(tmp_path / "data", settings=settings, clock=clock) as log:
        log.topic("a").append([b"x"])
        clock.ms += 60
        log.topic("b").append([b"x"])
        clock.ms += 60
        log.enforce_retention()
        assert (log.topic("a").inner.sealed_seq, log.topic("b").inner.sealed_seq) == (1, 0)
        log.checkpoint()
        log.topic("b").append([b"y"])
        clock.ms += 60
        log.enforce_retention()
        assert log.topic("b").inner.sealed_seq == 2


def test_ttl_reaches_an_idle_topic_once_age_seals_it(tmp_path: Path, clock: HandClock) -> None:
    settings = replace(SETTINGS, segment_max_age_ms=100)
    with seglog.open(tmp_path / "data", settings=settings, clock=clock) as log:
        log.create_topic("a", TopicConfig(ttl_ms=1000)).append([b"x"])
        clock.ms += 1101
        assert log.enforce_retention() == [Retention("a", evicted_seq=1)]
        assert _shown(log.topic("a").read(1, gaps=True)) == [(1, 1)]
        assert log.topic("a").append([b"y"]) == range(2, 3)
