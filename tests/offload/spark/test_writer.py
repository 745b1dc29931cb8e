"""The batch writer in Spark: rows written are rows read, over both providers, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from catalog import Branches, Codec, Volumes
from offload.load import most_value_bytes
from offload.spark.source import SeglogDataSource
from offload.wiring import open_store
from tests.offload.load.loads import records, values
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.catalogs import refusal

REFUSED: list[tuple[list[str], dict[str, str], str]] = [
    (["id"], {}, "there is no column value"),
    (["value", "timestamp_ntz'2026-11-22 12:00:00' as timestamp"], {}, "timestamp is timestamp_ntz"),
    (["value", "id as seq"], {}, "the row of record 1: seq is not the seq that the record gets"),
    (["if(id = 7, null, value) as value"], {}, "the row of record 8: value is null"),
    (["value"], {"codecs": "none"}, "option codecs is unknown"),
    (["value"], {"mode": "overwrite"}, "records are only appended"),
    (["value"], {"mode": "errorifexists"}, "records are only appended"),
    (["value"], {"branch": "fix"}, "NoSuchTopic: no topic orders"),
    (["value"], {"takeOver": "maybe"}, "option takeOver: 'maybe' is none of false, true, force"),
]
_LONG_VALUES = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from offload.spark import register

url, most = sys.argv[1], int(sys.argv[2])
settings = {"spark.driver.memory": "2g", "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
register(spark)
for size in (most + 1, most):
    frame = spark.range(0, 4, 1, 2).selectExpr(f"if(id = 3, repeat('x', {size}), 'v') AS value")
    try:
        frame.write.format("seglog").option("topic", "orders").mode("append").save(url)
    except Exception as error:
        print(error)
        print(Path(url.removeprefix("file://")).exists())
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


def save(df: DataFrame, url: str, mode: str = "append", **options: str) -> None:
    df.write.format("seglog").options(**{"topic": "orders", **options}).mode(mode).save(url)


def commits(url: str) -> int:
    volumes = Volumes(open_store(url))
    return volumes.newest_lsn(Branches(volumes).resolve("orders"))


def rows(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("concat('value ', id) as value", "id")


def test_rows_written_are_rows_read_in_their_order(spark: SparkSession, url: str) -> None:
    df = rows(spark, 1000, 3).selectExpr(
        "value", "if(id % 3 = 0, concat('tag ', id % 7), null) as tag", "if(id % 2 = 0, 'n', null) as node",
        "timestamp_millis(1763800000000 + id) as timestamp",
    )  # fmt: skip
    save(df, url)
    found = records(open_store(url))
    expected = df.collect()
    assert [record.seq for record in found] == list(range(1, 1001))
    assert [(record.value, record.tag, record.node) for record in found] == [
        (row.value.encode(), row.tag, row.node) for row in expected
    ]
    assert [record.ts_ms for record in found] == [1763800000000 + number for number in range(1000)]
    assert commits(url) == 1
    back = spark.read.format("seglog").option("topic", "orders").load(url).orderBy("seq")
    assert [(bytes(row.value), row.tag, row.node) for row in back.collect()] == [
        (row.value.encode(), row.tag, row.node) for row in expected
    ]
    save(back.select("value", "tag"), url, branch="copy")
    assert values(open_store(url), branch="copy") == [record.value for record in found] * 2


@pytest.mark.long
def test_a_filter_a_sort_and_a_union_give_each_task_its_seqs(spark_session: SparkSession, url: str) -> None:
    df = rows(spark_session, 500, 4).where("id % 100 > 3")
    df = df.unionAll(df.where("id < 0")).unionAll(df).orderBy(df.id.desc()).select("value")
    save(df, url)
    assert values(open_store(url)) == [row.value.encode() for row in df.collect()]
    assert commits(url) == 1


@pytest.mark.long
def test_a_job_with_a_key_runs_once(spark_session: SparkSession, url: str) -> None:
    for _ in range(2):
        save(rows(spark_session, 10, 2).select("value"), url, idempotencyKey="day-1")
    assert commits(url) == 1
    assert len(values(open_store(url))) == 10


@pytest.mark.long
def test_each_topic_of_a_column_gets_a_commit(spark_session: SparkSession, url: str) -> None:
    df = rows(spark_session, 100, 3).selectExpr("value", "if(id % 3 = 0, 'orders', 'events') as topic")
    df.write.format("seglog").mode("append").save(url)
    for topic in ("orders", "events"):
        assert values(open_store(url), topic) == [row.value.encode() for row in df.where(df.topic == topic).collect()]


def test_what_cannot_be_written_is_refused_and_nothing_is_visible(spark_session: SparkSession, url: str) -> None:
    for number, (columns, options, message) in enumerate(REFUSED):
        remote = f"{url}-{number}"
        df = spark_session.range(0, 10, 1, 1).selectExpr("concat('value ', id) as value", "id").selectExpr(*columns)
        assert message in refusal(partial(save, df, remote, **options))
        assert not [key for key in open_store(remote).list("") if "/log/" in key or "/segments/" in key], message


@pytest.mark.long
def test_a_seq_that_the_record_gets_is_accepted(spark_session: SparkSession, url: str) -> None:
    df = rows(spark_session, 100, 3)
    save(df.selectExpr("value", "id + 1 as seq", "'orders' as topic"), url)
    assert len(values(open_store(url))) == 100


@pytest.mark.long
def test_a_topic_of_a_log_is_refused(spark_session: SparkSession, url: str) -> None:
    TopicArchive(url).add([Sample(b"of a log")])
    line = refusal(partial(save, rows(spark_session, 3, 1).select("value"), url))
    assert line.startswith("WrittenByLog: orders is written by the log of test (newest commit: lsn 1); nothing was ")
    assert "Hint: write to a branch of orders" in line
    save(rows(spark_session, 3, 1).select("value"), url, branch="bulk")
    assert values(open_store(url)) == [b"of a log"]
    assert len(values(open_store(url), branch="bulk")) == 4
    save(rows(spark_session, 3, 1).select("value"), url, takeOver="force")
    assert len(values(open_store(url))) == 4


@pytest.mark.long
def test_an_error_of_a_task_and_of_the_commit_is_one_line(spark_session: SparkSession, url: str) -> None:
    frame = spark_session.range(0, 6, 1, 2).selectExpr(
        "if(id = 4, repeat('x', 70000), 'v') AS tag", "'v' AS value", "id"
    )
    assert refusal(partial(save, frame.select("tag", "value"), url)) == (
        "InvalidRow: the row of record 5: tag has more than 65535 bytes; nothing was written"
    )
    falling = frame.selectExpr("value", "timestamp_millis(1000 * (if(id < 3, 9, 5) + id)) AS timestamp")
    line = refusal(partial(save, falling, url))
    assert line.startswith("InvalidRow: the row of record 4: timestamp is before the time of the record before it; ")
    assert ". Hint: sort the rows" in line
    wild = frame.where("rand() < 2").selectExpr("cast(raise_error('of the user') AS string) AS value")
    with pytest.raises(PySparkException, match="of the user"):
        save(wild, url)
    assert values(open_store(url)) == []


@pytest.mark.long
def test_a_value_that_no_block_takes_is_refused_before_anything_is_uploaded(url: str) -> None:
    """In a driver of its own, because Spark needs much memory for such a row."""
    most = most_value_bytes(Codec.ZSTD)
    done = subprocess.run(
        [sys.executable, "-c", _LONG_VALUES, url, str(most)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout.splitlines()[-2:] == [
        f"InvalidRow: partition 1 has a record of {most + 1} bytes, and a block takes {most}; nothing was written. "
        "Hint: split such values, or keep them in the bucket and write their keys; "
        f'df.where("octet_length(value) > {most}") finds them',
        "False",
    ], done.stderr
    assert [len(value) for value in values(open_store(url))] == [1, 1, 1, most]


@pytest.mark.long
def test_a_job_whose_task_fails_shows_nothing_and_writes_each_record_once_when_it_runs_again(
    spark_session: SparkSession, url: str
) -> None:
    save(rows(spark_session, 10, 1).select("value"), url)
    df = rows(spark_session, 100, 2).withColumn("seq", expr("if(id = 99, 0, id + 11)")).select("value", "seq")
    with pytest.raises(PySparkException, match="record 110: seq is not the seq that the record gets"):
        save(df, url, idempotencyKey="one")
    assert len(values(open_store(url))) == 10
    for _ in range(2):
        save(df.drop("seq"), url, idempotencyKey="one")
        assert len(values(open_store(url))) == 110


@pytest.mark.long
def test_a_session_without_the_provider_writes_from_one_partition(spark_session: SparkSession, url: str) -> None:
    class PlainSource(SeglogDataSource):
        @classmethod
        def name(cls) -> str:
            return "seglog_plain"

    spark_session.dataSource.register(PlainSource)
    df = rows(spark_session, 100, 3).select("value")
    write = df.coalesce(1).write.format("seglog_plain").option("topic", "orders").mode("append")
    write.save(url)
    assert values(open_store(url)) == [row.value.encode() for row in df.collect()]
    with pytest.raises(PySparkException, match="write from one partition"):
        df.write.format("seglog_plain").option("topic", "orders").mode("append").save(url)
    assert commits(url) == 1
