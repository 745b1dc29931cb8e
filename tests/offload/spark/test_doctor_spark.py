"""Test `seglog doctor --spark` in local mode. `test_cluster.py` runs it on a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from offload.errors import ChecksFailed
from offload.operations.doctor import CheckDone
from offload.operations.doctor_spark import doctor_spark, start_session
from offload.spark import registration
from offload.spark.jobs import __main__ as jobs
from offload.wiring import open_store
from seglog import SystemClock
from tests.worlds.command import Run, run

__all__ = ["run"]

NAMES = ["session", "jvm reader", "archive", "python", "jvm"]


def examined(spark: SparkSession, url: str) -> dict[str, CheckDone]:
    """Return the checks by name. A check that failed raises nothing here."""
    found: dict[str, CheckDone] = {}
    try:
        for done in doctor_spark(lambda: spark, url, SystemClock()):
            assert isinstance(done, CheckDone)
            found[done.check] = done
    except ChecksFailed:
        assert "failed" in {done.outcome for done in found.values()}
    return found


@pytest.mark.long
def test_both_readers_reach_the_remote_and_leave_it_as_it_was(spark_session: SparkSession, s3_remote: str):
    found = examined(spark_session, s3_remote)
    assert list(found) == NAMES
    assert {done.outcome for done in found.values()} == {"ok"}, found
    assert found["jvm"].proves == "1 of 1 executors"
    assert list(open_store(s3_remote).list("")) == []


@pytest.mark.long
def test_a_jar_that_does_not_fit_is_named_and_the_python_reader_is_still_checked(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registration, "JAR", tmp_path / "no.jar")
    found = examined(spark_session, (tmp_path / "remote").as_uri())
    assert [done.outcome for done in found.values()] == ["ok", "failed", "ok", "ok", "skipped"]
    assert "no.jar" in found["jvm reader"].reason


def test_without_java_the_reason_is_told_and_all_else_is_skipped(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def start(_: str | None) -> SparkSession:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    monkeypatch.setattr("offload.operations.doctor_spark.start_session", start)
    done = run("--remote", (tmp_path / "remote").as_uri(), "doctor", "--spark")
    assert done.code == 1
    first, *others = done.text.splitlines()
    assert first.startswith("FAIL    session: RuntimeError: [JAVA_GATEWAY_EXITED]")
    assert others == [
        "skipped jvm reader: it needs session",
        "skipped archive: it needs session",
        "skipped python: it needs archive",
        "skipped jvm: it needs archive",
    ]
    assert "See docs/spark.md" in done.err
    assert not list((tmp_path / "remote").rglob("doctor*"))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."),
            "Spark's Java did not start, or ended at once; its own message is above; if there is no Java, "
            "install Java 17 or newer, or let JAVA_HOME name one",
        ),
        (
            ImportError("No module named 'pyspark'"),
            "seglog doctor needs pyspark, which is not installed; install it: `pip install 'seglog[spark]'`",
        ),
    ],
)
def test_what_spark_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str):
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    if isinstance(error, ImportError):
        monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    else:
        monkeypatch.setattr(SparkSession.Builder, "getOrCreate", Mock(side_effect=error))
    first = next(doctor_spark(lambda: start_session(None), (tmp_path / "remote").as_uri(), SystemClock()))
    assert first == CheckDone("session", "failed", "", reason)
    assert jobs.main(["gc", (tmp_path / "remote").as_uri()]) == (2 if isinstance(error, ImportError) else 1)


@pytest.mark.parametrize(
    "line",
    [
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 2 in stage 0.0 failed 4 times, most "
        "recent failure: Lost task 2.3 in stage 0.0 (TID 7) (127.0.0.1 executor 1): ",
        "Caused by: ",
    ],
)
def test_of_a_java_trace_the_reason_is_the_error_with_the_name(tmp_path: Path, line: str):
    cause = 'java.io.IOException: Cannot run program "/no/such/python" (in directory "."): error=2'
    deeper = "Caused by: java.io.IOException: error=2, No such file or directory"
    trace = f"An error occurred while calling o1.collect.\n{line}{cause}\n\tat a.B.c(B.java:1)\n{deeper}\n"

    def start() -> SparkSession:
        raise RuntimeError(trace)

    first = next(doctor_spark(start, tmp_path.as_uri(), SystemClock()))
    assert isinstance(first, CheckDone)
    assert first.reason == f"RuntimeError: {cause}"


def test_a_master_goes_with_spark(run: Run, tmp_path: Path):
    done = run("--remote", (tmp_path / "remote").as_uri(), "doctor", "--master", "local")
    assert (done.code, "--master goes with --spark" in done.err) == (2, True)
