"""The time and the bytes of a query for one record, and for 1 % of the records, beside Parquet with its statistics.

Records of 200 B, `--bulk-mib` of them, zstd, on `file://`. A join has records of its own: 10,000 tags, each in one run
of records, and another table names ten of them. Parquet (snappy) is written from the same frame, in the same
order. So its row groups and pages have narrow ranges of seq and time. Each query counts the records and adds up the
lengths of their values, or only counts them ("counted"). Every chunk and every record that we read is checked. The
records of a tag lie far apart.

"time" is the time of the action, planning included. The planner has the index heads in memory, because it asked for
them in an earlier query. Their size has a row of its own. Parquet reads the footers for each query.

"bytes" counts what calls of read returned to the JVM and to the planner, from /proc/PID/io. Their messages and those of
pyspark are in it: some 10 kB.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import spark_session
from benchmarks.cold_records import (
    COMMON_TAG,
    RARE_TAG,
    RECORDS_OF_MS,
    RUNS,
    TOPIC,
    ColdRecords,
    make_cold,
    tag_of_run,
)
from benchmarks.commits import START_MS
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.process_tree import read_bytes
from benchmarks.report import Report, Row, alone, compare
from benchmarks.runner import Figures, in_turns, settle_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SUMMARY", "run"]

SUMMARY = "Spark: one record and 1 % of the records by seq, time and tag, beside Parquet with statistics"

RECORD_BYTES = 200
_WARM_UPS = 2
_COUNTED = ("count(*)",)
_READ = ("count(*)", "sum(length(value))")
_PROGRAMS = ("org.apache.spark", "offload.spark.planner")


def run(options: Options) -> Report:
    place = options.directory.resolve() / "spark-points"
    if place.exists():
        shutil.rmtree(place)
    rows: list[Row] = []
    with spark_session.running(place) as spark:
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # INT96 has no statistics
        cold, frames = _frames(options, spark, place)
        rows.append(alone("all index heads, read once", "kB", cold.heads_bytes / 1000))
        for label, condition, selected in _queries(cold):
            narrowed = {name: frame.where(condition) for name, frame in frames.items()}
            rows += _compared(options, label, narrowed, selected)
        shutil.rmtree(place)
        cold, frames = _frames(options, spark, place, in_runs=True)
        kinds = [(tag_of_run(number), "wanted" if number % (RUNS // 10) == 0 else "other") for number in range(RUNS)]
        spark.createDataFrame(kinds, "tag string, kind string").write.parquet(str(place / "kinds"))
        keys = spark.read.parquet(str(place / "kinds")).where("kind = 'wanted'")
        joined = {name: frame.join(keys, "tag") for name, frame in frames.items()}
        rows += _compared(options, "join with 10 of 10,000 tags", joined, _READ)
        rows.append(alone("all data objects of the join", "kB", _data_bytes(place / "remote") / 1000))
    shutil.rmtree(place)
    measured = f"{SUMMARY}; {cold.count:,} records of {RECORD_BYTES} B, file://, local[2], zstd and snappy"
    return Report("spark-points", measured, tuple(rows), describe(options.directory), options.rounds)


def _frames(
    options: Options, spark: SparkSession, place: Path, *, in_runs: bool = False
) -> tuple[ColdRecords, dict[str, DataFrame]]:
    (place / "remote").mkdir(parents=True)
    cold = make_cold(place / "remote", RECORD_BYTES, options.bulk_mib << 20, in_runs=in_runs)
    ours = spark_session.cold_frame(spark, cold.url, TOPIC)
    ours.write.parquet(str(place / "parquet"))
    settle_disk()
    return cold, {"seglog": ours, "parquet": spark.read.parquet(str(place / "parquet"))}


def _compared(options: Options, label: str, frames: Mapping[str, DataFrame], selected: tuple[str, ...]) -> list[Row]:
    expected = _answer(frames["parquet"], selected)
    subjects = {name: partial(_asked, frame, selected, expected) for name, frame in frames.items()}
    warm_ups = 0 if options.quick else _WARM_UPS
    rounds = in_turns(subjects, rounds=options.rounds, label=label, warm_ups=warm_ups)
    return [
        *compare(rounds, f"{label}, time", "ms", "ms", "parquet", more_is_better=False),
        *compare(rounds, f"{label}, bytes", "kB", "kb", "parquet", more_is_better=False),
    ]


def _data_bytes(remote: Path) -> int:
    return sum(path.stat().st_size for path in remote.rglob("segments/*"))


def _queries(cold: ColdRecords) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the name of each query, its condition, and what it asks for."""
    for label, condition in _conditions(cold):
        yield label, condition, _READ
    middle, tenth = cold.count // 2, cold.count // 10
    ms = START_MS + middle // RECORDS_OF_MS
    yield "1 % by tag, counted", f"tag = '{COMMON_TAG}'", _COUNTED
    times = f"timestamp >= timestamp_millis({ms}) AND timestamp < timestamp_millis({ms + tenth // RECORDS_OF_MS})"
    yield "10 % by time, counted", times, _COUNTED


def _conditions(cold: ColdRecords) -> Iterator[tuple[str, str]]:
    """Yield the name of each query and its condition."""
    middle, part = cold.count // 2, cold.count // 100
    ms = START_MS + middle // RECORDS_OF_MS
    yield "one record by seq", f"seq = {middle}"
    yield f"{RECORDS_OF_MS} records by time", f"timestamp = timestamp_millis({ms})"
    yield "one record by tag", f"tag = '{RARE_TAG}'"
    yield "1 % by seq", f"seq BETWEEN {middle} AND {middle + part - 1}"
    end = ms + max(1, part // RECORDS_OF_MS)
    yield "1 % by time", f"timestamp >= timestamp_millis({ms}) AND timestamp < timestamp_millis({end})"
    yield "1 % by tag", f"tag = '{COMMON_TAG}'"


def _answer(frame: DataFrame, selected: tuple[str, ...]) -> list[Any]:
    """Return the rows of a new query. Spark keeps the shuffle of a query, and reads no data when it runs again."""
    rows: list[Any] = frame.selectExpr(*selected).collect()
    return rows


def _asked(frame: DataFrame, selected: tuple[str, ...], expected: list[Any]) -> Figures:
    before = _read()
    figures = spark_session.timed(lambda: _answer(frame, selected), expected)
    return {"ms": figures["s"] * 1000, "kb": (_read() - before) / 1000}


def _read() -> int:
    return read_bytes(os.getpid(), lambda command: any(name in command for name in _PROGRAMS))
