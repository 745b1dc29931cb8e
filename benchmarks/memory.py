"""The cost of an open log: bytes of memory a record and a producer, and open files with 10,000 topics. Counted.

Memory is what Python allocates (tracemalloc) for a topic of 100-byte records. It is measured before a checkpoint, when
the records are in the write-ahead log only, and after `seal`. Open files are those of the process, minus the files that
it had open before the log. There are 10,000 topics of one record each, all in segments, and each topic has been read.

Producers are 10,000 of one topic, the most that it knows. Each one has appended five batches of one record, the most
that the topic keeps of it. Their memory is measured after `seal`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import tracemalloc
from pathlib import Path

import seglog
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone
from seglog import ProducerBatch, aio
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import OsFiles

__all__ = ["SUMMARY", "run"]

SUMMARY = "bytes of memory a record, open files with 10,000 topics"

RECORDS = 200_000
RECORD_BYTES = 100
TOPICS = 10_000
PRODUCERS = 10_000
_BATCH = 1_000
_BATCHES_KEPT = 5
_UNSEALED_AIM = 32
_SEALED_AIM = 1
_PRODUCER_AIM = 1_500
_OPEN_FILES_AIM = 160


class _Unsynced(OsFiles):
    """Files without syncs. Counts do not depend on syncs, and 10,000 new directories need many."""

    def datasync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: Path) -> None:
        pass


def run(options: Options) -> Report:
    rows = [*_memory(options), *_producers(options), *_open_files(options)]
    return Report("memory", SUMMARY, tuple(rows), describe(options.directory), 1)


def _memory(options: Options) -> list[Row]:
    records = RECORDS // 20 if options.quick else RECORDS
    lines = log_lines(_BATCH, RECORD_BYTES)
    place = _empty(options.directory / "memory")
    with seglog.open(place, upkeep=InCaller) as log:
        topic = log.topic("bench")
        topic.append(lines)
        topic.seal()
        tracemalloc.start()
        before = _allocated()
        for _ in range(records // _BATCH):
            topic.append(lines, durability="memory")
        unsealed = _allocated() - before
        topic.seal()
        sealed = _allocated() - before
        tracemalloc.stop()
    shutil.rmtree(place)
    return [
        alone("memory, unsealed", "bytes/record", unsealed / records, at_most=_UNSEALED_AIM),
        alone("memory, sealed", "bytes/record", sealed / records, at_most=_SEALED_AIM),
    ]


def _producers(options: Options) -> list[Row]:
    """Return the row of a topic that knows as many producers as it can, each with all batches that it keeps."""
    producers = PRODUCERS // 20 if options.quick else PRODUCERS
    place = _empty(options.directory / "memory")
    with seglog.open(place, upkeep=InCaller, files=_Unsynced()) as log:
        topic = log.topic("bench")
        topic.append([b"first"])
        topic.seal()
        tracemalloc.start()
        before = _allocated()
        for batch in range(_BATCHES_KEPT):
            for number in range(producers):
                identity = ProducerBatch(f"producer-{number:08}", 0, batch)
                topic.append([b"x"], producer=identity, durability="memory")
        topic.seal()  # else the figure has the records of the write-ahead log, too
        held = _allocated() - before
        tracemalloc.stop()
        if topic.inner.known_producer("producer-00000000") is None:
            raise RuntimeError("the topic has forgotten a producer: the figure would be wrong")
    shutil.rmtree(place)
    return [alone(f"memory, {producers:,} producers", "bytes/producer", held / producers, at_most=_PRODUCER_AIM)]


def _open_files(options: Options) -> list[Row]:
    topics = 200 if options.quick else TOPICS
    place = _empty(options.directory / "memory")
    asyncio.run(_make_topics(place, topics))
    before = _count_open()
    with seglog.open(place, files=_Unsynced()) as log:
        for name in log.topics():
            if len(list(log.topic(name).read())) != 1:
                raise RuntimeError("a topic is not as it was made: the figure would be wrong")
        found = _count_open() - before
    shutil.rmtree(place)
    return [alone(f"open files, {topics:,} topics", "files", found, at_most=_OPEN_FILES_AIM)]


async def _make_topics(place: Path, topics: int) -> None:
    async with aio.open(place, files=_Unsynced()) as log:
        await asyncio.gather(*[log.topic(f"topic-{number}").append([b"only one"]) for number in range(topics)])


def _allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _count_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def _empty(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
