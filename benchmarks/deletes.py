"""Reads and deletes after many deletes that no checkpoint has applied.

    before      a consumer that acknowledges each record: `delete(before=seq)`
    tag         a delete for each of as many tags
    prefix      the same, by a tag with a trailing `*`
    range       a delete of every second record, one by one

Each log has as many deletes since its checkpoint as its subject says. Behind the records that they reach, all logs have
the same records. The benchmark times a read of these records, by `read` and by `read_batches`, and then a further
delete. The records have a hundred tags. The yardstick is the log without a delete. Upkeep is off: it would apply
deletes by tag once there are 10,000.

The files are in the page cache, so the benchmark times reads by their CPU time.

"Calls" are function calls, Python's own included, for a thousand records read. They do not depend on the machine.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import seglog
from benchmarks.calls import count_calls
from benchmarks.idle import Idle
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, in_turns, percentiles, settle_disk

__all__ = ["SUMMARY", "run"]

SUMMARY = "reads and deletes after 0, 1,000 and 100,000 deletes that no checkpoint has applied"

COUNTS = (1_000, 100_000)
RECORDS = 20_000
_TAGS = 100
_RECORD_BYTES = 200
_DELETES = 200
_THREADS = 16
# A log with deletes is at most 1.2 times as slow.
_AIM = Aim(1 / 1.2, "no delete")

DELETES: dict[str, Callable[[seglog.Topic, int], object]] = {
    "before": lambda topic, number: topic.delete(before=number + 2),
    "tag": lambda topic, number: topic.delete(tag=f"order-{number}"),
    "prefix": lambda topic, number: topic.delete(tag=f"order-{number:06}-*"),
    "range": lambda topic, number: topic.delete(start=2 * number + 2, end=2 * number + 2),
}


def run(options: Options) -> Report:
    share = 100 if options.quick else 1
    rows = [row for way in DELETES for row in _way(options, way, share)]
    return Report("deletes", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _way(options: Options, way: str, share: int) -> list[Row]:
    places: list[Path] = []
    with ExitStack() as logs:
        subjects: dict[str, Callable[[], Figures]] = {}
        for count in (0, *COUNTS):
            name = f"{count:,} deletes" if count else "no delete"
            places.append(options.directory / f"deletes-{count}")
            log = logs.enter_context(_filled(places[-1], way, count // share, share))
            subjects[name] = partial(_figures, log, way, RECORDS // share, stays=count > 0)
        rounds = in_turns(subjects, rounds=options.rounds, label=f"deletes, {way}")
    for place in places:
        shutil.rmtree(place)
    rows = []
    for count in COUNTS:
        one, label = rounds.called("seglog", f"{count:,} deletes"), f"{count:,} by {way}"
        for read in ("read", "batches"):
            what = f"{read} after {label}"
            rows += compare(one, what, "records/s of CPU", read, "no delete", more_is_better=True, aims=(_AIM,))
            calls = f"{read}_calls"
            rows += compare(one, f"{what}, calls", "for 1,000 records", calls, "no delete", more_is_better=False)
        rows += compare(one, f"delete after {label}", "us", "p50_us", "no delete", more_is_better=False, aims=(_AIM,))
    return rows


def _filled(place: Path, way: str, count: int, share: int) -> seglog.Log:
    shutil.rmtree(place, ignore_errors=True)
    log = seglog.open(place, upkeep=Idle)
    front = 2 * max(COUNTS) // share + 2
    log.create_topic("bench", seglog.TopicConfig(durability="memory"))
    topic = log.topic("bench")
    for number in range(0, front, 1_000):
        topic.append([b"x"] * min(1_000, front - number), tag="front")
    lines = log_lines(10, _RECORD_BYTES)
    for number in range(RECORDS // share // len(lines)):
        topic.append(lines, tag=f"user-{number % _TAGS}")
    log.checkpoint()
    with ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(partial(DELETES[way], topic), range(count)):
            pass
    return log


def _figures(log: seglog.Log, way: str, records: int, *, stays: bool) -> Figures:
    """Measure the reads and further deletes. With `stays`, these deletes may stay pending beside many others."""
    topic = log.topic("bench")
    first = topic.head_seq - records + 1
    reads: dict[str, Callable[[], int]] = {
        "read": lambda: sum(1 for _ in topic.read(first)),
        "batches": lambda: sum(map(len, topic.read_batches(first))),
    }
    settle_disk()
    found: dict[str, float] = {}
    for name, read in reads.items():
        start = time.thread_time()
        if read() != records:
            raise RuntimeError("not every record was read: the figure would be wrong")
        found[name] = records / (time.thread_time() - start)
        found[f"{name}_calls"] = count_calls(read) * 1_000 / records
    times = []
    for _ in range(_DELETES):
        start = time.perf_counter()
        DELETES[way](topic, 0)
        times.append(time.perf_counter() - start)
    if not stays:
        log.checkpoint()
    return {**found, "p50_us": percentiles(times)["p50_us"]}
