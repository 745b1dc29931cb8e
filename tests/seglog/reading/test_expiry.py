"""No reader shows a record past its topic's ttl, whatever segment the record is in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from catalog.errors import StoreUnreachable
from seglog import Evicted, Gap, Log, LogSettings, NotTruncatable, Record, Topic, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import OsFiles
from seglog.tiers.segment_store import MemorySegmentStore
from tests.array_rows import rows_of
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=10)
TTL_MS = 1_000
CONFIG = TopicConfig(ttl_ms=TTL_MS)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000)


def opened(tmp_path: Path, clock: HandClock, settings: LogSettings = SETTINGS, *, read_only: bool = False) -> Log:
    return seglog.open(tmp_path / "data", settings=settings, clock=clock, upkeep=InCaller, read_only=read_only)


@pytest.fixture
def log(tmp_path: Path, clock: HandClock) -> Iterator[Log]:
    with opened(tmp_path, clock) as log:
        yield log


def filled(log: Log, clock: HandClock, records: int = 25, config: TopicConfig = CONFIG) -> Topic:
    """Append records up to seq `records`. Record n has the time 1000 + n."""
    topic = log.topic("t") if log.has_topic("t") else log.create_topic("t", config)
    for number in range(topic.head_seq + 1, records + 1):
        clock.ms = 1_000 + number
        topic.append([b"%d" % number], durability="memory" if config.durability == "fsync" else None)
    return topic


def at_expiry_of(clock: HandClock, seq: int) -> None:
    """Set the clock so that record `seq` is the last one past its ttl."""
    clock.ms = 1_000 + seq + TTL_MS + 1


def shown(found: Iterator[Record | Gap]) -> list[int | tuple[int, int]]:
    return [item.seq if isinstance(item, Record) else (item.gap_from, item.gap_to) for item in found]


def in_the_wal(log: Log) -> None:
    pass


def in_segments(log: Log) -> None:
    log.checkpoint()


def sealed(log: Log) -> None:
    log.topic("t").seal()


PLACES = [in_the_wal, in_segments, sealed]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("expired", [0, 1, 9, 10, 11, 19, 20, 24, 25])
def test_no_reader_shows_what_is_past_its_ttl(
    log: Log, clock: HandClock, place: Callable[[Log], None], expired: int
) -> None:
    topic = filled(log, clock)
    place(log)
    at_expiry_of(clock, expired)
    live = list(range(expired + 1, 26))
    gap: list[int | tuple[int, int]] = [(1, expired)] if expired else []
    assert shown(topic.read()) == live
    assert shown(topic.read(gaps=True)) == live
    assert shown(topic.read(1, gaps=True)) == gap + live
    assert shown(topic.follow(1, timeout_s=0, gaps=True)) == gap + live
    assert shown(topic.follow(timeout_s=0)) == live
    assert [record.seq for batch in topic.read_batches() for record in batch] == live
    assert rows_of(topic.read_arrays(1, gaps=True)) == list(topic.read(1, gaps=True))
    assert (topic.earliest_seq, topic.inner.evict_floor) == (expired + 1, expired + 1)
    assert topic.seq_at(0) == expired + 1
    assert shown(topic.read(since_ms=0)) == live
    assert len(list(topic.inner.frames(1, 25))) == 25  # the offloader gets expired records too
    if expired:
        with pytest.raises(Evicted) as caught:
            list(topic.read(1))
        assert (caught.value.gap_from, caught.value.gap_to) == (1, expired)
        with pytest.raises(Evicted):
            list(topic.read_batches(expired))
    with opened(log.path.parent, clock, read_only=True) as view:
        assert shown(view.topic("t").read(1, gaps=True)) == gap + live


def test_a_year_after_a_ttl_of_an_hour_nothing_is_shown(tmp_path: Path, clock: HandClock) -> None:
    with opened(tmp_path, clock, LogSettings()) as log:
        topic = log.create_topic("t", TopicConfig(ttl_ms=3_600_000))
        topic.append([b"x"] * 100)
        clock.ms += 365 * 24 * 3_600_000
        assert shown(topic.read()) == []
        assert (topic.head_seq, topic.earliest_seq) == (100, 101)
        assert topic.enforce_retention().evicted_seq == 100
        assert topic.append([b"y"]) == range(101, 102)
        assert shown(topic.read(1, gaps=True)) == [(1, 100), 101]
        assert topic.inner.hot_floor == 101


def test_housekeeping_gives_the_space_back_a_ttl_later(log: Log, clock: HandClock) -> None:
    topic = filled(log, clock, 5)
    clock.ms = 1_001 + TTL_MS
    assert log.enforce_retention() == []
    assert topic.inner.sealed_seq == 0
    clock.ms += 1
    log.enforce_retention()
    assert topic.inner.sealed_seq == 5
    at_expiry_of(clock, 5)
    assert topic.enforce_retention().evicted_seq == 5
    assert topic.inner.bytes_hot == 0


def test_an_append_seals_and_evicts_when_it_is_due_and_looks_at_no_file_before(log: Log, clock: HandClock) -> None:
    topic = filled(log, clock, 5)
    clock.ms = 1_001 + TTL_MS
    topic.append([b"6"])
    assert topic.inner.segments() == ()
    clock.ms += 1
    topic.append([b"7"])
    assert [info.last_seq for info in topic.inner.segments()] == [7]
    clock.ms += 2 * TTL_MS
    topic.append([b"8"])
    assert (topic.inner.hot_floor, topic.earliest_seq) == (8, 8)


def test_a_reader_keeps_the_time_of_its_call_and_a_follower_asks_again(log: Log, clock: HandClock) -> None:
    topic = filled(log, clock)
    reader, batches, follower = topic.read(), topic.read_batches(), topic.inner.follower(1, gaps=True)
    assert next(reader).seq == 1
    news = follower.new_items()
    assert shown(iter([next(news)])) == [1]
    at_expiry_of(clock, 20)
    assert shown(reader) == list(range(2, 26))
    assert [record.seq for batch in batches for record in batch] == list(range(1, 26))
    news.close()
    assert shown(follower.new_items()) == [(2, 20), *range(21, 26)]


@pytest.mark.parametrize("change", ["clock", "clock a little", "raised", "lifted"])
def test_the_floor_does_not_go_back(tmp_path: Path, clock: HandClock, change: str) -> None:
    with opened(tmp_path, clock) as log:
        topic = filled(log, clock)
        at_expiry_of(clock, 13)
        assert shown(topic.read()) == list(range(14, 26))
        if change == "clock":
            clock.ms = 0
        elif change == "clock a little":
            at_expiry_of(clock, 5)
        else:
            log.configure("t", TopicConfig(ttl_ms=10 * TTL_MS if change == "raised" else None))
        for _ in range(2):
            assert shown(topic.read(25)) == [25]  # this search finds only the start of the floor's segment
            assert topic.earliest_seq == 14
            assert shown(topic.read(1, gaps=True)) == [(1, 13), *range(14, 26)]
            assert topic.earliest_seq == 14
            log.checkpoint()
        with pytest.raises(NotTruncatable):
            topic.truncate(13)
        topic.truncate(20)
        topic.append([b"x"])
    with opened(tmp_path, clock) as log:
        assert shown(log.topic("t").read(1, gaps=True)) == [(1, 13), *range(14, 21)]


def test_what_was_deleted_before_is_passed_over(log: Log, clock: HandClock) -> None:
    topic = filled(log, clock)
    topic.delete(before=6)
    at_expiry_of(clock, 4)
    assert shown(topic.read(1, gaps=True)) == list(range(6, 26))
    at_expiry_of(clock, 8)
    assert shown(topic.read(1, gaps=True)) == [(6, 8), *range(9, 26)]


def test_ephemeral_records_expire_too(log: Log, clock: HandClock) -> None:
    topic = filled(log, clock, config=replace(CONFIG, durability="ephemeral"))
    at_expiry_of(clock, 7)
    assert shown(topic.read(1, gaps=True)) == [(1, 7), *range(8, 26)]


def test_a_topic_whose_history_is_kept_hides_the_same_and_gives_all_to_the_archive(log: Log, clock: HandClock) -> None:
    topic = filled(log, clock, config=replace(CONFIG, keep_history=True))
    at_expiry_of(clock, 22)
    log.enforce_retention()
    assert shown(topic.read(1, gaps=True)) == [(1, 22), *range(23, 26)]
    assert [len(frame) > 0 for frame in topic.inner.frames(1, 25)] == [True] * 25
    assert topic.inner.sealed_seq == 25
    assert topic.inner.due_seq == 20


class Calls(OsFiles):
    def __init__(self) -> None:
        self.opened = 0

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self.opened += 1
        return super().open(path, flags, mode)


class Cold:
    """An archive in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.calls = 0

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        self.calls += 1
        return iter([record for record in self.records if first <= record.seq <= last])


def test_records_in_the_cold_tier_expire_and_hot_reads_do_not_ask_it(log: Log, clock: HandClock) -> None:
    topic = filled(log, clock, config=replace(CONFIG, keep_history=True))
    log.checkpoint()
    cold = Cold()
    cold.records = list(topic.read(1, 20))
    topic.inner.release(20)
    log.attach_cold(cold)
    at_expiry_of(clock, 7)
    assert shown(topic.read(21, gaps=True)) == list(range(21, 26))
    assert cold.calls == 0
    assert shown(topic.read(1, gaps=True)) == [(1, 7), *range(8, 26)]
    assert shown(topic.read()) == list(range(8, 26))
    calls = cold.calls
    assert shown(topic.read()) == list(range(8, 26))
    assert cold.calls == calls + 1  # the second read knows the floor


@pytest.mark.parametrize("start", [None, 1])
def test_a_cold_tier_that_fails_once_shows_nothing_that_has_expired(
    log: Log, clock: HandClock, start: int | None
) -> None:
    class FailsOnce(Cold):
        def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
            found = super().read(topic, first, last)
            if self.calls == 1:
                raise StoreUnreachable("s3://bucket", "no route")
            return found

    topic = filled(log, clock, config=replace(CONFIG, keep_history=True))
    log.checkpoint()
    cold = FailsOnce()
    cold.records = list(topic.read(1, 20))
    topic.inner.release(20)
    log.attach_cold(cold)
    at_expiry_of(clock, 7)
    with pytest.raises(StoreUnreachable):
        list(topic.read(start))
    assert shown(topic.read(start, gaps=True)) == [*([(1, 7)] if start else []), *range(8, 26)]


def test_a_branch_begins_its_ttl_with_its_own_records(log: Log, clock: HandClock) -> None:
    class ParentsAlone(Cold):
        def open_for_append(self, name: str) -> object:
            raise AssertionError(name)

        def expired_own(self, branch: str, end: int, oldest_ms: int) -> tuple[int, int]:
            assert (branch, end) == ("t@branch", 11)
            return 1, 0

    cold = ParentsAlone()
    cold.records = [Record(seq, 1_000 + seq, b"x") for seq in range(1, 11)]
    log.attach_cold(cold)
    clock.ms = 50_000
    topic = log.create_topic("t@branch", replace(CONFIG, keep_history=True), first_seq=11, ts_floor_ms=1_010)
    assert shown(topic.read(1)) == list(range(1, 11))
    topic.append([b"own"])
    assert shown(topic.read(1)) == list(range(1, 12))
    clock.ms += TTL_MS + 1
    assert shown(topic.read(1, gaps=True)) == [(1, 11)]


def test_a_reader_of_what_is_hot_does_not_wait_for_a_store(tmp_path: Path, clock: HandClock) -> None:
    class Hanging(MemorySegmentStore):
        is_up = True

        def read_range(self, *given: object) -> bytes:
            assert self.is_up
            return super().read_range(*given)  # type: ignore[arg-type]

    store = Hanging()
    settings = replace(SETTINGS, hot_retain_segments=0)
    with seglog.open(
        tmp_path / "data", settings=settings, clock=clock, upkeep=InCaller, warm_stores=lambda _: store
    ) as log:
        topic = filled(log, clock)
        log.checkpoint()
        assert [info.is_hot for info in topic.inner.segments()] == [False, False, True]
        at_expiry_of(clock, 5)
        store.is_up = False
        assert shown(topic.read(21, gaps=True)) == list(range(21, 26))
        store.is_up = True
        assert shown(topic.read(1, gaps=True)) == [(1, 5), *range(6, 26)]


def test_a_reader_on_its_way_is_told_of_no_loss_where_a_truncation_made_room(log: Log, clock: HandClock) -> None:
    """The truncation cut the expired records. Live records now have their seqs."""
    topic = filled(log, clock, config=replace(CONFIG, keep_history=True))
    at_expiry_of(clock, 13)
    reader = topic.read(1, gaps=True)
    topic.truncate(10)
    topic.append([b"new"] * 8)
    assert shown(reader) == [(1, 9), *range(10, 18)]
