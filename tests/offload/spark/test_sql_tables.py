"""Tables of Spark's catalog that are topics: `CREATE TABLE … USING seglog`, as Spark SQL, dbt and JDBC want them.

The reader in the JVM serves them. To a source in Python, Spark gives the options of a query alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession

from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.session import SPARK
from tests.seams.spark import query_execution

pytestmark = pytest.mark.skipif(SPARK < (4, 0), reason="Spark 3.5 makes such a table, and cannot read it")
Sql = Callable[[str], list[Row]]


@pytest.fixture
def sql(spark_session: SparkSession) -> Iterator[Sql]:
    yield lambda query: list(spark_session.sql(query).collect())
    for name in ("orders_table", "lake"):
        spark_session.sql(f"DROP TABLE IF EXISTS {name}")
    spark_session.sql("DROP VIEW IF EXISTS newest")


@pytest.mark.long
def test_a_table_shows_the_newest_version_in_each_query_and_a_drop_leaves_the_topic(
    sql: Sql, spark_session: SparkSession, s3_remote: str
) -> None:
    archive = TopicArchive(s3_remote)
    archive.add([Sample(b"one", "eu"), Sample(b"two")])
    sql(f"CREATE TABLE orders_table USING seglog OPTIONS (path '{s3_remote}', topic 'orders')")
    sql("CREATE VIEW newest AS SELECT max(seq) AS seq FROM orders_table")
    assert sql("SELECT seq, cast(value AS string), tag FROM orders_table ORDER BY seq") == [
        (1, "one", "eu"),
        (2, "two", None),
    ]
    archive.add([Sample(b"three")])
    assert sql("SELECT seq FROM newest") == [(3,)]
    sql("CREATE TABLE lake USING parquet AS SELECT seq, value FROM orders_table WHERE seq > 1")
    assert sql("SELECT count(*) FROM lake") == [(2,)]
    plan = query_execution(spark_session.sql("SELECT value FROM orders_table WHERE seq > 2")).toString()
    assert "BatchScan seglog[" in plan
    sql("DROP TABLE orders_table")
    assert spark_session.read.format("seglog").option("topic", "orders").load(s3_remote).count() == 3


@pytest.mark.long
def test_the_table_of_the_page_is_one(sql: Sql, spark_session: SparkSession, s3_remote: str) -> None:
    TopicArchive(s3_remote).add([Sample(b"one", "eu"), Sample(b"two")])
    page = (Path(__file__).parents[3] / "docs" / "spark" / "sql.md").read_text()
    blocks = re.findall(r"^```sql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    statements = "".join(blocks).replace("s3://my-bucket/acme", s3_remote).replace("orders USING", "orders_table USING")
    create, count = statements.replace("FROM orders", "FROM orders_table").split(";")[:2]
    sql(create)
    assert sorted(sql(count), key=str) == [("eu", 1, 1), (None, 1, 2)]
    model = blocks[1].replace("{{ this }}", "lake").replace("FROM orders", "FROM orders_table")
    first, more = re.sub(r"\{\{.*?\}\}|\{% if.*", "", model), re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", model)
    sql(f"CREATE TABLE lake USING parquet AS {first}")
    TopicArchive(s3_remote, "other").add([Sample(b"else")])
    assert sql(more) == []
    sql("TRUNCATE TABLE lake")
    assert len(sql(more)) == 2


@pytest.mark.long
def test_a_table_takes_no_rows_and_a_wrong_option_makes_none(sql: Sql, s3_remote: str) -> None:
    TopicArchive(s3_remote).add([Sample(b"one")])
    table = "CREATE TABLE orders_table USING seglog OPTIONS"
    for options, refusal in (
        (f"path '{s3_remote}', topic 'orders', endingsec '5'", "InvalidOption: option endingsec"),
        (f"path '{s3_remote}', topic 'nothing'", "NoSuchTopic: no topic nothing"),
        ("topic 'orders'", "InvalidOption: option path"),
    ):
        with pytest.raises(AnalysisException, match=refusal):
            sql(f"{table} ({options})")
    sql(f"{table} (path '{s3_remote}', topic 'orders')")
    for change in ("INSERT INTO orders_table SELECT * FROM orders_table", "TRUNCATE TABLE orders_table"):
        with pytest.raises(AnalysisException):
            sql(change)
    assert sql("SELECT count(*) FROM orders_table") == [(1,)]
