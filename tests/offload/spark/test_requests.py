"""Count the requests of queries over S3. The planner and the tasks each have a front of their own before the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from catalog.format.commit import Codec
from offload.spark.messages import decode_task, encode_task
from offload.spark.options import parse_options
from offload.spark.scan import scan
from offload.spark.task import Filter, Op
from tests.faults.front import Front
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.queries import arrow_schema, planned
from tests.seams.spark import driver_jvm, end_planners, executor_environment

SEGMENTS, RECORDS = 3, 250
VALUE = b"v" * 200
CHUNK_BYTES = 1 << 10
READS = {"GET data", "GET index"}


@pytest.fixture
def url(s3_remote: str) -> str:
    """Return an archive of some 150 chunks, most of which a narrow query leaves out."""
    archive = TopicArchive(s3_remote)
    for _ in range(SEGMENTS):
        archive.add([Sample(VALUE, "eu" if n % 2 else None) for n in range(RECORDS)], Codec.NONE)
    return s3_remote


class Counted:
    """The fronts of the planner and of the tasks."""

    def __init__(self, planner: Front, tasks: Front) -> None:
        self.planner = planner
        self.tasks = tasks

    def of_tasks(self) -> dict[str, int]:
        """Return the requests of the tasks, and forget all. The planner has read no data, and the tasks only ranges."""
        found = dict(self.tasks.kinds)
        assert "GET data" not in self.planner.kinds
        assert {kind.partition(" ")[0] for kind in self.planner.kinds} <= {"GET", "HEAD", "LIST"}
        assert found.keys() <= READS
        assert all(text.startswith("bytes=") for text in self.tasks.ranges)
        self.planner.restart()
        self.tasks.restart()
        return found


@pytest.fixture
def counted(spark_session: SparkSession, s3_endpoint: str, url: str) -> Iterator[Counted]:
    with Front(s3_endpoint) as planner, Front(s3_endpoint) as tasks:
        end_planners(spark_session)
        with executor_environment(spark_session, "AWS_ENDPOINT_URL", planner.url):
            driver_jvm(spark_session).seglog.spark.SeglogProvider.checkPlanner()
        with executor_environment(spark_session, "AWS_ENDPOINT_URL", tasks.url):
            yield Counted(planner, tasks)
        end_planners(spark_session)


def load(spark: SparkSession, url: str) -> DataFrame:
    return spark.read.format("seglog").option("topic", "orders").load(url)


def bytes_of(ranges: list[str]) -> int:
    bounds = [text.removeprefix("bytes=").split("-") for text in ranges]
    return sum(int(last) + 1 - int(first) for first, last in bounds)


def test_the_jvm_reader_asks_for_no_more_than_a_query_needs(spark_session: SparkSession, counted: Counted, url: str):
    frame = load(spark_session, url)
    [row] = frame.selectExpr("count(*) AS n", "max(seq) AS last", "min(seq) AS first").collect()
    assert (row.n, row.last, row.first) == (SEGMENTS * RECORDS, SEGMENTS * RECORDS, 1)
    assert counted.of_tasks() == {}
    assert frame.count() == SEGMENTS * RECORDS
    assert [row.seq for row in frame.where("seq > 740").select("topic", "seq", "lsn").collect()] == [*range(741, 751)]
    assert counted.of_tasks() == {}

    assert [bytes(row.value) for row in frame.where("seq = 444").collect()] == [VALUE]
    assert bytes_of(counted.tasks.ranges) < 3 * CHUNK_BYTES + (1 << 12)
    assert counted.of_tasks() == {"GET data": 1, "GET index": 1}
    assert frame.where("seq = 444 AND tag IS NULL").collect() == []
    assert counted.of_tasks() == {}  # the index head tells the tags
    assert frame.where("seq = 4444").collect() == []
    assert counted.of_tasks() == {}

    assert len(frame.select("value").collect()) == SEGMENTS * RECORDS
    assert counted.of_tasks() == {"GET data": SEGMENTS, "GET index": SEGMENTS}


def test_the_python_reader_asks_for_no_more_than_a_query_needs(
    s3_endpoint: str, url: str, monkeypatch: pytest.MonkeyPatch
):
    options = parse_options({"path": url, "topic": "orders"})
    with Front(s3_endpoint) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        counted = Counted(Front(s3_endpoint), front)
        for filters, columns, wanted in (
            ((), ["topic", "seq", "lsn"], {}),
            ((Filter("seq", Op.EQ, (444,)),), None, {"GET data": 1, "GET index": 1}),
            ((), None, {"GET data": SEGMENTS, "GET index": SEGMENTS}),
        ):
            plan = planned(options, filters, columns)
            assert "GET data" not in front.kinds
            front.restart()
            tasks = [decode_task(encode_task(task)) for task in plan.tasks]
            schema = arrow_schema(options, columns)
            rows = sum(batch.num_rows for task in tasks for batch in scan(task, schema))
            assert rows == plan.rows
            assert counted.of_tasks() == wanted
        counted.planner.close()
