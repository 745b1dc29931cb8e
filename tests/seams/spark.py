"""Reach the driver's JVM: pyspark offers system properties, query plans and metrics to nobody in Python."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

__all__ = ["driver_jvm", "query_execution", "status_store"]


def driver_jvm(spark: SparkSession) -> Any:
    """Return the view of the driver's classes."""
    return spark._jvm


def query_execution(frame: DataFrame) -> Any:
    """Return Spark's plans of the query."""
    return frame._jdf.queryExecution()


def status_store(spark: SparkSession) -> Any:
    """Return the store of the queries that ran, with their metrics."""
    return spark._jsparkSession.sharedState().statusStore()
