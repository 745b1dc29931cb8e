"""How fast records are acked at `fsync`: one appender, batches, many threads.

Yardsticks, on the same directory in the same run:

    raw      pwrite and fdatasync of as many bytes as the frames take, on a preallocated file: what the disk allows
    sqlite   SQLite with a write-ahead log and synchronous=FULL, one transaction a batch: the durable store that comes
             with Python. Threads share one connection under a lock, which is its best case.

Batches write somewhat more than one WAL file, so that their rate pays for a checkpoint as a long run would; "longest"
is the append that waited longest. The other figures are of a few MB, without one.
"""

from __future__ import annotations

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

__all__ = ["SUMMARY", "run"]

SUMMARY = "appends acked at fsync: latency of one appender, records/s in batches and from 16 threads"

BATCH = 64
THREADS = 16
SINGLE_APPENDS = 4_000
BATCH_BYTES = 72 << 20
THREAD_APPENDS = 1_000
DISTINCT_BATCHES = 100
FRAME_OVERHEAD_BYTES = 46

Append = Callable[[Sequence[bytes]], object]


def run(options: Options) -> Report:
    rows = [*_one_appender(options), *_batches(options, 200), *_batches(options, 1024), *_threads(options)]
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
