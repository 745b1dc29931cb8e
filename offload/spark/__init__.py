"""Spark reads the archive straight from object storage.

    spark.dataSource.register(SeglogDataSource)
    spark.read.format("seglog").option("topic", "orders").load("s3://bucket/acme")

Importing this costs no more than pyspark's own data source module: what planning and reading need is imported there.
"""

from __future__ import annotations

from offload.spark.source import SeglogDataSource

__all__ = ["SeglogDataSource"]
