"""Each benchmark runs, at a size that says nothing about speed, and gives every row its yardstick."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import append, offload, read, spark_scan
from benchmarks.options import Options
from benchmarks.report import Report


def check(report: Report, directory: Path) -> None:
    assert report.rows
    for row in report.rows:
        assert row.ours > 0
        assert row.theirs is not None
        assert row.theirs > 0
        assert row.ratio is not None
    assert json.loads(report.as_json())["name"] == report.name
    assert report.as_text().splitlines()[-1] == report.machine.line()
    assert list(directory.iterdir()) == []


def test_append_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SINGLE_APPENDS", "BATCH_BYTES", "THREAD_APPENDS"):
        monkeypatch.setattr(append, name, 3)
    monkeypatch.setattr(append, "TASKS", {1: 3, 3: 9})
    monkeypatch.setattr(append, "STALL_BYTES", 4 * append.STALL_RECORD_BYTES)
    check(append.run(Options(directory=tmp_path, rounds=1)), tmp_path)


def test_read_runs(tmp_path: Path) -> None:
    check(read.run(Options(directory=tmp_path, rounds=1, size_mib=1)), tmp_path)


def test_offload_runs(tmp_path: Path) -> None:
    check(offload.run(Options(directory=tmp_path, rounds=1, size_mib=1)), tmp_path)


def test_spark_scan_runs(tmp_path: Path) -> None:
    check(spark_scan.run(Options(directory=tmp_path, rounds=1, size_mib=1)), tmp_path)
