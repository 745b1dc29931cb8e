from __future__ import annotations

import io
import json
from pathlib import Path

import boto3
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from offload.errors import ExportOutdated, InvalidOption
from offload.spark.data_loss import DataLoss
from offload.spark.jobs import ExportResult, export
from offload.spark.jobs.__main__ import main
from offload.spark.jobs.export_target import ExportedFile, ExportTarget
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.jobs.remotes import MIDNIGHT_MS, kill_after, records_of
from tests.s3_server import AS_HARNESS

DAYS = ("2023-11-14", "2023-11-15")


def written(spark: SparkSession, url: str, target: Path, topic: str = "*") -> ExportResult:
    result = export(spark, url, target.as_uri(), topic, task_bytes=1)
    assert isinstance(result, ExportResult)
    return result


def rows_of(spark: SparkSession, target: Path) -> list[tuple[object, ...]]:
    frame = spark.read.parquet(str(target))
    columns = "topic", "seq", "unix_millis(timestamp)", "tag", "value", "cast(day AS string)"
    found = frame.selectExpr(*columns).orderBy("topic", "seq").collect()
    return [(*row[:4], bytes(row[4]), row[5]) for row in found]


def expected(url: str, topic: str = "*") -> list[tuple[object, ...]]:
    return [
        (topic, record.seq, record.ts_ms, record.tag, record.value, DAYS[record.ts_ms >= MIDNIGHT_MS])
        for topic, records in sorted(records_of(url, topic).items())
        for record in records
    ]


def files_of(target: Path) -> dict[str, int]:
    """Return the data files, and when each was written."""
    return {str(path.relative_to(target)): path.stat().st_mtime_ns for path in target.rglob("*.parquet")}


@pytest.mark.long
def test_an_export_that_was_killed_resumes_and_a_second_run_writes_only_what_is_missing(
    spark_session: SparkSession, own_url: str, tmp_path: Path
) -> None:
    target = tmp_path / "export"
    kill_after(1, lambda: written(spark_session, own_url, target), ExportTarget, "record")
    left = target / f"day={DAYS[0]}" / "topic=orders" / "seqs-0000000000000001-0000000000000999.parquet"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"of a round that was killed")
    unfinished = left.with_name(f".{left.name}.0123456789abcdef")
    unfinished.write_bytes(b"of a task that was killed")
    note = target / "note.parquet.txt"
    note.write_bytes(b"of somebody else")
    before = files_of(target)
    result = written(spark_session, own_url, target)
    after = files_of(target)
    assert rows_of(spark_session, target) == expected(own_url)
    assert not left.exists()
    assert not unfinished.exists()
    assert note.exists()
    assert len(before) > 1
    assert {name: time for name, time in before.items() if name in after} == {
        name: time for name, time in before.items() if target / name != left
    }
    assert result.files == len(after) - len(before) + 1 > 0

    TopicArchive(own_url, "new").add([Sample(b"new")])
    again = written(spark_session, own_url, target)
    assert [(row.topic, row.day, row.records) for row in again.rows] == [("new", DAYS[0], 1)]
    assert files_of(target).items() > after.items()
    assert rows_of(spark_session, target) == expected(own_url)
    manifests = [json.loads(path.read_bytes()) for path in (target / "_seglog").glob("*.json")]
    assert {file["path"] for each in manifests for file in each["files"]} == set(files_of(target))


class Bucket:
    """The objects below the prefix of an export in S3."""

    def __init__(self, url: str) -> None:
        self._name, _, prefix = url.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix}/"
        self._client = boto3.client("s3", **AS_HARNESS)

    def put(self, name: str, body: bytes) -> None:
        self._client.put_object(Bucket=self._name, Key=self._prefix + name, Body=body)

    def files(self) -> dict[str, bytes]:
        names = [found["Key"] for found in self._client.list_objects_v2(Bucket=self._name)["Contents"]]
        bodies = {name: self._client.get_object(Bucket=self._name, Key=name)["Body"].read() for name in names}
        return {name.removeprefix(self._prefix): body for name, body in bodies.items()}

    def data_files(self) -> dict[str, bytes]:
        return {name: body for name, body in self.files().items() if name.endswith(".parquet")}

    def rows(self) -> list[tuple[object, ...]]:
        """Return the rows as `rows_of` does: day and topic are in the names."""
        found = []
        for name, body in self.data_files().items():
            day, topic, _ = name.split("/")
            for row in parquet.read_table(io.BytesIO(body)).to_pylist():
                ms = round(row["timestamp"].timestamp() * 1000)
                keys = topic.removeprefix("topic="), row["seq"], ms, row["tag"], row["value"]
                found.append((*keys, day.removeprefix("day=")))
        return sorted(found, key=lambda row: row[:2])


@pytest.mark.long
def test_an_export_to_a_bucket_resumes_and_leaves_what_others_put_there(
    spark_session: SparkSession, own_url: str, s3_remote: str
) -> None:
    target = f"{s3_remote}/export"
    bucket = Bucket(target)

    def run() -> ExportResult:
        result = export(spark_session, own_url, target, task_bytes=1)
        assert isinstance(result, ExportResult)
        return result

    kill_after(1, run, ExportTarget, "record")
    before = bucket.data_files()
    assert len(before) > 1
    left, note = f"day={DAYS[0]}/topic=orders/seqs-{1:016d}-{999:016d}.parquet", "day=1/note.txt"
    bucket.put(left, b"of a round that was killed")
    bucket.put(note, b"of somebody else")
    assert run().files > 0
    after = bucket.files()
    assert left not in after
    assert note in after
    assert after.items() > before.items()
    assert bucket.rows() == expected(own_url)

    TopicArchive(own_url, "half").add([Sample(b"new")])
    assert [(row.topic, row.records) for row in run().rows] == [("half", 1)]
    assert bucket.rows() == expected(own_url)
    assert bucket.files().items() > after.items()
    manifests = [json.loads(body) for name, body in bucket.files().items() if name.startswith("_seglog/")]
    assert {file["path"] for each in manifests for file in each["files"]} == set(bucket.data_files())


def test_a_run_that_another_one_overtakes_puts_nothing_on_record(tmp_path: Path, s3_remote: str) -> None:
    for target in (tmp_path.as_uri(), f"{s3_remote}/export"):
        one, other = ExportTarget(target), ExportTarget(target)
        assert one.exported("file:///a") == other.exported("file:///a")
        one.record({}, [ExportedFile("day=1/topic=a/x.parquet", "a", "1", 1, 2, 2, 9)])
        with pytest.raises(InvalidOption, match="another run wrote"):
            other.record({}, [])
        assert ExportTarget(target).exported("file:///a").paths == {"day=1/topic=a/x.parquet"}


@pytest.mark.long
def test_an_export_that_the_topic_has_left_is_refused(
    spark_session: SparkSession, own_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "export"
    orders = TopicArchive(own_url, "late")
    orders.add([Sample(b"a")] * 9)
    written(spark_session, own_url, target, "late")
    orders.add([Sample(b"b")] * 9)
    orders.evict(15)
    with pytest.raises(DataLoss, match="records 10 to 14 of late were evicted"):
        written(spark_session, own_url, target, "late")
    words = ["export", own_url, target.as_uri(), "--topic", "late", "--skip-lost", "--dry-run", "--json"]
    assert main(words) == 0
    assert [json.loads(line)["records"] for line in capsys.readouterr().out.splitlines()] == [4]
    orders.truncate(5)
    with pytest.raises(ExportOutdated, match="truncated the records from seq 5 on"):
        written(spark_session, own_url, target, "late")
    for place, told in (
        (f"{own_url}/export", "lies in the remote"),
        ("nonsense://x", "cannot be opened"),
        ("relative/path", "cannot be opened"),
        ("s3:///prefix", "the bucket is missing"),
    ):
        with pytest.raises(InvalidOption, match=told):
            export(spark_session, own_url, place)
    with pytest.raises(InvalidOption, match="has an export of"):
        export(spark_session, f"{own_url}2", target.as_uri())
