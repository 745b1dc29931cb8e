"""Test `seglog status`: the lag and the next step of a topic, its table on a terminal, and --watch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offload.operations.command import Work
from offload.operations.status import ArchivedTopic, attempts_text, extent_bar, status_text
from offload.reports import TopicStatus
from seglog import SystemClock
from tests.cli.terminals import Shown, on_terminal, without_styles
from tests.worlds.command import Run

__all__ = ["on_terminal"]


def _topic(run: Run, name: str = "t") -> dict[str, Any]:
    done = run("--json", "status", name)
    assert done.code == 0, done.err
    [found] = [json.loads(line) for line in done.out.splitlines()]
    return found  # type: ignore[no-any-return]


def test_the_lag_and_the_next_step_follow_the_records(run: Run, tmp_path: Path) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"one\ntwo\n")
    told = []
    for words in (("seal", "t"), ("offload", "t"), None):
        found = _topic(run)
        told.append((found["lag_records"], found["next_step"]))
        assert (found["lag_bytes"] > 0, found["lag_s"] is not None) == (words is not None, words is not None)
        if words is not None:
            assert run(*words).code == 0
    assert told == [(2, "seglog seal t"), (2, "seglog offload t"), (0, None)]
    run("append", "t", stdin=b"three\n")
    assert _topic(run)["lag_records"] == 1
    run("seal", "t")
    run("offload", "t")
    run("pause", "t")
    assert _topic(run)["next_step"] == "seglog resume t"


def test_a_topic_says_how_far_back_a_restore_can_go(run: Run, tmp_path: Path) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    before_ms = SystemClock().now_ms()
    run("append", "t", stdin=b"one\n")
    assert _topic(run)["kept_from"] is None
    run("seal", "t")
    run("offload", "t")
    run("branch", "create", "t", "b")
    run("append", "t@b", stdin=b"two\n")
    kept_ms = {name: _ms(_topic(run, name)["kept_from"]) for name in ("t", "t@b")}
    assert before_ms <= kept_ms["t"] <= SystemClock().now_ms()  # the topic is younger than its window
    assert kept_ms["t@b"] < before_ms  # a branch has the states of its parent


def test_one_is_not_written_as_many(run: Run, tmp_path: Path) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"one\ntwo\n")
    run("seal", "t")
    run("offload", "t")
    run("append", "t", stdin=b"three\nfour\nfive\n")
    run("delete", "t", "--before", "4", "--yes")
    assert "  1 delete waits for the records before it to be offloaded\n" in run("status", "t").text
    run("delete", "t", "--before", "5", "--yes")
    assert "  2 deletes wait for the records before them to be offloaded\n" in run("status", "t").text


def test_attempts_say_what_runs_and_what_failed() -> None:
    state = TopicStatus(
        name="t", head_seq=2, hot_first_seq=1, sealed_seq=2, offloaded_seq=0, earliest_seq=1, evict_floor=1,
        state="0+2", unfinished_attempts=1,
    )  # fmt: skip
    work = Work(is_offloading=True, failures=1, last_error="no network", retry_in_s=3.0)
    text = status_text(ArchivedTopic(state, None, None, None, work, None, None))
    assert "  1 unfinished attempt: `seglog offload t` takes it up again\n" in text
    assert "  offload failed once, next try in 3.0 s:\n    no network" in text
    assert attempts_text(state, work) == "1 unfinished, running, 1 failed"
    assert attempts_text(state, None) == "1 unfinished"


def _ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def test_a_terminal_gets_a_table_with_the_extent_the_lag_and_the_next_step(
    run: Run, tmp_path: Path, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"1\n2\n3\n")
    run("seal", "t")
    run("offload", "t", "--drop-hot")
    run("append", "t", stdin=b"4\n5\n6\n")
    head, header, _, row, *_ = without_styles(on_terminal("status")).splitlines()
    assert head.endswith(str(tmp_path / "remote"))
    assert header.split()[:2] == ["topic", "cold"]
    assert "goes back" in header
    for part in ("t ", "░░░░░░██████", "3 records", "seq 3 (lsn 1)", " s ", "seglog"):
        assert part in row
    assert "attempts" not in header  # no topic has one
    monkeypatch.setenv("COLUMNS", "80")
    lines = without_styles(on_terminal("status")).splitlines()
    assert max(map(len, lines[1:])) <= 80
    for part in ("░░░░░░██████", "3 records", "seglog seal t"):
        assert part in lines[3]
    assert on_terminal("status", "--plain") == run("status").text


def test_a_watch_asks_again_and_shows_the_status_in_its_place(
    run: Run, tmp_path: Path, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"1\n")
    looks: Iterator[None] = iter([None, None])

    def pause(_seconds: float) -> None:
        if next(looks, False) is False:
            raise KeyboardInterrupt

    monkeypatch.setattr("offload.cli.execution.time", SimpleNamespace(sleep=pause))
    done = run("status", "--watch")
    assert done.code == 130
    assert done.text.count("t: hot 1-1") == 3
    looks = iter([None])
    assert "next step" in without_styles(on_terminal("status", "--watch", code=130))


def test_a_bar_shows_what_is_hot_cold_and_both() -> None:
    bars = {(1, 1, 0, 0): "", (1, 1, 6, 6): "▓" * 12, (1, 7, 6, 6): "░" * 12, (1, 3, 4, 3): "░" * 6 + "▓" * 3 + "█" * 3}
    assert {places: extent_bar(*places) for places in bars} == bars


def test_a_disk_that_gets_full_is_told_long_before_appends_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init")
    run("append", "t", stdin=b"one\n")
    assert "DISK" not in run("status").text
    found = os.statvfs(".")
    free_bytes = found.f_bavail * found.f_frsize
    monkeypatch.setenv("SEGLOG_LOG_DISK_REJECT_BYTES", str(free_bytes // 2))
    assert "DISK: gets full, with " in run("status").text
    low, _ = [json.loads(line) for line in run("--json", "status").text.splitlines()]
    assert low["disk_reject_bytes"] == free_bytes // 2 < low["free_bytes"]
    monkeypatch.setenv("SEGLOG_LOG_DISK_REJECT_BYTES", str(1 << 60))
    assert "DISK: refuses appends, with " in run("status").text
    assert "free some space" in run("append", "t", stdin=b"two\n").err.lower()
    monkeypatch.undo()
