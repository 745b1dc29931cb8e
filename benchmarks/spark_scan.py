"""How fast Spark scans a topic that is only in the cold tier, against the same records in Parquet, in one session.

There are two queries. "count, sum(seq)" needs one narrow column: Parquet reads only that column and skips the values,
but a log has to read whole records. "count, sum(length(value))" needs the values of all records from both.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import offload
import seglog
from benchmarks.machine import describe
from benchmarks.offload import fill
from benchmarks.options import Options
from benchmarks.report import Report, Row, compare
from benchmarks.runner import Figures, in_turns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SUMMARY", "run"]

SUMMARY = "Spark: count and sum over a cold topic against the same records in Parquet"

TOPIC = "bench"
RECORD_BYTES = 200
QUERIES = (
    ("count, sum(seq)", "count(*)", "sum(seq)"),
    ("count, sum(length(value))", "count(*)", "sum(length(value))"),
)


def run(options: Options) -> Report:
    place = options.directory.resolve() / "spark-scan"
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    remote = (place / "remote").as_uri()
    count = _make_cold(place, remote, options.size_mib << 20)
    rows: list[Row] = []
    with _session(place) as spark:
        cold = spark.read.format("seglog").option("topic", TOPIC).load(remote)
        cold.write.parquet(str(place / "parquet"))
        parquet = spark.read.parquet(str(place / "parquet"))
        for label, *expressions in QUERIES:
            subjects = {
                "seglog": _query(cold, expressions, count),
                "parquet": _query(parquet, expressions, count),
            }
            rounds = in_turns(subjects, rounds=options.rounds, label=label)
            rows += compare(rounds, label, "rows/s", "rows_per_s", "parquet", more_is_better=True)
    shutil.rmtree(place)
    measured = f"{SUMMARY}; {count:,} records of {RECORD_BYTES} B, file://"
    return Report("spark-scan", measured, tuple(rows), describe(options.directory), options.rounds)


def _make_cold(place: Path, remote: str, total_bytes: int) -> int:
    (place / "remote").mkdir()
    with seglog.open(place / "log") as log:
        archive = offload.attach(log, remote)
        count = fill(log, TOPIC, RECORD_BYTES, total_bytes)
        archive.offload(TOPIC, drop_hot=True)
        archive.close()
    return count


@contextmanager
def _session(place: Path) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Imported here: only this benchmark needs this extra.
    from pyspark.sql import SparkSession

    from offload.spark import SeglogDataSource

    spark = (
        SparkSession.builder.master(f"local[{os.cpu_count() or 1}]")
        .appName("seglog benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(SeglogDataSource)
    try:
        yield spark
    finally:
        spark.stop()


def _query(frame: DataFrame, expressions: list[str], count: int) -> Callable[[], Figures]:
    def ask() -> Figures:
        start = time.perf_counter()
        [row] = frame.selectExpr(*expressions).collect()
        elapsed = time.perf_counter() - start
        if row[0] != count:
            raise RuntimeError(f"counted {row[0]} of {count} records: the figure would be wrong")
        return {"rows_per_s": count / elapsed}

    return ask
