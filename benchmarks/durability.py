"""Appends by durability class, and to many topics at once over shards of the write-ahead log.

`disk` and `memory` are acked without a sync. Their yardsticks do not sync either:
    raw       pwrite of as many bytes as the frames take, on a preallocated file
    sqlite    write-ahead log, synchronous=OFF, one transaction an append
    rocksdb   one write batch an append, not synced
    lmdb      one transaction an append, not synced

Mixed topics: 256 asyncio tasks append 200 B at `fsync`, to 64 topics in turn. The yardstick is one topic. If the
setting `wal_shards` exists, one shard is a yardstick too.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import seglog
from benchmarks import ways
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, compare
from benchmarks.slices import Open, in_slices
from benchmarks.stores import Store, lmdb, ours, raw, rocksdb, sqlite

__all__ = ["SUMMARY", "run"]

SUMMARY = "appends by durability class, and to many topics over shards"

CLASSES = ("disk", "memory")
SIZE_BYTES = 200
BATCH = 64
TASKS = 256
TOPICS = 64
SHARDS = (2, 4)

YARDSTICKS: dict[str, Store] = {
    "raw": raw.opened(sync=False),
    "sqlite": sqlite.opened(sync=False),
    "rocksdb": rocksdb.opened(sync=False),
    "lmdb": lmdb.opened(sync=False),
}


def run(options: Options) -> Report:
    rows = [
        *(row for name in CLASSES for batch in (1, BATCH) for row in _appends(options, name, batch)),
        *(row for name in ("fsync", *CLASSES) for row in _tasks(options, name)),
        *_mixed_topics(options),
    ]
    return Report("durability", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _appends(options: Options, durability: str, batch: int) -> list[Row]:
    values = log_lines(16 * BATCH, SIZE_BYTES)
    batches = [values[start : start + batch] for start in range(0, len(values), batch)]
    stores = {"seglog": ours.opened(durability), **YARDSTICKS}
    label = f"{durability}, {'one appender' if batch == 1 else f'batches of {batch}'}, {SIZE_BYTES} B"
    rounds = in_slices(options, label, {name: ways.in_a_loop(store, batches) for name, store in stores.items()})
    return [
        *compare(rounds, label, "records/s", "records_per_s", *YARDSTICKS, more_is_better=True),
        *compare(rounds, f"{label}, p50", "us", "p50_us", "raw", more_is_better=False),
        *compare(rounds, f"{label}, p99", "us", "p99_us", "raw", more_is_better=False),
        *compare(rounds, f"{label}, p99.9", "us", "p999_us", "raw", more_is_better=False),
    ]


def _tasks(options: Options, durability: str) -> list[Row]:
    values = log_lines(1_000, SIZE_BYTES)
    together = [values[:TASKS]]
    is_synced = durability == "fsync"
    subjects: dict[str, Open] = {
        "seglog": ways.by_tasks(ways.ours_async(durability), TASKS, values),
        "raw": ways.in_a_loop(raw.opened(sync=is_synced), together),
    }
    label = f"{durability}, asyncio, {TASKS} tasks, {SIZE_BYTES} B"
    return _with_percentiles(options, label, subjects, "raw")


def _mixed_topics(options: Options) -> list[Row]:
    values = log_lines(1_000, SIZE_BYTES)

    def subject(topics: int, shards: int) -> Open:
        return ways.by_tasks(ways.ours_async(topics=topics, settings=_settings(shards)), TASKS, values)

    label = f"{TOPICS} topics, asyncio, {TASKS} tasks, {SIZE_BYTES} B"
    rows = _with_percentiles(options, label, {"seglog": subject(TOPICS, 1), "one topic": subject(1, 1)}, "one topic")
    for shards in SHARDS if _has_shards() else ():
        subjects = {"seglog": subject(TOPICS, shards), "one shard": subject(TOPICS, 1)}
        rows += _with_percentiles(options, f"{label}, {shards} shards", subjects, "one shard")
    return rows


def _with_percentiles(options: Options, label: str, subjects: dict[str, Open], yardstick: str) -> list[Row]:
    rounds = in_slices(options, label, subjects)
    return [
        *compare(rounds, label, "records/s", "records_per_s", yardstick, more_is_better=True),
        *compare(rounds, f"{label}, p50", "us", "p50_us", yardstick, more_is_better=False),
        *compare(rounds, f"{label}, p99", "us", "p99_us", yardstick, more_is_better=False),
        *compare(rounds, f"{label}, p99.9", "us", "p999_us", yardstick, more_is_better=False),
    ]


def _has_shards() -> bool:
    return any(one.name == "wal_shards" for one in fields(seglog.LogSettings))


def _settings(shards: int) -> seglog.LogSettings:
    given: dict[str, Any] = {"wal_shards": shards} if _has_shards() else {}
    return seglog.LogSettings(**given)
