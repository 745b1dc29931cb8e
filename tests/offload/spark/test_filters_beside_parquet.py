"""What the JVM reader takes from a query, it answers as Spark answers the same SQL over Parquet.

A filter, an aggregate or a limit that the reader takes is tested by nobody again. So the same random queries ask both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive, archive_of_many_shapes
from tests.seams.spark import metrics_of_last, query_execution
from tests.work import amounts, seed_of, tell

pytestmark = pytest.mark.long

ZONES = ("Asia/Kathmandu", "UTC", "America/St_Johns")
PREFIXES = ("eu", "e", "", "gr\u00fc")
SELECTED = (
    "count(*)",
    "count(*), min(seq), max(seq)",
    "sum(length(value)), max(tag)",
    "topic, count(*), max(seq)",
    "tag, count(*), min(seq)",
    "topic, tag, count(*)",
    "DISTINCT tag",
    "topic, seq, tag, value, unix_micros(timestamp)",
)
GROUPS = {"topic, count(*), max(seq)": "topic", "tag, count(*), min(seq)": "tag", "topic, tag, count(*)": "topic, tag"}


@pytest.fixture(scope="module")
def both(spark_session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session with the views `log`, which the JVM reader serves, and `parquet`, which has the same rows."""
    folder = tmp_path_factory.mktemp("both")
    url = (folder / "remote").as_uri()
    archive_of_many_shapes(url)
    zone = spark_session.conf.get("spark.sql.session.timeZone")
    frame = spark_session.read.format("seglog").options(topic="*", maxPartitionBytes="4k").load(url)
    frame.write.parquet(str(folder / "parquet"))
    frame.createOrReplaceTempView("log")
    spark_session.read.parquet(str(folder / "parquet")).createOrReplaceTempView("parquet")
    spark_session.sql(
        "SELECT * FROM VALUES ('eu', 1), ('us', 2), ('none', 3), (NULL, 4) AS tags(tag, number)"
    ).write.parquet(str(folder / "tags"))
    spark_session.read.parquet(str(folder / "tags")).createOrReplaceTempView("tags")
    yield spark_session
    assert zone is not None
    spark_session.conf.set("spark.sql.session.timeZone", zone)


def condition(draw: random.Random, depth: int = 0) -> str:
    """Return a condition, with others in it."""
    if depth < 2 and draw.random() < 0.4:
        parts = [condition(draw, depth + 1) for _ in range(draw.choice((2, 2, 3)))]
        joined = f" {draw.choice(('AND', 'AND', 'OR'))} ".join(f"({part})" for part in parts)
        return f"NOT ({joined})" if draw.random() < 0.2 else joined
    tag = draw.choice(("'eu'", "'eu-west'", "''", "'gr\u00fc\u00df'", "'nobody'", "NULL"))
    number, order = draw.randrange(-2, 260), draw.choice(("<", "<=", ">", ">=", "=", "<>", "<=>"))
    micros = NOW_MS * 1000 + draw.choice((draw.randrange(-3, 260) * 1000, draw.randrange(260_000)))
    return draw.choice(
        (
            f"seq {order} {number}",
            f"{number} {order} seq",
            f"seq BETWEEN {number} AND {number + draw.randrange(60)}",
            f"seq IN ({number}, {number + 7}, NULL)",
            f"seq + 1 {order} {number}",
            f"seq {order} {number}.5",
            f"timestamp {order} timestamp_micros({micros})",
            f"timestamp {order} timestamp '2023-11-14 22:13:20.1' + interval {draw.randrange(12)} hours",
            f"timestamp IN (timestamp_micros({micros}), timestamp_micros({NOW_MS * 1000 + 31_000}))",
            f"tag {draw.choice(('=', '<>', '<=>', '<', '>='))} {tag}",
            f"tag IN ({tag}, 'us')",
            f"tag NOT IN ('eu', {tag})",
            f"tag LIKE '{draw.choice(PREFIXES)}%'",
            "tag LIKE '%west'",
            f"tag IS {draw.choice(('', 'NOT '))}NULL",
            f"topic {order} '{draw.choice(('orders', 'events', 'nothing'))}'",
            "topic LIKE 'o%'",
            f"lsn {order} {draw.randrange(6)}",
            f"length(value) > {draw.randrange(80)}",
            "node IS NOT NULL",
        )
    )


def query(draw: random.Random) -> str:
    """Return a query with FROM {} in it. Its rows have an order, unless they have none that differ."""
    selected = draw.choice(SELECTED)
    text = f"SELECT {selected} FROM {{}} WHERE {condition(draw)}"  # noqa: S608
    if selected in GROUPS:
        return f"{text} GROUP BY {GROUPS[selected]}"
    if draw.random() < 0.2:
        return text.replace(" WHERE", " JOIN tags USING (tag) WHERE number < 3 AND")
    if draw.random() < 0.3 and selected == SELECTED[-1]:
        return f"{text} ORDER BY topic, seq LIMIT {draw.choice((0, 1, 7, 1000))}"
    if draw.random() < 0.2 and selected == SELECTED[-1]:
        return f"SELECT count(*) FROM ({text} LIMIT {draw.choice((0, 1, 7, 1000))})"  # noqa: S608
    return text


@amounts(3, all=100, soak=10_000, part=9, slices=40)
def test_random_queries_have_the_answers_of_parquet(both: SparkSession, amount: int) -> None:
    draw = random.Random(seed_of("queries beside Parquet"))
    planned = whole = 0
    for number in range(amount):
        both.conf.set("spark.sql.session.timeZone", ZONES[number % len(ZONES)])
        text = query(draw)
        log, parquet = both.sql(text.format("log")), both.sql(text.format("parquet"))
        rows = sorted(map(repr, log.collect()))
        assert rows == sorted(map(repr, parquet.collect())), (text, ZONES[number % len(ZONES)])
        plan = query_execution(log).executedPlan().toString()
        planned += "LocalTableScan" in plan
        whole += "Filter" not in plan
    tell(f"queries {amount}: answered by the plan {planned}, without a filter of Spark's {whole}")
    assert whole > 0 or amount < 100


@pytest.mark.parametrize("keys", [900, 1100])
@pytest.mark.parametrize("tags", [3_000, 6_000])
@pytest.mark.long
def test_a_join_by_many_tags_has_all_rows(spark_session: SparkSession, tmp_path: Path, tags: int, keys: int) -> None:
    """The index lists 4,096 tags. A join hands over 1,000 keys."""
    url = (tmp_path / "remote").as_uri()
    TopicArchive(url).add([Sample(b"x", f"\u20ac{number}" if number % 2 else f"{number}") for number in range(tags)])
    frame = spark_session.read.format("seglog").option("topic", "orders").load(url)
    wanted = [(f"\u20ac{number}" if number % 2 else f"{number}",) for number in range(0, 3 * keys, 3)]
    spark_session.createDataFrame(wanted, "tag string").write.parquet(str(tmp_path / "names"))
    names = spark_session.read.parquet(str(tmp_path / "names")).where("length(tag) > 0")
    assert frame.join(names, "tag").count() == sum(number < tags for number in range(0, 3 * keys, 3))


def test_a_literal_that_is_no_text_stays_with_spark(both: SparkSession) -> None:
    for condition in ("tag = cast(unhex('FF') AS string)", "startswith(tag, cast(unhex('67C3') AS string))"):
        query = f"SELECT tag, seq FROM {{}} WHERE {condition}"  # noqa: S608
        found = [sorted(map(repr, both.sql(query.format(view)).collect())) for view in ("log", "parquet")]
        assert found[0] == found[1]


@pytest.mark.long
def test_a_join_reads_only_what_the_other_side_has(spark_session: SparkSession, tmp_path: Path) -> None:
    """10 of 10,000 tags."""
    url, draw = (tmp_path / "remote").as_uri(), random.Random(1)
    archive = TopicArchive(url)
    for _ in range(4):
        archive.add(
            [Sample(draw.randbytes(100), f"customer-{number % 2_500 + archive.head_seq}") for number in range(2_500)]
        )
    frame = spark_session.read.format("seglog").option("topic", "orders").load(url)
    names = spark_session.range(10).selectExpr("concat('customer-', id * 997) AS tag", "id")
    names.write.parquet(str(tmp_path / "names"))
    joined = frame.join(spark_session.read.parquet(str(tmp_path / "names")).where("id >= 0"), "tag")
    assert joined.selectExpr("sum(length(value))").first()[0] == 10 * 100
    metrics = metrics_of_last(spark_session, "ranged GETs")
    stored = sum(file.stat().st_size for file in (tmp_path / "remote").rglob("segments/*"))
    assert int(metrics["bytes read from the store"].replace(",", "")) < stored / 20, (metrics, stored)
