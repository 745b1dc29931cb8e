"""The main job, seen from Spark: topics and branches give the bytes of the log, and both readers all its columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import offload
import seglog
from offload.operations.record_text import line_batches
from seglog import LogSettings
from tests.offload.spark.session import spark, spark_session
from tests.texts import NAMES, text
from tests.work import amounts

__all__ = ["spark", "spark_session"]


def _frame(spark: SparkSession, remote: str, topic: str, branch: str) -> DataFrame:
    return spark.read.format("seglog").option("topic", topic).option("branch", branch).load(remote)


def _joined(frame: DataFrame) -> bytes:
    return b"\n".join(bytes(row.value) for row in frame.orderBy("seq").select("value").collect())


def _rows(spark: SparkSession, remote: str, reader: str) -> list[tuple[object, ...]]:
    """Return the rows of all topics, in Spark's order."""
    frame = spark.read.format("seglog").options(topic="*", reader=reader).load(remote)
    found = frame.selectExpr("topic", "seq", "unix_millis(timestamp) AS ms", "value", "tag", "node").collect()
    return [(row.topic, row.seq, row.ms, bytes(row.value), row.tag, row.node) for row in found]


@pytest.mark.long
@amounts(1, soak=len(NAMES), part=9)
@pytest.mark.parametrize("remote", [pytest.param("file", marks=pytest.mark.long), "s3"], indirect=True)
def test_logs_come_back_whole(spark: SparkSession, remote: str, tmp_path: Path, amount: int) -> None:
    """One log by default. The soak takes all eleven."""
    names = NAMES[-amount:]
    with (
        seglog.open(tmp_path / "data", settings=LogSettings(segment_max_events=700)) as log,
        offload.attach(log, remote) as archive,
    ):
        for name in names:
            (tmp_path / name).write_bytes(text(name))
            with (tmp_path / name).open("rb") as stream:
                for batch in line_batches(stream, None, None, 1 << 24):
                    log.topic(name).append(batch.values, unterminated=batch.unterminated)
            log.topic(name).seal()
            archive.offload(name, drop_hot=True)
            archive.restore(name, to="seq:500", name="first")
            archive.delete(name, before=1001)
        counts = {name: log.topic(name).head_seq for name in names}
        records = [(name, *record[:5]) for name in sorted(names) for record in archive.read(name)]

    for reader in ("jvm", "python"):
        assert _rows(spark, remote, reader) == records
    for name in names:
        lines = text(name).removesuffix(b"\n").split(b"\n")
        assert len(lines) == counts[name]
        whole = spark.read.format("seglog").options(topic=name, versionAsOf=1).load(remote)
        assert _joined(whole) == b"\n".join(lines)
        assert _joined(_frame(spark, remote, name, "main")) == b"\n".join(lines[1000:])
        assert _joined(_frame(spark, remote, name, "first")) == b"\n".join(lines[:500])
    assert _frame(spark, remote, names[0], "main").count() == counts[names[0]] - 1000
    assert _frame(spark, remote, names[0], "first").count() == 500
