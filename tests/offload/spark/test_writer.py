"""The batch writer in Spark: rows written are rows read, over both providers, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from catalog import Branches, Volumes
from offload.spark.source import SeglogDataSource
from offload.wiring import open_store
from tests.offload.load.loads import records, values
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive

REFUSED: list[tuple[list[str], dict[str, str], str]] = [
    (["id"], {}, "there is no column value"),
    (["value", "timestamp_ntz'2026-11-22 12:00:00' as timestamp"], {}, "timestamp is timestamp_ntz"),
    (["value", "id as seq"], {}, "the row of record 1: seq is not the seq that the record gets"),
    (["if(id = 7, null, value) as value"], {}, "the row of record 8: value is null"),
    (["value"], {"codecs": "none"}, "option codecs is unknown"),
    (["value"], {"mode": "overwrite"}, "records are only appended"),
    (["value"], {"mode": "errorifexists"}, "records are only appended"),
    (["value"], {"branch": "fix"}, "orders"),
]


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
        with pytest.raises(PySparkException, match=message):
            save(df, remote, **options)
        assert not [key for key in open_store(remote).list("") if "/log/" in key or "/segments/" in key], message


@pytest.mark.long
def test_a_seq_that_the_record_gets_is_accepted(spark_session: SparkSession, url: str) -> None:
    df = rows(spark_session, 100, 3)
    save(df.selectExpr("value", "id + 1 as seq", "'orders' as topic"), url)
    assert len(values(open_store(url))) == 100


@pytest.mark.long
def test_a_topic_of_a_log_is_refused(spark_session: SparkSession, url: str) -> None:
    TopicArchive(url).add([Sample(b"of a log")])
    with pytest.raises(PySparkException, match=r"orders is written by the log of test(.|\n)*Hint: write to a branch"):
        save(rows(spark_session, 3, 1).select("value"), url)
    save(rows(spark_session, 3, 1).select("value"), url, branch="bulk")
    assert values(open_store(url)) == [b"of a log"]
    assert len(values(open_store(url), branch="bulk")) == 4


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
