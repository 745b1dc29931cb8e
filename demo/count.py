"""Counts the records of branches of a topic in Spark: `python -m demo.count URL TOPIC BRANCH...`, a number a line."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from offload.spark import register


def main(url: str, topic: str, *branches: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]").appName("seglog demo").config("spark.ui.enabled", "false").getOrCreate()
    )
    register(spark)
    for branch in branches:
        records = spark.read.format("seglog").option("topic", topic).option("branch", branch).load(url)
        print(records.count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
