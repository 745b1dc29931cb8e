"""A job of Spark in two steps, each of which waits for the test: `executors_job.py HOW URL DIR`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from offload.spark import register
from tests.seams.spark import executor_count, query_execution, settings_text

EXECUTORS = 2


def main(how: str, url: str, place: Path) -> None:
    """Read the topic `orders` twice. If asked to write, also write to the topic `loads` each time."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    while executor_count(spark) < EXECUTORS:
        time.sleep(0.1)
    reader = "python" if how == "python" else "jvm"
    source = spark.read.format("seglog").options(reader=reader, minPartitions=4, verify="record")
    rows = source.option("topic", "orders").load(url)
    for step in ("first", "second"):
        while not (place / step).exists():
            time.sleep(0.05)
        if how == "write":
            lines = spark.range(80).repartition(4).selectExpr("cast(id as string) AS value")
            lines.write.format("seglog").option("topic", "loads").mode("append").save(url)
        [row] = rows.selectExpr("count(value)", "sum(length(value))", "max(seq)").collect()
        print("FOUND", *row, flush=True)
    print("SETTINGS", settings_text(spark))
    print("PLAN", query_execution(rows).toString())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
