"""Truncating a topic, and deleting one."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import (
    ConcurrentModification,
    DeleteOp,
    DiskFull,
    Log,
    LogSettings,
    Misuse,
    NoSuchTopic,
    NotTruncatable,
    Record,
    SeqOutOfRange,
    TopicConfig,
    Truncated,
    TruncateOp,
)
from seglog.engine.entries import TruncateEntry
from seglog.reading.read import load_batch
from seglog.wal.group_commit import Entry
from tests.faults.files import FailingFiles, UnsyncedFiles
from tests.seams.log import engine_of
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=10)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000)) as log:
        yield log


def _values(log: Log, name: str = "t") -> list[tuple[int, bytes]]:
    return [(record.seq, record.value) for record in log.topic(name).read()]


def _crash_and_open(log: Log, tmp_path: Path) -> Log:
    shutil.copytree(log.path, tmp_path / "copy")
    return seglog.open(tmp_path / "copy", settings=SETTINGS, clock=HandClock(1_000))


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("cut", [1, 2, 10, 11, 12, 20, 21, 22, 25, 26])
def test_what_is_cut_goes_and_its_seqs_are_used_again(log: Log, tmp_path: Path, cut: int, checkpoint: bool) -> None:
    topic = log.topic("t")
    topic.append([b"old %d" % seq for seq in range(1, 23)])
    if checkpoint:
        log.checkpoint()
    topic.append([b"old %d" % seq for seq in range(23, 26)])
    topic.truncate(cut)
    assert topic.head_seq == cut - 1
    assert topic.epoch == (1 if cut == 26 else 2)
    assert topic.append([b"new %d" % seq for seq in range(cut, cut + 13)]) == range(cut, cut + 13)
    expected = [(seq, b"old %d" % seq) for seq in range(1, cut)]
    expected += [(seq, b"new %d" % seq) for seq in range(cut, cut + 13)]
    assert _values(log) == expected
    with _crash_and_open(log, tmp_path) as other:
        assert _values(other) == expected
        assert other.topic("t").epoch == topic.epoch
    topic.seal()
    assert _values(log) == expected
    log.close()
    with seglog.open(log.path) as log:
        assert _values(log) == expected


def test_where_a_topic_cannot_be_cut(log: Log) -> None:
    topic = log.topic("t")
    with pytest.raises(NoSuchTopic):
        topic.truncate(1)
    topic.append([b"x"] * 25)
    topic.seal()
    topic.inner.release(10)
    with pytest.raises(NotTruncatable, match="the lowest possible seq is 11") as caught:
        topic.truncate(10)
    assert (caught.value.floor, caught.value.exit_code) == (11, 2)
    with pytest.raises(SeqOutOfRange):
        topic.truncate(27)
    topic.truncate(26)
    assert (topic.head_seq, topic.epoch) == (25, 1)
    topic.truncate(11)
    assert (topic.head_seq, topic.inner.hot_floor, topic.inner.segments()) == (10, 11, ())


def _with_history(log: Log) -> seglog.Topic:
    return log.create_topic("t", TopicConfig(keep_history=True))


@pytest.mark.parametrize("cut", [1, 3, 10, 11, 14, 20, 21, 23])
@pytest.mark.parametrize("released", [0, 10, 20])
def test_with_a_history_it_is_listed_and_may_go_below_what_is_here(
    log: Log, tmp_path: Path, cut: int, released: int
) -> None:
    """The truncated topic is the same after a crash. Later appends reuse the seqs of the truncated records."""
    topic = _with_history(log)
    topic.append([b"old %d" % seq for seq in range(1, 24)])
    log.checkpoint()
    topic.inner.release(released)
    topic.delete(tag="none")
    topic.truncate(cut)
    assert topic.inner.truncate_ops() == (TruncateOp(cut, 1000, 2),)
    assert (topic.head_seq, topic.inner.hot_floor) == (cut - 1, min(released + 1, cut))
    topic.append([b"new %d" % seq for seq in range(cut, cut + 13)])
    expected = [(seq, b"old %d" % seq) for seq in range(released + 1, cut)]
    expected += [(seq, b"new %d" % seq) for seq in range(cut, cut + 13)]
    first = topic.inner.hot_floor

    def check(log: Log) -> None:
        topic = log.topic("t")
        assert [(record.seq, record.value) for record in topic.read(first)] == expected
        assert topic.inner.truncate_ops() == (TruncateOp(cut, 1000, 2),)
        assert (topic.inner.hot_floor, topic.head_seq, topic.epoch) == (first, cut + 12, 2)

    check(log)
    with _crash_and_open(log, tmp_path) as other:
        check(other)
    with seglog.open(log.path, read_only=True, settings=SETTINGS) as other:
        check(other)
    topic.seal()
    log.close()
    with seglog.open(log.path, settings=SETTINGS) as log:
        check(log)


def test_listed_are_those_that_go_deeper_than_all_before(log: Log, tmp_path: Path) -> None:
    topic = _with_history(log)
    topic.append([b"x"] * 25)
    for cut in (20, 22, 20, 15, 3):
        topic.append([b"y"] * 5)
        topic.delete(before=2)
        topic.truncate(cut)
    listed = (TruncateOp(20, 1000, 2), TruncateOp(15, 1000, 5), TruncateOp(3, 1000, 6))
    assert topic.inner.truncate_ops() == listed
    topic.inner.settle_truncation(listed[0])
    topic.inner.settle_truncation(listed[0])
    assert topic.inner.truncate_ops() == listed[1:]
    with _crash_and_open(log, tmp_path) as other:
        assert other.topic("t").inner.truncate_ops() == listed[1:]
        for op in listed:
            other.topic("t").inner.settle_truncation(op)
        assert other.topic("t").inner.truncate_ops() == ()
        other.close()
        with seglog.open(tmp_path / "copy", settings=SETTINGS) as other:
            assert other.topic("t").inner.truncate_ops() == ()
    assert log.topic("t").inner.truncate_ops() == listed[1:]


def test_one_without_a_history_is_not_listed(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 5)
    topic.truncate(2)
    assert topic.inner.truncate_ops() == ()


def test_what_was_read_in_another_epoch_releases_nothing(log: Log) -> None:
    topic = _with_history(log)
    topic.append([b"x"] * 20)
    topic.seal()
    epoch = topic.epoch
    topic.truncate(11)
    topic.append([b"y"] * 10)
    topic.seal()
    topic.inner.release(20, epoch=epoch)
    assert topic.inner.hot_floor == 1
    topic.inner.release(10, epoch=topic.epoch)
    assert topic.inner.hot_floor == 11


def test_it_is_done_in_the_position_that_the_caller_saw_or_not_at_all(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 5)
    position = topic.inner.position
    topic.append([b"y"])
    with pytest.raises(ConcurrentModification):
        topic.inner.truncate(2, position=position)
    assert topic.head_seq == 6
    topic.inner.truncate(2, position=topic.inner.position)
    assert topic.head_seq == 1


def test_its_time_is_that_of_the_clock_and_no_later_record_is_older(log: Log, tmp_path: Path) -> None:
    topic = _with_history(log)
    topic.append([b"x"] * 5)
    clock = engine_of(log).clock
    assert isinstance(clock, HandClock)
    clock.ms = 5000
    topic.truncate(2)
    clock.ms = 3000
    topic.append([b"y"])
    assert topic.inner.truncate_ops() == (TruncateOp(2, 5000, 1),)
    with _crash_and_open(log, tmp_path) as other:
        assert [record.ts_ms for record in other.topic("t").read()] == [1000, 5000]


def test_below_what_was_evicted_nothing_is_cut(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(cap_records=5))
    topic.append([b"x"] * 25)
    topic.enforce_retention()
    assert topic.inner.evict_floor == 21
    with pytest.raises(NotTruncatable):
        topic.truncate(20)
    topic.truncate(21)
    assert topic.append([b"y"]) == range(21, 22)
    assert _values(log) == [(21, b"y")]


def test_deletes_never_reach_what_takes_an_old_seq(log: Log, tmp_path: Path) -> None:
    topic = log.create_topic("t", TopicConfig(keep_history=True))
    topic.append([b"x"] * 5, tag="a")
    topic.delete(tag="a")
    topic.truncate(4)
    topic.append([b"y"] * 3, tag="a")
    assert topic.inner.delete_ops() == (DeleteOp(1, 3, 1000, None, "a"),)
    for other in (log, _crash_and_open(log, tmp_path)):
        assert _values(other) == [(4, b"y"), (5, b"y"), (6, b"y")]
        other.checkpoint()
        assert _values(other) == [(4, b"y"), (5, b"y"), (6, b"y")]
    other.close()


def test_the_front_comes_down_with_the_cut(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 9)
    topic.delete(before=8)
    topic.truncate(5)
    assert (topic.earliest_seq, topic.head_seq) == (5, 4)
    assert topic.append([b"y"]) == range(5, 6)
    assert _values(log) == [(5, b"y")]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_readers_above_the_cut_are_told_and_those_below_go_on(log: Log, checkpoint: bool) -> None:
    topic = log.topic("t")
    topic.append([b"old"] * 30)
    if checkpoint:
        log.checkpoint()
    above, at, below, fresh = topic.read(), topic.read(), topic.read(), topic.read()
    for reader, count in ((above, 20), (at, 14), (below, 5)):
        assert [next(reader).seq for _ in range(count)] == list(range(1, count + 1))
    frames = topic.inner.frames(1, 30)
    topic.truncate(15)
    topic.append([b"new"] * 3)
    with pytest.raises(Truncated, match="at seq 15") as caught:
        next(above)
    assert caught.value.exit_code == 4
    new = [Record(seq, 1000, b"new") for seq in (15, 16, 17)]
    assert list(at) == new
    assert list(below) == [Record(seq, 1000, b"old") for seq in range(6, 15)] + new
    assert [record.value for record in fresh] == [b"old"] * 14 + [b"new"] * 3
    assert len(list(frames)) == 17


def test_a_full_disk_leaves_a_truncated_topic_that_takes_appends(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, for_good=True, only=("open",))
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000), files=files) as log:
        topic = log.topic("t")
        topic.append([b"old"] * 15)
        log.checkpoint()
        files.at = 1
        topic.truncate(5)
        assert topic.head_seq == 4
        topic.append([b"new"] * 3)
        with pytest.raises(DiskFull):
            log.checkpoint()
        expected = [(seq, b"old") for seq in range(1, 5)] + [(seq, b"new") for seq in range(5, 8)]
        assert _values(log) == expected
        files.at = 0
        topic.truncate(7)
        log.checkpoint()
        assert _values(log) == expected[:-1]
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        assert _values(log) == expected[:-1]


def test_deletes_never_reach_what_takes_an_old_seq_before_the_next_checkpoint(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, for_good=True, only=("open",))
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=HandClock(1_000), files=files) as log:
        topic = log.topic("t")
        topic.append([b"kept"] * 3 + [b"old"] * 12)
        topic.delete(tag="a")
        files.at = 1
        topic.truncate(4)
        topic.append([b"new"] * 3, tag="a")
        assert _values(log) == [(seq, b"kept") for seq in (1, 2, 3)] + [(seq, b"new") for seq in (4, 5, 6)]
        files.at = 0


@pytest.mark.parametrize("module", ["read", "batches"])
def test_a_cut_between_two_looks_of_a_reader(log: Log, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """A truncation comes between two steps of a reader.

    1. The reader reads the topic's head.
    2. A truncation cuts the topic. The records are in the WAL only, because the truncation's checkpoint comes later.
    3. The reader takes the lock and finds the records.
    """
    topic = log.topic("t")
    monkeypatch.setattr("seglog.writing.changes.checkpoint_locked", lambda *_: None)

    def cut_first(*args: Any, **options: Any) -> Any:
        if topic.head_seq == 9:
            topic.truncate(5)
        return load_batch(*args, **options)

    ways: dict[str, list[Callable[[], list[int]]]] = {
        "read": [
            lambda: [record.seq for record in topic.read()],
            lambda: [seq for batch in topic.inner.frame_batches(1, 9) for seq in batch.headers["seq"].tolist()],
        ],
        "batches": [lambda: [record.seq for batch in topic.read_batches() for record in batch]],
    }
    monkeypatch.setattr(f"seglog.reading.{module}.load_batch", cut_first)
    for way in ways[module]:
        topic.append([b"x"] * (9 - topic.head_seq))
        assert way() == [*range(1, 5)]


def test_appends_and_cuts_at_once(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 20)
    failures: list[BaseException] = []

    def work(action: object) -> None:
        try:
            for _ in range(30):
                action()  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    def cut() -> None:
        topic.truncate(max(topic.head_seq - 12, 1))

    def read() -> None:
        try:
            seqs = [record.seq for record in topic.read()]
        except Truncated:
            return
        assert seqs == list(range(1, len(seqs) + 1))

    actions = [lambda: topic.append([b"y"] * 7), lambda: topic.append([b"z"]), cut, log.checkpoint, read, read]
    threads = [threading.Thread(target=work, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = _values(log)
    assert [seq for seq, _ in found] == list(range(1, topic.head_seq + 1))
    log.close()
    with seglog.open(log.path) as log:
        assert _values(log) == found


# ---------------------------------------------------------------- topics that go


def test_the_next_topic_of_its_name_has_a_higher_epoch_after_a_crash_too(log: Log, tmp_path: Path) -> None:
    log.topic("t").append([b"x"])
    log.delete_topic("t")
    with _crash_and_open(log, tmp_path) as other:
        other.topic("t").append([b"y"])
        assert other.topic("t").epoch == 2


def test_a_deleted_topic_is_gone_and_its_name_is_free(log: Log, tmp_path: Path) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 25)
    log.checkpoint()
    old_id = topic.inner.topic_id
    reader = topic.read()
    assert next(reader).seq == 1
    log.delete_topic("t")
    assert (topic.exists, log.topics(), topic.epoch) == (False, [], 0)
    with pytest.raises(NoSuchTopic):
        list(reader)
    with pytest.raises(NoSuchTopic):
        log.delete_topic("t")
    assert topic.append([b"y"]) == range(1, 2)
    new_id = topic.inner.topic_id
    assert (topic.epoch, new_id > old_id) == (2, True)
    for other in (log, _crash_and_open(log, tmp_path)):
        assert _values(other) == [(1, b"y")]
        other.checkpoint()
        assert [path.name for path in (other.path / "topics").iterdir()] == [f"{new_id:08X}"]
        other.close()
    with seglog.open(log.path) as log:
        assert (_values(log), log.topic("t").epoch) == ([(1, b"y")], 2)
        log.delete_topic("t")
    with seglog.open(log.path) as log:
        assert log.topics() == []
        assert log.create_topic("t").epoch == 3


def test_a_checkpoint_in_the_middle_of_a_deletion_keeps_the_topic(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 25)
    committer = engine_of(log).committer
    finish = committer.finish

    def late(entry: Entry) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(log.checkpoint).result()
        with _crash_and_open(log, tmp_path) as other:
            assert len(_values(other)) == 25
        finish(entry)

    monkeypatch.setattr(committer, "finish", late)
    log.delete_topic("t")
    monkeypatch.undo()
    shutil.rmtree(tmp_path / "copy")
    with _crash_and_open(log, tmp_path) as other:
        assert other.topics() == []


def test_a_topic_with_a_history_is_not_deleted(log: Log) -> None:
    log.create_topic("t", TopicConfig(keep_history=True))
    with pytest.raises(Misuse, match="keeps its history"):
        log.delete_topic("t")
    assert log.has_topic("t")


def test_a_deletion_that_finds_no_space_is_taken_back(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, for_good=True, only=("pwritev",))
    with seglog.open(tmp_path / "data", settings=SETTINGS, files=files) as log:
        log.topic("t").append([b"x"])
        files.at = 1
        with pytest.raises(DiskFull):
            log.delete_topic("t")
        files.at = 0
        assert [value for _, value in _values(log)] == [b"x"]
        assert log.topic("t").append([b"y"]) == range(2, 3)


def test_a_truncation_that_an_interrupt_publishes_twice_is_one(log: Log) -> None:
    topic = log.create_topic("t", TopicConfig(keep_history=True))
    topic.append([b"x"] * 5)
    state = engine_of(log).topics["t"]
    entry = TruncateEntry(state, 3, 1000, None)
    entry.assign()
    entry.publish(0, 0)
    topic.append([b"of the new epoch"])
    entry.publish(0, 0)
    assert topic.inner.truncate_ops() == (TruncateOp(3, 1000, 1),)
    assert (topic.head_seq, topic.epoch, state.truncations) == (3, 2, (3,))
