"""Test the feed of changes in Spark, over both readers: queries, the catalog's table, and a stream into a mirror."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from catalog.format.commit import Codec, ForkPoint
from catalog.refs.branch import Branches
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.frames import expected, load, rows_of
from tests.offload.spark.queries import read
from tests.offload.spark.stream_driver import run_stream

pytestmark = pytest.mark.long

FEED: dict[str, object] = {"readChangeFeed": "true"}

#: Filters, and whether a row passes. Each would be wrong if a removal had the values that its record had.
FILTERS = (
    ("_change = 'delete'", lambda row: row["_change"] == "delete"),
    ("_lsn > 2 AND seq < 90", lambda row: row["_lsn"] > 2 and row["seq"] < 90),
    ("tag IS NULL", lambda row: row["tag"] is None),
    ("tag = 'eu'", lambda row: row["tag"] == "eu"),
    ("timestamp IS NULL", lambda row: row["timestamp"] is None),
    ("lsn IS NOT NULL", lambda row: row["lsn"] is not None),
    ("topic = 'nothing'", lambda row: row["topic"] == "nothing"),
)


@pytest.fixture
def archive(tmp_path: Path) -> TopicArchive:
    """Return a topic with each kind of change, except undos."""
    archive = TopicArchive((tmp_path / "remote").as_uri())
    first = archive.add([Sample(b"x" * n, ("eu", None)[n % 2], "n1") for n in range(60)], Codec.NONE, 4096)
    archive.add([Sample(b"y" * n, "us") for n in range(60)])
    archive.delete(first, [3, *range(20, 40)])
    archive.truncate(101)
    archive.add([Sample(b"z")] * 5)
    archive.evict(3)
    return archive


@pytest.fixture
def url(archive: TopicArchive) -> str:
    return archive.store.url


def test_queries_have_the_rows_of_the_plan(spark: SparkSession, url: str):
    frame = load(spark, url, FEED)
    rows = read(url, **FEED)
    assert rows_of(frame) == expected(url, FEED)
    assert (frame.count(), frame.where("seq < 50").count()) == (len(rows), sum(row["seq"] < 50 for row in rows))
    for text, keeps in FILTERS:
        wanted = [row["seq"] for row in rows if keeps(row)]
        assert [row.seq for row in frame.where(text).select("seq").collect()] == wanted, text
    kinds = {row["_change"] for row in rows}
    found = {row["_change"]: row["count"] for row in frame.groupBy("_change").count().collect()}
    assert found == {kind: sum(row["_change"] == kind for row in rows) for kind in kinds}
    assert frame.agg({"seq": "max"}).first()[0] == max(row["seq"] for row in rows)
    assert len(frame.limit(7).collect()) == 7


@pytest.mark.long
def test_options_give_the_rows_of_the_plan(spark: SparkSession, url: str):
    for more in (
        {"startingVersion": 3},
        {"startingVersion": 2, "endingVersion": 4},
        {"includeMetadata": "true"},
        {"columns": "_change,value,seq"},
        {"columns": "seq,_lsn", "minPartitions": 7},
        {"maxPartitionBytes": "2k", "verify": "chunk"},
    ):
        assert rows_of(load(spark, url, FEED | more)) == expected(url, FEED | more), more


def test_a_column_that_a_removal_lacks_is_never_not_null(spark: SparkSession, url: str):
    reader = spark.read.format("seglog").options(topic="orders", readChangeFeed="true")
    rows = read(url, columns="seq,_change,_lsn", **FEED)
    frame = reader.schema("_lsn bigint NOT NULL, seq bigint NOT NULL, _change string NOT NULL").load(url)
    assert [row.asDict() for row in frame.collect()] == rows
    with pytest.raises(Exception, match="value is NOT NULL, but records may lack it"):
        reader.schema("seq bigint, value binary NOT NULL").load(url).collect()


def test_the_catalog_shows_the_feed_as_a_table(spark_session: SparkSession, url: str):
    spark_session.conf.set("spark.sql.catalog.feeds", "seglog.spark.SeglogCatalog")
    spark_session.conf.set("spark.sql.catalog.feeds.url", url)
    statement = "SELECT _lsn, count(*) FROM feeds.orders.changes WHERE _change <> 'append' GROUP BY _lsn ORDER BY _lsn"
    assert [tuple(row) for row in spark_session.sql(statement).collect()] == [(3, 21), (4, 20), (6, 2)]
    some = spark_session.read.option("startingVersion", 4).option("endingVersion", 4).table("feeds.orders.changes")
    assert {row["_lsn"] for row in some.select("_lsn").collect()} == {4}
    with pytest.raises(AnalysisException, match=r"option versionAsOf.*endingVersion ends the feed"):
        spark_session.sql("SELECT * FROM feeds.orders.changes VERSION AS OF 2").collect()
    with pytest.raises(AnalysisException, match=r"startingVersion.*TOPIC\.changes takes it"):
        spark_session.read.option("startingVersion", 2).table("feeds.orders").collect()
    with pytest.raises(AnalysisException, match="option readchangefeed: no table of a catalog takes it"):
        spark_session.read.option("readChangeFeed", "true").table("feeds.orders").collect()


def test_settings_of_a_catalog_that_choose_records_leave_the_feed_whole(spark_session: SparkSession, url: str):
    setting = "spark.sql.catalog.some"
    spark_session.conf.set(setting, "seglog.spark.SeglogCatalog")
    for name, text in (("url", url), ("startingSeq", "earliest"), ("columns", "seq,value"), ("pinSeconds", "9")):
        spark_session.conf.set(f"{setting}.{name}", text)
    found = spark_session.sql("SELECT * FROM some.orders.changes").collect()
    wanted = [(row["seq"], row["_change"], row["value"]) for row in read(url, **FEED)]
    assert [(row.seq, row["_change"], row.value) for row in found] == wanted
    spark_session.conf.set("spark.sql.catalog.fed", "seglog.spark.SeglogCatalog")
    spark_session.conf.set("spark.sql.catalog.fed.url", url)
    spark_session.conf.set("spark.sql.catalog.fed.readChangeFeed", "true")
    with pytest.raises(Exception, match=r"option readChangeFeed.*the table changes of a topic is its feed"):
        spark_session.sql("SHOW TABLES IN fed").collect()


@pytest.mark.long
def test_the_statement_of_the_docs_is_sql_and_takes_the_newest_change_of_each_seq(
    spark_session: SparkSession, url: str
):
    """Spark alone has no table that takes a MERGE. So the test runs the statement's query, and parses the rest."""
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    statement = page.split("```sql\nMERGE", 1)[1].split("```", 1)[0]
    query = statement.split("USING (", 1)[1].split(") AS change", 1)[0]
    load(spark_session, url, FEED).createOrReplaceTempView("changes")
    left = [row for row in spark_session.sql(query).collect() if row["_change"] in {"append", "undelete"}]
    shown = {row["seq"]: row["value"] for row in read(url, startingSeq="earliest")}
    assert {row.seq: row.value for row in left} == shown
    with pytest.raises(AnalysisException, match=r"TABLE_OR_VIEW_NOT_FOUND.*mirror"):
        spark_session.sql(f"MERGE{statement}")


def test_a_start_beyond_the_end_is_an_error_in_one_line(spark: SparkSession, url: str):
    with pytest.raises(Exception, match="option startingVersion: 9 is behind the end of the feed, lsn 6"):
        load(spark, url, FEED | {"startingVersion": 9}).collect()


class Mirror:
    """A copy of a topic, which takes the newest change of each seq, as a MERGE does."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.batches = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        for row in sorted(frame.collect(), key=lambda row: row["_lsn"]):
            if row["_change"] in {"append", "undelete"}:
                self.rows[row.seq] = row.value
            else:
                self.rows.pop(row.seq, None)
        self.batches += 1


@pytest.mark.parametrize("reader", ["jvm", pytest.param("python", marks=pytest.mark.soak(part=9))])
def test_a_stream_keeps_a_mirror_over_a_restart_and_a_promotion(
    spark_session: SparkSession, archive: TopicArchive, tmp_path: Path, reader: str
):
    mirror, url = Mirror(), archive.store.url

    def run() -> dict[int, Any]:
        options = {"topic": "orders", "reader": reader, "columns": "seq,value,_change,_lsn", **FEED}
        run_stream(spark_session, url, tmp_path / "checkpoint", mirror, **options)
        return {row["seq"]: row["value"] for row in read(url, startingSeq="earliest")}

    assert run() == mirror.rows
    archive.truncate(90)
    archive.add([Sample(b"again")] * 3)
    assert run() == mirror.rows
    fixed = TopicArchive(url, branch="fixed", parent=ForkPoint(archive.vid, 6))
    fixed.add([Sample(b"fixed")])
    Branches(archive.volumes).promote("orders", "fixed", "old", (archive.vid, fixed.vid), now_ms=NOW_MS)
    assert run() == mirror.rows
    assert (mirror.batches, mirror.rows[106]) == (3, b"fixed")
