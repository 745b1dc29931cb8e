"""Test that a command, and a reload of the daemon, reads seglog.toml once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import seglog
from offload.settings import default_file
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def line_of(tmp_path: Path, commands: list[list[str]]) -> list[str]:
    said = [json.dumps(["-C", str(tmp_path / "data"), *command]) for command in commands]
    return [sys.executable, "-m", "tests.cli.counted", str(tmp_path / "opens"), *said]


def opens(tmp_path: Path) -> Counter[int]:
    """Return how many times each command has opened the file."""
    return Counter(map(int, (tmp_path / "opens").read_text().split()))


def test_a_command_reads_the_settings_once(tmp_path: Path) -> None:
    remote = (tmp_path / "remote").as_uri()
    (tmp_path / "records").write_text("one\ntwo\n")
    commands = [
        ["init", "--remote", remote],
        ["append", "t", str(tmp_path / "records")],
        ["status"],
        ["seal", "t"],
        ["offload", "t"],
        ["read", "t"],
        ["delete", "t", "--before", "2", "--yes"],
        ["log", "t"],
        ["gc", "--dry-run"],
        ["restore", "t", "--to", "seq:1", "--as", "first"],
        ["verify"],
        ["verify", "--remote"],
        ["recover", remote, str(tmp_path / "recovered")],
    ]
    done = subprocess.run(line_of(tmp_path, commands), cwd=ROOT, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    assert opens(tmp_path) == dict.fromkeys(range(len(commands)), 1)


@pytest.mark.long
def test_the_daemon_reads_the_settings_once_at_its_start_and_once_at_a_reload(tmp_path: Path) -> None:
    seglog.open(tmp_path / "data").close()
    (tmp_path / "data" / "seglog.toml").write_text(default_file((tmp_path / "remote").as_uri()))
    told = tmp_path / "told"
    with told.open("wb") as stderr:
        daemon = subprocess.Popen(
            line_of(tmp_path, [["serve"]]), cwd=ROOT, env={**os.environ, "SEGLOG_SERVE_PORT": "0"}, stderr=stderr
        )
        try:
            wait_until(lambda: "seglog: serving" in told.read_text())
            assert opens(tmp_path) == {0: 1}
            daemon.send_signal(signal.SIGHUP)
            wait_until(lambda: "settings taken from" in told.read_text())
            assert opens(tmp_path) == {0: 2}
            daemon.terminate()
            assert daemon.wait(120) == 0
        finally:
            daemon.kill()
            daemon.wait(120)
