"""How fast Spark writes a frame into a topic, beside a write of the same frame as Parquet, in one session.

There are records of 200 B and of 1 KB, `--bulk-mib` of each, on `file://`. The session has two tasks at a time. The
frame has the columns value and tag. Each write goes to a new place, which is removed afterwards. Each subject has two
warm-ups. CPU seconds are those of the benchmark's process and all that it started: the JVM, Python's daemon and
workers.

    subject     what it is
    seglog      `df.write.format("seglog")` with zstd: one commit
    parquet     snappy

    frame       what it is
    read        Parquet, read anew by each write. Our writer keeps the rows, because it counts them first
    kept        the same, kept by `persist()` before the first write
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import spark_session
from benchmarks.cold_records import TOPIC, ColdRecords, make_cold
from benchmarks.options import Options
from benchmarks.report import Report, Row, compare
from benchmarks.runner import Figures, in_turns, settle_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SUMMARY", "run"]

SUMMARY = "Spark: a write of a frame into a topic, beside a write of the same frame as Parquet"

RECORD_SIZES = (200, 1024)
FRAMES = ("read", "kept")
_WARM_UPS = 2
_PLACES = itertools.count(1)


def run(options: Options) -> Report:
    return spark_session.report_of_sizes(options, "spark-write", SUMMARY, RECORD_SIZES, _of_size)


def _of_size(options: Options, spark: SparkSession, place: Path, size_bytes: int) -> list[Row]:
    (place / "source").mkdir(parents=True)
    cold = make_cold(place / "source", size_bytes, options.bulk_mib << 20)
    spark_session.cold_frame(spark, cold.url, TOPIC).select("value", "tag").write.parquet(str(place / "rows"))
    rows: list[Row] = []
    for name in FRAMES:
        frame = spark.read.parquet(str(place / "rows"))
        if name == "kept":
            frame.persist().count()
        rows += _of_frame(options, frame, place, cold, f"{size_bytes} B, {name}")
        frame.unpersist()
    return rows


def _of_frame(options: Options, frame: DataFrame, place: Path, cold: ColdRecords, label: str) -> list[Row]:
    writes: Mapping[str, Callable[[DataFrame, Path], None]] = {"seglog": _write_topic, "parquet": _write_parquet}
    subjects = {name: partial(_written, write, frame, place, cold) for name, write in writes.items()}
    settle_disk()
    warm_ups = 0 if options.quick else _WARM_UPS
    rounds = in_turns(subjects, rounds=options.rounds, label=label, warm_ups=warm_ups)
    return [
        *compare(rounds, label, "MB/s", "mb_per_s", "parquet", more_is_better=True),
        *compare(rounds, f"{label}, CPU", "s", "cpu_s", "parquet", more_is_better=False),
    ]


def _written(write: Callable[[DataFrame, Path], None], frame: DataFrame, place: Path, cold: ColdRecords) -> Figures:
    """Return the figures of one write. Raises `RuntimeError` if the place does not have all records then."""
    out = place / f"out-{next(_PLACES)}"
    found = spark_session.timed(lambda: write(frame, out), None)
    _check(frame.sparkSession, write, out, cold.count)
    shutil.rmtree(out)
    return {"mb_per_s": cold.value_bytes / found["s"] / 1e6, "cpu_s": found["cpu_s"]}


def _write_topic(frame: DataFrame, out: Path) -> None:
    frame.write.format("seglog").option("topic", TOPIC).mode("append").save(out.as_uri())


def _write_parquet(frame: DataFrame, out: Path) -> None:
    frame.write.parquet(str(out))


def _check(spark: SparkSession, write: Callable[[DataFrame, Path], None], out: Path, count: int) -> None:
    is_ours = write is _write_topic
    found = spark_session.cold_frame(spark, out.as_uri(), TOPIC) if is_ours else spark.read.parquet(str(out))
    if found.count() != count:
        raise RuntimeError(f"{out} has {found.count()} records, not {count}: the figure would be wrong")
