"""Reach the driver's JVM: pyspark offers system properties, query plans and metrics to nobody in Python."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "driver_jvm",
    "end_planners",
    "executor_count",
    "executor_environment",
    "metrics_of_last",
    "planners",
    "query_execution",
    "settings_text",
    "start_planner",
]


def driver_jvm(spark: SparkSession) -> Any:
    """Return the view of the driver's classes."""
    return spark._jvm


def query_execution(frame: DataFrame) -> Any:
    """Return Spark's plans of the query."""
    return frame._jdf.queryExecution()


def settings_text(spark: SparkSession) -> str:
    """Return the settings of the driver as they are now, also those that changed since the start."""
    return str(spark.sparkContext._jsc.sc().conf().toDebugString())


def metrics_of_last(spark: SparkSession, name: str) -> dict[str, Any]:
    """Return the metrics of the query that ran last, once Spark knows the metric `name` of it."""
    store = spark._jsparkSession.sharedState().statusStore()
    deadline = time.monotonic() + 60
    found: dict[str, Any] = {}
    while not found.get(name) and time.monotonic() < deadline:
        last = store.executionsList().last()
        values, metrics = store.executionMetrics(last.executionId()), last.metrics()
        for metric in (metrics.apply(number) for number in range(metrics.size())):
            value = values.get(metric.accumulatorId())
            found[metric.name()] = value.get() if value.isDefined() else None
        time.sleep(0.2)
    return found


def executor_count(spark: SparkSession) -> int:
    """Return the number of executors of a cluster. The driver is not one of them."""
    return int(spark.sparkContext._jsc.sc().statusStore().executorList(True).size()) - 1


def planners(spark: SparkSession) -> list[int]:
    """Return the process ids of the driver's planners."""
    found = [child.pid() for child in _children(spark) if child.isAlive()]
    return [pid for pid in found if b"offload.spark.planner" in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    """Return the words of a process, and nothing for one that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def end_planners(spark: SparkSession) -> None:
    """Kill the planners, and wait until the JVM knows of their end. The next call starts another."""
    ended = set(planners(spark))
    for pid in ended:
        os.kill(pid, signal.SIGKILL)
    # A process that ended stays among the children until the JVM asks for its exit code.
    while ended & {child.pid() for child in _children(spark)}:
        time.sleep(0.05)


def start_planner(spark: SparkSession) -> None:
    """Start a planner. For a moment the JVM takes one that was killed for a live one, so ask until one is there."""
    while not planners(spark):
        driver_jvm(spark).seglog.spark.SeglogProvider.checkPlanner()


def _children(spark: SparkSession) -> Any:
    """Return the processes that the driver's JVM started."""
    return driver_jvm(spark).java.lang.ProcessHandle.current().children().toArray()


@contextmanager
def executor_environment(spark: SparkSession, name: str, text: str) -> Iterator[None]:
    """Set a variable of a planner that starts now, and of the JVM reader's tasks. Spark fixes it for other purposes."""
    conf = spark.sparkContext._jsc.sc().conf()
    key = f"spark.executorEnv.{name}"
    before = conf.get(key) if conf.contains(key) else None
    conf.set(key, text)
    try:
        yield
    finally:
        conf.remove(key) if before is None else conf.set(key, before)
