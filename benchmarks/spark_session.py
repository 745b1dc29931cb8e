"""Spark for the benchmarks: two tasks at a time, both readers registered, and otherwise as Spark comes.

A benchmark of several record sizes runs in one session.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.process_tree import cpu_seconds
from benchmarks.report import Report, Row
from benchmarks.runner import Figures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["cold_frame", "report_of_sizes", "running", "timed"]

_ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def running(place: Path) -> Iterator[SparkSession]:
    """Yield a session with `register`. If one runs in this process, yield that one, and leave it open."""
    # Imported here: only these benchmarks need this extra.
    from pyspark.sql import SparkSession

    from benchmarks.spark_ceiling import Ceiling
    from offload.spark import register

    before = SparkSession.getActiveSession()
    spark = before or _started(SparkSession.builder, place)
    if register(spark) != "jvm":
        raise RuntimeError("the reader in the JVM does not serve: the figures would be of another one")
    spark.dataSource.register(Ceiling)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def report_of_sizes(
    options: Options,
    name: str,
    summary: str,
    sizes: Sequence[int],
    rows_of: Callable[[Options, SparkSession, Path, int], list[Row]],
) -> Report:
    """Return the report of a benchmark that measures each size of records in turn.

    `rows_of` gets the place for its files, which does not exist yet. The files go when it returns.
    """
    place = options.directory.resolve() / name
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    rows: list[Row] = []
    with running(place) as spark:
        for size_bytes in sizes:
            rows += rows_of(options, spark, place / f"{size_bytes}", size_bytes)
            shutil.rmtree(place / f"{size_bytes}")
    shutil.rmtree(place)
    measured = f"{summary}; {options.bulk_mib:,} MiB of each record size, file://, local[2], zstd and snappy"
    return Report(name, measured, tuple(rows), describe(options.directory), options.rounds)


def _started(builder: Any, place: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(_ROOT)  # the workers import `benchmarks`
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
    }
    builder = builder.master("local[2]").appName("seglog benchmarks")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cold_frame(spark: SparkSession, url: str, topic: str, **options: str) -> DataFrame:
    """Return the frame of one load."""
    reader = spark.read.format("seglog").option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(url)


def timed(work: Callable[[], object], expected: object) -> Figures:
    """Return the wall seconds of `work`, and the CPU seconds of this process and all that it started.

    Raises `RuntimeError` if `work` returns anything but `expected`.
    """
    cpu_s, start = cpu_seconds(), time.perf_counter()
    found = work()
    elapsed_s = time.perf_counter() - start
    cpu_s = cpu_seconds() - cpu_s
    if found != expected:
        raise RuntimeError(f"the answer is {found}, not {expected}: the figure would be wrong")
    return {"s": elapsed_s, "cpu_s": max(cpu_s, 0.01)}
