"""How fast records are acked at `fsync`: one appender, batches, many threads, many asyncio tasks.

Yardsticks, on the same directory in the same run:

    raw      pwrite and fdatasync of as many bytes as the frames take, on a preallocated file: what the disk allows
    sqlite   SQLite with a write-ahead log and synchronous=FULL, one transaction a batch: the durable store that comes
             with Python. Threads share one connection under a lock, which is its best case.

Batches write somewhat more than one WAL file, so that a checkpoint is made meanwhile; "longest" is the append that
waited longest. "During a checkpoint" is of those single appends that were on their way while one was made. The other
figures are of a few MB, without one. Tasks append one record each time, to `seglog.aio`; a task's yardsticks append
the records of all tasks in batches of as many.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import seglog
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, compare
from benchmarks.runner import Figures, in_turns, settle_disk
from seglog import aio

__all__ = ["SUMMARY", "run"]

SUMMARY = "appends acked at fsync: latency of one appender, records/s in batches, from 16 threads, from asyncio tasks"

BATCH = 64
THREADS = 16
SINGLE_APPENDS = 4_000
BATCH_BYTES = 72 << 20
THREAD_APPENDS = 1_000
TASKS = {1: 4_000, 16: 20_000, 256: 100_000, 2_000: 200_000}  # how many append, and what they append together
STALL_BYTES = 80 << 20
STALL_RECORD_BYTES = 16 << 10
DISTINCT_BATCHES = 100
FRAME_OVERHEAD_BYTES = 46

Append = Callable[[Sequence[bytes]], object]


def run(options: Options) -> Report:
    rows = [
        *_one_appender(options),
        *_batches(options, 200),
        *_batches(options, 1024),
        *_during_a_checkpoint(options),
        *_threads(options),
        *(row for tasks, appends in TASKS.items() for row in _tasks(options, tasks, appends)),
    ]
    return Report("append", SUMMARY, tuple(rows), describe(options.directory))


def _one_appender(options: Options) -> list[Row]:
    batches = [[line] for line in log_lines(SINGLE_APPENDS, 200)]
    subjects = {
        "seglog": lambda: _with_seglog(options.directory, lambda append: _latencies(append, batches)),
        "raw": lambda: _with_raw(options.directory, lambda append: _latencies(append, batches)),
        "sqlite": lambda: _with_sqlite(options.directory, lambda append: _latencies(append, batches)),
    }
    rounds = in_turns(subjects, rounds=options.rounds, label="one appender, 200 B")
    return [
        *compare(rounds, "one appender, 200 B, p50", "us", "p50_us", "raw", "sqlite", more_is_better=False),
        *compare(rounds, "one appender, 200 B, p99", "us", "p99_us", "raw", "sqlite", more_is_better=False),
    ]


def _batches(options: Options, size_bytes: int) -> list[Row]:
    lines = log_lines(BATCH * DISTINCT_BATCHES, size_bytes)
    distinct = [lines[start : start + BATCH] for start in range(0, len(lines), BATCH)]
    count = BATCH_BYTES // (BATCH * (size_bytes + FRAME_OVERHEAD_BYTES)) + 1
    batches = [distinct[number % DISTINCT_BATCHES] for number in range(count)]
    subjects = {
        "seglog": lambda: _with_seglog(options.directory, lambda append: _rate(append, batches)),
        "raw": lambda: _with_raw(options.directory, lambda append: _rate(append, batches)),
        "sqlite": lambda: _with_sqlite(options.directory, lambda append: _rate(append, batches)),
    }
    label = f"batches of {BATCH}, {size_bytes} B"
    rounds = in_turns(subjects, rounds=options.rounds, label=label)
    return [
        *compare(rounds, label, "records/s", "records_per_s", "raw", "sqlite", more_is_better=True),
        *compare(rounds, f"{label}, longest", "ms", "longest_ms", "raw", "sqlite", more_is_better=False),
    ]


def _during_a_checkpoint(options: Options) -> list[Row]:
    """Appends of one value, until a checkpoint has been made of a full WAL file: p99 of those meanwhile."""
    batches = [[line] for line in log_lines(STALL_BYTES // STALL_RECORD_BYTES, STALL_RECORD_BYTES)]

    def ours() -> Figures:
        place = _empty(options.directory / "append-seglog")
        with seglog.open(place) as log:
            topic = log.topic("bench")
            topic.append([b"makes the topic"])
            settle_disk()
            times = _timed_during(topic.append, batches, lambda: log.wal_bytes)
        shutil.rmtree(place)
        return _percentiles(times)

    subjects = {
        "seglog": ours,
        "raw": lambda: _with_raw(options.directory, lambda append: _latencies(append, batches)),
    }
    label = f"one appender, {STALL_RECORD_BYTES >> 10} KiB, during a checkpoint"
    rounds = in_turns(subjects, rounds=options.rounds, label=label)
    return [
        *compare(rounds, f"{label}, p50", "us", "p50_us", "raw", more_is_better=False),
        *compare(rounds, f"{label}, p99", "us", "p99_us", "raw", more_is_better=False),
    ]


def _threads(options: Options) -> list[Row]:
    batches = [[line] for line in log_lines(THREAD_APPENDS, 200)]
    subjects = {
        "seglog": lambda: _with_seglog(options.directory, lambda append: _from_threads(append, batches)),
        "sqlite": lambda: _with_sqlite(options.directory, lambda append: _from_threads(append, batches)),
    }
    label = f"{THREADS} threads, 200 B"
    rounds = in_turns(subjects, rounds=options.rounds, label=label)
    return [
        *compare(rounds, label, "records/s", "records_per_s", "sqlite", more_is_better=True),
        *compare(rounds, f"{label}, p50", "us", "p50_us", "sqlite", more_is_better=False),
        *compare(rounds, f"{label}, p99", "us", "p99_us", "sqlite", more_is_better=False),
    ]


def _tasks(options: Options, tasks: int, appends: int) -> list[Row]:
    batches = [[line] for line in log_lines(max(1, appends // tasks), 200)]
    together = [batch * tasks for batch in batches]
    subjects = {
        "seglog": lambda: _with_aio(options.directory, batches, tasks),
        "raw": lambda: _with_raw(options.directory, lambda append: _acks(append, together)),
        "sqlite": lambda: _with_sqlite(options.directory, lambda append: _acks(append, together)),
    }
    label = f"asyncio, {tasks} tasks, 200 B" if tasks > 1 else "asyncio, 1 task, 200 B"
    rounds = in_turns(subjects, rounds=options.rounds, label=label)
    return [
        *compare(rounds, label, "records/s", "records_per_s", "raw", "sqlite", more_is_better=True),
        *compare(rounds, f"{label}, p50", "us", "p50_us", "raw", "sqlite", more_is_better=False),
    ]


def _acks(append: Append, batches: Sequence[Sequence[bytes]]) -> Figures:
    settle_disk()
    times = _timed(append, batches)
    return {"records_per_s": sum(map(len, batches)) / sum(times), **_percentiles(times)}


def _with_aio(directory: Path, batches: Sequence[Sequence[bytes]], tasks: int) -> Figures:
    """Every task appends all of `batches`."""
    place = _empty(directory / "append-seglog")
    times: list[float] = []

    async def work(topic: aio.AsyncTopic) -> None:
        clock = time.perf_counter
        for batch in batches:
            start = clock()
            await topic.append(batch)
            times.append(clock() - start)

    async def whole() -> float:
        async with aio.open(place) as log:
            topic = log.topic("bench")
            await topic.append([b"makes the topic"])
            settle_disk()
            start = time.perf_counter()
            await asyncio.gather(*[work(topic) for _ in range(tasks)])
            return time.perf_counter() - start

    elapsed = asyncio.run(whole())
    shutil.rmtree(place)
    return {"records_per_s": tasks * len(batches) / elapsed, **_percentiles(times)}


def _timed_during(append: Append, batches: Sequence[Sequence[bytes]], wal_bytes: Callable[[], int]) -> list[float]:
    """Of the appends after the first full file, until a checkpoint has freed it; of all if there was none."""
    clock = time.perf_counter
    times: list[float] = []
    during: list[float] = []
    full_bytes = seglog.LogSettings().wal_file_bytes
    for batch in batches:
        start = clock()
        append(batch)
        times.append(clock() - start)
        if wal_bytes() > full_bytes:
            during.append(times[-1])
    return during if len(during) > 1 else times


def _rate(append: Append, batches: Sequence[Sequence[bytes]]) -> Figures:
    settle_disk()
    times = _timed(append, batches)
    return {"records_per_s": sum(map(len, batches)) / sum(times), "longest_ms": max(times) * 1e3}


def _latencies(append: Append, batches: Sequence[Sequence[bytes]]) -> Figures:
    settle_disk()
    return _percentiles(_timed(append, batches))


def _from_threads(append: Append, batches: Sequence[Sequence[bytes]]) -> Figures:
    """Every thread appends all of `batches`."""
    times: list[list[float]] = []
    gate = threading.Barrier(THREADS + 1)

    def work() -> None:
        gate.wait()
        times.append(_timed(append, batches))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    settle_disk()
    gate.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    if len(times) != THREADS:
        raise RuntimeError("a thread failed: the figure would be wrong")
    records = THREADS * sum(map(len, batches))
    return {"records_per_s": records / elapsed, **_percentiles([one for some in times for one in some])}


def _timed(append: Append, batches: Sequence[Sequence[bytes]]) -> list[float]:
    clock = time.perf_counter
    times = []
    for batch in batches:
        start = clock()
        append(batch)
        times.append(clock() - start)
    return times


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100)
    return {"p50_us": cuts[49] * 1e6, "p99_us": cuts[98] * 1e6}


def _with_seglog(directory: Path, measure: Callable[[Append], Figures]) -> Figures:
    place = _empty(directory / "append-seglog")
    with seglog.open(place) as log:
        topic = log.topic("bench")
        topic.append([b"makes the topic"])
        figures = measure(topic.append)
    shutil.rmtree(place)
    return figures


def _with_raw(directory: Path, measure: Callable[[Append], Figures]) -> Figures:
    place = _empty(directory / "append-raw")
    fd = os.open(place / "file", os.O_RDWR | os.O_CREAT, 0o600)
    size_bytes = 256 << 20
    os.posix_fallocate(fd, 0, size_bytes)
    os.fsync(fd)
    offset = 0

    def append(values: Sequence[bytes]) -> None:
        nonlocal offset
        body = b"".join(values) + bytes(FRAME_OVERHEAD_BYTES * len(values))
        if offset + len(body) > size_bytes:
            offset = 0
        os.pwrite(fd, body, offset)
        os.fdatasync(fd)
        offset += len(body)

    try:
        return measure(append)
    finally:
        os.close(fd)
        shutil.rmtree(place)


def _with_sqlite(directory: Path, measure: Callable[[Append], Figures]) -> Figures:
    place = _empty(directory / "append-sqlite")
    connection = sqlite3.connect(place / "db", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, ts_ms INTEGER, value BLOB)")
    lock = threading.Lock()

    def append(values: Sequence[bytes]) -> None:
        now_ms = time.time_ns() // 1_000_000
        with lock:
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO records (ts_ms, value) VALUES (?, ?)", [(now_ms, value) for value in values]
            )
            connection.execute("COMMIT")

    try:
        return measure(append)
    finally:
        connection.close()
        shutil.rmtree(place)


def _empty(path: Path) -> Path:
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    return path
