"""How fast records are acked at `fsync`: one appender, batches, threads, asyncio tasks, and at half load.

Yardsticks, in the same run on the same directory, slice by slice in turns (`benchmarks.slices`):

    raw        pwrite of as many bytes as the frames take, on a preallocated file, and fdatasync: what the disk allows
    sqlite     SQLite, write-ahead log, synchronous=FULL, one transaction an append
    rocksdb    RocksDB (rocksdict), sync writes, one write batch an append
    lmdb       LMDB, one transaction an append
    jetstream  NATS JetStream on loopback, sync_interval: always; its server is a separate process
    ungrouped  seglog's frames and write-ahead log for one writer, without the queue of the group commit
    bare       the same tasks, which await futures that one callback of the loop resolves; it keeps nothing
    in loop    seglog.aio with `loop_wait_ms=5`, so that the loop writes

An asyncio task appends one record each time. `seglog.aio` and JetStream take the records one by one. The other stores
get the records of all tasks in one append, which is the best case for them. Threads share one store. "Half load" is
half of the rate that 256 tasks reached just before on that loop, from as many tasks. Its raw yardstick is a single
write and fdatasync. "During a checkpoint" covers the single appends that run while a checkpoint is made. "Calls" are
function calls for each record, Python's own included (`benchmarks.append_calls`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import seglog
from benchmarks import append_calls, ways
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Figures, Rounds, in_turns, percentiles, settle_disk
from benchmarks.slices import Open, in_slices
from benchmarks.stores import Append, Store, lmdb, ours, raw, rocksdb, sqlite

__all__ = ["SUMMARY", "run"]

SUMMARY = "appends acked at fsync: one appender, batches, threads, asyncio tasks, half load"

SIZES = (200, 1024)
TASKS = (1, 16, 256, 2_000)
THREADS = (1, 16, 64)
BATCHES = (64, 1_024)
LOOP_TASKS = 256
LOOP_WAIT_MS = 5
#: The rate of the bare loop, and of SQLite with the records of a tick in one transaction, that is wanted.
LOOP_AIMS = (Aim(0.5, "bare"), Aim(1.5, "sqlite"))
STALL_BYTES = 80 << 20
STALL_RECORD_BYTES = 16 << 10

LOOPS: dict[str, ways.MakeLoop] = {"asyncio": asyncio.new_event_loop}
if importlib.util.find_spec("uvloop") is not None:
    LOOPS["uvloop"] = ways.new_uvloop

STORES: dict[str, Store] = {
    "seglog": ours.opened(),
    "raw": raw.opened(),
    "sqlite": sqlite.opened(),
    "rocksdb": rocksdb.opened(),
    "lmdb": lmdb.opened(),
}


def run(options: Options) -> Report:
    rows = [
        *(row for size in SIZES for row in _one_appender(options, size)),
        *(row for batch in BATCHES for size in SIZES for row in _batches(options, batch, size)),
        *(row for threads in THREADS for row in _threads(options, threads)),
        *(row for tasks in TASKS for size in SIZES for row in _tasks(options, tasks, size)),
        *_on_uvloop(options),
        *(row for loop in LOOPS for row in _half_load(options, loop)),
        *_during_a_checkpoint(options),
        *_calls(options),
    ]
    return Report("append", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _one_appender(options: Options, size_bytes: int) -> list[Row]:
    values = log_lines(1_000, size_bytes)
    single = [[value] for value in values]
    subjects: dict[str, Open] = {name: ways.in_a_loop(store, single) for name, store in STORES.items()}
    subjects["jetstream"] = ways.by_tasks(ways.nats, 1, values)
    subjects["ungrouped"] = ways.in_a_loop(ours.ungrouped, single)
    label = f"one appender, {size_bytes} B"
    rounds = in_slices(options, label, subjects)
    aims = (Aim(0.5, "raw"), Aim(1, "sqlite"), Aim(1, "rocksdb"), Aim(1, "ungrouped"))
    names = [name for name in subjects if name != "seglog"]
    return [
        *compare(rounds, f"{label}, p50", "us", "p50_us", *names, more_is_better=False, aims=aims),
        *_tails(rounds, label, "raw", "rocksdb"),
    ]


def _batches(options: Options, batch: int, size_bytes: int) -> list[Row]:
    values = log_lines(4 * batch, size_bytes)
    batches = [values[start : start + batch] for start in range(0, len(values), batch)]
    subjects: dict[str, Open] = {name: ways.in_a_loop(store, batches) for name, store in STORES.items()}
    label = f"batches of {batch:,}, {size_bytes} B"
    aims = (Aim(2, "rocksdb"),) if batch == BATCHES[0] else ()
    return _rates(in_slices(options, label, subjects), label, subjects, *aims)


def _threads(options: Options, threads: int) -> list[Row]:
    values = log_lines(1_000, SIZES[0])
    subjects: dict[str, Open] = {name: ways.threaded(store, threads, values) for name, store in STORES.items()}
    label = f"{threads} threads, {SIZES[0]} B" if threads > 1 else f"1 thread, {SIZES[0]} B"
    return _rates(in_slices(options, label, subjects), label, subjects)


def _tasks(options: Options, tasks: int, size_bytes: int) -> list[Row]:
    values = log_lines(max(1_000, tasks), size_bytes)
    together = [values[start : start + tasks] for start in range(0, len(values) - tasks + 1, tasks)]
    subjects: dict[str, Open] = {"seglog": ways.by_tasks(ways.ours_async(), tasks, values)}
    subjects |= {name: ways.in_a_loop(store, together) for name, store in STORES.items() if name != "seglog"}
    subjects["jetstream"] = ways.by_tasks(ways.nats, tasks, values)
    aims: tuple[Aim, ...] = ()
    if tasks in (1, LOOP_TASKS):
        subjects["in loop"] = ways.by_tasks(ways.ours_async(loop_wait_ms=LOOP_WAIT_MS), tasks, values)
    if tasks == LOOP_TASKS:
        subjects["bare"] = ways.by_tasks(ways.bare, tasks, values)
        aims = (Aim(300_000), *LOOP_AIMS) if size_bytes == SIZES[0] else LOOP_AIMS
    label = f"asyncio, {tasks:,} tasks, {size_bytes} B" if tasks > 1 else f"asyncio, 1 task, {size_bytes} B"
    return _rates(in_slices(options, label, subjects), label, subjects, *aims)


def _on_uvloop(options: Options) -> list[Row]:
    if "uvloop" not in LOOPS:
        return []
    make, rows = LOOPS["uvloop"], []
    for size_bytes in SIZES:
        values = log_lines(1_000, size_bytes)
        together = [values[start : start + LOOP_TASKS] for start in range(0, len(values) - LOOP_TASKS + 1, LOOP_TASKS)]
        subjects: dict[str, Open] = {
            "seglog": ways.by_tasks(ways.ours_async(), LOOP_TASKS, values, make),
            "in loop": ways.by_tasks(ways.ours_async(loop_wait_ms=LOOP_WAIT_MS), LOOP_TASKS, values, make),
            "bare": ways.by_tasks(ways.bare, LOOP_TASKS, values, make),
            "raw": ways.in_a_loop(raw.opened(), together),
            "sqlite": ways.in_a_loop(sqlite.opened(), together),
        }
        label = f"uvloop, {LOOP_TASKS:,} tasks, {size_bytes} B"
        rows += _rates(in_slices(options, label, subjects), label, subjects, *LOOP_AIMS)
    return rows


def _half_load(options: Options, loop: str) -> list[Row]:
    values, make = log_lines(1_000, SIZES[0]), LOOPS[loop]
    full: list[float] = []
    reached = ways.by_tasks(ways.ours_async(), LOOP_TASKS, values, make)
    full.append(in_slices(options, f"full load, {loop}", {"seglog": reached}).median("seglog", "records_per_s"))
    subjects: dict[str, Open] = {
        "seglog": ways.paced(ways.ours_async(), LOOP_TASKS, lambda: full[0] / 2, values, make),
        "raw": ways.in_a_loop(raw.opened(), [[value] for value in values]),
    }
    label = f"{loop}, half of {full[0]:,.0f} records/s, {SIZES[0]} B"
    rounds = in_slices(options, label, subjects)
    return [
        *compare(rounds, f"{label}, p50", "us", "p50_us", "raw", more_is_better=False),
        *compare(rounds, f"{label}, p99", "us", "p99_us", "raw", more_is_better=False, aims=(Aim(0.2, "raw"),)),
        *compare(rounds, f"{label}, p99.9", "us", "p999_us", "raw", more_is_better=False),
    ]


def _rates(rounds: Rounds, label: str, subjects: dict[str, Open], *aims: Aim) -> list[Row]:
    names = [name for name in subjects if name != "seglog"]
    return [
        *compare(rounds, label, "records/s", "records_per_s", *names, more_is_better=True, aims=aims),
        *compare(rounds, f"{label}, p50", "us", "p50_us", "raw", more_is_better=False),
        *_tails(rounds, label, "raw"),
    ]


def _tails(rounds: Rounds, label: str, *yardsticks: str) -> list[Row]:
    return [
        *compare(rounds, f"{label}, p99", "us", "p99_us", *yardsticks, more_is_better=False),
        *compare(rounds, f"{label}, p99.9", "us", "p999_us", *yardsticks, more_is_better=False),
    ]


def _during_a_checkpoint(options: Options) -> list[Row]:
    """Append single values until a checkpoint of a full WAL file is complete.

    Report percentiles of the appends meanwhile.
    """
    count = 4 if options.quick else STALL_BYTES // STALL_RECORD_BYTES
    batches = [[line] for line in log_lines(count, STALL_RECORD_BYTES)]

    def ours_meanwhile() -> Figures:
        place = _empty(options.directory / "append-seglog")
        with seglog.open(place) as log:
            topic = log.topic("bench")
            topic.append([b"makes the topic"])
            settle_disk()
            times = _timed_during(topic.append, batches, lambda: log.wal_bytes)
        shutil.rmtree(place)
        return percentiles(times)

    def alone() -> Figures:
        place = _empty(options.directory / "append-raw")
        with raw.opened()(place) as append:
            settle_disk()
            times = _timed(append, batches)
        shutil.rmtree(place)
        return percentiles(times)

    subjects = {"seglog": ours_meanwhile, "raw": alone}
    label = f"one appender, {STALL_RECORD_BYTES >> 10} KiB, during a checkpoint"
    rounds = in_turns(subjects, rounds=min(options.rounds, 3), label=label)
    return [
        *compare(rounds, f"{label}, p50", "us", "p50_us", "raw", more_is_better=False),
        *compare(rounds, f"{label}, p99", "us", "p99_us", "raw", more_is_better=False),
    ]


def _calls(options: Options) -> list[Row]:
    aims, values = append_calls.AIMS, log_lines(max(BATCHES), SIZES[0])
    place = _empty(options.directory / "append-calls")
    counts = {"one appender": (append_calls.calls_of_a_batch(place / "1", values[:1]), aims["alone"])}
    counts["one appender, with a producer"] = (
        append_calls.calls_of_a_producer(place / "producer", values[0]),
        aims["producer"],
    )
    counts["one appender, under a key"] = (append_calls.calls_of_a_key(place / "key", values[0]), aims["key"])
    for batch in BATCHES:
        calls = append_calls.calls_of_a_batch(place / f"{batch}", values[:batch])
        counts[f"batches of {batch:,}"] = (calls, aims["batch"])
    tasks = max(2, min(TASKS[-2:]))
    counts[f"asyncio, {tasks:,} tasks"] = (
        append_calls.calls_of_a_task(place / "tasks", tasks, values[0]),
        aims["tasks"],
    )
    shutil.rmtree(place)
    return [alone(f"{label}, calls for each record", "", calls, at_most=aim) for label, (calls, aim) in counts.items()]


def _timed_during(append: Append, batches: Sequence[Sequence[bytes]], wal_bytes: Callable[[], int]) -> list[float]:
    """Return the times of the appends after the first full file, until a checkpoint frees it.

    If there was no such append, return the times of all appends.
    """
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


def _timed(append: Append, batches: Sequence[Sequence[bytes]]) -> list[float]:
    clock = time.perf_counter
    times = []
    for batch in batches:
        start = clock()
        append(batch)
        times.append(clock() - start)
    return times


def _empty(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
