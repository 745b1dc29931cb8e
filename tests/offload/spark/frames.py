"""DataFrames of loads, and the rows that a plan and a scan without Spark give of the same load."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.offload.spark.queries import read

__all__ = ["Row", "expected", "load", "rows_of"]

Row = dict[str, Any]


def load(spark: SparkSession, url: str, options: dict[str, object]) -> DataFrame:
    reader = spark.read.format("seglog").option("topic", "orders")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(url)


def rows_of(frame: DataFrame) -> list[Row]:
    """Return the rows in Spark's order, with times as text that has no zone."""
    names = [f"unix_micros({name}) AS {name}" if name == "timestamp" else f"`{name}`" for name in frame.columns]
    return [
        {name: bytes(value) if isinstance(value, bytearray) else value for name, value in row.asDict().items()}
        for row in frame.selectExpr(*names).collect()
    ]


def expected(url: str, options: dict[str, object], keeps: Callable[[Row], bool] = lambda _: True) -> list[Row]:
    found = [row for row in read(url, **options) if keeps(row)]
    return [
        {n: round(value.timestamp() * 1_000_000) if isinstance(value, datetime) else value for n, value in row.items()}
        for row in found
    ]
