"""A driver that runs a stream and is killed. Its arguments are URL, CHECKPOINT, SINK, READER and WHEN.

WHEN is `before` or `after`: the driver kills itself and its JVM in the third micro-batch, before or after the sink has
it. With `between`, it does so after all micro-batches.

The sink writes one file for each micro-batch, under the id of the batch. So a batch that runs again replaces itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from offload.spark import register
from tests.offload.spark.session import OF_A_SHORT_RUN
from tests.seams.spark import driver_jvm

__all__ = ["FileSink", "run_stream"]

_KILLED_IN_BATCH = 2


class FileSink:
    """A sink of files that have topic, seq and value of each row."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = [[row.topic, row.seq, bytes(row.value).decode()] for row in frame.collect()]
        part = self._directory / f"{batch}.part"
        part.write_text(json.dumps(rows))
        part.replace(self._directory / f"{batch}.json")

    def batches(self) -> list[list[list[Any]]]:
        """Return the rows of each micro-batch."""
        files = sorted(self._directory.glob("*.json"), key=lambda path: int(path.stem))
        return [json.loads(path.read_text()) for path in files]


def run_stream(spark: SparkSession, url: str, checkpoint: Path, sink: Any, **options: object) -> None:
    """Run a stream until it has read all that there is. Raises what the stream raises."""
    reader = spark.readStream.format("seglog")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    writer = reader.load(url).writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def main(url: str, checkpoint: str, directory: str, reader: str, when: str) -> None:
    builder = SparkSession.builder.master("local[1]").config("spark.driver.extraJavaOptions", OF_A_SHORT_RUN)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    jvm = driver_jvm(spark).java.lang.ProcessHandle.current().pid()
    sink = FileSink(Path(directory))

    def killed() -> None:
        os.kill(jvm, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def killing_sink(frame: DataFrame, batch: int) -> None:
        is_last = batch == _KILLED_IN_BATCH
        if is_last and when == "before":
            killed()
        sink(frame, batch)
        if is_last and when == "after":
            killed()

    run_stream(spark, url, Path(checkpoint), killing_sink, topic="orders", reader=reader, maxRecordsPerTrigger=10)
    killed()


if __name__ == "__main__":
    main(*sys.argv[1:])
