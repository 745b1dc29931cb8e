from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from catalog.errors import InvalidObject
from offload.spark.jobs import Condition, VerifyResult, verify
from offload.spark.jobs.__main__ import main
from offload.spark.jobs.progress import JobState
from tests.offload.spark.jobs.remotes import kill_after, records_of


def checked(spark: SparkSession, url: str, topic: str = "*", state: Path | None = None) -> VerifyResult:
    result = verify(spark, url, topic, state=state, task_bytes=1)
    assert isinstance(result, VerifyResult)
    return result


def path_of(url: str, key: str) -> Path:
    return Path(url.removeprefix("file://")) / key


@pytest.mark.long
def test_every_object_of_a_sound_remote_is_good(spark_session: SparkSession, remote_url: str) -> None:
    result = checked(spark_session, remote_url)
    assert (result.good, result.lost, result.damaged) == (18, 0, 0)
    assert len({row.key for row in result.rows}) == 18
    assert result.bytes == sum(path_of(remote_url, row.key).stat().st_size for row in result.rows)
    # Records that a commit deleted are still in the objects. Erased ones are not.
    assert result.records == 51 + 5 * 20 + 18 + 1 > sum(map(len, records_of(remote_url).values()))


@pytest.mark.long
def test_lost_and_damaged_objects_are_found_with_their_place_and_the_run_resumes(
    spark_session: SparkSession, own_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [row.key for row in checked(spark_session, own_url, "orders").rows]
    index_cut, data_lost, record_flipped, tail_flipped, index_lost = keys[0], keys[3], keys[5], keys[7], keys[8]
    for key, place in ((record_flipped, 140), (tail_flipped, -1)):
        body = bytearray(path_of(own_url, key).read_bytes())
        body[place] ^= 1
        path_of(own_url, key).write_bytes(body)
    path_of(own_url, index_cut).write_bytes(path_of(own_url, index_cut).read_bytes()[:-1])
    before = path_of(own_url, data_lost).read_bytes()
    path_of(own_url, data_lost).unlink()
    path_of(own_url, index_lost).unlink()

    state = tmp_path / "state"
    kill_after(1, lambda: checked(spark_session, own_url, state=state), JobState, "add")
    result = checked(spark_session, own_url, state=state)
    assert {row.key: row.state for row in result.findings} == {
        index_cut: Condition.DAMAGED,
        data_lost: Condition.LOST,
        record_flipped: Condition.DAMAGED,
        tail_flipped: Condition.DAMAGED,
        index_lost: Condition.LOST,
    }
    reasons = {row.key: (row.offset, row.reason) for row in result.findings}
    assert reasons[record_flipped][0] is not None
    assert "bytes, its commit says" in str(reasons[index_cut][1])
    assert reasons[data_lost] == (None, "it is not there")
    assert (result.good, result.lost, result.damaged) == (13, 2, 3)
    assert 0 < result.resumed < 18

    path_of(own_url, data_lost).write_bytes(before)
    assert main(["verify", own_url, "--state", str(state), "--json"], spark_session) == 5
    out, err = capsys.readouterr()
    *rows, rest = map(json.loads, out.splitlines())
    assert {row["key"] for row in rows} == {index_cut, record_flipped, tail_flipped, index_lost}
    assert rest["resumed"] == 18 - 2 * 5
    [line] = [each for each in err.splitlines() if each.startswith("seglog: ")]  # pyspark may warn beside it
    assert line.startswith("seglog: 4 damages in file://")


@pytest.mark.long
def test_an_error_of_the_store_ends_the_job_with_its_own_class(spark_session: SparkSession, own_url: str) -> None:
    for commit in path_of(own_url, "").glob("*/log/*"):
        commit.write_bytes(b"nonsense")
    with pytest.raises(InvalidObject, match="/log/"):
        verify(spark_session, own_url)
