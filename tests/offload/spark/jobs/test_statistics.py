from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from offload.spark.jobs import StatisticsResult, TagStatistics, statistics
from offload.spark.jobs.__main__ import main
from offload.spark.jobs.progress import JobState
from seglog import Record
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.jobs.remotes import kill_after, records_of


def expected(records: dict[str, list[Record]]) -> list[tuple[object, ...]]:
    groups: dict[tuple[str, str | None], list[Record]] = defaultdict(list)
    for topic, found in records.items():
        for record in found:
            groups[topic, record.tag].append(record)
    rows = [
        (
            topic,
            tag,
            len(own),
            sum(len(each.value) for each in own),
            own[0].seq,
            own[-1].seq,
            own[0].ts_ms,
            own[-1].ts_ms,
        )
        for (topic, tag), own in groups.items()
    ]
    return sorted(rows, key=lambda row: (row[0], row[1] is not None, row[1] or ""))


def ends(records: list[Record]) -> tuple[int, int, int, int]:
    first, last = records[0], records[-1]
    return first.seq, last.seq, first.ts_ms, last.ts_ms


def as_tuples(rows: tuple[TagStatistics, ...]) -> list[tuple[object, ...]]:
    return [
        (row.topic, row.tag, row.records, row.bytes, row.first_seq, row.last_seq, int(row.first), int(row.last))
        for row in rows
    ]


@pytest.mark.long
def test_statistics_are_those_of_the_archives_own_records(spark_session: SparkSession, remote_url: str) -> None:
    result = statistics(spark_session, remote_url)
    assert isinstance(result, StatisticsResult)
    assert as_tuples(result.rows) == expected(records_of(remote_url))
    assert (result.topics, result.resumed) == (4, 0)


@pytest.mark.long
def test_a_past_version_and_a_branch_have_statistics(
    spark_session: SparkSession, remote_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    past = statistics(spark_session, remote_url, "orders", version=2)
    assert isinstance(past, StatisticsResult)
    assert as_tuples(past.rows) == expected(records_of(remote_url, "orders", 2))
    assert main(["statistics", remote_url, "--topic", "orders@half", "--json"], spark_session) == 0
    *rows, rest = map(json.loads, capsys.readouterr().out.splitlines())
    assert [(row["topic"], row["branch"]) for row in rows] == [("orders", "half")] * 4
    assert sum(row["records"] for row in rows) == len(records_of(remote_url, "orders@half")["orders"])
    assert rest == {"topics": 1, "resumed": 0}


@pytest.mark.long
def test_a_run_that_was_killed_resumes_and_counts_only_topics_that_changed(
    spark_session: SparkSession, own_url: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    kill_after(2, lambda: statistics(spark_session, own_url, state=state, topics_at_a_time=1), JobState, "add")
    result = statistics(spark_session, own_url, state=state)
    assert isinstance(result, StatisticsResult)
    assert result.resumed == 2
    assert as_tuples(result.rows) == expected(records_of(own_url))
    TopicArchive(own_url, "new").add([Sample(b"new")])
    again = statistics(spark_session, own_url, state=state)
    assert isinstance(again, StatisticsResult)
    assert (again.topics, again.resumed) == (5, 4)
    assert as_tuples(again.rows) == expected(records_of(own_url))
