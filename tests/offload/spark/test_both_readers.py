"""One suite over both readers in Spark: a query gives the rows that a plan and a scan without Spark give, in order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog.format.commit import Codec
from tests.faults.stride import every
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive, archive_of_many_shapes
from tests.offload.spark.frames import Row, expected, load, rows_of
from tests.offload.spark.queries import read
from tests.seams.spark import query_execution

PAIR_STEP = 12  # each twelfth pair, and each in the soak: a query costs some tenths of a second

#: Options of a load, one a line. Every one is tried alone, and with some of the others.
OPTIONS: tuple[dict[str, object], ...] = (
    {},
    {"topic": "*"},
    {"branch": "half"},
    {"versionAsOf": 2},
    {"startingSeq": 100},
    {"endingSeq": 170},
    {"startingTimestamp": NOW_MS + 90},
    {"endingTimestamp": NOW_MS + 130},
    {"tag": "eu*"},
    {"columns": "value,seq,tag,topic"},
    {"columns": "lsn,seq,topic"},
    {"includeMetadata": "true"},
    {"verify": "record"},
    {"verify": "chunk"},
    {"verify": "none"},
    {"maxPartitionBytes": "2k"},
    {"minPartitions": 7},
)
FILTERS: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("seq < 40", lambda row: row["seq"] < 40),
    ("200 <= seq", lambda row: row["seq"] >= 200),
    ("seq IN (3, 77, 77, 4000)", lambda row: row["seq"] in {3, 77, 4000}),
    ("seq = 111", lambda row: row["seq"] == 111),
    ("seq <=> 111", lambda row: row["seq"] == 111),
    ("seq % 7 = 1", lambda row: row["seq"] % 7 == 1),
    ("seq BETWEEN 110 AND 130", lambda row: 110 <= row["seq"] <= 130),
    ("NOT seq > 30", lambda row: row["seq"] <= 30),
    (f"unix_millis(timestamp) > {NOW_MS + 100}", lambda row: _ms(row) > NOW_MS + 100),
    (f"timestamp >= timestamp_millis({NOW_MS + 100})", lambda row: _ms(row) >= NOW_MS + 100),
    (f"timestamp < timestamp_millis({NOW_MS + 20})", lambda row: _ms(row) < NOW_MS + 20),
    ("tag = 'eu'", lambda row: row["tag"] == "eu"),
    ("tag IN ('us', 'gr\u00fc\u00df')", lambda row: row["tag"] in {"us", "gr\u00fc\u00df"}),
    ("tag LIKE 'eu%'", lambda row: (row["tag"] or "x").startswith("eu")),
    ("tag IS NULL", lambda row: row["tag"] is None),
    ("tag IS NOT NULL", lambda row: row["tag"] is not None),
    ("tag <> 'eu' OR seq < 5", lambda row: (row["tag"] not in {None, "eu"}) or row["seq"] < 5),
    ("length(value) > 50", lambda row: len(row["value"]) > 50),
    ("node = 'n1'", lambda row: row["node"] == "n1"),
    ("topic = 'events'", lambda row: row["topic"] == "events"),
    ("lsn <= 2", lambda row: row["lsn"] <= 2),
)


def _ms(row: Row) -> int:
    return round(row["timestamp"].timestamp() * 1000)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = (tmp_path_factory.mktemp("archive") / "remote").as_uri()
    archive_of_many_shapes(url)
    return url


@pytest.mark.long
def test_every_option_gives_the_same_rows_in_order(spark: SparkSession, url: str):
    for options in OPTIONS:
        assert rows_of(load(spark, url, options)) == expected(url, options), options


@every(PAIR_STEP, part=9)
def test_pairs_of_options_give_the_same_rows_in_order(spark_session: SparkSession, url: str, every: int):
    for one, other in list(combinations(OPTIONS[3:], 2))[::every]:
        if not one.keys() & other.keys():
            options = one | other
            assert rows_of(load(spark_session, url, options)) == expected(url, options), options


@pytest.mark.long
def test_every_filter_gives_the_same_rows_in_order(spark_session: SparkSession, url: str):
    options: dict[str, object] = {"topic": "*"}
    frame = load(spark_session, url, options)
    for text, keeps in FILTERS:
        wanted = expected(url, options, keeps)
        assert rows_of(frame.where(text)) == wanted, text
        assert frame.where(text).count() == len(wanted), text


@pytest.mark.long
@every(2 * PAIR_STEP, part=9)
def test_pairs_of_filters_give_the_same_rows_in_order(spark_session: SparkSession, url: str, every: int):
    options: dict[str, object] = {"topic": "*", "maxPartitionBytes": "4k"}
    frame = load(spark_session, url, options)
    rows = read(url, **options)
    for (text, keeps), (other_text, other_keeps) in list(combinations(FILTERS, 2))[::every]:
        found = [row.seq for row in frame.where(text).where(other_text).select("seq").collect()]
        assert found == [row["seq"] for row in rows if keeps(row) and other_keeps(row)], (text, other_text)


@pytest.mark.long
def test_one_frame_serves_many_queries_views_and_joins_with_itself(spark: SparkSession, url: str):
    frame = load(spark, url, {})
    rows = read(url)
    assert frame.where("seq < 10").count() == sum(row["seq"] < 10 for row in rows)
    assert frame.count() == len(rows)
    frame.createOrReplaceTempView("orders_view")
    [row] = spark.sql(
        "SELECT count(*) AS n, sum(length(value)) AS bytes, max(tag) AS tag FROM orders_view WHERE seq > 50"
    ).collect()
    above = [row for row in rows if row["seq"] > 50]
    assert (row.n, row.bytes, row.tag) == (len(above), sum(len(one["value"]) for one in above), "us")
    joined = frame.alias("a").join(frame.where("seq > 200").alias("b"), "seq")
    assert joined.count() == sum(row["seq"] > 200 for row in rows)


@pytest.mark.long
def test_a_view_of_sql_reads_the_same(spark: SparkSession, url: str):
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW by_sql USING seglog OPTIONS (path '{url}', topic 'orders', tag 'us')")
    found = [row.seq for row in spark.sql("SELECT seq FROM by_sql").collect()]
    assert found == [row["seq"] for row in read(url, tag="us")]


def test_aggregates_are_those_of_the_rows(spark: SparkSession, url: str):
    for options in ({}, {"topic": "*"}, {"topic": "empty"}, {"verify": "record"}, {"tag": "eu"}, {"startingSeq": 200}):
        seqs = [row["seq"] for row in read(url, **options)]
        [row] = load(spark, url, options).selectExpr("count(*) AS n", "min(seq) AS low", "max(seq) AS high").collect()
        assert (row.n, row.low, row.high) == (len(seqs), min(seqs, default=None), max(seqs, default=None))


@pytest.mark.long
def test_groups_are_those_of_the_rows(spark_session: SparkSession, url: str):
    everything: dict[str, object] = {"topic": "*"}
    for columns, options in (
        (("tag",), everything),
        (("topic", "tag"), everything),
        (("tag", "node"), everything),
        (("tag",), {"tag": "eu*"}),
        (("tag",), {"verify": "record"}),
    ):
        expected: dict[tuple[Any, ...], list[int]] = {}
        for row in read(url, **options):
            expected.setdefault(tuple(row[column] for column in columns), []).append(row["seq"])
        grouped = load(spark_session, url, options).groupBy(*columns).agg({"*": "count", "seq": "max"})
        found = sorted((tuple(row) for row in grouped.collect()), key=repr)
        rows = sorted(((*group, len(seqs), max(seqs)) for group, seqs in expected.items()), key=repr)
        assert found == rows, (columns, options)
    tags = load(spark_session, url, everything).select("tag").distinct().collect()
    assert {row.tag for row in tags} == {row["tag"] for row in read(url, topic="*")}
    assert len(tags) == len({row.tag for row in tags})


def test_a_count_and_bounds_of_seqs_run_no_task(spark_session: SparkSession, url: str):
    frame = load(spark_session, url, {"topic": "*"})
    for query in (frame.selectExpr("count(*)", "min(seq)", "max(seq)"), frame.groupBy("tag").count()):
        plan = query_execution(query).executedPlan().toString()
        assert "LocalTableScan" in plan
        assert "BatchScan" not in plan


@pytest.mark.long
@pytest.mark.parametrize("spark", ["jvm", "python"], indirect=True)
def test_a_limit_gives_so_many_rows_of_the_front(spark: SparkSession, url: str):
    frame = load(spark, url, {"maxPartitionBytes": "2k"})
    rows = read(url)
    for limit in (1, 7, 100, 1000):
        assert [row.seq for row in frame.limit(limit).select("seq").collect()] == [row["seq"] for row in rows][:limit]


@pytest.mark.long
def test_the_statistics_are_those_of_the_plan(spark_session: SparkSession, url: str):
    frame = load(spark_session, url, {})
    scan = query_execution(frame).optimizedPlan().collectLeaves().head()
    spark_session.conf.set("spark.sql.cbo.enabled", "true")  # otherwise Spark keeps the bytes only
    try:
        assert f"rowCount={len(read(url))}" in scan.stats().toString()
    finally:
        spark_session.conf.unset("spark.sql.cbo.enabled")


@pytest.mark.long
def test_a_scan_whose_tasks_stop_early_or_hold_much_gives_every_row_once(spark: SparkSession, tmp_path: Path):
    """Values are larger than a page of Spark's memory, than a chunk, and than what one GET brings."""
    url = (tmp_path / "remote").as_uri()
    archive = TopicArchive(url)
    sizes = [0, 1, 3 << 20, 10 << 20, 5, 9 << 20, 100]
    archive.add(
        [Sample(bytes([n]) * size) for n, size in enumerate(sizes)],
        Codec.NONE,
        block_size=24 << 20,
        chunk_bytes=1 << 20,
    )
    frame = load(spark, url, {})
    found = frame.selectExpr("seq", "length(value) AS size", "md5(value) AS md5").orderBy("seq").collect()
    assert [row.size for row in found] == sizes
    assert len({row.md5 for row in found}) == len(sizes)
    assert frame.select("value").first().value == b""
