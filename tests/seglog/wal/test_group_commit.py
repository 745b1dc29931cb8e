from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType as StackFrame

import pytest

import seglog
from seglog import ConcurrentModification, Log, LogSettings, TopicConfig, WriterPoisoned
from seglog.engine.work_thread import InCaller
from tests.faults.files import PowerCutFiles, UnsyncedFiles
from tests.faults.gated_files import GatedFiles
from tests.seams.limits import Limit, set_limit
from tests.seams.log import engine_of, queue_of
from tests.waiting import wait_until
from tests.worlds.clock import HandClock


@pytest.fixture
def files() -> GatedFiles:
    return GatedFiles()


@pytest.fixture
def log(tmp_path: Path, files: GatedFiles) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", files=files) as log:
        log.create_topic("t")
        yield log
        files.gate.set()


def _start_one_that_waits_in_its_sync(log: Log, files: GatedFiles) -> threading.Thread:
    files.gate.clear()
    files.waiting.clear()
    leader = threading.Thread(target=log.topic("t").append, args=([b"first"],))
    leader.start()
    assert files.waiting.wait(60)
    files.syncs = 0
    return leader


def _wait_for_queue(log: Log, length: int) -> None:
    wait_until(lambda: len(queue_of(log)) >= length)


def test_a_topic_is_not_deleted_at_a_position_whose_append_is_in_flight(log: Log, files: GatedFiles) -> None:
    """Who compared the published records does not know the one in flight, and would lose it."""
    leader = _start_one_that_waits_in_its_sync(log, files)
    position, refused = log.topic("t").inner.position, threading.Event()

    def delete() -> None:
        with pytest.raises(ConcurrentModification):
            log.delete_topic("t", position=position)
        refused.set()

    deleter = threading.Thread(target=delete)
    deleter.start()
    _wait_for_queue(log, 1)
    files.gate.set()
    for thread in (leader, deleter):
        thread.join()
    assert refused.is_set()
    assert [record.value for record in log.topic("t").read()] == [b"first"]
    log.delete_topic("t", position=log.topic("t").inner.position)
    assert not log.has_topic("t")


def test_a_position_does_not_count_an_append_in_flight(log: Log, files: GatedFiles) -> None:
    """Who took the position looks at published records next. The one in flight comes after that, and is not removed."""
    leader = _start_one_that_waits_in_its_sync(log, files)
    topic = log.topic("t")
    position, head_seq = topic.inner.position, topic.head_seq
    files.gate.set()
    leader.join()
    assert (head_seq, topic.head_seq) == (0, 1)
    with pytest.raises(ConcurrentModification):
        log.delete_topic("t", position=position)
    with pytest.raises(ConcurrentModification):
        topic.inner.truncate(1, position=position)
    assert [record.value for record in topic.read()] == [b"first"]


def test_a_position_counts_configurations(log: Log) -> None:
    position = log.topic("t").inner.position
    log.configure("t", TopicConfig(cap_records=1))
    with pytest.raises(ConcurrentModification):
        log.delete_topic("t", position=position)
    log.delete_topic("t", position=log.topic("t").inner.position)


def test_two_who_change_different_settings_lose_neither(log: Log, files: GatedFiles) -> None:
    seen = list[TopicConfig]()

    def give_records(config: TopicConfig) -> TopicConfig:
        seen.append(config)
        return replace(config, cap_records=7)

    def give_bytes(config: TopicConfig) -> TopicConfig:
        seen.append(config)
        return replace(config, cap_bytes=7)

    leader = _start_one_that_waits_in_its_sync(log, files)
    first = threading.Thread(target=log.reconfigure, args=("t", give_records))
    first.start()
    _wait_for_queue(log, 1)
    second = threading.Thread(target=log.reconfigure, args=("t", give_bytes))
    second.start()
    wait_until(lambda: len(seen) == 2)
    files.gate.set()
    for thread in (leader, first, second):
        thread.join()
    assert log.topic("t").config == replace(seen[0], cap_records=7, cap_bytes=7)
    assert seen[0] == seen[1] != seen[-1]


def _start_to_replace_the_last_record(log: Log, files: GatedFiles) -> list[threading.Thread]:
    """Begin a truncation and an append, which wait. Both done, the topic has as many records as before."""
    topic = log.topic("t")
    topic.append([b"kept", b"cut"])
    files.gate.clear()
    files.waiting.clear()
    threads = [
        threading.Thread(target=topic.truncate, args=(2,)),
        threading.Thread(target=topic.append, args=([b"new"],)),
    ]
    threads[0].start()
    assert files.waiting.wait(60)
    threads[1].start()
    _wait_for_queue(log, 1)
    return threads


def test_a_topic_is_not_deleted_while_its_last_record_becomes_another_one(log: Log, files: GatedFiles) -> None:
    threads, position = _start_to_replace_the_last_record(log, files), log.topic("t").inner.position
    refused = threading.Event()

    def delete() -> None:
        with pytest.raises(ConcurrentModification):
            log.delete_topic("t", position=position)
        refused.set()

    threads.append(threading.Thread(target=delete))
    threads[-1].start()
    _wait_for_queue(log, 2)
    files.gate.set()
    for thread in threads:
        thread.join()
    assert refused.is_set()
    assert [record.value for record in log.topic("t").read()] == [b"kept", b"new"]


def test_an_ephemeral_record_waits_until_the_last_record_became_another_one(log: Log, files: GatedFiles) -> None:
    threads, seqs = _start_to_replace_the_last_record(log, files), list[range]()
    threads.append(
        threading.Thread(target=lambda: seqs.append(log.topic("t").append([b"light"], durability="ephemeral")))
    )
    threads[-1].start()
    wait_until(lambda: len(queue_of(log)) >= 2 or not threads[-1].is_alive())
    assert seqs == []
    files.gate.set()
    for thread in threads:
        thread.join()
    assert seqs == [range(3, 4)]
    assert [record.value for record in log.topic("t").read()] == [b"kept", b"new", b"light"]


def test_those_who_come_while_one_syncs_share_the_next_sync(log: Log, files: GatedFiles) -> None:
    leader = _start_one_that_waits_in_its_sync(log, files)
    others = [threading.Thread(target=log.topic("t").append, args=([b"%d" % n],)) for n in range(10)]
    for thread in others:
        thread.start()
    _wait_for_queue(log, 10)
    assert log.topic("t").head_seq == 0
    files.gate.set()
    for thread in (leader, *others):
        thread.join()
    assert files.syncs == 2
    values = [record.value for record in log.topic("t").read()]
    assert values[0] == b"first"
    assert sorted(values[1:]) == [b"%d" % n for n in range(10)]


def test_a_group_ends_at_its_limit_and_takes_one_entry_whatever_its_size(
    tmp_path: Path, files: GatedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = seglog.open(tmp_path / "data", files=files)  # not closed on failure: a close would wait for a queued entry
    log.create_topic("t")
    set_limit(monkeypatch, Limit.APPEND_GROUP_BYTES, 200)
    leader = _start_one_that_waits_in_its_sync(log, files)
    threads = [leader]
    for queued, value in enumerate((b"1", b"2", b"3", b"large" * 100, b"4"), 1):
        threads.append(threading.Thread(target=log.topic("t").append, args=([value],), daemon=True))
        threads[-1].start()
        _wait_for_queue(log, queued)
    files.gate.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert files.syncs == 4
    assert [record.value for record in log.topic("t").read()] == [b"first", b"1", b"2", b"3", b"large" * 100, b"4"]
    log.close()


def test_no_sync_is_paid_for_what_does_not_ask_for_one(log: Log, files: GatedFiles) -> None:
    files.syncs = 0
    log.topic("t").append([b"x"], durability="disk")
    log.topic("t").append([b"x"], durability="memory")
    assert files.syncs == 0
    log.topic("t").append([b"x"])
    assert files.syncs == 1


def test_a_flush_syncs_what_was_written_and_a_second_one_nothing(log: Log, files: GatedFiles) -> None:
    log.topic("t").append([b"x"], durability="memory")
    files.syncs = 0
    for _ in range(2):
        engine_of(log).committer.flush()
        assert files.syncs == 1


def _many(log: Log, durability: str | None, *, name: str = "t", count: int = 5) -> None:
    for number in range(count):
        log.topic(name).append([b"%d" % number], durability=durability)


def test_each_class_pays_for_its_own_syncs(tmp_path: Path, files: GatedFiles) -> None:
    clock = HandClock(1_000)
    with seglog.open(tmp_path / "classes", files=files, clock=clock, upkeep=InCaller) as log:
        for name in ("fsync", "disk", "memory"):
            log.create_topic(name, TopicConfig(durability=name))
        files.syncs = 0
        for name, syncs in (("fsync", 5), ("disk", 0), ("memory", 0)):
            _many(log, None, name=name)
            assert files.syncs == syncs
            files.syncs = 0
        for durability, syncs in (("fsync", 5), ("disk", 0), ("memory", 0)):
            _many(log, durability, name="memory")
            assert files.syncs == syncs
            files.syncs = 0


def test_an_append_at_disk_syncs_once_the_oldest_has_waited_for_the_interval(tmp_path: Path, files: GatedFiles) -> None:
    clock, settings = HandClock(1_000), LogSettings(disk_sync_interval_ms=50)
    with seglog.open(tmp_path / "tick", files=files, clock=clock, upkeep=InCaller, settings=settings) as log:
        log.create_topic("t")
        files.syncs = 0
        syncs = []
        for step_ms in (0, 49, 1, 49, 1, 1000):
            clock.ms += step_ms
            _many(log, "disk", count=1)
            _many(log, "memory", count=1)
            syncs.append(files.syncs)
        assert syncs == [0, 0, 1, 1, 1, 2]


def test_of_a_group_the_oldest_entry_decides_when_it_is_to_be_synced(tmp_path: Path, files: GatedFiles) -> None:
    clock, settings = HandClock(1_000), LogSettings(disk_sync_interval_ms=50)
    with seglog.open(tmp_path / "tick", files=files, clock=clock, upkeep=InCaller, settings=settings) as log:
        log.create_topic("t")
        threads = [_start_one_that_waits_in_its_sync(log, files)]
        for queued in (1, 2):
            threads.append(threading.Thread(target=_many, args=(log, "disk"), kwargs={"count": 1}))
            threads[-1].start()
            _wait_for_queue(log, queued)
            clock.ms += 25
        files.gate.set()
        for thread in threads:
            thread.join()
        assert files.syncs == 1
        _many(log, "disk", count=1)
        assert files.syncs == 2


def test_nothing_is_synced_for_memory_however_late_it_is(tmp_path: Path, files: GatedFiles) -> None:
    clock = HandClock(1_000)
    with seglog.open(tmp_path / "late", files=files, clock=clock, upkeep=InCaller) as log:
        log.create_topic("t", TopicConfig(durability="memory"))
        files.syncs = 0
        for _ in range(5):
            clock.ms += 10_000
            _many(log, None)
        assert files.syncs == 0


def test_a_sync_for_another_is_one_for_what_was_written_at_disk(tmp_path: Path, files: GatedFiles) -> None:
    clock = HandClock(1_000)
    with seglog.open(tmp_path / "shared", files=files, clock=clock, upkeep=InCaller) as log:
        _many(log, "disk", count=1)
        _many(log, "fsync", count=1)
        files.syncs = 0
        clock.ms += 10_000
        _many(log, "disk", count=1)
        assert files.syncs == 0


def test_what_was_written_at_disk_is_synced_when_nothing_else_happens(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    disk = PowerCutFiles(files, tmp_path)
    settings = LogSettings(disk_sync_interval_ms=1)
    with seglog.open(tmp_path / "data", files=disk, settings=settings) as log:
        log.create_topic("t")
        log.topic("t").append([b"x"], durability="disk")
        wait_until(lambda: not engine_of(log).committer.has_unsynced)
        disk.after_power_cut(tmp_path / "left", None)
    with seglog.open(tmp_path / "left" / "data") as log:
        assert [record.value for record in log.topic("t").read()] == [b"x"]


def test_a_sync_of_the_tick_that_fails_poisons_the_writer(tmp_path: Path) -> None:
    files = GatedFiles()
    settings = LogSettings(disk_sync_interval_ms=1)
    log = seglog.open(tmp_path / "data", files=files, settings=settings)
    try:
        log.create_topic("t")
        files.datasync = _fails  # type: ignore[method-assign]
        log.topic("t").append([b"x"], durability="disk")
        wait_until(lambda: log.is_poisoned)
        for durability in ("disk", "memory", "fsync"):
            with pytest.raises(seglog.WriterPoisoned):
                log.topic("t").append([b"y"], durability=durability)
    finally:
        log.close()


def _fails(_fd: int) -> None:
    raise OSError(errno.EIO, "no")


def test_an_interrupt_while_waiting_leaves_the_others_in_peace(log: Log, files: GatedFiles) -> None:
    def interrupt(_number: int, _frame: StackFrame | None) -> None:
        raise KeyboardInterrupt

    leader = _start_one_that_waits_in_its_sync(log, files)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            log.topic("t").append([b"interrupted"])
    finally:
        signal.signal(signal.SIGALRM, before)
    follower = threading.Thread(target=log.topic("t").append, args=([b"after"],), daemon=True)
    follower.start()
    _wait_for_queue(log, 2)
    files.gate.set()
    leader.join()
    follower.join(20)
    assert not follower.is_alive(), "who was interrupted is to lead"
    assert [record.value for record in log.topic("t").read()] == [b"first", b"interrupted", b"after"]


class InterruptedFiles(UnsyncedFiles):
    """A file port whose next write is interrupted while its code handles the error `handled`."""

    handled: Exception | None = None

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        handled, self.handled = self.handled, None
        if handled is not None:
            try:
                raise handled
            except type(handled):
                raise KeyboardInterrupt from None
        super().pwritev(fd, pieces, offset)


def test_an_error_that_a_library_was_handling_when_the_interrupt_came_is_no_failure(tmp_path: Path) -> None:
    files = InterruptedFiles()
    with seglog.open(tmp_path / "data", files=files) as log:
        log.create_topic("t")
        files.handled = AttributeError("a path that makes its text when it is asked for it")
        with pytest.raises(KeyboardInterrupt):
            log.topic("t").append([b"one"])
        assert log.topic("t").append([b"two"]) == range(2, 3)
        files.handled = OSError(errno.EIO, "the disk")
        with pytest.raises((KeyboardInterrupt, WriterPoisoned)):
            log.topic("t").append([b"three"])
        assert log.is_poisoned
        assert [record.value for record in log.topic("t").read()] == [b"one", b"two"]


class OftenInterruptedFiles(UnsyncedFiles):
    """A file port that interrupts the next `interrupts` writes."""

    interrupts = 0

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        if self.interrupts:
            self.interrupts -= 1
            raise KeyboardInterrupt
        super().pwritev(fd, pieces, offset)


def test_another_caller_leads_when_a_leader_gives_up_after_many_interrupts(tmp_path: Path) -> None:
    files = OftenInterruptedFiles()
    log = seglog.open(tmp_path / "data", files=files)  # not closed on failure: a close would wait for the group
    log.create_topic("t")
    files.interrupts = 1000
    with pytest.raises(KeyboardInterrupt):
        log.topic("t").append([b"interrupted"])
    assert 0 < files.interrupts < 1000
    files.interrupts = 0
    follower = threading.Thread(target=log.topic("t").append, args=([b"after"],), daemon=True)
    follower.start()
    follower.join(20)
    assert not follower.is_alive(), "nobody leads"
    assert [record.value for record in log.topic("t").read()] == [b"interrupted", b"after"]
    log.close()


def test_close_waits_for_appends_on_their_way(log: Log, files: GatedFiles) -> None:
    leader = _start_one_that_waits_in_its_sync(log, files)
    closer = threading.Thread(target=log.close)
    closer.start()
    _wait_for_queue(log, 1)
    with pytest.raises(seglog.LogClosed):
        log.topic("t").append([b"late"])
    files.gate.set()
    leader.join()
    closer.join()
    with seglog.open(log.path) as again:
        assert [record.value for record in again.topic("t").read()] == [b"first"]
