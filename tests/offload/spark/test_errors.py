"""Test how the errors of the JVM reader reach a user of PySpark: as one line, in Spark's own class of errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from catalog.format.commit import Codec
from catalog.format.keys import data_key
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.session import SPARK

SAMPLES = [Sample(b"record %d" % number) for number in range(30)]
ERRORS_OF_A_PLAN: list[tuple[dict[str, str], str]] = [
    ({"topic": "nope"}, "NoSuchTopic: no topic nope "),
    ({"startingSeq": "latest"}, "InvalidOption: option startingSeq: 'latest' is not a seq"),
    ({"subscribePattern": "a.*"}, "InvalidOption: option subscribepattern"),
    ({}, "DataLoss: records 1 to 2 of orders were evicted"),
    ({"startingSeq": "9"}, "SeqOutOfRange: "),
]


def load(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("seglog").options(topic="orders").options(**options).load(url)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


def test_an_error_of_a_load_or_plan_is_one_line(spark_session: SparkSession, url: str):
    archive = TopicArchive(url)
    archive.add(SAMPLES[:3])
    archive.evict(3)
    for options, text in ERRORS_OF_A_PLAN:
        with pytest.raises(AnalysisException) as caught:
            load(spark_session, url, **options).collect()
        [line] = str(caught.value).splitlines()
        assert line.startswith(text)


@pytest.mark.skipif(SPARK < (4, 0), reason="Spark 3.5 shows the trace of a task, too")
def test_an_error_of_a_task_is_one_line_with_the_object_and_the_place(spark_session: SparkSession, url: str):
    archive = TopicArchive(url)
    ref = archive.add(SAMPLES, Codec.NONE)
    frame = load(spark_session, url).select("value")
    key = data_key(archive.vid, ref.sid)
    path = Path(url.removeprefix("file://")) / key
    path.write_bytes(path.read_bytes().replace(b"7", b"8"))
    with pytest.raises(AnalysisException) as damaged:
        frame.collect()
    assert str(damaged.value) == f"InvalidChunk: {key} is damaged at offset 128: its checksum does not match"
    assert damaged.value.getCondition() == "InvalidChunk"
    path.unlink()
    with pytest.raises(AnalysisException) as lost:
        frame.collect()
    assert str(lost.value) == f"NoSuchObject: {key} is not in the store"
