"""Spark reads the archive straight from object storage.

    register(spark)
    spark.read.format("seglog").option("topic", "orders").load("s3://bucket/acme")

Importing this package costs no more than importing pyspark's own data source module. Planning and reading import their
needs when they run.
"""

from __future__ import annotations

from offload.spark.registration import register
from offload.spark.source import SeglogDataSource

__all__ = ["SeglogDataSource", "register"]
