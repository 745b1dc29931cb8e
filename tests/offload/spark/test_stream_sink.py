"""The stream sink: each micro-batch is one load, and a query that starts again writes each record once."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from catalog import Branches, Volumes
from offload.spark.source import SeglogDataSource
from offload.wiring import open_store
from tests.offload.load.loads import values
from tests.offload.spark.sink_driver import lines_to_topic
from tests.waiting import wait_until
from tests.work import seed_of, shares, tell

KILLS, FILES = 10, 60


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


def sink(spark: SparkSession, tmp_path: Path, name: str = "seglog") -> DataStreamWriter:
    return lines_to_topic(spark, str(tmp_path / "lines"), str(tmp_path / "checkpoint"), name)


def write(tmp_path: Path, name: str, *lines: str) -> None:
    (tmp_path / "lines").mkdir(exist_ok=True)
    (tmp_path / "lines" / name).write_text("".join(f"{line}\n" for line in lines))


def run(spark: SparkSession, tmp_path: Path, url: str, name: str = "seglog") -> None:
    query = sink(spark, tmp_path, name).start(url)
    query.awaitTermination()
    assert query.exception() is None


@pytest.mark.long
def test_a_query_that_starts_again_from_its_checkpoint_writes_each_record_once(
    spark_session: SparkSession, tmp_path: Path, url: str
) -> None:
    write(tmp_path, "1", "a", "b")
    write(tmp_path, "2", "c")
    run(spark_session, tmp_path, url)
    store = open_store(url)
    assert sorted(values(store)) == [b"a", b"b", b"c"]
    volumes = Volumes(store)
    assert volumes.newest_lsn(Branches(volumes).resolve("orders")) == 2
    keys = [each.key for each in volumes.snapshot(Branches(volumes).resolve("orders")).loaded]
    assert [key.rpartition(":")[2] for key in keys] == ["0", "1"]
    # Spark wrote the last batch, and died before it noted that: the query repeats the batch.
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    write(tmp_path, "3", "d")
    run(spark_session, tmp_path, url)
    assert sorted(values(store)) == [b"a", b"b", b"c", b"d"]


@pytest.mark.long
def test_a_stream_that_cannot_be_a_load_is_refused(spark_session: SparkSession, tmp_path: Path, url: str) -> None:
    write(tmp_path, "1", "a")
    stream = sink(spark_session, tmp_path)
    with pytest.raises(PySparkException, match="a stream makes a key for each micro-batch"):
        stream.option("idempotencyKey", "mine").start(url)
    with pytest.raises(PySparkException, match="records are only appended"):
        sink(spark_session, tmp_path).outputMode("update").start(url)


class PlainSource(SeglogDataSource):
    """The Python source alone, as in a session without the provider in the JVM."""

    @classmethod
    def name(cls) -> str:
        return "seglog_plain_sink"


@pytest.mark.soak(part=9)
def test_a_session_without_the_provider_writes_a_stream_from_one_partition(
    spark_session: SparkSession, tmp_path: Path, url: str
) -> None:
    spark_session.dataSource.register(PlainSource)
    for name in ("1", "2"):
        write(tmp_path, name, f"line {name}")
        run(spark_session, tmp_path, url, PlainSource.name())
        shutil.rmtree(tmp_path / "checkpoint" / "commits")
    run(spark_session, tmp_path, url, PlainSource.name())
    assert values(open_store(url)) == [b"line 1", b"line 2"]


@shares(9, 9)
def test_a_stream_whose_driver_is_killed_again_and_again_writes_each_record_once(
    spark_session: SparkSession, tmp_path: Path, url: str, share: int
) -> None:
    """Each kill hits driver, JVM and workers at once, in one of the next three micro-batches."""
    seed = seed_of(f"a stream whose driver is killed {share}")
    draw, wanted = random.Random(seed), list[bytes]()
    for file in range(FILES):
        lines = [f"line {number} of {file}" for number in range(draw.randint(0, 9))]
        write(tmp_path, f"{file:03}", *lines)
        wanted += (line.encode() for line in lines)
    begun, done = tmp_path / "checkpoint" / "offsets", tmp_path / "checkpoint" / "commits"
    command = [sys.executable, "-m", "tests.offload.spark.sink_driver", url, str(tmp_path / "lines")]
    unfinished = 0
    for _ in range(KILLS):
        further = _batches(begun) + draw.randint(1, 3)
        with subprocess.Popen([*command, str(tmp_path / "checkpoint")], start_new_session=True) as driver:
            wait_until(lambda further=further: _batches(begun) >= further, pause_s=0.01)
            time.sleep(draw.random() / 2)
            os.killpg(driver.pid, signal.SIGKILL)
        assert driver.returncode == -signal.SIGKILL
        unfinished += _batches(begun) > _batches(done)
    run(spark_session, tmp_path, url)
    assert sorted(values(open_store(url))) == sorted(wanted)
    tell(f"a stream into a topic: {KILLS} kills of its driver, {unfinished} within a micro-batch, seed {seed}")


def _batches(folder: Path) -> int:
    return len([name for name in os.listdir(folder) if name.isdigit()]) if folder.exists() else 0
