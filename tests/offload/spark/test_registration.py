"""Test `register`, the planner process of the JVM reader, and what happens without them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from offload.errors import InvalidOption
from offload.spark import register, registration
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.session import OF_A_SHORT_RUN, SPARK, needs_python_sources
from tests.seams.spark import driver_jvm, end_planners, metrics_of_last, planners, query_execution

_WITH_JAR = """
import os, sys
from pyspark.sql import SparkSession
from offload.spark import register

_, jar, url, written = sys.argv
settings = {"spark.jars": jar, "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.extraJavaOptions": "OPTIONS"}
settings |= {"spark.sql.catalog.acme": "seglog.spark.SeglogCatalog", "spark.sql.catalog.acme.url": url}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
read = spark.read.format("seglog").option("topic", "orders")
write = spark.range(5).selectExpr("cast(id as string) value").write.format("seglog").option("topic", "orders")
print(read.load(url).count())
print(spark.sql("SELECT * FROM acme.orders WHERE seq > 200").count())
write.mode("append").save(written)
print(register(spark))
write.mode("append").save(written)
print(read.option("reader", "python").load(written).count())
spark.stop()
""".replace("OPTIONS", OF_A_SHORT_RUN)

PYTHON, READER, PATIENCE = "seglog.python", "seglog.reader", "seglog.planner.seconds"


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = (tmp_path / "remote").as_uri()
    TopicArchive(url).add([Sample(b"value %d" % n, chunk_tag(n)) for n in range(300)])
    return url


def chunk_tag(number: int) -> str | None:
    return "even" if number % 2 == 0 else None


def seqs(spark: SparkSession, url: str) -> list[int]:
    rows = spark.read.format("seglog").option("topic", "orders").load(url).select("seq", "value").collect()
    return [row.seq for row in rows]


@pytest.fixture
def properties(spark_session: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Set system properties of the driver's JVM until the test ends."""
    system = driver_jvm(spark_session).java.lang.System
    before = {name: system.getProperty(name) for name in (PYTHON, READER, PATIENCE)}

    def set_property(name: str, value: str) -> None:
        system.setProperty(name, value)

    yield set_property
    for name, value in before.items():
        system.clearProperty(name) if value is None else system.setProperty(name, value)


def script(path: Path, *lines: str) -> str:
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return str(path)


@needs_python_sources
def test_both_readers_serve_one_session_and_a_second_call_does_no_harm(spark_session: SparkSession, url: str):
    assert register(spark_session) == "jvm"
    load = spark_session.read.format("seglog").option("topic", "orders")
    plans = {
        reader: query_execution(load.option("reader", reader).load(url)).toString() for reader in ("jvm", "python")
    }
    assert "BatchScan seglog[" in plans["jvm"]
    assert "(Python)" in plans["python"]
    assert load.option("reader", "python").load(url).collect() == load.option("reader", "jvm").load(url).collect()
    assert spark_session.newSession().read.format("seglog").option("topic", "orders").load(url).count() == 300


@needs_python_sources
@pytest.mark.long
def test_a_session_with_the_jar_on_spark_jars_writes_before_it_registers_and_after(url: str, tmp_path: Path):
    """Spark refuses a source in Python under the name that such a jar has. The jar gives the session another one."""
    job = tmp_path / "job.py"
    job.write_text(_WITH_JAR)
    run = [sys.executable, str(job), str(registration.JAR), url, (tmp_path / "written").as_uri()]
    done = subprocess.run(run, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout.splitlines() == ["300", "100", "jvm", "10"], done.stderr


@pytest.mark.long
def test_a_driver_has_one_planner_and_a_planner_that_was_killed_is_replaced(spark_session: SparkSession, url: str):
    end_planners(spark_session)  # of earlier tests
    assert seqs(spark_session, url) == list(range(1, 301))
    [first] = planners(spark_session)
    assert seqs(spark_session, url) == list(range(1, 301))
    assert planners(spark_session) == [first]
    end_planners(spark_session)
    assert seqs(spark_session, url) == list(range(1, 301))
    assert planners(spark_session) != [first]


@pytest.mark.long
def test_a_planner_that_does_not_answer_is_an_error_and_no_hang(spark_session: SparkSession, properties: Any, url: str):
    frame = spark_session.read.format("seglog").option("topic", "orders").load(url)
    [pid] = planners(spark_session)
    properties(PATIENCE, "1")
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(Exception, match="the planner did not answer within 1 s"):
        frame.where("seq > 3").collect()
    assert pid not in planners(spark_session)
    properties(PATIENCE, "300")
    assert frame.where("seq > 3").count() == 297


@pytest.mark.long
def test_a_planner_that_is_killed_within_a_call_is_replaced_and_gets_the_call(spark_session: SparkSession, url: str):
    frame = spark_session.read.format("seglog").option("topic", "orders").load(url)
    [pid] = planners(spark_session)
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        count = threads.submit(frame.where("seq > 3").count)
        time.sleep(1)  # the call waits for its answer now; if not, the kill comes before the call
        os.kill(pid, signal.SIGKILL)
        assert count.result() == 297
    assert planners(spark_session) != [pid]


@pytest.mark.long
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["exit 3"], "it ended with exit code 3"),
        (["exec <&-", "sleep 1", "exit 3"], "it ended with exit code 3"),
        (['printf \'\\000\\000\\000\\030{"hello":{"protocol":3}}\'', "cat >/dev/null"], "speaks protocol 3"),
        (["printf '\\377\\377\\377\\377'", "cat >/dev/null"], "its message claims 4294967295 bytes"),
        (["printf '\\000\\000\\000\\004nope'", "cat >/dev/null"], "no answer from the planner"),
    ],
)
def test_a_wrong_planner_is_an_error_that_says_what_to_do(
    spark_session: SparkSession, properties: Any, url: str, tmp_path: Path, lines: list[str], message: str
):
    end_planners(spark_session)
    properties(PYTHON, script(tmp_path / "python", *lines))
    with pytest.raises(AnalysisException, match=message):
        seqs(spark_session, url)


@pytest.mark.long
def test_no_python_is_an_error_that_says_what_to_do(spark_session: SparkSession, properties: Any, url: str):
    end_planners(spark_session)
    properties(PYTHON, "/no/such/python")
    with pytest.raises(
        AnalysisException, match=r"^PlannerError: cannot start the planner with /no/such/python.*Set PYSPARK_PYTHON"
    ):
        seqs(spark_session, url)


@needs_python_sources
@pytest.mark.long
def test_without_a_planner_the_python_reader_serves_and_one_line_says_so(
    spark_session: SparkSession,
    properties: Any,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    end_planners(spark_session)
    properties(READER, "jvm")
    properties(PYTHON, "restored at the end")
    monkeypatch.setattr(registration.sys, "executable", script(tmp_path / "python", "exit 3"))
    with caplog.at_level(logging.WARNING):
        assert register(spark_session) == "python"
    [line] = caplog.records
    assert "the reader in Python serves" in line.getMessage()
    assert sorted(seqs(spark_session, url)) == list(range(1, 301))


@needs_python_sources
@pytest.mark.long
def test_without_the_jar_the_python_reader_serves(
    spark_session: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(registration, "JAR", tmp_path / "no.jar")
    assert register(spark_session) == "python"
    assert "there is no" in caplog.text


@needs_python_sources
@pytest.mark.long
@pytest.mark.parametrize("version", ["3.4.9", "4.30.0"])
def test_on_another_spark_than_the_jars_the_python_reader_serves(
    spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
):
    monkeypatch.setattr(spark_session, "version", version)
    assert register(spark_session) == "python"
    [line] = caplog.records
    versions = "3.5, 4.0, 4.1, 4.2, 4.3"
    assert line.getMessage().endswith(f"because the jar is made for Spark {versions}, and this is Spark {version}")


@pytest.mark.skipif(SPARK >= (4, 0), reason="the reader in Python serves there")
def test_on_spark_3_a_jar_that_cannot_serve_is_an_error_that_says_what_to_do(
    spark_session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
):
    with monkeypatch.context() as patched:
        patched.setattr(registration, "JAR", tmp_path / "no.jar")
        with pytest.raises(InvalidOption, match=r"has no sources in Python, and there is no .*no\.jar"):
            register(spark_session)
    write = spark_session.range(5).selectExpr("cast(id as string) value").write.format("seglog").mode("append")
    with pytest.raises(AnalysisException, match=r"NotInstalled: writes .* need sources in Python"):
        write.option("topic", "orders").save(url)
    assert register(spark_session) == "jvm"


@pytest.mark.long
def test_the_metrics_of_a_scan_reach_sparks_status_store(spark_session: SparkSession, url: str):
    frame = spark_session.read.format("seglog").option("topic", "orders").load(url)
    assert len(frame.where("seq = 7").select("value").collect()) == 1
    metrics = metrics_of_last(spark_session, "ranged GETs")
    assert metrics["ranged GETs"] == "2"
    assert metrics["chunks read"] == "1"
    assert int(metrics["chunks skipped"].replace(",", "")) > 5
    assert 0 < int(metrics["bytes read from the store"].replace(",", "")) < 5_000
