"""Test the catalog for SQL: statements as people write them for Iceberg and Delta give the rows of a load()."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from catalog import Sid, Volumes
from catalog.format.commit import ForkPoint
from catalog.refs.state_names import Tags
from offload.load import LoadedPart, LoadRequest, open_load, publish_load
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.catalogs import READ_ONLY, refusal, rows, sql, with_catalog
from tests.offload.spark.session import SPARK
from tests.seams.spark import query_execution

Load = Callable[..., DataFrame]

#: Statements, and the DataFrame of loads that has the same rows.
STATEMENTS: list[tuple[str, Callable[[Load], DataFrame]]] = [
    ("SELECT * FROM acme.orders", lambda load: load()),
    ("TABLE acme.orders", lambda load: load()),
    ("SELECT * FROM acme.`a.b`", lambda load: load(topic="a.b")),
    ("SELECT * FROM acme.`*`", lambda load: load(topic="*")),
    ("SELECT * FROM acme.orders VERSION AS OF 2", lambda load: load(versionAsOf=2)),
    ("SELECT * FROM acme.orders FOR SYSTEM_VERSION AS OF 2", lambda load: load(versionAsOf=2)),
    ("SELECT * FROM acme.orders VERSION AS OF '2'", lambda load: load(versionAsOf=2)),
    ("SELECT * FROM acme.orders VERSION AS OF 'audit'", lambda load: load(versionAsOf="tag:audit")),
    ("SELECT * FROM acme.orders VERSION AS OF 'tag:audit'", lambda load: load(versionAsOf="tag:audit")),
    ("SELECT * FROM acme.orders.tag_audit", lambda load: load(versionAsOf="tag:audit")),
    (
        "SELECT * FROM acme.orders TIMESTAMP AS OF timestamp_millis(1700000000015)",
        lambda load: load(timestampAsOf=NOW_MS + 15),
    ),
    (
        "SELECT * FROM acme.orders FOR SYSTEM_TIME AS OF '2023-11-14T22:13:20.0159Z'",
        lambda load: load(timestampAsOf=NOW_MS + 15),
    ),
    (
        "SELECT * FROM acme.orders TIMESTAMP AS OF '2023-11-15 03:58:20.015'",  # in the session's time zone
        lambda load: load(timestampAsOf=NOW_MS + 15),
    ),
    (
        "SELECT seq FROM acme.orders EXCEPT SELECT seq FROM acme.orders VERSION AS OF 'audit' ORDER BY seq",
        lambda load: load(startingSeq=11).select("seq").orderBy("seq"),
    ),
    ("SELECT * FROM acme.orders.branch_rescued", lambda load: load(topic="orders@rescued")),
    ("SELECT * FROM acme.`orders@rescued`", lambda load: load(topic="orders@rescued")),
    (
        "SELECT * FROM acme.orders.branch_rescued VERSION AS OF 1",
        lambda load: load(topic="orders@rescued", versionAsOf=1),
    ),
    (
        "SELECT seq, value FROM acme.orders WHERE tag = 'eu' AND seq > 7 ORDER BY seq DESC",
        lambda load: load().where("tag = 'eu' AND seq > 7").orderBy("seq", ascending=False).select("seq", "value"),
    ),
    ("SELECT seq FROM acme.orders LIMIT 3", lambda load: load().select("seq").limit(3)),
    (
        "SELECT count(*) AS rows, min(seq) AS low FROM acme.orders",
        lambda load: load().selectExpr("count(*) AS rows", "min(seq) AS low"),
    ),
    (
        "SELECT tag, count(*) AS count FROM acme.orders GROUP BY tag ORDER BY tag",
        lambda load: load().groupBy("tag").count().orderBy("tag"),
    ),
    (
        "SELECT new.seq, new.value FROM acme.orders new LEFT ANTI JOIN acme.orders VERSION AS OF 2 old USING (seq)",
        lambda load: load().join(load(versionAsOf=2), "seq", "left_anti").select("seq", "value"),
    ),
    (
        "SELECT * FROM acme.orders WHERE seq IN (SELECT seq FROM acme.orders.branch_rescued)",
        lambda load: load().join(load(topic="orders@rescued"), "seq", "left_semi").select(*load().columns),
    ),
    (
        "SELECT * FROM acme.orders WHERE lsn IN (SELECT max(lsn) FROM acme.orders.history)",
        lambda load: load().where("lsn = 3"),
    ),
]
OF_SPARK_4: list[tuple[str, Callable[[Load], DataFrame]]] = [
    ("SELECT * FROM acme.orders WITH (startingSeq = 5)", lambda load: load(startingSeq=5)),
    ("SELECT * FROM acme.orders WITH (versionAsOf = 1)", lambda load: load(versionAsOf=1)),
    (
        "SELECT * FROM acme.orders VERSION AS OF 2 WITH (endingSeq = 5, verify = 'none')",
        lambda load: load(versionAsOf=2, endingSeq=5),
    ),
]
CHANGES = (
    "CREATE TABLE acme.new (seq BIGINT)",
    "CREATE TABLE acme.new AS SELECT * FROM acme.orders",
    "CREATE OR REPLACE TABLE acme.orders AS SELECT 1 AS seq",
    "DROP TABLE acme.orders",
    "DROP TABLE IF EXISTS acme.orders PURGE",
    "DROP TABLE acme.orders.branch_rescued",
    "ALTER TABLE acme.orders RENAME TO acme.new",
    "ALTER TABLE acme.orders ADD COLUMN price INT",
    "ALTER TABLE acme.orders SET TBLPROPERTIES ('retention' = '1')",
    "COMMENT ON TABLE acme.orders IS 'text'",
    "INSERT OVERWRITE acme.orders SELECT * FROM acme.orders",
    "INSERT OVERWRITE acme.orders.branch_rescued SELECT * FROM acme.orders",
    "INSERT INTO acme.orders REPLACE WHERE seq = 1 SELECT * FROM acme.orders",
    "DELETE FROM acme.orders WHERE seq = 1",
    "UPDATE acme.orders SET tag = 'us'",
    "MERGE INTO acme.orders t USING acme.orders s ON t.seq = s.seq WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE acme.orders",
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an archive of three topics, of which one has three versions, a branch and a tag."""
    url = (tmp_path_factory.mktemp("archive") / "remote").as_uri()
    orders = TopicArchive(url)
    for first in (1, 11, 21):
        orders.add([Sample(b"record %d" % seq, "eu" if seq % 2 else None) for seq in range(first, first + 10)])
    TopicArchive(url, "orders", "rescued", ForkPoint(orders.vid, 2)).add([Sample(b"rescued")] * 3)
    Tags(orders.volumes).create("orders", "audit", ForkPoint(orders.vid, 1), branch="main", now_ms=NOW_MS, message="q4")
    TopicArchive(url, "events").add([Sample(b"event")] * 2)
    TopicArchive(url, "a.b").add([Sample(b"dotted")] * 2)
    return url


@pytest.fixture
def spark(spark_session: SparkSession, url: str) -> SparkSession:
    """Return the session with the catalog `acme`."""
    return with_catalog(spark_session, "acme", url=url)


@pytest.fixture
def load(spark_session: SparkSession, url: str) -> Load:
    def loaded(**options: object) -> DataFrame:
        texts = {name: str(value) for name, value in {"topic": "orders", **options}.items()}
        return spark_session.read.format("seglog").options(**texts).load(url)

    return loaded


def files(url: str) -> dict[Path, bytes]:
    """Return all objects of the remote but leases, which a read of a past version writes."""
    found = Path(url.removeprefix("file://")).rglob("*")
    return {path: path.read_bytes() for path in found if path.is_file() and "pins" not in path.parts}


def plan(frame: DataFrame) -> str:
    return str(query_execution(frame).toString())


@pytest.mark.parametrize(
    "chosen", [slice(0, None, 6), pytest.param(slice(None), marks=pytest.mark.long)], ids=["some", "all"]
)
def test_statements_of_iceberg_and_delta_give_the_rows_of_a_load(spark: SparkSession, load: Load, chosen: slice):
    for statement, expected in [*STATEMENTS, *(OF_SPARK_4 if SPARK >= (4, 0) else [])][chosen]:
        found = rows(spark.sql(statement))
        assert (found, len(found) > 0) == (rows(expected(load)), True), statement


@pytest.mark.long
def test_options_of_a_read_reach_the_table(spark: SparkSession, load: Load):
    tables: tuple[dict[str, object], ...] = (
        {"startingSeq": 25},
        {"versionAsOf": 1},
        {"versionAsOf": "tag:audit", "endingSeq": 4},
        {"timestampAsOf": "2023-11-14T22:13:20.015Z"},
        {"tag": "e*", "minPartitions": 3},
    )
    for options in tables:
        texts = {name: str(value) for name, value in options.items()}
        assert rows(spark.read.options(**texts).table("acme.orders")) == rows(load(**options)), options


@pytest.mark.long
def test_filters_limits_and_aggregates_reach_the_plan(spark: SparkSession):
    assert '"op":"eq","values":["eu"]' in plan(spark.sql("SELECT seq FROM acme.orders WHERE tag = 'eu'"))
    assert "seglog orders, limit 3" in plan(spark.sql("SELECT seq FROM acme.orders LIMIT 3"))
    assert "LocalTableScan" in plan(spark.sql("SELECT count(*), max(seq) FROM acme.orders VERSION AS OF 'audit'"))


def test_tables_are_listed_and_described(spark: SparkSession, load: Load):
    assert [row.tableName for row in spark.sql("SHOW TABLES IN acme").collect()] == ["a.b", "events", "orders"]
    assert [row.tableName for row in spark.sql("SHOW TABLES IN acme LIKE 'ord*'").collect()] == ["orders"]
    described = [(row.col_name, row.data_type) for row in spark.sql("DESCRIBE TABLE acme.orders").collect()]
    assert described == load().dtypes
    assert spark.table("acme.orders").schema == load().schema
    spark.sql("USE acme")
    try:
        assert spark.sql("SHOW TABLES").count() == 3
        assert spark.sql("SELECT * FROM orders").count() == 30
        assert spark.sql("SELECT * FROM orders.history").count() == 3
    finally:
        spark.sql("USE spark_catalog")


@pytest.mark.long
def test_a_topic_has_tables_of_its_commits_branches_tags_and_segments(spark: SparkSession, load: Load):
    at = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    history = spark.sql("SELECT lsn, kind, head_seq, records, writer, timestamp FROM acme.orders.history").collect()
    assert [row[:5] for row in history] == [(lsn, "offload", 10 * lsn, 10, "test") for lsn in (3, 2, 1)]
    assert {row.timestamp.astimezone(UTC) for row in history} == {at}
    assert [row.lsn for row in spark.sql("SELECT lsn FROM acme.`orders@rescued`.HISTORY").collect()] == [1, 2, 1]
    branches = spark.sql("SELECT branch, parent, parent_lsn FROM acme.orders.branches").collect()
    assert branches == [("main", None, None), ("rescued", "main", 2)]
    tags = spark.sql("SELECT tag, branch, lsn, seq, message FROM acme.orders.tags").collect()
    assert tags == [("audit", "main", 1, None, "q4")]
    segments = spark.sql("SELECT segment, lsn, first_seq, last_seq, last_timestamp FROM acme.orders.segments").collect()
    expected = load(includeMetadata=True).groupBy("segment", "lsn").agg({"seq": "min", "timestamp": "max"})
    assert [(row[0], row[1], row[2], row[4]) for row in segments] == expected.orderBy("lsn").collect()
    assert {row.last_seq - row.first_seq for row in segments} == {9}
    for past in ("VERSION AS OF 1", "TIMESTAMP AS OF '2023-11-15'"):
        text = refusal(partial(sql, spark, "SELECT * FROM acme.orders.tags", past))
        assert text == "InvalidOption: option versionAsOf: tags shows what is there now. Hint: leave the version out"


@pytest.mark.long
def test_no_change_but_an_append_appears_to_work(spark: SparkSession, url: str):
    before = files(url)
    for statement in CHANGES:
        assert refusal(partial(sql, spark, statement)) == READ_ONLY, statement
    frame = spark.sql("SELECT seq, value FROM acme.orders")
    writes: tuple[Callable[[], Any], ...] = (
        lambda: frame.writeTo("acme.new").create(),
        lambda: frame.writeTo("acme.orders").overwritePartitions(),
        lambda: frame.write.mode("overwrite").saveAsTable("acme.orders"),
        lambda: frame.write.insertInto("acme.orders", overwrite=True),
    )
    assert {refusal(write) for write in writes} == {READ_ONLY}
    for other in ("TRUNCATE TABLE acme.orders.history", "CREATE VIEW acme.v AS SELECT 1"):
        with pytest.raises(AnalysisException, match="does not support"):
            spark.sql(other)
    assert files(url) == before


@pytest.mark.long
def test_a_stream_into_a_table_is_refused(spark: SparkSession, url: str, tmp_path: Path):
    before = files(url)
    for table, message in (("acme.events", "doesn't support streaming write"), ("acme.new", "ReadOnly: ")):
        writer = spark.readStream.table("acme.orders").writeStream.option("checkpointLocation", str(tmp_path / table))
        with pytest.raises(AnalysisException, match=message):
            writer.toTable(table)
    assert files(url) == before


@pytest.mark.long
def test_a_missing_table_is_one_to_spark(spark: SparkSession):
    for name in ("nope", "orders.branch_nope", "orders.nope", "nope.history", "default.orders.history"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql(spark, "SELECT * FROM", f"acme.{name}")
        assert not spark.catalog.tableExists(f"acme.{name}")
    assert spark.catalog.tableExists("acme.orders")
    spark.sql("DROP TABLE IF EXISTS acme.nope")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql("SHOW TABLES IN acme.orders")


@pytest.mark.long
def test_other_errors_are_a_line_of_ours(spark: SparkSession):
    for text, start in (
        ("VERSION AS OF 'nope'", "NoSuchTag: orders has no tag nope"),
        ("VERSION AS OF 9", "OutOfWindow: lsn:9 is outside the kept history"),
        ("TIMESTAMP AS OF '1960-01-01'", "InvalidOption: option timestampAsOf: "),
    ):
        assert refusal(partial(sql, spark, "SELECT * FROM acme.orders", text)).startswith(start)
    for name, setting, start in (
        ("unset", {}, "InvalidOption: option url: it is required. Hint: set spark.sql.catalog.unset.url"),
        ("far", {"url": "ftp://host/x"}, "InvalidRemote: 'ftp://host/x' is not a remote"),
        ("lost", {"url": "file:///no/such/directory"}, "NoSuchBucket: "),
        ("odd", {"url": "file:///tmp/x", "warehouse": "/x"}, "InvalidOption: option warehouse is unknown"),
    ):
        with_catalog(spark, name, **setting)
        assert refusal(partial(spark.table, f"{name}.orders")).startswith(start)
        assert refusal(partial(sql, spark, "SHOW TABLES IN", name)).startswith(start)


@pytest.mark.long
def test_options_that_a_table_cannot_take_are_refused(spark: SparkSession):
    for option in ("topic", "path", "branch", "columns", "includeMetadata", "reader", "pinSeconds"):
        text = refusal(partial(spark.read.option(option, "x").table, "acme.orders"))
        assert text.startswith(f"InvalidOption: option {option.lower()}: no table of a catalog takes it. Hint: ")
    for option, start in (("startingSec", "InvalidOption: "), ("maxRecordsPerTrigger", "InvalidOption: ")):
        text = refusal(partial(spark.read.option(option, "5").table, "acme.orders"))
        assert text.startswith(start)
    listing = refusal(partial(spark.read.option("startingSeq", "5").table, "acme.orders.history"))
    assert listing.startswith("InvalidOption: option startingseq: no table of a catalog takes it")


@pytest.mark.long
def test_settings_of_a_catalog_are_options_of_each_of_its_tables(spark: SparkSession, load: Load, url: str):
    with_catalog(spark, "wide", url=url, includeMetadata="true", startingSeq="20", branch="rescued")
    assert rows(spark.sql("SELECT * FROM wide.orders")) == rows(
        load(topic="orders@rescued", includeMetadata=True, startingSeq=20)
    )
    assert [row.tableName for row in spark.sql("SHOW TABLES IN wide").collect()] == ["orders"]
    table = spark.read.option("startingSeq", "22").table("wide.orders")
    assert [row.seq for row in table.select("seq").collect()] == [22, 23]
    with_catalog(spark, "frozen", url=url, versionAsOf="1")
    assert rows(spark.table("frozen.orders")) == rows(load(versionAsOf=1))
    assert rows(spark.read.option("versionAsOf", "2").table("frozen.orders")) == rows(load(versionAsOf=2))


@pytest.mark.long
def test_a_frame_keeps_its_version_and_a_new_statement_sees_the_newest(spark_session: SparkSession, tmp_path: Path):
    url = (tmp_path / "remote").as_uri()
    orders = TopicArchive(url)
    orders.add([Sample(b"old")] * 4)
    spark = with_catalog(spark_session, "moving", url=url)
    frames = [
        spark.sql("SELECT * FROM moving.orders"),
        spark.table("moving.orders"),
        spark.read.option("startingSeq", "1").table("moving.orders"),
    ]
    assert [frame.count() for frame in frames] == [4, 4, 4]
    orders.add([Sample(b"new")] * 3)
    assert [len(frame.collect()) for frame in frames] == [4, 4, 4]
    assert spark.sql("SELECT * FROM moving.orders").count() == 7


def test_a_statement_sees_one_version_of_a_table(spark_session: SparkSession, url: str):
    """Spark reads two equal scans once, and scans of two pins are not equal."""
    spark = with_catalog(spark_session.newSession(), "acme", url=url)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    twice = "SELECT /*+ MERGE(a) */ a.value, b.value FROM acme.orders a JOIN acme.orders {} b ON a.seq = b.seq"
    assert "ReusedExchange" in plan(spark.sql(twice.format("")))
    assert "ReusedExchange" not in plan(spark.sql(twice.format("VERSION AS OF 2")))


@pytest.mark.long
def test_a_table_streams(spark: SparkSession, load: Load):
    for table, options, topic in (
        ("acme.orders", {"maxRecordsPerTrigger": "7"}, "orders"),
        ("acme.orders.branch_rescued", {"startingSeq": "20"}, "orders@rescued"),
    ):
        stream = spark.readStream.options(**options).table(table).writeStream.format("memory")
        query = stream.queryName("sink_of_a_catalog").trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        assert len(batches) == (5 if topic == "orders" else 1)
        expected = load(topic=topic, startingSeq=options.get("startingSeq", 1))
        assert rows(spark.table("sink_of_a_catalog").orderBy("seq")) == rows(expected.orderBy("seq"))
        spark.catalog.dropTempView("sink_of_a_catalog")


@pytest.mark.long
def test_a_view_and_a_file_take_rows_of_a_topic(spark: SparkSession, tmp_path: Path):
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW of_a_catalog AS SELECT * FROM acme.orders VERSION AS OF 2")
    assert spark.sql("SELECT max(seq) AS seq FROM of_a_catalog").collect() == [(20,)]
    spark.catalog.dropTempView("of_a_catalog")
    spark.sql("SELECT * FROM acme.orders").write.parquet(str(tmp_path / "copy"))
    assert spark.read.parquet(str(tmp_path / "copy")).count() == 30


@pytest.mark.long
def test_tenants_are_namespaces_of_a_catalog_that_says_so(spark_session: SparkSession, tmp_path: Path):
    base = (tmp_path / "base").as_uri()
    for tenant in ("globex", "initech"):
        (tmp_path / "base" / tenant).mkdir(parents=True)
    orders = TopicArchive(f"{base}/globex")
    orders.add([Sample(b"theirs")] * 3)
    TopicArchive(f"{base}/globex", "orders", "fix", ForkPoint(orders.vid, 1)).add([Sample(b"fixed")])
    TopicArchive(f"{base}/initech", "globex").add([Sample(b"ours")])  # a topic with the name of a tenant
    spark = with_catalog(spark_session.newSession(), "all", url=f"{base}/", tenants="true")
    assert [row.namespace for row in spark.sql("SHOW NAMESPACES IN all").collect()] == ["globex", "initech"]
    assert [row.tableName for row in spark.sql("SHOW TABLES IN all.initech").collect()] == ["globex"]
    for table, count in (
        ("all.globex.orders", 3),
        ("all.globex.orders VERSION AS OF 1", 3),
        ("all.globex.orders.branch_fix", 4),
        ("all.globex.orders.history", 1),
        ("all.initech.globex", 1),
        ("all.initech.globex.branch_main", 1),
    ):
        assert sql(spark, "SELECT * FROM", table).count() == count
    join = "SELECT a.value, b.value FROM all.globex.orders a JOIN all.initech.globex b USING (seq)"
    assert spark.sql(join).collect() == [(b"theirs", b"ours")]
    spark.sql("USE all.globex")
    assert spark.sql("SELECT * FROM orders").count() == 3
    for name in (
        "orders",
        "globex.globex",
        "initech.orders",
        "Globex.orders",
        "`../base/globex`.orders",
        "globex.a.b.c",
    ):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            sql(spark, "SELECT * FROM", f"all.{name}")
    for name in ("all", "all.`..`", "all.globex.orders"):
        with pytest.raises(AnalysisException, match=r"SCHEMA_NOT_FOUND|NAMESPACE"):
            sql(spark, "SHOW TABLES IN", name)


@pytest.mark.long
def test_a_catalog_of_one_remote_has_no_namespaces_and_none_is_made_or_dropped(spark: SparkSession, url: str):
    before = files(url)
    assert spark.sql("SHOW NAMESPACES IN acme").collect() == []
    for statement in (
        "CREATE NAMESPACE acme.new",
        "DROP NAMESPACE acme.orders CASCADE",
        "COMMENT ON NAMESPACE acme.orders IS 'text'",
    ):
        assert refusal(partial(sql, spark, statement)) == READ_ONLY
    odd = with_catalog(spark, "maybe", url=url, tenants="maybe")
    assert refusal(partial(sql, odd, "SHOW TABLES IN maybe")) == (
        "InvalidOption: option tenants: 'maybe' is neither true nor false"
    )
    assert files(url) == before


@pytest.mark.long
def test_no_option_moves_a_table_of_a_tag_to_another_version(spark: SparkSession):
    for option, text in (("versionAsOf", "1"), ("timestampAsOf", "2023-11-15")):
        read = partial(spark.read.option(option, text).table, "acme.orders.tag_audit")
        if SPARK < (4, 0):
            line = f"InvalidOption: option {option.lower()}: no table of a catalog takes it. Hint: read another version"
            assert refusal(read).startswith(line)
        else:
            with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
                read()


@pytest.mark.long
def test_a_listing_of_many_segments_comes_whole(spark_session: SparkSession, tmp_path: Path):
    """The objects of the segments are not there, because a listing needs none."""
    archive = TopicArchive((tmp_path / "remote").as_uri())
    ref = archive.add([Sample(b"record")])
    store, count = archive.store, 12_000
    opened = open_load(Volumes(store), LoadRequest("many"), writer_id="test", now_ms=NOW_MS)
    refs = tuple(replace(ref, sid=Sid.new(NOW_MS), first_seq=seq, last_seq=seq) for seq in range(1, count + 1))
    publish_load(Volumes(store), opened, [LoadedPart(0, count, refs)], writer_id="test", now_ms=NOW_MS)
    spark = with_catalog(spark_session, "many", url=store.url)
    listed = spark.sql("SELECT segment, first_seq FROM many.many.segments").collect()
    assert listed == [(str(ref.sid), ref.first_seq) for ref in refs]
