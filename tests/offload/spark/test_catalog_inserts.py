"""Appends to the tables of a catalog: `INSERT INTO`, `writeTo` and their like are loads, as `save` is."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from catalog import Branches, Volumes
from catalog.format.commit import ForkPoint
from catalog.refs.state_names import Tags
from catalog.tenants.names import RESERVED
from offload.load import LoadRequest
from offload.wiring import open_store
from tests.offload.load.loads import load, records
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.catalogs import READ_ONLY, refusal, rows, sql, with_catalog
from tests.offload.spark.session import SPARK, needs_python_sources
from tests.waiting import wait_until

Records = list[tuple[bytes, str | None]]

#: Statements, and the records that each of them appends.
INSERTS: list[tuple[str, Records]] = [
    ("INSERT INTO acme.events (tag, value) VALUES ('eu', 'a'), (NULL, 'b')", [(b"a", "eu"), (b"b", None)]),
    ("INSERT INTO acme.events.branch_main (value) VALUES (x'00ff')", [(b"\x00\xff", None)]),
    ("INSERT INTO acme.events BY NAME SELECT 'us' AS tag, 'named' AS value", [(b"named", "us")]),
    ("INSERT INTO acme.events SELECT value, tag FROM acme.orders", [(b"one", "eu"), (b"two", None)]),
    ("INSERT INTO acme.events (value, tag) VALUES ('default', DEFAULT)", [(b"default", None)]),
    ("INSERT INTO acme.events SELECT value FROM acme.events WHERE seq = 1", [(b"first", None)]),
    ("INSERT INTO acme.events SELECT value FROM acme.events WHERE seq < 0", []),
    ("FROM acme.orders INSERT INTO acme.events SELECT value, 'all' AS tag", [(b"one", "all"), (b"two", "all")]),
    ("WITH new AS (SELECT 'w' AS value) INSERT INTO acme.events SELECT * FROM new", [(b"w", None)]),
    ("INSERT INTO acme.`events@main` TABLE new_values", [(b"viewed", None)]),
]

#: Statements, and what each of them is refused with.
REFUSED: list[tuple[str, str]] = [
    ("INSERT INTO acme.events VALUES ('x', 'y')", "InvalidOption: option schema: there is no column value. Hint: "),
    (
        "INSERT INTO acme.events SELECT 'x' AS value, 'a' AS tag, 'b' AS tag",
        "InvalidOption: option schema: two columns have the same name. Hint: drop one of them",
    ),
    ("INSERT INTO acme.events (value) VALUES (1)", "InvalidOption: option schema: value is int. Hint: cast it to "),
    ("INSERT INTO acme.events TABLE acme.orders", "InvalidOption: option schema: no record has a column lsn. Hint: "),
    ("INSERT INTO acme.orders (value) VALUES ('x')", "WrittenByLog: orders is written by the log of test "),
    ("INSERT INTO acme.orders.tag_audit (value) VALUES ('x')", "ReadOnly: acme.orders.tag_audit shows a past state"),
    (
        "INSERT INTO acme.orders.changes (topic) VALUES ('x')",
        "ReadOnly: acme.orders.changes shows changes. Hint: ",
    ),
    ("INSERT INTO frozen.events (value) VALUES ('x')", "ReadOnly: frozen.events shows a past state. Hint: insert into"),
    ("INSERT INTO acme.events.history (lsn) VALUES (1)", "ReadOnly: acme.events.history lists what a topic has"),
    ("INSERT INTO acme.`*` (value) VALUES ('x')", "InvalidName: '*' is not a valid topic name. Hint: "),
    ("INSERT OVERWRITE acme.events SELECT 'x' AS value", READ_ONLY),
    ("TRUNCATE TABLE acme.events", READ_ONLY),
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a remote with `events`, which loads write, and `orders`, which a log writes."""
    url = (tmp_path / "remote").as_uri()
    load(open_store(url), [[b"first"]], LoadRequest("events"))
    orders = TopicArchive(url)
    orders.add([Sample(b"one", "eu"), Sample(b"two")])
    Tags(orders.volumes).create("orders", "audit", ForkPoint(orders.vid, 1), branch="main", now_ms=NOW_MS, message="")
    return url


@pytest.fixture
def spark(spark_session: SparkSession, url: str) -> SparkSession:
    """Return a session of its own with the catalogs `acme` and `frozen`, and the view `new_values`."""
    session = with_catalog(spark_session.newSession(), "acme", url=url)
    session.sql("CREATE TEMPORARY VIEW new_values AS SELECT 'viewed' AS value")
    session.sql("SHOW TABLES IN acme")  # Spark loads a catalog with the settings of the session that is active
    return with_catalog(session, "frozen", url=url, versionAsOf="1")


def shown(url: str, topic: str = "events", branch: str = "main") -> Records:
    return [(record.value, record.tag) for record in records(open_store(url), topic, branch)]


def commits(url: str) -> int:
    volumes = Volumes(open_store(url))
    return volumes.newest_lsn(Branches(volumes).resolve("events"))


@pytest.mark.long
@needs_python_sources
@pytest.mark.parametrize(
    "chosen", [slice(1), pytest.param(slice(1, None), marks=pytest.mark.long)], ids=["one", "rest"]
)
def test_an_insert_is_one_commit_whose_columns_go_by_name(spark: SparkSession, url: str, chosen: slice) -> None:
    expected, count = shown(url), commits(url)
    for statement, added in INSERTS[chosen]:
        assert rows(spark.sql(statement)) == []
        expected, count = [*expected, *added], count + bool(added)
        assert (shown(url), commits(url)) == (expected, count), statement
    assert [bytes(row.value) for row in spark.sql("SELECT value FROM acme.events ORDER BY seq").collect()] == [
        value for value, _ in expected
    ]


@needs_python_sources
@pytest.mark.long
def test_an_insert_into_a_branch_stays_there(spark: SparkSession, url: str) -> None:
    orders = TopicArchive(url, "orders", "fix", ForkPoint(TopicArchive(url).vid, 1))
    assert orders.vid != TopicArchive(url).vid
    before = shown(url, "orders")
    spark.sql("INSERT INTO acme.orders.branch_fix (value) VALUES ('fixed')")
    spark.sql("INSERT INTO acme.`orders@fix` (value) VALUES ('again')")
    assert shown(url, "orders", "fix") == [*before, (b"fixed", None), (b"again", None)]
    assert shown(url, "orders") == before


@needs_python_sources
@pytest.mark.long
def test_a_frame_is_appended_to_a_table_and_a_key_writes_it_once(spark: SparkSession, url: str) -> None:
    frame = spark.range(0, 20, 1, 3).selectExpr("concat('v', id) AS value", "if(id % 2 = 0, 'even', null) AS tag")
    added: Records = [(b"v%d" % number, "even" if number % 2 == 0 else None) for number in range(20)]
    writes: tuple[Callable[[], None], ...] = (
        lambda: frame.writeTo("acme.events").append(),
        lambda: frame.write.mode("append").saveAsTable("acme.events"),
        lambda: frame.write.insertInto("acme.events"),
        lambda: frame.writeTo("acme.events").option("idempotencyKey", "day-1").append(),
    )
    for number, write in enumerate(writes, 1):
        write()
        assert shown(url) == [(b"first", None), *added * number]
    writes[-1]()
    assert commits(url) == 1 + len(writes)
    for _ in range(2):
        spark.sql("INSERT INTO acme.events WITH (idempotencyKey = 'day-2', codec = 'none') SELECT 'once' AS value")
    assert shown(url)[81:] == [(b"once", None)]


@pytest.mark.long
@needs_python_sources
def test_what_a_table_does_not_take_is_refused_and_changes_nothing(spark: SparkSession, url: str) -> None:
    before = shown(url), shown(url, "orders"), commits(url)
    for statement, start in REFUSED:
        assert refusal(partial(sql, spark, statement)).startswith(start), statement
    writer = spark.sql("SELECT 'x' AS value").writeTo("acme.events")
    for option, start in (
        ("startingSeq", "InvalidOption: option startingseq is unknown"),
        ("topic", "InvalidOption: option topic: no table of a catalog takes it. Hint: the table names the topic"),
        ("path", "InvalidOption: option path: no table of a catalog takes it"),
        ("branch", "InvalidOption: option branch: no table of a catalog takes it"),
        ("codec", "InvalidOption: option codec: "),
        ("reader", "InvalidOption: option reader: no table of a catalog takes it. Hint: leave it out"),
        ("partitionRows", "InvalidOption: option partitionrows: no table of a catalog takes it"),
    ):
        assert refusal(spark.sql("SELECT 'x' AS value").writeTo("acme.events").option(option, "x").append).startswith(
            start
        )
    assert refusal(writer.overwritePartitions) == READ_ONLY
    assert (shown(url), shown(url, "orders"), commits(url)) == before


@pytest.mark.skipif(SPARK >= (4, 0), reason="Spark 4 writes")
def test_spark_3_5_refuses_in_one_line(spark: SparkSession, url: str) -> None:
    before = shown(url)
    start = (
        "NotInstalled: writes and option reader=python need sources in Python, which Spark has since version 4. Hint: "
    )
    assert refusal(partial(sql, spark, "INSERT INTO acme.events (value) VALUES ('x')")).startswith(start)
    assert refusal(spark.sql("SELECT 'x' AS value").writeTo("acme.events").append).startswith(start)
    assert refusal(partial(sql, spark, "INSERT OVERWRITE acme.events SELECT 'x' AS value")) == READ_ONLY
    assert shown(url) == before


@needs_python_sources
@pytest.mark.long
def test_a_catalog_of_tenants_on_an_s3_server_reads_and_appends(spark_session: SparkSession, s3_remote: str) -> None:
    orders = TopicArchive(f"{s3_remote}/globex")
    orders.add([Sample(b"one", "eu"), Sample(b"two")])
    load(open_store(f"{s3_remote}/initech"), [[b"first"]], LoadRequest("events"))
    spark = with_catalog(spark_session.newSession(), "s3", url=s3_remote, tenants="true")
    assert [row.namespace for row in spark.sql("SHOW NAMESPACES IN s3").collect()] == ["globex", "initech"]
    assert [row.tableName for row in spark.sql("SHOW TABLES IN s3.globex").collect()] == ["orders"]
    spark.sql("INSERT INTO s3.initech.events SELECT value, tag FROM s3.globex.orders WHERE tag = 'eu'")
    spark.sql("INSERT INTO s3.initech.events (value) VALUES ('last')")
    found = spark.sql("SELECT value, tag, lsn FROM s3.initech.events ORDER BY seq").collect()
    assert found == [(b"first", None, 1), (b"one", "eu", 2), (b"last", None, 3)]
    assert spark.sql("SELECT * FROM s3.initech.events VERSION AS OF 2").count() == 2
    assert spark.sql("SELECT lsn FROM s3.initech.events.history").collect() == [(3,), (2,), (1,)]
    refused = refusal(partial(sql, spark, "INSERT INTO s3.globex.orders (value) VALUES ('x')"))
    assert refused.startswith("WrittenByLog: orders is written by the log of test ")
    spark.sql("USE s3.initech")
    assert spark.sql("SELECT count(*) FROM events").collect() == [(3,)]
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql("USE s3.nobody")


class Paused:
    """The function `slow` of a session: an INSERT that calls it waits for `go_on`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._began, self._go = folder / "began", folder / "go"
        began, go = self._began, self._go

        def slow(value: str) -> str:
            began.touch()
            while not go.exists():
                time.sleep(0.01)
            return value

        spark.udf.register("slow", slow)

    def while_it_waits(self, insert: Callable[[], object], act: Callable[[], object]) -> None:
        """Run the INSERT, and `act` while it computes its rows. Raises the errors of the INSERT."""
        with ThreadPoolExecutor() as pool:
            running = pool.submit(insert)
            wait_until(lambda: self._began.exists() or running.done())
            act()
            self._go.touch()
        running.result()


@needs_python_sources
@pytest.mark.long
def test_an_insert_leaves_the_cache_of_another_user_alone(spark: SparkSession, url: str, tmp_path: Path) -> None:
    paused = Paused(spark, tmp_path)
    frame = spark.range(0, 2, 1, 1).selectExpr("slow(cast(id AS string)) AS value")
    paused.while_it_waits(frame.writeTo("acme.events").append, frame.persist)
    assert frame.storageLevel.useMemory
    assert shown(url) == [(b"first", None), (b"0", None), (b"1", None)]
    frame.unpersist()


@needs_python_sources
@pytest.mark.long
def test_an_insert_makes_no_branch_that_was_deleted_meanwhile(spark: SparkSession, url: str, tmp_path: Path) -> None:
    load(open_store(url), [[b"b"]], LoadRequest("events", branch="work"))
    branches, paused = Branches(Volumes(open_store(url))), Paused(spark, tmp_path)
    insert = partial(sql, spark, "INSERT INTO acme.events.branch_work SELECT slow('x') AS value FROM range(2)")
    with pytest.raises(AnalysisException, match=r"^NoSuchBranch: "):
        paused.while_it_waits(insert, lambda: branches.delete("events", "work", now_ms=round(time.time() * 1000)))
    assert "work" not in [branch.branch for branch in branches.branches("events")]


@needs_python_sources
@pytest.mark.long
def test_a_job_that_is_done_computes_no_rows(spark: SparkSession, url: str) -> None:
    computed = spark.sparkContext.accumulator(0)

    def counted(value: str) -> str:
        computed.add(1)
        return value

    spark.udf.register("counted", counted)
    for _ in range(2):
        spark.sql(
            "INSERT INTO acme.events WITH (idempotencyKey = 'one') "
            "SELECT counted(cast(id AS string)) AS value FROM range(0, 10, 1, 2)"
        )
        assert (computed.value, len(shown(url))) == (10, 11)


@needs_python_sources
@pytest.mark.long
def test_the_case_of_a_column_does_not_count_also_if_the_session_says_it_does(spark: SparkSession, url: str) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    frame = spark.sql("SELECT 'v' AS Value, 'events' AS Topic, 'eu' AS TAG")
    for _ in range(2):  # each topic is done by itself
        frame.write.format("seglog").option("idempotencyKey", "one").mode("append").save(url)
        assert shown(url) == [(b"first", None), (b"v", "eu")]


@pytest.mark.long
def test_a_name_that_no_tenant_has_is_no_namespace(spark_session: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    base = (tmp_path / "base").as_uri()
    spark = with_catalog(spark_session.newSession(), "tenants_of", url=base, tenants="true")
    for name in (*RESERVED, "Upper", "a-", "acme"):
        load(open_store(f"{base}/{name}"), [[b"x"]], LoadRequest("events"))
    assert spark.table("tenants_of.acme.events").count() == 1
    for name in (*RESERVED, "Upper", "a-"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.table(f"tenants_of.`{name}`.events")


@needs_python_sources
@pytest.mark.long
def test_an_insert_whose_task_fails_shows_nothing_and_appends_each_record_once_when_it_runs_again(
    spark: SparkSession, url: str
) -> None:
    before = shown(url), commits(url)
    for tag in ("if(id = 99, repeat('x', 70000), 'ok')", "'ok'", "'ok'"):
        view = spark.range(0, 100, 1, 2).selectExpr("cast(id AS string) AS value", f"{tag} AS tag")
        view.createOrReplaceTempView("inserted")
        statement = "INSERT INTO acme.events WITH (idempotencyKey = 'one') SELECT * FROM inserted"
        if "repeat" in tag:
            line = "InvalidRow: the row of record 101: tag has more than 65535 bytes; nothing was written"
            assert refusal(partial(sql, spark, statement)) == line
            assert (shown(url), commits(url)) == before
        else:
            spark.sql(statement)
            added = [(b"%d" % number, "ok") for number in range(100)]
            assert (shown(url), commits(url)) == ([*before[0], *added], before[1] + 1)
