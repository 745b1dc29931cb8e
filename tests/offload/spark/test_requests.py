"""Count the requests of queries over S3. The planner and the tasks each have a front of their own before the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from benchmarks.commits import TopicCommits
from catalog.format.commit import Codec
from catalog.format.keys import data_key
from offload.format.encoder import SegmentSummary
from offload.spark.messages import decode_task, encode_task
from offload.spark.options import parse_options
from offload.spark.scan import scan
from offload.spark.task import Filter, Op
from offload.wiring import open_store
from tests.faults.front import Front
from tests.offload.samples import Sample, encode_object, frames_of_samples
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.queries import arrow_schema, planned
from tests.seams.spark import end_planners, executor_environment, query_execution, settings_text, start_planner

pytestmark = pytest.mark.long

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
            start_planner(spark_session)
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


def sparse_archive(url: str, chosen: int) -> tuple[int, int]:
    """Make a topic of 160 segments of 64 MiB, of which only segment `chosen` has a data object.

    Return a seq in the middle of that segment, and the longest stored length of a chunk.
    """
    commits, count = TopicCommits(open_store(url), "orders"), 128
    values = [Sample(bytes([number]) * (512 << 10)) for number in range(count)]
    made = encode_object(
        frames_of_samples(values, first_seq=chosen * count + 1), Codec.ZSTD, block_size=64 << 20, chunk_bytes=1 << 20
    )
    refs = [commits.put_index(shifted(made.summary, (number - chosen) * count)) for number in range(160)]
    commits.store.put(data_key(commits.vid, refs[chosen].sid), made.data, {})
    commits.publish(refs)
    assert made.summary.frame_bytes * len(refs) > 10 << 30
    return chosen * count + 77, max(chunk.stored_length for chunk in made.summary.chunks)


def shifted(summary: SegmentSummary, by: int) -> SegmentSummary:
    """Return the description of a segment whose records come so many seqs later."""
    chunks = tuple(
        replace(
            chunk,
            first_seq=chunk.first_seq + by,
            last_seq=chunk.last_seq + by,
            min_ts_ms=chunk.min_ts_ms + by,
            max_ts_ms=chunk.max_ts_ms + by,
        )
        for chunk in summary.chunks
    )
    return replace(
        summary,
        first_seq=summary.first_seq + by,
        last_seq=summary.last_seq + by,
        min_ts_ms=summary.min_ts_ms + by,
        max_ts_ms=summary.max_ts_ms + by,
        chunks=chunks,
    )


@pytest.mark.long
def test_a_point_in_10_gb_reads_one_chunk(spark_session: SparkSession, counted: Counted, url: str):
    """A read of any other data object fails, because there is none."""
    url = f"{url}/sparse"
    seq, chunk_bytes = sparse_archive(url, chosen=101)
    found = load(spark_session, url).where(f"seq = {seq}").select("value").collect()
    assert [(len(row.value), row.value[0]) for row in found] == [(512 << 10, 76)]
    assert counted.planner.kinds["GET index"] == 1
    assert bytes_of(counted.tasks.ranges) < chunk_bytes + (4 << 10)
    assert counted.of_tasks() == {"GET data": 1, "GET index": 1}
    assert load(spark_session, url).count() == 160 * 128
    assert counted.of_tasks() == {}


@pytest.mark.long
def test_tasks_without_credentials_take_those_that_the_planner_finds(
    spark_session: SparkSession, url: str, tmp_path: Path
):
    """A program gives them, as a profile names it. The JVM reader runs no such program."""
    expires = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    handed = {"Version": 1, "AccessKeyId": "handed-key", "SecretAccessKey": "handed-secret", "Expiration": expires}
    (tmp_path / "answer").write_text(json.dumps(handed))
    (tmp_path / "config").write_text(f"[default]\ncredential_process = cat {tmp_path / 'answer'}\n")
    variables = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_CONFIG_FILE": str(tmp_path / "config")}
    with ExitStack() as stack:
        for name, text in variables.items():
            stack.enter_context(executor_environment(spark_session, name, text))
        end_planners(spark_session)
        frame = load(spark_session, url)
        assert len(frame.select("value").collect()) == SEGMENTS * RECORDS
        shown = query_execution(frame).toString() + settings_text(spark_session)
        assert "handed-" not in shown
    end_planners(spark_session)
