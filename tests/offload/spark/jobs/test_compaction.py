from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from catalog.format.commit import CommitKind
from offload.spark.jobs import CompactResult, compact
from offload.spark.jobs.__main__ import main
from offload.spark.jobs.progress import JobState
from seglog import Conflict
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.jobs.remotes import kill_after, records_of

SMALL = 2_000


def with_small_segments(url: str, topic: str = "many") -> TopicArchive:
    """Make a topic with two runs of three small segments around a large one, and deleted records."""
    archive = TopicArchive(url, topic)
    refs = [archive.add([Sample(b"v" * (200 if n == 3 else 2), "eu")] * (30 if n == 3 else 5)) for n in range(7)]
    archive.delete(refs[1], [2])
    return archive


def merged(spark: SparkSession | None, url: str, **named: Any) -> CompactResult:
    return compact(spark, url, **{"below_bytes": SMALL, "least": 2, **named})


@pytest.mark.long
def test_a_topic_gets_one_commit_for_all_its_merges_and_a_killed_run_resumes(
    spark_session: SparkSession, own_url: str, tmp_path: Path
) -> None:
    archive = with_small_segments(own_url)
    before, lsn = records_of(own_url), archive.lsn
    state = tmp_path / "state"
    kill_after(1, lambda: merged(spark_session, own_url, topic="many", state=state), JobState, "add")
    assert archive.lsn == lsn
    result = merged(spark_session, own_url, state=state)
    assert result.resumed == 2
    assert [
        (row.first_seq, row.last_seq, row.segments, row.outcome, row.lsn) for row in result.rows if row.topic == "many"
    ] == [
        (1, 15, 3, "merged", lsn + 1),
        (46, 60, 3, "merged", lsn + 1),
    ]
    snapshot = archive.volumes.snapshot(archive.vid)
    assert (snapshot.lsn, len(snapshot.segments)) == (lsn + 1, 3)
    [commit] = archive.volumes.commits(archive.vid, lsn + 1, lsn + 1)
    assert commit.commit.kind is CommitKind.COMPACT
    assert records_of(own_url) == before
    assert records_of(own_url, "many", lsn) == {"many": before["many"]}
    assert merged(spark_session, own_url).rows == ()


@pytest.mark.long
def test_a_commit_that_comes_meanwhile_is_respected(
    spark_session: SparkSession, own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grows, changes = with_small_segments(own_url, "grows"), with_small_segments(own_url, "shrinks")
    add, lsn = JobState.add, grows.lsn

    def with_others(state: JobState, finished: Mapping[str, Any]) -> None:
        add(state, finished)
        grows.add([Sample(b"later")])
        changes.delete(changes.volumes.snapshot(changes.vid).segments[0].ref, [0])

    monkeypatch.setattr(JobState, "add", with_others)
    result = merged(spark_session, own_url, topic="grows,shrinks")
    assert [(row.topic, row.outcome, row.lsn) for row in result.rows] == [
        ("grows", "merged", lsn + 2),
        ("grows", "merged", lsn + 2),
        ("shrinks", "changed", None),
        ("shrinks", "changed", None),
    ]
    assert result.commits == 1
    assert [len(records) for records in records_of(own_url, "grows,shrinks").values()] == [60, 58]
    assert len(list(changes.store.list(f"{changes.vid}/segments/"))) == 2 * 7


def test_the_volume_of_a_live_writer_is_refused(own_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_small_segments(own_url)
    with pytest.raises(Conflict, match="many is written by the log of test"):
        merged(None, own_url, topic="many", idle_s=10**9)
    rows = merged(None, own_url, topic="man*", idle_s=10**9).rows
    assert [(row.topic, row.outcome) for row in rows] == [("many", "live")]
    words = ["compact", own_url, "--topic", "many", "--below", "2k", "--least", "2", "--dry-run"]
    assert main(words) == 0
    assert [line.split()[2] for line in capsys.readouterr().out.splitlines()[1:3]] == ["planned", "planned"]
    assert main([*words, "--idle-s", "1000000000"]) == 4
    assert "seglog compact many" in capsys.readouterr().err
