"""The writer in Spark, with faults: tasks that Spark tries again, a driver that is killed, a commit without an answer.

The archive itself reads the records back. `tests.offload.load.test_load_faults` has every step, without Spark.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from catalog import Branches, Volumes
from catalog.objects import ObjectStore
from offload.spark.source import PythonDataSource
from offload.wiring import open_store
from tests.faults.front import Front, HttpFault
from tests.offload.load.loads import records
from tests.offload.spark.faulty_writer import faulty_source
from tests.offload.spark.write_driver import PARTITIONS, rows, write

COUNT = 200
KEY = "day-1"
ENDS_WITHIN_S = 600
ROOT = Path(__file__).parents[3]


class Remote:
    """A remote with 200 records, and what it has afterwards."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store: ObjectStore = open_store(url)

    def check(self, copies: int, commits: int) -> None:
        """Assert that the records are there so many times, in their order, and that there are so many commits."""
        found = records(self.store)
        assert [record.seq for record in found] == list(range(1, copies * COUNT + 1))
        assert [record.value for record in found] == [b"value %d" % number for number in range(COUNT)] * copies
        volumes = Volumes(self.store)
        assert volumes.newest_lsn(Branches(volumes).resolve("orders")) == commits

    def data_objects(self) -> int:
        return sum("/segments/" in key and not key.endswith(".index") for key in self.store.list(""))


@pytest.fixture
def loaded(spark_session: SparkSession, tmp_path: Path) -> Remote:
    return begun(spark_session, (tmp_path / "remote").as_uri())


def begun(spark: SparkSession, url: str) -> Remote:
    write(rows(spark, COUNT), url, "first")
    return Remote(url)


@pytest.fixture
def attempts(tmp_path: Path) -> Path:
    """Return the directory in which attempts at tasks note what happened."""
    (tmp_path / "attempts").mkdir()
    return tmp_path / "attempts"


@pytest.fixture
def answer_is_lost(spark_session: SparkSession, tmp_path: Path) -> Iterator[None]:
    spark_session.dataSource.register(faulty_source("lost answer", tmp_path))
    yield
    spark_session.dataSource.register(PythonDataSource)


def driven(
    remote: Remote, fault: str, attempts: Path, how: str = "save", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a driver of its own with a fault."""
    command = [sys.executable, "-m", "tests.offload.spark.write_driver"]
    return subprocess.run(
        [*command, remote.url, fault, str(attempts), KEY, str(COUNT), how],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
        start_new_session=True,
    )


@pytest.mark.long
@pytest.mark.usefixtures("answer_is_lost")
def test_a_commit_whose_answer_is_lost_is_read_back(
    spark_session: SparkSession, loaded: Remote, tmp_path: Path
) -> None:
    (tmp_path / "lost answer").unlink()  # of the first load
    for _ in range(2):
        write(rows(spark_session, COUNT), loaded.url, KEY)
        loaded.check(copies=2, commits=2)
    assert (tmp_path / "lost answer").exists()


@pytest.mark.soak(part=9)
@pytest.mark.parametrize("fault", ["task before", "task within", "task dies", "task after"])
def test_a_task_that_fails_is_tried_again_and_its_first_attempt_leaves_nothing_visible(
    loaded: Remote, attempts: Path, fault: str
) -> None:
    done = driven(loaded, fault, attempts)
    assert done.stdout.splitlines()[-1:] == ["OK"], done.stderr
    assert {path.name for path in attempts.iterdir()} == {"attempt 0 began", "attempt 1 began", "attempt 1 ended"}
    loaded.check(copies=2, commits=2)
    # Only the attempt that had written its objects leaves them, for GC.
    assert loaded.data_objects() == 2 * PARTITIONS + (fault == "task after")


@pytest.mark.soak(part=9)
@pytest.mark.parametrize("fault", ["killed before", "killed after"])
def test_a_driver_that_is_killed_at_the_commit_leaves_each_record_once_when_the_job_runs_again(
    spark_session: SparkSession, loaded: Remote, attempts: Path, fault: str
) -> None:
    done = driven(loaded, fault, attempts)
    assert done.returncode == -signal.SIGKILL, done.stderr
    is_there = fault == "killed after"
    loaded.check(copies=1 + is_there, commits=1 + is_there)
    assert loaded.data_objects() == 2 * PARTITIONS
    for _ in range(2):
        write(rows(spark_session, COUNT), loaded.url, KEY)
        loaded.check(copies=2, commits=2)


@pytest.mark.long
def test_a_driver_that_is_killed_within_an_insert_leaves_each_record_once_when_it_runs_again(
    spark_session: SparkSession, loaded: Remote, attempts: Path
) -> None:
    killed = driven(loaded, "killed before", attempts, "insert")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    loaded.check(copies=1, commits=1)
    assert loaded.data_objects() == 2 * PARTITIONS
    for how in ("insert", "insert", "save"):
        write(rows(spark_session, COUNT), loaded.url, KEY, how)
        loaded.check(copies=2, commits=2)


@pytest.mark.soak(part=9)
@pytest.mark.parametrize("way", ["reset", "500", "truncated"])
def test_over_http_a_commit_whose_answer_is_lost_is_read_back(
    spark_session: SparkSession, s3_remote: str, s3_endpoint: str, attempts: Path, way: str
) -> None:
    remote = begun(spark_session, s3_remote)
    with Front(s3_endpoint, [HttpFault(way, "after", kind="PUT commit")]) as front:
        done = driven(remote, "none", attempts, AWS_ENDPOINT_URL=front.url)
        assert done.stdout.splitlines()[-1:] == ["OK"], done.stderr
        assert front.struck
        assert front.kinds["PUT commit"] == 1
    remote.check(copies=2, commits=2)
