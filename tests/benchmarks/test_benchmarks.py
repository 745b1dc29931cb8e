"""Each benchmark runs, at a size that says nothing about speed, and each row has its yardstick or says why not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import (
    append,
    append_while_offloading,
    bulk,
    capped,
    catalog,
    cli,
    cli_large,
    cold_point,
    cold_scan,
    cold_trouble,
    deletes,
    delivery,
    durability,
    gc_plan,
    http_append,
    http_body,
    http_follow,
    memory,
    offload,
    proxy,
    queues,
    read,
    recovery,
    routers,
    slices,
    small_streams,
    spark_plan,
    spark_points,
    spark_scan,
    spark_session,
    spark_write,
    tenant_credentials,
    topics,
)
from benchmarks.__main__ import NAMES, main
from benchmarks.document import page_of, table, tables, with_table
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, alone
from benchmarks.stores import jetstream
from tests.offload.spark.session import OF_A_SHORT_RUN


def check(report: Report, directory: Path) -> None:
    assert report.name in NAMES
    assert report.rows
    for row in report.rows:
        assert row.ours > 0
        if row.yardstick is not None and row.missing is None:
            assert row.theirs is not None
            assert row.theirs > 0
            assert row.ratio is not None
            assert row.spread is not None
            assert row.spread[0] <= row.ratio <= row.spread[1]
    assert json.loads(report.as_json())["name"] == report.name
    assert report.as_text().splitlines()[-1] == report.last_line()
    assert report.machine.line() in report.last_line()
    assert list(directory.iterdir()) == []


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options.smoke(tmp_path)


def test_append_runs(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "SIZES", (200,))
    monkeypatch.setattr(append, "TASKS", (1, 3))
    monkeypatch.setattr(append, "THREADS", (1, 3))
    monkeypatch.setattr(append, "BATCHES", (4,))
    monkeypatch.setattr(append, "LOOP_TASKS", 3)
    report = append.run(options)
    check(report, options.directory)
    assert {row.yardstick for row in report.rows} >= {"raw", "sqlite", "rocksdb", "lmdb", "jetstream", "ungrouped"}
    beside_the_bare_loop = {row.what.partition(",")[0] for row in report.rows if row.yardstick == "bare"}
    assert beside_the_bare_loop == set(append.LOOPS)


def test_a_yardstick_that_is_not_there_is_named_with_the_reason(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(directory: Path) -> None:
        raise slices.Unavailable("nats-server is not installed")

    monkeypatch.setattr(jetstream, "running", gone)
    monkeypatch.setattr(append, "SIZES", (200,))
    for name in ("TASKS", "THREADS", "BATCHES"):
        monkeypatch.setattr(append, name, (1,))
    report = append.run(options)
    rows = [row for row in report.rows if row.yardstick == "jetstream"]
    assert rows
    assert all(row.missing == "nats-server is not installed" and row.ratio is None for row in rows)
    assert "nats-server is not installed" in report.as_text()


@pytest.mark.long
def test_catalog_runs_and_meets_its_aims(options: Options) -> None:
    """Check the counts of requests, which are the same for any size."""
    report = catalog.run(options)
    check(report, options.directory)
    counted = [row for row in report.rows if row.yardstick is None and row.met is not None]
    assert len(counted) > 10
    assert all(row.met for row in counted)


@pytest.mark.soak(part=9)
def test_cli_runs(options: Options) -> None:
    check(cli.run(options), options.directory)


@pytest.mark.soak(part=9)
def test_cli_large_runs(options: Options) -> None:
    check(cli_large.run(options), options.directory)


@pytest.mark.soak(part=9)
def test_bulk_runs(options: Options) -> None:
    report = bulk.run(options)
    check(report, options.directory)
    assert {row.yardstick for row in report.rows} - {None} >= {"cp", "zstd -3"}


@pytest.mark.long
def test_delivery_runs(options: Options) -> None:
    check(delivery.run(options), options.directory)


@pytest.mark.long
def test_queues_runs(options: Options) -> None:
    """Check also the counts of commits and requests, which are the same on any machine."""
    report = queues.run(options)
    check(report, options.directory)
    assert {row.yardstick for row in report.rows} == {None, "jetstream", "redis", "keep"}
    [commits] = [row for row in report.rows if row.what.endswith(", commits")]
    assert (commits.ours, commits.theirs) == (6, 3), "a round is one delete and one offload"


@pytest.mark.long
def test_routers_runs(options: Options) -> None:
    check(routers.run(options), options.directory)


@pytest.mark.soak(part=9)
def test_http_append_runs(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_append, "CONNECTIONS", (1, 3))
    monkeypatch.setattr(http_append, "BATCHES", (1, 4))
    report = http_append.run(options)
    check(report, options.directory)
    assert {row.yardstick for row in report.rows} == {"call", "jetstream", "streams", "plain"}


@pytest.mark.soak(part=9)
def test_small_streams_runs(options: Options) -> None:
    check(small_streams.run(options), options.directory)


@pytest.mark.long
def test_http_follow_runs(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_follow, "FOLLOWERS", (1, 3))
    check(http_follow.run(options), options.directory)


@pytest.mark.soak(part=9)
def test_http_body_runs_and_every_request_of_its_stop_ends_in_order(options: Options) -> None:
    report = http_body.run(options)
    check(report, options.directory)
    assert report.rows[-1].met


@pytest.mark.soak(part=9)
def test_durability_runs(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durability, "TASKS", 3)
    check(durability.run(options), options.directory)


def test_read_runs(options: Options) -> None:
    check(read.run(options), options.directory)


def _calls(report: Report) -> dict[str, float]:
    """How many times as few calls ours makes as the yardstick: the same on every machine."""
    return {row.what: row.ratio for row in report.rows if "calls" in row.what and row.ratio is not None}


@pytest.mark.long
def test_deletes_runs_and_reads_make_no_call_more(options: Options) -> None:
    report = deletes.run(options)
    check(report, options.directory)
    found = _calls(report)
    assert len(found) == 2 * len(deletes.COUNTS) * len(deletes.DELETES)
    assert all(ratio > 1 / 1.2 for ratio in found.values()), found


@pytest.mark.long
def test_capped_runs_and_an_append_makes_no_call_more(options: Options) -> None:
    report = capped.run(options)
    check(report, options.directory)
    found = _calls(report)
    assert len(found) == 2
    assert all(ratio > 1 / 1.2 for ratio in found.values()), found


@pytest.mark.long
def test_topics_runs_and_a_checkpoint_makes_no_call_more(options: Options) -> None:
    report = topics.run(options)
    check(report, options.directory)
    assert [ratio > 1 / 1.2 for ratio in _calls(report).values()] == [True]


@pytest.mark.long
def test_recovery_runs(options: Options) -> None:
    check(recovery.run(options), options.directory)


@pytest.mark.long
def test_memory_runs(options: Options) -> None:
    report = memory.run(options)
    check(report, options.directory)
    assert all(row.met is not None for row in report.rows)


@pytest.mark.soak(part=9)
def test_cold_trouble_runs(options: Options) -> None:
    check(cold_trouble.run(options), options.directory)


@pytest.mark.soak(part=9)
def test_offload_runs(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "RECORD_SIZES", (200,))
    monkeypatch.setattr(offload, "CODECS", ("zstd",))
    check(offload.run(options), options.directory)


@pytest.mark.soak(part=9)
def test_append_while_offloading_runs(options: Options) -> None:
    report = append_while_offloading.run(options)
    check(report, options.directory)
    assert {row.what.rpartition(" ")[2] for row in report.rows} == {"p50", "p99", "offloaded"}


@pytest.mark.soak(part=9)
def test_tenant_credentials_runs(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_credentials, "TENANTS", 3)
    check(tenant_credentials.run(options), options.directory)


@pytest.mark.long
def test_proxy_runs_and_counts_what_the_store_gets(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "READERS", 2)
    report = proxy.run(options)
    check(report, options.directory)
    found = {row.what: row for row in report.rows}
    idle = found["an idle hour, 3 replicas"]
    assert idle.theirs == 3 * 3 * 720
    assert 3 * 720 <= idle.ours < idle.theirs
    assert found["a replica 20 commits behind, at a proxy"].met
    shares = [row for row in report.rows if "bytes" in row.what]
    assert [row.met for row in shares] == [True] * 3


@pytest.mark.soak(part=9)
def test_gc_plan_runs(options: Options) -> None:
    check(gc_plan.run(options), options.directory)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hold one session open, which the benchmarks of Spark then share."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", OF_A_SHORT_RUN)
        environment.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        with spark_session.running(tmp_path_factory.mktemp("spark")):
            yield


@pytest.mark.soak(part=9)
@pytest.mark.usefixtures("spark")
def test_spark_scan_runs(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_scan, "RECORD_SIZES", (1024,))
    report = spark_scan.run(options)
    check(report, options.directory)
    assert {row.yardstick for row in report.rows} == {"parquet", "text", "ceiling", "ceiling, narrow"}
    assert len([row for row in report.rows if row.aim is not None]) == 4 + 4 + 3


@pytest.mark.soak(part=9)
@pytest.mark.usefixtures("spark")
def test_spark_points_runs(options: Options) -> None:
    check(spark_points.run(options), options.directory)


@pytest.mark.soak(part=9)
@pytest.mark.usefixtures("spark")
def test_spark_write_runs(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_write, "RECORD_SIZES", (1024,))
    monkeypatch.setattr(spark_write, "FRAMES", ("read",))
    report = spark_write.run(options)
    check(report, options.directory)
    assert [row.unit for row in report.rows] == ["MB/s", "s"]


def test_spark_plan_runs_and_tasks_follow_bytes_instead_of_segments(options: Options) -> None:
    report = spark_plan.run(options)
    check(report, options.directory)
    tasks = [row.ours for row in report.rows if row.unit == "tasks"]
    assert tasks == [1, 1, 1, 1, 4, 4]  # one seq, all, and all again: of one segment, and of twenty


def test_each_has_its_place_in_the_document() -> None:
    for name in NAMES:
        text = page_of(name).read_text()
        assert f"<!-- measured: {name} -->" in text
        assert f"<!-- end: {name} -->" in text


def test_each_table_in_the_document_is_one_that_a_report_writes() -> None:
    found = {mark: table(text) for name in NAMES for mark, text in tables(page_of(name).read_text()).items()}
    assert found.keys() == {*NAMES, "append on tmpfs"}
    assert all(mark.partition(" ")[0] == report.name for mark, report in found.items())
    assert all(row.ours > 0 and row.what for report in found.values() for row in report.rows)
    rows = {mark: len(report.rows) for mark, report in found.items()}
    assert rows["append"] == rows["append on tmpfs"] > 150
    assert sum(rows.values()) > 800
    others = [page_of(name).read_text().count("\n```text\n") for name in NAMES]
    assert sum(others) == len(found), "a page has a table that no mark names"


def test_a_table_that_was_measured_in_memory_has_a_place_of_its_own(tmp_path: Path) -> None:
    machine = describe(tmp_path)
    text = "".join(f"<!-- measured: {name} -->\n<!-- end: {name} -->\n" for name in ("append", "append on tmpfs"))
    for kind, position in (("ext4 on /dev/vda", 0), ("tmpfs on tmpfs", 1)):
        report = Report("append", "", (alone("rate", "records/s", 1),), replace(machine, file_system=kind), 1)
        places = with_table(text, report).split("<!-- end")
        assert [kind in place for place in places] == [position == 0, position == 1, False]


def test_the_command_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)


@pytest.mark.long
def test_cold_scan_runs(options: Options) -> None:
    report = cold_scan.run(options)
    check(report, options.directory)
    assert {row.yardstick for row in report.rows} == {"8 MiB x 16", "1 MiB x 1", "4 MiB x 1"}


@pytest.mark.long
def test_cold_point_runs(options: Options) -> None:
    report = cold_point.run(options)
    check(report, options.directory)
    assert {row.what.partition(", ")[2] for row in report.rows} >= {"file://", "bare HTTP", "30 ms, 85 MB/s"}
