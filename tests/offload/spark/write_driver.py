"""A driver that writes with a fault: `URL FAULT PLACE KEY COUNT HOW`. Without --master, it has `local[2,4]`.

HOW is `save` or `insert`. The rows are in four partitions. It prints OK if the write has succeeded. A fault may kill
it and all that it started.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from offload.spark import register
from tests.offload.spark.faulty_writer import faulty_source
from tests.offload.spark.session import OF_A_SHORT_RUN

__all__ = ["PARTITIONS", "rows", "write"]

PARTITIONS = 4
_SETTINGS = {
    "spark.driver.extraJavaOptions": OF_A_SHORT_RUN,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, PARTITIONS).selectExpr("concat('value ', id) AS value")


def write(frame: DataFrame, url: str, key: str, how: str = "save") -> None:
    if how == "insert":
        frame.sparkSession.conf.set("spark.sql.catalog.written", "seglog.spark.SeglogCatalog")
        frame.sparkSession.conf.set("spark.sql.catalog.written.url", url)
        frame.createOrReplaceTempView("new_rows")
        words = ("INSERT INTO written.orders WITH (idempotencyKey = '", key, "') SELECT * FROM new_rows")
        frame.sparkSession.sql("".join(words))
        return
    frame.write.format("seglog").options(topic="orders", idempotencyKey=key).mode("append").save(url)


def main(url: str, fault: str, place: str, key: str, count: str, how: str = "save") -> None:
    builder = SparkSession.builder
    if "killed" in fault:
        assert os.getsid(0) == os.getpid(), "a driver that is to be killed has a session of its own"
    if "SPARK_CONF_DIR" not in os.environ:
        builder = builder.master("local[2,4]")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert register(spark) == "jvm"
    spark.dataSource.register(faulty_source(fault, Path(place)))
    write(rows(spark, int(count)), url, key, how)
    print("OK")


if __name__ == "__main__":
    main(*sys.argv[1:])
