"""Test an append that ends early: the command says which seqs are in, and how to continue."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from offload.operations import append as use
from offload.operations.append import Appended
from seglog.errors import DiskFull
from tests.seams.limits import Limit, set_limit
from tests.worlds.command import Run

_LINES = b"".join(b"line %d\n" % number for number in range(20_000))


@pytest.fixture
def started(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    set_limit(monkeypatch, Limit.LINES_IN_A_BATCH, 8192)
    assert run("init").code == 0
    (tmp_path / "file").write_bytes(_LINES)
    return run


def _after_a_batch(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], *, is_counted: bool) -> None:
    """Let `act` run at the end of the first batch, before the command counts it, or at the start of the second one."""
    real = use.append

    def watched(*arguments: Any) -> Iterator[Appended]:
        for done in real(*arguments):
            if is_counted:
                yield done
            if done.appended:
                act()
            if not is_counted:
                yield done

    monkeypatch.setattr(use, "append", watched)


def test_an_interrupt_tells_what_is_in_and_how_to_continue(started: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        _after_a_batch(patch, lambda: os.kill(os.getpid(), signal.SIGINT), is_counted=False)
        stopped = started("append", "t", "file")
    assert stopped.code == 130
    assert stopped.err == (
        "interrupted: seq 1 to 8192 were appended, continue with `seglog append t file --skip-lines 8192`\n"
    )
    assert started("append", "t", "file", "--skip-lines", "8192").code == 0
    assert started("read", "t").out == _LINES
    with monkeypatch.context() as patch:
        _after_a_batch(patch, lambda: os.kill(os.getpid(), signal.SIGINT), is_counted=False)
        stopped = started("--json", "append", "u", "file")
    assert json.loads(stopped.err) == {
        "schema": 1,
        "kind": "error",
        "error": "Interrupted",
        "message": "interrupted: seq 1 to 8192 were appended, continue with `seglog append u file --skip-lines 8192`",
        "hint": None,
        "exit_code": 130,
    }


def test_a_full_disk_gets_one_line_that_does_not_contradict_itself(
    started: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill() -> None:
        raise DiskFull(Path("wal"))

    _after_a_batch(monkeypatch, fill, is_counted=True)
    stopped = started("append", "t", "file")
    assert stopped.code == 1
    assert stopped.err.count("\n") == 1
    assert "nothing was appended" not in stopped.err
    assert "seq 1 to 8192 were appended, the rest was not" in stopped.err
    assert "`seglog append t file --skip-lines 8192`" in stopped.err


def test_a_topic_that_is_full_says_the_same(started: Run) -> None:
    started("topic", "create", "t")
    assert started("topic", "set", "t", "--cap-records", "9000", "--discard", "reject").code == 0
    stopped = started("append", "t", "file")
    assert "cap_records is 9000; seq 1 to 8192 were appended, the rest was not" in stopped.err
    assert "--skip-lines 8192" in stopped.err


def test_the_command_that_continues_has_the_options_of_the_one_that_stopped(started: Run) -> None:
    started("topic", "create", "t")
    assert started("topic", "set", "t", "--cap-records", "9000", "--discard", "reject").code == 0
    stopped = started("append", "t", "file", "--tag", "lines", "--node", "a b", "--durability", "memory")
    assert "`seglog append t file --tag lines --node 'a b' --durability memory --skip-lines 8192`" in stopped.err


def test_an_input_with_a_bad_line_is_continued_behind_the_lines_that_are_in(started: Run, tmp_path: Path) -> None:
    good = [b'{"value": "%d", "tag": "%d"}\n\n' % (number, number // 2) for number in range(6)]
    (tmp_path / "bad").write_bytes(b"".join([*good, b"{\n"]))
    stopped = started("append", "t", "bad", "--format", "jsonl")
    assert stopped.code == 2
    assert "line 13" in stopped.err
    assert "seq 1 to 4 were appended" in stopped.err
    assert "`seglog append t bad --format jsonl --skip-lines 8`" in stopped.err
    (tmp_path / "bad").write_bytes(b"".join(good))
    assert started("append", "t", "bad", "--format", "jsonl", "--skip-lines", "8").code == 0
    assert started("read", "t").out == b"0\n1\n2\n3\n4\n5\n"


def test_more_lines_than_the_input_has_cannot_be_skipped(started: Run) -> None:
    refused = started("append", "t", "--skip-lines", "3", stdin=b"a\nb\n")
    assert refused.code == 2
    assert "has only 2 lines" in " ".join(refused.err.replace("│", "").split())
    assert started("append", "t", "--skip-lines", "2", stdin=b"a\nb\n").text == "appended 0 records to t\n"
