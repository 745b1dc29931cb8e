"""Following a topic, and searching it by time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import seglog
from seglog import (
    ColdTierRequired,
    Evicted,
    Gap,
    Log,
    LogSettings,
    NoSuchTopic,
    Record,
    SeqOutOfRange,
    Topic,
    TopicConfig,
    Truncated,
)
from tests.seams.log import before_a_follower_begins, waiters_of
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=10)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000)


@pytest.fixture
def log(tmp_path: Path, clock: HandClock) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=clock) as log:
        yield log


class Follower:
    """A follower that reads in its own thread. `ends` waits for the thread and returns the seqs that it read."""

    def __init__(self, topic: Topic, start: int | None = None) -> None:
        self.found: list[Record | Gap] = []
        self.error: BaseException | None = None
        self._items = topic.follow(start, gaps=True)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.found.extend(self._items)
        except BaseException as error:
            self.error = error

    def ends(self) -> list[int]:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return [item.seq for item in self.found if isinstance(item, Record)]


def _until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("it does not come to that")


def _all_wait(topic: Topic, count: int) -> None:
    _until(lambda: len(waiters_of(topic, topic.name)) == count)


def test_many_followers_get_what_comes_and_end_with_the_log(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 3)
    followers = [Follower(topic) for _ in range(20)] + [Follower(topic, 4)]
    for _ in range(5):
        _all_wait(topic, 21)
        topic.append([b"y"] * 2)
    _all_wait(topic, 21)
    log.checkpoint()
    log.close()
    assert [follower.ends() for follower in followers] == [list(range(1, 14))] * 20 + [list(range(4, 14))]
    assert [follower.error for follower in followers] == [None] * 21


def test_followers_lose_nothing_while_many_append(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"])
    followers = [Follower(topic) for _ in range(4)]
    threads = [threading.Thread(target=lambda: [topic.append([b"y"]) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _all_wait(topic, 4)
    log.close()
    assert [follower.ends() for follower in followers] == [list(range(1, 202))] * 4


def test_without_news_a_follower_ends_after_its_time(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 3)
    assert [record.seq for record in topic.follow(2, timeout_s=0.01)] == [2, 3]
    assert waiters_of(topic, "t") == []
    with pytest.raises(NoSuchTopic):
        log.topic("other").follow()


def test_deleted_records_at_the_end_are_no_news(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 3)
    topic.delete(before=4)
    assert [record.seq for record in topic.follow(1, timeout_s=0.01)] == []


def test_a_truncation_reaches_followers(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 10)
    ahead, behind = Follower(topic), Follower(topic, 11)
    _all_wait(topic, 2)
    topic.truncate(6)
    assert ahead.ends() == list(range(1, 11))
    assert behind.ends() == []
    for follower in (ahead, behind):
        assert isinstance(follower.error, Truncated)
        assert follower.error.seq == 6
    at = Follower(topic)
    _all_wait(topic, 1)
    topic.truncate(6)
    topic.append([b"y"])
    _all_wait(topic, 1)
    log.close()
    assert at.ends() == list(range(1, 7))


def _view(topic: Topic) -> dict[int, bytes]:
    return {record.seq: record.value for record in topic.read()}


def test_whoever_follows_again_is_told_of_what_happened_in_between(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"old %d" % seq for seq in range(1, 11)])
    start, epoch, view = 1, topic.epoch, dict[int, bytes]()
    cuts: list[tuple[int, int]] = []
    # Each step comes before the program follows once more.
    for step in (
        lambda: None,
        lambda: topic.truncate(9),
        lambda: (topic.truncate(5), topic.append([b"new"] * 8)),
        lambda: (topic.truncate(11), topic.append([b"newer"] * 2), topic.truncate(7), topic.append([b"newest"] * 9)),
    ):
        step()
        while True:
            try:
                for record in topic.follow(start, epoch=epoch, timeout_s=0):
                    view[record.seq] = record.value
                    start = record.seq + 1
                break
            except Truncated as cut:
                start, epoch = cut.seq, cut.epoch
                cuts.append((start, epoch))
                view = {seq: value for seq, value in view.items() if seq < start}
        assert view == _view(topic)
    assert cuts == [(9, 2), (5, 3), (7, 5)]


def test_an_epoch_tells_of_no_truncation_above_the_start(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 10)
    first = topic.epoch
    topic.truncate(6)
    topic.append([b"y"] * 10)
    assert [record.seq for record in topic.follow(6, epoch=first, timeout_s=0)] == list(range(6, 16))
    assert [record.seq for record in topic.follow(epoch=first, timeout_s=0)] == list(range(1, 16))
    assert [record.seq for record in topic.follow(16, epoch=topic.epoch, timeout_s=0)] == []
    for start in (7, 100):  # also above the head
        with pytest.raises(Truncated) as cut:
            topic.follow(start, epoch=first)
        assert (cut.value.seq, cut.value.epoch) == (6, topic.epoch)
        assert f"follow(6, epoch={topic.epoch})" in (cut.value.hint or "")
    with pytest.raises(SeqOutOfRange):
        topic.follow(100, epoch=topic.epoch)


def test_after_a_restart_or_a_deletion_no_record_of_a_former_epoch_is_sure(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        topic.append([b"x"] * 10)
        first = topic.epoch
        topic.truncate(6)
        second = topic.epoch
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        assert [record.seq for record in topic.follow(3, epoch=second, timeout_s=0)] == [3, 4, 5]
        with pytest.raises(Truncated) as cut:
            topic.follow(3, epoch=first)
        assert (cut.value.seq, cut.value.epoch) == (1, second)
        log.delete_topic("t")
        log.topic("t").append([b"another"] * 10)
        with pytest.raises(Truncated, match="or deleted and made again") as cut:
            topic.follow(3, epoch=second)
        assert (cut.value.seq, cut.value.epoch) == (1, log.topic("t").epoch)


def test_a_truncation_while_a_follower_begins_is_told_too(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 10)
    epoch = topic.epoch
    before_a_follower_begins(monkeypatch, lambda: topic.truncate(4))
    with pytest.raises(Truncated) as cut:
        topic.follow(11, epoch=epoch)
    assert (cut.value.seq, cut.value.epoch) == (4, topic.epoch)


def test_a_deletion_ends_followers_with_an_error(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"])
    follower = Follower(topic)
    _all_wait(topic, 1)
    log.delete_topic("t")
    follower.ends()
    assert isinstance(follower.error, NoSuchTopic)


def test_a_follower_is_told_of_a_gap(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(cap_records=10))
    topic.append([b"x"] * 25)
    topic.enforce_retention()
    assert list(topic.follow(1, timeout_s=0.01, gaps=True))[:1] == [Gap(1, topic.inner.evict_floor - 1)]
    with pytest.raises(Evicted) as lost:
        next(topic.follow(1))
    assert (lost.value.gap_from, lost.value.gap_to) == (1, topic.inner.evict_floor - 1)
    assert next(topic.follow(lost.value.gap_to + 1)).seq == topic.inner.evict_floor


# ---------------------------------------------------------------- time


class Cold:
    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        return (record for record in self.records if first <= record.seq <= last)


def _two_a_time(log: Log, clock: HandClock, pairs: int) -> Topic:
    topic = log.topic("t")
    for _ in range(pairs):
        topic.append([b"x"] * 2)
        clock.ms += 10
    return topic


def _places(topic: Topic, pairs: int) -> list[int]:
    return [topic.seq_at(1000 + 5 * half) for half in range(-1, 2 * pairs + 1)]


def test_a_time_is_found_wherever_its_records_are(log: Log, clock: HandClock) -> None:
    pairs = 23
    topic = _two_a_time(log, clock, pairs)
    expected = [1, *(1 + 2 * ((half + 1) // 2) for half in range(2 * pairs)), 2 * pairs + 1]
    assert _places(topic, pairs) == expected
    log.checkpoint()
    assert _places(topic, pairs) == expected
    topic.seal()
    records = list(topic.read())
    topic.inner.release(30)
    assert topic.seq_at(10**9) == 2 * pairs + 1
    assert topic.seq_at(1160) == 33
    with pytest.raises(ColdTierRequired):
        topic.seq_at(1000)
    log.attach_cold(Cold(records))
    assert _places(topic, pairs) == expected


def test_reads_are_bounded_by_time(log: Log, clock: HandClock) -> None:
    topic = _two_a_time(log, clock, 10)
    for _ in range(2):
        assert [record.seq for record in topic.read(since_ms=1030, until_ms=1049)] == [7, 8, 9, 10]
        assert [record.seq for record in topic.read(8, 9, since_ms=1030, until_ms=1049)] == [8, 9]
        assert list(topic.read(since_ms=1031, until_ms=1039)) == []
        assert list(topic.read(since_ms=10**6)) == []
        assert len(list(topic.read(until_ms=10**6))) == 20
        topic.seal()
    topic.delete(before=9)
    assert topic.seq_at(0) == 9
