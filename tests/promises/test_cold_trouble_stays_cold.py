"""Trouble in the archive's store or in the log's warm store never touches appends or hot reads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offload
import seglog
from catalog.errors import StoreUnreachable
from seglog import Log, LogSettings, SeglogError, TopicConfig, WarmStoreFailed
from seglog.engine.work_thread import Background, InCaller, UpkeepFactory
from seglog.tiers.segment_store import MemorySegmentStore
from tests.faults.stuck_store import StuckStore
from tests.seams.limits import Limit, set_limit


def test_a_store_that_hangs_holds_up_neither_appends_nor_hot_reads(tmp_path: Path) -> None:
    store = StuckStore()
    failures: list[BaseException] = []
    with seglog.open(tmp_path / "data") as log, offload.attach(log, store=store) as archive:  # type: ignore[arg-type]
        topic = log.topic("t")
        topic.append([b"cold"])
        topic.seal()
        archive.offload("t", drop_hot=True)
        store.stuck.set()

        def read_cold() -> None:
            try:
                list(topic.read(1, 1))
            except StoreUnreachable as error:
                failures.append(error)

        reader = threading.Thread(target=read_cold)
        reader.start()
        assert store.waiting.wait(30)
        for number in range(2, 200):
            assert topic.append([b"hot"]) == range(number, number + 1)
        assert [record.seq for record in topic.read(2)] == list(range(2, 200))
        topic.seal()
        assert reader.is_alive()  # the appends, the read and the seal ran while the store hung
        store.release.set()
        reader.join(30)
        assert len(failures) == 1

        with pytest.raises(StoreUnreachable):
            archive.offload("t")
        assert [record.seq for record in topic.read(2)] == list(range(2, 200))
        store.stuck.clear()
        assert archive.offload("t").offloaded_seq == 199
        assert [record.value for record in topic.read()] == [b"cold"] + [b"hot"] * 198


# ---------------------------------------------------------------- the warm store of a log

#: An append that fills a file of the write-ahead log has to wait for a checkpoint.
SETTINGS = LogSettings(segment_max_events=10, wal_file_bytes=4096, wal_max_files=1, hot_retain_segments=2)
CALLS = ("put", "read_range", "length", "delete")


class StuckSegments:
    """A segment store. Each call named in `stuck` waits for `release`. Then it works, or fails if `fails` is set."""

    def __init__(self) -> None:
        self._inner = MemorySegmentStore()
        self.stuck: tuple[str, ...] = ()
        self.fails = False
        self.release = threading.Event()
        self.waiting = threading.Event()

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> Any:
            if name in self.stuck:
                self.waiting.set()
                assert self.release.wait(60)
                if self.fails:
                    raise OSError(5, "it hung")
            return getattr(self._inner, name)(*args)

        return call


def opened(tmp_path: Path, store: Any, upkeep: UpkeepFactory = Background) -> Log:
    return seglog.open(tmp_path / "data", settings=SETTINGS, warm_stores=lambda _: store, upkeep=upkeep)


def fill(log: Log, records: int = 60) -> None:
    for _ in range(records):
        log.topic("t").append([b"." * 100], tag="old")
    log.topic("t").seal()


def settled(tmp_path: Path, store: Any) -> None:
    """Append more records, and relocate every segment that is due, as far as the store allows."""
    with opened(tmp_path, store, InCaller) as log:
        fill(log)


def work(log: Log) -> None:
    """Do everything that works while the warm store hangs."""
    topic = log.topic("t")
    head = topic.head_seq
    for number in range(1, 101):
        assert topic.append([b"hot" * 30]) == range(head + number, head + number + 1)
    assert log.wal_bytes < 3 * SETTINGS.wal_file_bytes  # checkpoints were made, and some appends waited for them
    assert [record.seq for record in topic.read(head + 1)] == list(range(head + 1, head + 101))
    assert len(list(topic.inner.frames(head + 1, head + 100))) == 100
    log.checkpoint()
    topic.seal()
    topic.delete(tag="old")
    topic.delete(before=15)
    assert topic.seq_at(2**60) == head + 101
    topic.truncate(head + 96)
    log.topic("capped").append([b"x" * 100] * 40)
    log.configure("capped", TopicConfig(cap_records=20))
    log.topic("capped").append([b"x" * 100] * 40)
    log.enforce_retention()
    log.create_topic("gone")
    log.delete_topic("gone")
    log.checkpoint()
    assert [record.seq for record in topic.read(head + 1)] == list(range(head + 1, head + 96))


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_segment_store_that_hangs_holds_up_the_relocator_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, fails: bool
) -> None:
    set_limit(monkeypatch, Limit.CLOSE_PATIENCE_S, 0.1)  # the store answers after both closings, however long they wait
    threads = set(threading.enumerate())
    store = StuckSegments()
    settled(tmp_path, store)
    store.stuck, store.fails = (call,), fails
    with opened(tmp_path, store) as log:
        log.topic("t").inner.release(15)  # so that the relocator has a segment to delete
        log.topic("t").append([b"." * 100] * 30, tag="old")
        log.topic("t").seal()
        assert store.waiting.wait(30)
        work(log)
        wanted = [record.seq for record in log.topic("t").read(91)]
        assert not store.release.is_set()  # all this ran while the store hung, and so does the close
    with opened(tmp_path, store) as log:
        assert [record.seq for record in log.topic("t").read(91)] == wanted
    store.release.set()
    store.stuck = ()
    for thread in set(threading.enumerate()) - threads:  # a put may outlive its log (decision 0091)
        thread.join(60)
    settled(tmp_path, store)
    with opened(tmp_path, store) as log:
        topic = log.topic("t")
        assert [record.seq for record in topic.read(91)][: len(wanted)] == wanted
        assert len([segment for segment in topic.inner.segments() if not segment.is_hot]) > 3
        alive = [record.seq for record in topic.read()]
        assert alive[: len(wanted)] == wanted  # deletes made during the trouble hold in both tiers


@pytest.mark.parametrize("fails", [False, True])
def test_a_read_of_a_store_that_hangs_waits_and_nobody_else_does(tmp_path: Path, fails: bool) -> None:
    store = StuckSegments()
    settled(tmp_path, store)
    outcomes: list[object] = []
    with opened(tmp_path, store) as log:
        topic = log.topic("t")
        readers: list[Callable[[], object]] = [
            lambda: [record.seq for record in topic.read(1, 40)],
            lambda: len(list(topic.inner.frames(1, 40))),
            lambda: topic.seq_at(topic.inner.segments()[1].min_ts_ms),
            lambda: topic.truncate(15),
        ]

        def ask(reader: Callable[[], object]) -> None:
            try:
                outcomes.append(reader())
            except SeglogError as error:  # another thread may delete the records that this one reads
                outcomes.append(type(error))

        store.stuck, store.fails = ("read_range",), fails
        threads = [threading.Thread(target=ask, args=(reader,)) for reader in readers[: 3 + fails]]
        for thread in threads:
            thread.start()
        assert store.waiting.wait(30)
        work(log)
        assert all(thread.is_alive() for thread in threads)
        store.release.set()
        for thread in threads:
            thread.join(30)
        store.stuck = ()
        if fails:
            assert outcomes == [WarmStoreFailed] * 4
        assert len(outcomes) == len(threads)
        assert [record.seq for record in topic.read(61, 70)] == list(range(61, 71))


def test_a_store_that_fails_is_tried_again_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    store = StuckSegments()
    store.release.set()
    store.fails = True
    for call in CALLS:
        store.stuck = (call,)
        settled(tmp_path, store)
    store.stuck = ()
    settled(tmp_path, store)
    with opened(tmp_path, store) as log:
        topic = log.topic("t")
        assert [record.seq for record in topic.read()] == list(range(1, topic.head_seq + 1))
        assert [segment.is_hot for segment in topic.inner.segments()[-3:]] == [False, True, True]
