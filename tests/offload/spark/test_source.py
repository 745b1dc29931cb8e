from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, LessThan
from pyspark.sql.types import StructType

from catalog.format.commit import Codec, ForkPoint
from catalog.format.keys import data_key
from offload.errors import InvalidOption
from offload.spark import SeglogDataSource
from tests.offload.samples import Sample
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.seams.spark import driver_jvm

BAD_OPTIONS: list[tuple[dict[str, str], str]] = [
    (
        {"startingSec": "5"},
        "option startingsec is unknown; the options are branch, columns, endingSeq",
    ),
    ({"versionAsOf": "newest"}, "option versionAsOf: 'newest' is not an LSN"),
    ({"versionAsOf": "9"}, "is outside the kept history"),
    ({"branch": "nope"}, "no branch orders@nope"),
    ({"topic": "nope"}, "no topic nope"),
    ({"topic": ""}, "option topic: it is required"),
    ({"topic": "orders@a", "branch": "b"}, "topic says 'a' and branch says 'b'"),
    ({"startingSeq": "latest"}, "option startingSeq: 'latest' is not a seq"),
    ({"columns": "seq,price"}, "there is no column price"),
]


def load(spark: SparkSession, url: str, **options: object) -> DataFrame:
    reader = spark.read.format("seglog").option("topic", "orders")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(url)


def values(frame: DataFrame) -> list[bytes]:
    return [bytes(row.value) for row in frame.orderBy("seq").select("value").collect()]


def numbered(count: int, start: int = 1) -> list[Sample]:
    return [Sample(b"record %d" % n, "even" if n % 2 == 0 else None) for n in range(start, start + count)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


@pytest.mark.long
def test_records_come_as_they_were_appended_with_every_column(spark: SparkSession, url: str):
    archive = TopicArchive(url)
    archive.add([Sample(b"\x00\xff\r\n", "eu", "n1"), Sample(b"")], Codec.NONE)
    archive.add([Sample("gr\u00fc\u00df".encode(), "", "")], Codec.ZSTD)
    rows = load(spark, url).orderBy("seq").collect()
    assert [(r.topic, r.seq, r.node, r.tag, bytes(r.value), r.lsn) for r in rows] == [
        ("orders", 1, "n1", "eu", b"\x00\xff\r\n", 1),
        ("orders", 2, None, None, b"", 1),
        ("orders", 3, "", "", "gr\u00fc\u00df".encode(), 2),
    ]


@pytest.mark.long
def test_timestamps_are_those_of_the_log_in_any_time_zone(spark: SparkSession, url: str):
    TopicArchive(url).add([Sample(b"a")])
    [row] = load(spark, url).select(f.unix_millis("timestamp").alias("ms"), "timestamp").collect()
    assert row.ms == NOW_MS + 1
    assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp(row.ms / 1000, UTC)


@pytest.mark.long
@pytest.mark.parametrize("codec", Codec)
def test_many_blocks_chunks_and_segments_are_read_whole(spark: SparkSession, url: str, codec: Codec):
    archive = TopicArchive(url)
    for start in (1, 301, 601):
        archive.add(numbered(300, start), codec, block_size=4096, chunk_bytes=700)
    frame = load(spark, url)
    assert values(frame) == [sample.value for sample in numbered(900)]
    assert frame.where("tag = 'even'").count() == 450


@pytest.mark.long
def test_deleted_records_are_not_shown_and_the_version_before_still_shows_them(spark: SparkSession, url: str):
    archive = TopicArchive(url)
    first = archive.add(numbered(10))
    archive.add(numbered(10, 11))
    archive.delete(first, [3, 4])
    archive.delete(before_seq=3)
    assert [row.seq for row in load(spark, url).select("seq").orderBy("seq").collect()] == [3, *range(6, 21)]
    assert load(spark, url, versionAsOf=2).count() == 20
    assert load(spark, url, versionAsOf=1).count() == 10
    assert load(spark, url, versionAsOf=3).count() == 18


@pytest.mark.long
def test_erased_records_are_not_shown(spark: SparkSession, url: str):
    TopicArchive(url).add([Sample(b"a"), Sample(b"", deleted=True), Sample(b"c")])
    assert values(load(spark, url)) == [b"a", b"c"]


@pytest.mark.long
def test_a_branch_shows_its_parent_up_to_the_cut_and_then_its_own(spark: SparkSession, url: str):
    main = TopicArchive(url)
    main.add(numbered(10))
    half = TopicArchive(url, branch="half", parent=ForkPoint(main.vid, 1, 4))
    main.add(numbered(5, 11))
    assert half.head_seq == 4
    half.add([Sample(b"another 5"), Sample(b"another 6")])
    expected = [b"record 1", b"record 2", b"record 3", b"record 4", b"another 5", b"another 6"]
    assert values(load(spark, url, branch="half")) == expected
    assert values(spark.read.format("seglog").option("topic", "orders@half").load(url)) == expected
    assert load(spark, url).count() == 15
    assert {row.lsn for row in load(spark, url, branch="half").select("lsn").collect()} == {1}


def test_the_head_is_pinned_at_load_and_a_new_load_sees_what_is_new(spark: SparkSession, url: str):
    archive = TopicArchive(url)
    archive.add(numbered(10))
    before = load(spark, url)
    by_schema = spark.read.format("seglog").option("topic", "orders").schema("seq long").load(url)
    assert by_schema.count() == 10
    archive.add(numbered(10, 11))
    assert before.count() == 10
    assert before.where("seq > 5").count() == 5
    assert by_schema.count() == 10
    assert load(spark, url).count() == 20


@pytest.mark.long
def test_a_filtered_count_does_not_change_the_next_one(spark: SparkSession, url: str):
    TopicArchive(url).add(numbered(30))
    frame = load(spark, url)
    assert frame.where("seq < 10").count() == 9
    assert frame.count() == 30


@pytest.mark.long
def test_spark_uses_a_narrowed_plan_again_and_so_no_filter_may_narrow_ours(spark_session: SparkSession):
    """Pin the fault of Spark for which the reader has no `pushFilters`. If this fails, Spark was mended: SPARK-2."""

    class Narrowing(DataSource):
        @classmethod
        def name(cls) -> str:
            return "narrowing"

        def schema(self) -> str:
            return "n long"

        def reader(self, schema: StructType) -> DataSourceReader:
            return Reader()

    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.end = 10

        def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
            for each in filters:
                if isinstance(each, LessThan):
                    self.end = each.value
                yield each

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(self.end)]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            return ((n,) for n in range(partition.value))

    spark_session.dataSource.register(Narrowing)
    spark_session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark_session.read.format("narrowing").load()
        assert frame.where("n < 3").count() == 3
        assert frame.count() == 3  # of 10
    finally:
        spark_session.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.long
def test_a_users_schema_picks_columns_in_its_order(spark: SparkSession, url: str):
    TopicArchive(url).add(numbered(3))
    frame = spark.read.format("seglog").option("topic", "orders").schema("value binary, seq long").load(url)
    assert frame.columns == ["value", "seq"]
    assert [(bytes(row.value), row.seq) for row in frame.orderBy("seq").collect()] == [
        (b"record 1", 1),
        (b"record 2", 2),
        (b"record 3", 3),
    ]


@pytest.mark.long
def test_a_topic_without_commits_is_empty(spark: SparkSession, url: str):
    Path(url.removeprefix("file://")).mkdir()
    TopicArchive(url)
    frame = load(spark, url)
    assert frame.count() == 0
    assert frame.columns == ["topic", "seq", "timestamp", "node", "tag", "value", "lsn"]


@pytest.mark.long
def test_sql_over_a_view_works(spark: SparkSession, url: str):
    TopicArchive(url).add(numbered(20))
    load(spark, url).createOrReplaceTempView("orders_of_a_source")  # other tests of the session have tables `orders`
    [row] = spark.sql("SELECT count(*) AS n, max(seq) AS last FROM orders_of_a_source WHERE tag = 'even'").collect()
    assert (row.n, row.last) == (10, 20)


def test_a_bad_option_is_refused_at_load_and_says_why(spark: SparkSession, url: str):
    TopicArchive(url).add(numbered(3))
    for options, message in BAD_OPTIONS:
        with pytest.raises(Exception, match=message):
            load(spark, url, **options).count()


def test_the_source_in_python_refuses_to_stand_in_for_the_jvm_reader(url: str):
    with pytest.raises(InvalidOption, match="the JVM reader is not in this session"):
        SeglogDataSource({"path": url, "topic": "orders", "reader": "jvm"}).schema()


@pytest.mark.long
def test_a_schema_with_a_column_there_is_not_is_refused(spark: SparkSession, url: str):
    TopicArchive(url).add(numbered(3))
    frame = spark.read.format("seglog").option("topic", "orders").schema("seq long, price double").load(url)
    with pytest.raises(Exception, match="there is no column price double"):
        frame.count()


@pytest.mark.long
def test_every_option_reaches_the_reader(spark: SparkSession, url: str):
    for topic in ("orders", "other", "events"):
        archive = TopicArchive(url, topic)
        archive.add(numbered(300), chunk_bytes=700)
        archive.add(numbered(300, 301))
    frame = load(
        spark,
        url,
        topic="o*,events",
        startingSeq='{"orders": 100, "other": 590, "events": "earliest"}',
        endingOffsets='{"events": {"0": 11}, "orders": {"0": 121}}',
        startingTimestamp=NOW_MS + 2,  # seqs 3 and 4
        tag="ev*",
        columns="topic,seq,block,tag,segment",
        includeMetadata="true",
        verify="chunk",
        reader=driver_jvm(spark).java.lang.System.getProperty("seglog.reader"),
        maxPartitionBytes="1k",
        minPartitions=5,
    )
    assert frame.columns == ["topic", "seq", "block", "tag", "segment"]
    assert frame.rdd.getNumPartitions() >= 5
    found = [(row.topic, row.seq) for row in frame.orderBy("topic", "seq").collect()]
    expected = [("events", n) for n in (4, 6, 8, 10)] + [("orders", n) for n in range(100, 121, 2)]
    assert found == expected + [("other", n) for n in range(590, 601, 2)]
    assert {(row.block, row.tag, len(row.segment)) for row in frame.collect()} == {(1, "even", 24)}


@pytest.mark.long
def test_evicted_records_fail_the_query_unless_it_leaves_them_out(spark: SparkSession, url: str):
    archive = TopicArchive(url)
    archive.add(numbered(10))
    archive.evict(6)
    with pytest.raises(Exception, match="records 1 to 5 of orders were evicted"):
        load(spark, url).count()
    assert load(spark, url, failOnDataLoss="false").count() == 5
    assert load(spark, url, startingSeq="earliest").count() == 5


@pytest.mark.long
def test_a_schema_may_say_not_null_only_of_columns_without_nulls(spark: SparkSession, url: str):
    TopicArchive(url).add(numbered(3))
    reader = spark.read.format("seglog").option("topic", "orders")
    assert reader.schema("seq long NOT NULL, value binary NOT NULL").load(url).count() == 3
    with pytest.raises(Exception, match="tag is NOT NULL, but records may lack it"):
        reader.schema("seq long, tag string NOT NULL").load(url).count()


@pytest.mark.long
def test_a_flipped_byte_fails_the_query_and_names_the_object(spark: SparkSession, url: str):
    archive = TopicArchive(url)
    ref = archive.add(numbered(300), Codec.NONE)
    path = Path(url.removeprefix("file://")) / data_key(archive.vid, ref.sid)
    damaged = bytearray(path.read_bytes())
    damaged[5000] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(Exception, match=f"{ref.sid} is damaged at offset"):
        values(load(spark, url))
