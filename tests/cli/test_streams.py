"""Test standard streams that are closed, and output whose reader has gone: no traceback, and never exit code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", f"file://{tmp_path}/archive").code == 0
    assert run("append", "t", stdin=b"a\nb\n").code == 0
    return run


def _without_reader(directory: Path, *arguments: str) -> tuple[int, bytes]:
    """Run a command whose standard output is a pipe that nothing reads."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "offload", "-C", "data", *arguments]
    done = subprocess.run(command, cwd=directory, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    return done.returncode, done.stderr


def test_a_command_without_a_reader_does_its_work(started: Run, tmp_path: Path) -> None:
    assert _without_reader(tmp_path, "seal", "t") == (0, b"")
    assert started("offload", "t").text.startswith("t: offloaded up to seq 2 (lsn 1)")
    assert _without_reader(tmp_path, "log", "t") == (0, b"")


def test_a_closed_standard_output_is_like_dev_null(started: Run, tmp_path: Path) -> None:
    for words, stdin in ((["read", "t"], b""), (["append", "t"], b"c\n")):
        command = ["bash", "-c", '"$@" >&-', "bash", sys.executable, "-m", "offload", "-C", "data", *words]
        done = subprocess.run(command, cwd=tmp_path, input=stdin, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    assert started("read", "t").out == b"a\nb\nc\n"
