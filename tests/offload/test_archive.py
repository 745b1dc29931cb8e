"""Test an archive as an application uses it."""

from __future__ import annotations

import inspect
import logging
import shutil
import threading
from pathlib import Path
from unittest.mock import create_autospec

import pytest

import offload
import seglog
from catalog.errors import InvalidName, NoSuchObject, StoreUnreachable
from catalog.format import keys
from catalog.objects.memory import MemoryStore
from offload import OffloadSettings
from offload.errors import HistoryBehind, NoRemote, OtherRemote
from offload.moment import format_time
from seglog import ColdTierRequired, Conflict, InvalidSetting, LogSettings
from tests.faults.store import EFFECTS, CountingStore, Fault, FaultyStore, unreachable
from tests.faults.stuck_store import StuckStore
from tests.worlds.clock import HandClock


def test_a_log_has_one_archive_at_a_time(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log:
        with offload.attach(log, store=MemoryStore()), pytest.raises(Conflict, match="cold tier already"):
            offload.attach(log, store=MemoryStore())
        offload.attach(log, store=MemoryStore()).close()


def test_tools_may_look_at_the_class_and_make_a_double_of_it() -> None:
    assert {"branches", "collection", "history", "read"} <= dict(inspect.getmembers(offload.Archive)).keys()
    create_autospec(offload.Archive).read("t")


def test_an_archive_that_is_not_made_leaves_the_log_without_a_cold_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seglog.open(tmp_path) as log:
        log.topic("t").append([b"hot"])

        def fails(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("offload.archive.ArchiveParts", fails)
            with pytest.raises(KeyboardInterrupt):
                offload.attach(log, store=MemoryStore())
        offload.attach(log, store=MemoryStore()).close()
        assert [record.value for record in log.topic("t").read()] == [b"hot"]


def test_a_close_frees_the_chunk_cache_that_no_read_has_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with seglog.open(tmp_path) as log:
        offload.attach(log, store=MemoryStore()).close()
        with caplog.at_level(logging.WARNING, "offload.read.chunk_cache"):
            offload.attach(log, store=MemoryStore()).close()
    assert not [record for record in caplog.records if record.name == "offload.read.chunk_cache"]


def test_after_close_cold_records_are_named_as_such_and_hot_ones_read_on(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log:
        with offload.attach(log, store=MemoryStore()) as archive:
            log.topic("t").append([b"cold"])
            log.topic("t").seal()
            archive.offload("t", drop_hot=True)
            log.topic("t").append([b"hot"])
        assert [record.value for record in log.topic("t").read(2)] == [b"hot"]
        with pytest.raises(ColdTierRequired):
            list(log.topic("t").read(1))


def test_a_time_between_what_the_remote_knows_and_what_it_does_not_is_the_newest_that_it_knows(tmp_path: Path) -> None:
    clock = HandClock()
    with seglog.open(tmp_path, clock=clock) as log, offload.attach(log, store=MemoryStore(), clock=clock) as archive:
        topic = log.topic("t")
        topic.append([b"a"])
        topic.seal()
        archive.offload("t")
        clock.ms += 1000
        topic.append([b"never sealed"])
        topic.truncate(2)
        between = format_time(clock.ms)
        assert [record.value for record in archive.read("t", at=between)] == [b"a"]
        clock.ms += 1000
        topic.append([b"b"])
        assert [record.value for record in archive.read("t", at=between)] == [b"a"]
        assert [record.value for record in archive.read("t", at=format_time(clock.ms))] == [b"a", b"b"]


def test_without_a_remote_there_is_nothing_to_attach(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, pytest.raises(NoRemote):
        offload.attach(log)


def test_a_record_that_would_not_fit_a_block_is_refused_before_there_is_one(tmp_path: Path) -> None:
    small = OffloadSettings(block_size=5 * 1024 * 1024)
    too_large = LogSettings(max_record_bytes=5 * 1024 * 1024)
    with seglog.open(tmp_path, settings=too_large) as log, pytest.raises(InvalidSetting, match="would not fit"):
        offload.attach(log, store=MemoryStore(), settings=offload.Settings().with_parts(small))
    with (
        seglog.open(tmp_path, settings=LogSettings(max_record_bytes=5_050_000)) as log,
        offload.attach(log, store=MemoryStore(), settings=offload.Settings().with_parts(small)) as archive,
    ):
        values = [bytes(5_050_000), b"x", bytes([1]) * 5_050_000]
        log.topic("t").append(values)
        log.topic("t").seal()
        archive.offload("t", drop_hot=True)
        assert [record.value for record in log.topic("t").read()] == values


def test_main_has_one_name(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, offload.attach(log, store=MemoryStore()) as archive:
        log.topic("t").append([b"a"])
        with pytest.raises(InvalidName):
            archive.open_for_append("t@main")


def test_appends_reads_offloads_and_deletes_go_on_together(tmp_path: Path) -> None:
    """Run four appenders, two offloaders and a reader together.

    The reader gets every record once, in order, whether it is hot or cold at that time.
    """
    settings = LogSettings(segment_max_events=50)
    with seglog.open(tmp_path, settings=settings) as log, offload.attach(log, store=MemoryStore()) as archive:
        topic = log.topic("t")
        topic.append([b"first"])
        done = threading.Event()
        failures: list[BaseException] = []

        def run(work: object) -> None:
            try:
                work()  # type: ignore[operator]
            except BaseException as error:
                failures.append(error)
                done.set()

        def append() -> None:
            for number in range(60):
                topic.append([b"%d" % number] * 5, durability="disk")

        def move() -> None:
            while not done.is_set():
                topic.seal()
                archive.offload("t", drop_hot=True)

        def read() -> None:
            while not done.is_set():
                seqs = [record.seq for record in topic.read()]
                assert seqs == list(range(1, len(seqs) + 1))

        appenders = [threading.Thread(target=run, args=(append,)) for _ in range(4)]
        others = [threading.Thread(target=run, args=(work,)) for work in (move, move, read)]
        for thread in (*appenders, *others):
            thread.start()
        for thread in appenders:
            thread.join(120)
        done.set()
        for thread in others:
            thread.join(120)
        assert failures == []
        topic.seal()
        archive.offload("t")  # the records after the offloaders' last look
        archive.delete("t", before=1000)
        assert [record.seq for record in topic.read()] == list(range(1000, 1202))
        assert [record.seq for record in archive.read("t", at="head~1")] == list(range(1, 1202))


def test_another_remote_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    one, other = MemoryStore(), CountingStore(MemoryStore())
    with seglog.open(tmp_path) as log:
        with offload.attach(log, store=one) as archive:
            log.topic("t").append([b"a"])
            log.topic("t").seal()
            archive.offload("t")
        log.topic("t").append([b"b"])
        log.topic("t").seal()
        with offload.attach(log, store=other) as archive:
            with pytest.raises(OtherRemote):
                archive.offload("t", drop_hot=True)
            assert archive.delete("t", before=2).waits_for is not None
            assert not EFFECTS & set(other.counts)
        with offload.attach(log, store=one) as archive:
            assert archive.offload("t", drop_hot=True).offloaded_seq == 2
            assert [record.value for record in log.topic("t").read()] == [b"b"]


def test_a_catalog_older_than_the_log_is_told_and_no_record_skipped(tmp_path: Path) -> None:
    store = MemoryStore()
    with seglog.open(tmp_path) as log:
        for number, value in enumerate([b"a", b"b"]):
            with offload.attach(log, store=store) as archive:
                log.topic("t").append([value])
                log.topic("t").seal()
                archive.offload("t", drop_hot=True)
            if number == 0:
                shutil.copy(tmp_path / "catalog.db", tmp_path / "old.db")
        shutil.copy(tmp_path / "old.db", tmp_path / "catalog.db")
        with offload.attach(log, store=store), pytest.raises(HistoryBehind):
            list(log.topic("t").read())


def test_a_hot_copy_is_checked_in_its_own_order_whatever_the_clock_said(tmp_path: Path) -> None:
    clock, store = HandClock(), MemoryStore()
    with seglog.open(tmp_path) as log, offload.attach(log, store=store, clock=clock) as archive:
        for value in (b"a", b"b"):
            log.topic("t").append([value])
            log.topic("t").seal()
            archive.offload("t")
            clock.ms -= 1000
        [_, second] = archive.history.commits("t")
        first = second.commit
        store.delete(keys.data_key(first.vid, first.segments[0].sid))
        with pytest.raises(NoSuchObject):
            archive.offload("t", drop_hot=True)
        assert log.topic("t").inner.hot_floor == 1


def test_a_target_below_what_is_offloaded_waits_for_the_delete_before_it(tmp_path: Path) -> None:
    store = FaultyStore(MemoryStore(), [Fault(nth=4, method="put_new", error=unreachable)])
    with seglog.open(tmp_path) as log, offload.attach(log, store=store) as archive:
        topic = log.topic("t")
        topic.append([b"1", b"2", b"3"])
        archive.delete("t", before=3)
        topic.append([b"4", b"5"])
        topic.seal()
        with pytest.raises(StoreUnreachable):
            archive.offload("t")  # the records are in the remote, the delete is not
        assert [record.seq for record in archive.read("t", at="seq:5")] == [3, 4, 5]
        assert [record.seq for record in archive.read("t", at="seq:3")] == [1, 2, 3]


def test_a_branch_opened_for_writing_keeps_the_times_of_what_it_came_from(tmp_path: Path) -> None:
    clock = HandClock()
    start_ms = clock.ms
    with (
        seglog.open(tmp_path, clock=clock) as log,
        offload.attach(log, store=MemoryStore(), clock=clock) as archive,
    ):
        log.topic("t").append([b"%d" % number for number in range(1, 6)])
        clock.ms += 10_000
        archive.delete("t", before=4)
        archive.restore("t", to="head", name="b")
        between = format_time(start_ms + 5_000)
        assert [record.seq for record in archive.read("t@b", at=between)] == [1, 2, 3, 4, 5]
        clock.ms -= 60_000
        archive.open_for_append("t@b").append([b"6"])
        assert [record.seq for record in archive.read("t@b", at=between)] == [1, 2, 3, 4, 5]
        assert [record.seq for record in archive.read("t@b")] == [4, 5, 6]
        assert archive.restore("t@b", to=between, name="c").records == 5


def test_a_delete_does_not_wait_for_an_offload_that_runs(tmp_path: Path) -> None:
    store = StuckStore()
    with seglog.open(tmp_path) as log, offload.attach(log, store=store) as archive:  # type: ignore[arg-type]
        log.topic("t").append([b"a", b"b"])
        log.topic("t").seal()
        store.stuck.set()
        failed: list[StoreUnreachable] = []

        def run() -> None:
            try:
                archive.offload("t")
            except StoreUnreachable as error:
                failed.append(error)

        offloading = threading.Thread(target=run)
        offloading.start()
        assert store.waiting.wait(30)
        assert archive.delete("t", before=2).waits_for == "the offload that is running"
        assert [record.value for record in log.topic("t").read()] == [b"b"]
        store.release.set()
        offloading.join(30)
        assert len(failed) == 1


def test_a_restore_names_the_last_record_that_lives(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, offload.attach(log, store=MemoryStore()) as archive:
        log.topic("t").append([b"a", b"b"])
        log.topic("t").append([b"c"], tag="x")
        archive.delete("t", tag="x")
        restored = archive.restore("t", to="head", name="b")
        assert (restored.records, restored.last_seq) == (2, 2)
        [last] = archive.read("t", 2, 2)
        assert restored.last_ts_ms == last.ts_ms


def test_a_reader_on_its_way_in_the_cold_tier_sees_no_record_deleted_before_it_got_there(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, offload.attach(log, store=MemoryStore()) as archive:
        topic = log.topic("t")
        topic.append([b"%d" % number for number in range(1, 11)])
        topic.seal()
        archive.offload("t", drop_hot=True)
        records = topic.read()
        assert next(records).seq == 1
        assert archive.delete("t", before=6).lsn == 2
        assert [record.seq for record in records] == [6, 7, 8, 9, 10]


def test_an_append_continues_a_branch_where_it_forks(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, offload.attach(log, store=MemoryStore()) as archive:
        log.topic("t").append([b"a", b"b"])
        archive.restore("t", to="seq:1", name="half")
        assert log.topic("t@half").append([b"x"]) == range(2, 3)
        assert [record.value for record in archive.read("t@half")] == [b"a", b"x"]


def test_topics_made_while_an_archive_is_attached_keep_their_deletes(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, offload.attach(log, store=MemoryStore()) as archive:
        log.create_topic("t")
        log.topic("t").append([b"a", b"b"])
        archive.delete("t", before=2)
        log.checkpoint()
        log.topic("t").seal()
        archive.offload("t")
        assert [record.value for record in archive.read("t", at="seq:2")] == [b"a", b"b"]
