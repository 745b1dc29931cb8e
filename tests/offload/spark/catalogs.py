"""A session with catalogs of seglog, and what their statements give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

__all__ = ["READ_ONLY", "refusal", "rows", "sql", "with_catalog"]

READ_ONLY = (
    "ReadOnly: a catalog of seglog reads and appends. Hint: append with INSERT INTO; the command seglog changes topics"
)


def with_catalog(spark: SparkSession, name: str, **settings: str) -> SparkSession:
    spark.conf.set(f"spark.sql.catalog.{name}", "seglog.spark.SeglogCatalog")
    for setting, text in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}.{setting}", text)
    return spark


def sql(spark: SparkSession, *words: str) -> DataFrame:
    return spark.sql(" ".join(words))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def refusal(ask: Callable[[], DataFrame | None]) -> str:
    """Return the text of the error, which has one line."""
    with pytest.raises(AnalysisException) as caught:
        _run(ask)
    [line] = str(caught.value).splitlines()
    return line


def _run(ask: Callable[[], DataFrame | None]) -> None:
    frame = ask()
    if frame is not None:
        frame.collect()
