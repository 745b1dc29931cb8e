"""Test standard streams that are closed, whose reader has gone, or that get text which their encoding lacks.

No command ends with a traceback or with exit code 1.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from offload.cli.stdio import accept_any_text
from tests.worlds.command import Run


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    return disk_path


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


def test_a_name_that_is_not_utf8_is_printed_with_its_own_bytes(started: Run, tmp_path: Path) -> None:
    done = started("export", "t", "out\udcff")
    assert (done.code, done.err) == (0, "")
    assert b" to out\xff: 1 file" in done.out
    assert b" in out\xff as written" in started("export", "t", "out\udcff", "--verify").out
    assert json.loads(started("--json", "export", "t", "out\udcff").text.splitlines()[-1])["directory"] == "out\udcff"
    made = started("init", directory="data\udcff")
    assert made.out == os.fsencode(f"made {tmp_path}/data\udcff, without a remote (add one in seglog.toml)\n")


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", b"\xe2\x80\xa6\xff"), ("iso-8859-1", b"\\u2026\\udcff")])
def test_an_encoding_that_lacks_a_character_is_no_error(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: bytes
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    accept_any_text()
    print("…\udcff", end="", flush=True)
    assert written.getvalue() == shown
