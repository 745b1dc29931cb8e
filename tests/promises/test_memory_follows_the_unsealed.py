"""The memory and open files of an open log follow the unsealed records, not the history. The tests count sizes.

unsealed   at most 28 bytes a record, of which 24 are the index; a million records
sealed     next to nothing a record: one value a segment
files      at most two for each of 64 segments, and those of the write-ahead log, with thousands of topics
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from pathlib import Path

import pytest

import seglog
from seglog import LogSettings
from seglog.engine.work_thread import InCaller
from tests.faults.files import UnsyncedFiles
from tests.seams.log import engine_of

MILLION = 1_000_000
BATCH = 10_000
OPEN_MAX = 2 * 64
TOPICS = 2_000


class CountingFiles(UnsyncedFiles):
    """`most` is the highest number of files open at once."""

    def __init__(self) -> None:
        super().__init__()
        self.open_now = 0
        self.most = 0

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        self.open_now += 1
        self.most = max(self.most, self.open_now)
        return fd

    def close(self, fd: int) -> None:
        self.open_now -= 1
        super().close(fd)


def _append(topic: seglog.Topic, records: int) -> None:
    values = [b""] * BATCH
    for _ in range(records // BATCH):
        topic.append(values, durability="memory")


@pytest.mark.long
def test_a_million_unsealed_records_cost_their_index_and_no_more(tmp_path: Path) -> None:
    with seglog.open(tmp_path, files=UnsyncedFiles(), upkeep=InCaller) as log:
        _append(log.topic("t"), MILLION)
        tail = engine_of(log).topics["t"].tail
        assert len(tail) == MILLION
        columns = [getattr(tail, name) for name in tail.__slots__]
        size = sum(sys.getsizeof(column) for column in columns)
        assert size / MILLION <= 28
        log.checkpoint()
        assert sum(sys.getsizeof(getattr(tail, name)) for name in tail.__slots__) < 10_000
        infos = log.topic("t").inner.segments()
        assert sum(sys.getsizeof(info) for info in infos) / MILLION < 0.1


def test_nothing_else_grows_with_the_records(tmp_path: Path) -> None:
    records = 10 * BATCH
    with seglog.open(tmp_path, files=UnsyncedFiles(), upkeep=InCaller) as log:
        topic = log.topic("t")
        _append(topic, BATCH)
        log.checkpoint()
        assert sum(1 for _ in topic.read()) == BATCH
        tracemalloc.start()
        try:
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            _append(topic, records)
            gc.collect()
            unsealed, _ = tracemalloc.get_traced_memory()
            log.checkpoint()
            gc.collect()
            sealed, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert topic.inner.sealed_seq == records + BATCH
        assert (unsealed - before) / records <= 30
        assert (sealed - before) / records <= 1


@pytest.mark.long
def test_open_files_are_bounded_whatever_the_number_of_topics(tmp_path: Path) -> None:
    files = CountingFiles()
    settings = LogSettings(segment_max_events=1)
    with seglog.open(tmp_path, files=files, upkeep=InCaller, settings=settings) as log:
        for number in range(TOPICS):
            log.topic(f"t{number}").append([b"x"], durability="memory")
        log.checkpoint()
        assert files.most <= OPEN_MAX + 8
        for number in range(TOPICS):
            assert [record.value for record in log.topic(f"t{number}").read()] == [b"x"]
    assert files.most <= OPEN_MAX + 8
    files = CountingFiles()
    with seglog.open(tmp_path, files=files, upkeep=InCaller, settings=settings) as log:
        assert len(log.topics()) == TOPICS
        assert files.most <= 8
