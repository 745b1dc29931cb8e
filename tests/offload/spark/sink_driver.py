"""A driver that writes the lines of files to a topic, one file for each micro-batch: `URL LINES CHECKPOINT`."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from offload.spark import register
from tests.offload.spark.session import OF_A_SHORT_RUN

__all__ = ["lines_to_topic"]


def lines_to_topic(spark: SparkSession, lines: str, checkpoint: str, sink: str = "seglog") -> DataStreamWriter:
    """Return a stream that ends when it has written all lines that there are."""
    frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(lines)
    writer = frame.coalesce(1).writeStream.format(sink).option("topic", "orders").trigger(availableNow=True)
    return writer.option("checkpointLocation", checkpoint)


def main(url: str, lines: str, checkpoint: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", OF_A_SHORT_RUN)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    assert register(spark) == "jvm"
    lines_to_topic(spark, lines, checkpoint).start(url).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
