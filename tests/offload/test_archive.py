"""An archive as an application holds it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import InvalidName
from catalog.objects.memory import MemoryStore
from offload import OffloadSettings
from offload.errors import NoRemote
from seglog import ColdTierAttached, ColdTierRequired, InvalidSetting, LogSettings


def test_a_log_has_one_archive_at_a_time(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log:
        with offload.attach(log, store=MemoryStore()), pytest.raises(ColdTierAttached):
            offload.attach(log, store=MemoryStore())
        offload.attach(log, store=MemoryStore()).close()


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


def test_without_a_remote_there_is_nothing_to_attach(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, pytest.raises(NoRemote):
        offload.attach(log)


def test_a_record_that_would_not_fit_a_block_is_refused_before_there_is_one(tmp_path: Path) -> None:
    small = OffloadSettings(block_size=5 * 1024 * 1024)
    too_large = LogSettings(max_record_bytes=5 * 1024 * 1024)
    with seglog.open(tmp_path, settings=too_large) as log, pytest.raises(InvalidSetting, match="would not fit"):
        offload.attach(log, store=MemoryStore(), settings=small)
    with (
        seglog.open(tmp_path, settings=LogSettings(max_record_bytes=5_050_000)) as log,
        offload.attach(log, store=MemoryStore(), settings=small) as archive,
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
            archive.writable("t@main")


def test_appends_reads_offloads_and_deletes_go_on_together(tmp_path: Path) -> None:
    """Four appenders, two offloaders, a reader: every record once, in order, whatever was hot or cold meanwhile."""
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
        archive.delete("t", before=1000)
        assert [record.seq for record in topic.read()] == list(range(1000, 1202))
        assert [record.seq for record in archive.read("t", at="head~1")] == list(range(1, 1202))
