"""Streams in Spark, over both readers: limits, restarts, new topics, losses, and a driver that is killed.

Spark starts a process for each stream of the reader in Python, and gives it 10 s. So only the soak runs that reader.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.stream_driver import FileSink, run_stream

DRIVER = "tests.offload.spark.stream_driver"
IS_KILLED_WITHIN_S = 600
READERS = pytest.mark.parametrize("reader", ["jvm", pytest.param("python", marks=pytest.mark.soak(part=9))])
Rows = list[tuple[str, int]]


class Sink:
    """Keeps topic and seq of the rows of each micro-batch, by the id of the batch."""

    def __init__(self) -> None:
        self.batches: dict[int, Rows] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = [(row.topic, row.seq) for row in frame.collect()]

    def taken(self) -> list[Rows]:
        """Return the micro-batches with rows since the last call."""
        found = [rows for _, rows in sorted(self.batches.items()) if rows]
        self.batches = {}
        return found


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


def samples(count: int) -> list[Sample]:
    return [Sample(b"%d" % n, "even" if n % 2 == 0 else None) for n in range(count)]


def rows(topic: str, first: int, last: int) -> Rows:
    return [(topic, seq) for seq in range(first, last + 1)]


@READERS
def test_a_stream_gives_each_record_once_over_restarts_new_topics_and_losses(
    spark_session: SparkSession, url: str, tmp_path: Path, reader: str
):
    orders, sink, checkpoint = TopicArchive(url, "orders"), Sink(), tmp_path / "checkpoint"

    def run(**options: object) -> list[Rows]:
        run_stream(
            spark_session, url, checkpoint, sink, **{"topic": "o*", "columns": "seq,topic", "reader": reader} | options
        )
        return sink.taken()

    orders.add(samples(10))
    orders.add(samples(5))
    assert run(maxRecordsPerTrigger=9) == [rows("orders", 1, 9), rows("orders", 10, 15)]
    assert run() == []
    orders.add(samples(2))
    TopicArchive(url, "other").add(samples(3))
    assert run(maxBytesPerTrigger="1m", startingSeq="latest") == [rows("orders", 16, 17) + rows("other", 1, 3)]
    orders.truncate(13)
    orders.add(samples(8))
    with pytest.raises(Exception, match="records 13 to 17 of orders were truncated after the stream gave them"):
        run()
    assert run(failOnDataLoss="false") == [rows("orders", 13, 20)]


@pytest.mark.long
@READERS
def test_a_stream_that_runs_takes_new_commits_and_stops_without_an_error(
    spark_session: SparkSession, url: str, tmp_path: Path, reader: str
):
    orders, sink = TopicArchive(url), Sink()
    orders.add(samples(4))
    load = spark_session.readStream.format("seglog").options(topic="orders", headCacheMs="0", tag="even", reader=reader)
    frame = load.load(url)
    assert frame.isStreaming
    assert frame.columns == ["topic", "seq", "timestamp", "node", "tag", "value", "lsn"]
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        assert sink.taken() == [[("orders", 1), ("orders", 3)]]
        orders.add(samples(2))
        query.processAllAvailable()
        assert sink.taken() == [[("orders", 5)]]
        if reader == "jvm":
            assert query.lastProgress["sources"][0]["description"] == "seglog orders"
    finally:
        query.stop()
    assert query.exception() is None


@pytest.mark.long
def test_wrong_options_are_refused(spark: SparkSession, url: str):
    TopicArchive(url).add(samples(1))
    for options, message in (
        ({"endingSeq": "5", "headCacheMs": "5"}, "option endingSeq is only for read"),
        ({"maxRecordsPerTrigger": "x"}, "maxRecordsPerTrigger: 'x' is not a number from 1 on"),
        ({"topic": "nope"}, "no topic nope"),
    ):
        with pytest.raises(Exception, match=message):
            spark.readStream.format("seglog").options(**{"topic": "orders"} | options).load(url)
    with pytest.raises(Exception, match="option maxRecordsPerTrigger is only for readStream"):
        spark.read.format("seglog").options(topic="orders", maxRecordsPerTrigger="5").load(url).count()


@pytest.mark.soak(part=9)
@pytest.mark.parametrize("when", ["before", "after", "between"])
@pytest.mark.parametrize(("reader", "then"), [("jvm", "python"), ("python", "jvm")])
def test_a_killed_driver_leaves_each_record_once_whichever_reader_goes_on(
    spark_session: SparkSession, url: str, tmp_path: Path, reader: str, when: str, then: str
):
    """The killed micro-batch runs again, and shows the records that were deleted meanwhile."""
    orders, checkpoint, directory = TopicArchive(url), tmp_path / "checkpoint", tmp_path / "sink"
    directory.mkdir()
    first = orders.add(samples(35))
    command = [sys.executable, "-m", DRIVER, url, str(checkpoint), str(directory), reader, when]
    driver = subprocess.run(command, check=False, timeout=IS_KILLED_WITHIN_S)
    assert driver.returncode == -signal.SIGKILL
    sink = FileSink(directory)
    before = sink.batches()
    assert len(before) == {"before": 2, "after": 3, "between": 4}[when]
    orders.delete(first, [0, 25])
    orders.add(samples(5))
    run_stream(spark_session, url, checkpoint, sink, topic="orders", reader=then, maxRecordsPerTrigger=10)
    found = sink.batches()
    assert found[: len(before)] == before
    expected = [["orders", seq, b"%d" % ((seq - 1) % 35)] for seq in range(1, 41)]
    assert [row for batch in found for row in batch] == [[topic, seq, value.decode()] for topic, seq, value in expected]
