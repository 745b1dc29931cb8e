"""Spark reads the archive straight from object storage.

    register(spark)
    spark.read.format("seglog").option("topic", "orders").load("s3://bucket/acme")

The package imports a name when it is first used. So the planner, which is a module of it, needs no pyspark.
Planning and reading import their needs when they run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offload.spark.registration import register
    from offload.spark.source import SeglogDataSource

__all__ = ["SeglogDataSource", "register"]

_HOME = {"SeglogDataSource": "offload.spark.source", "register": "offload.spark.registration"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'offload.spark' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
