"""Test the settings as the command sees them: the environment overrides seglog.toml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", f"file://{tmp_path}/archive").code == 0
    return run


def segments(run: Run) -> int:
    done = run("--json", "seal", "t")
    assert done.code == 0
    return int(json.loads(done.text)["segments"])


def test_a_variable_wins_over_the_file(started: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "seglog.toml").write_text("[log]\nsegment_max_events = 5\n")
    started("append", "t", stdin=b"a\n" * 10)
    assert segments(started) == 2
    monkeypatch.setenv("SEGLOG_LOG_SEGMENT_MAX_EVENTS", "2")
    started("append", "t", stdin=b"a\n" * 10)
    assert segments(started) == 2 + 5


@pytest.mark.parametrize(
    ("variable", "value", "command", "words"),
    [
        ("SEGLOG_LOG_WAL_FILE_BYTES", "1", ("append", "t"), ("log.wal_file_bytes", "4096 to 1073741824")),
        ("SEGLOG_LOG_WAL_BYTES", "1", ("append", "t"), ("SEGLOG_LOG_WAL_BYTES", "SEGLOG_LOG_WAL_FILE_BYTES")),
        ("SEGLOG_OFFLOAD_CODEC", "lz4", ("offload", "--all"), ("offload.codec", "none or zstd")),
    ],
)
def test_a_variable_that_does_not_fit_is_one_clear_line(
    started: Run,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    command: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    monkeypatch.setenv(variable, value)
    done = started(*command, stdin=b"a\n")
    assert (done.code, done.out) == (2, b"")
    assert done.err.count("\n") == 1
    assert all(word in done.err for word in words)


def test_the_library_reads_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import seglog

    monkeypatch.setenv("SEGLOG_LOG_SEGMENT_MAX_EVENTS", "2")
    with seglog.open(tmp_path / "log") as log:
        assert log.settings == seglog.LogSettings()


def test_init_refuses_a_remote_in_the_data_directory(run: Run, tmp_path: Path) -> None:
    done = run("init", "--remote", (tmp_path / "data/remote").as_uri())
    assert (done.code, "lies in the data directory" in done.err) == (2, True)
