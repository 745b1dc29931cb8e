"""Test that a command asks before it takes something away, and says what would go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trees import tree
from tests.worlds.command import Run

TAKING = (
    ("delete", "t", "--before", "4"),
    ("evict", "t", "--before", "4"),
    ("truncate", "t", "--from", "4"),
    ("topic", "delete", "u"),
    ("branch", "delete", "t", "b"),
    ("reset", "t", "--discard"),
    ("compact", "t", "--erase"),
)


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    """Topic `t` has ten records in the remote, of which `b` shows six and the tag `v` four. Two more are only here."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for tag in ("x", "y"):
        lines = b"".join(b"%s %d\n" % (tag.encode(), number) for number in range(5))
        run("append", "t", "--tag", tag, stdin=lines)
    run("append", "u", stdin=b"a\nb\n")
    run("seal", "t")
    run("offload", "t", "--drop-hot")
    run("restore", "t", "--to", "seq:6", "--as", "b")
    run("tag", "create", "t", "v", "--at", "seq:4")
    run("append", "t", "--tag", "y", stdin=b"y 5\ny 6\n")
    return run


def _preview(run: Run, *arguments: str) -> dict[str, Any]:
    done = run("--json", *arguments, "--dry-run")
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_in_a_pipe_nothing_goes_without_yes_and_a_dry_run_changes_nothing(started: Run, tmp_path: Path) -> None:
    before = tree(tmp_path)
    for arguments in TAKING:
        refused = started(*arguments)
        assert (refused.code, refused.out, "say --yes to do it, or --dry-run" in refused.err) == (2, b"", True)
        assert started(*arguments, "--dry-run").code == 0
        assert tree(tmp_path) == before, arguments


def test_a_preview_counts_what_goes_and_names_what_still_shows_it(started: Run) -> None:
    found = _preview(started, "delete", "t", "--before", "4")
    assert (found["records"], found["of_records"], found["first_seq"], found["last_seq"]) == (3, 12, 1, 3)
    assert (found["shown_by"], found["command"], found["deletes"]) == (["t@b", "tag:v"], "delete", 0)
    assert found["first_time"] <= found["last_time"]
    found = _preview(started, "delete", "t", "--tag", "y", "--before", "9")
    assert (found["records"], found["first_seq"], found["last_seq"], found["shown_by"]) == (3, 6, 8, ["t@b"])
    found = _preview(started, "truncate", "t", "--from", "9")
    assert (found["records"], found["first_seq"], found["last_seq"], found["shown_by"]) == (4, 9, 12, [])
    assert _preview(started, "evict", "t", "--older-than", "1d")["records"] == 0
    found = _preview(started, "branch", "delete", "t", "b")
    assert (found["records"], found["of_records"], found["shown_by"]) == (0, 6, ["t", "tag:v"])
    told = started("branch", "delete", "t", "b", "--dry-run").text
    assert "branch delete of t@b would take no record: all are shown by t, tag:v, too" in told
    found = _preview(started, "reset", "t", "--discard")
    assert (found["records"], found["first_seq"], found["last_seq"]) == (2, 11, 12)
    assert _preview(started, "topic", "delete", "u")["records"] == 2
    assert _preview(started, "topic", "delete", "t", "--detach")["records"] == 0
    assert _preview(started, "topic", "delete", "t", "--detach", "--discard")["records"] == 2
    assert started("topic", "delete", "t", "--dry-run").code == 4
    assert (
        started("branch", "delete", "t", "main", "--dry-run").code
        == started("branch", "delete", "t", "main", "--yes").code
    )
    assert started("append", "t@b", stdin=b"b\n").code == 0
    assert started("branch", "delete", "t", "b", "--dry-run").code == 4


def test_a_preview_does_not_count_what_is_gone(started: Run) -> None:
    waits = started("delete", "t", "--tag", "y", "--yes", "-m", "a mistake")
    assert (waits.code, "the remote learns of it later" in waits.err) == (0, True)
    assert _preview(started, "delete", "t", "--before", "8")["records"] == 5
    started("seal", "t")
    started("offload", "t")
    found = _preview(started, "delete", "t", "--before", "8")
    assert (found["records"], found["of_records"], found["last_seq"]) == (5, 5, 5)
    found = _preview(started, "compact", "t", "--erase")
    assert (found["records"], found["of_records"], found["shown_by"]) == (7, 12, ["t@b", "tag:v"])
    assert started("delete", "t@b", "--before", "3", "--yes").code == 0
    assert _preview(started, "evict", "t@b", "--before", "5")["records"] == 2
    replica = started("init", "--remote", started("status").text.partition("remote ")[2].split()[0], directory="two")
    assert replica.code == 0
    assert started("sync", "t", directory="two").code == 0
    found = json.loads(started("--json", "evict", "t", "--older-than", "1d", "--dry-run", directory="two").out)
    assert (found["records"], found["of_records"]) == (0, 5)


def test_on_a_terminal_the_command_asks(started: Run, tmp_path: Path) -> None:
    before = tree(tmp_path)
    for answer in (b"", b"n\n", b"t\n"):
        refused = started("delete", "t", "--before", "4", stdin=answer, is_terminal=True)
        assert (refused.code, refused.out, "nothing of t was changed" in refused.err) == (1, b"", True)
        assert "would take 3 of about 12 records: seq 1 to 3" in refused.err
    refused = started("truncate", "t", "--from", "3", stdin=b"yes\n", is_terminal=True)
    assert (refused.code, "more than half of t. Type its name" in refused.err) == (1, True)
    assert tree(tmp_path) == before
    done = started("delete", "t", "--before", "4", stdin=b"y\n", is_terminal=True)
    assert (done.code, "then shown by: t@b, tag:v" in done.err) == (0, True)
    done = started("truncate", "t", "--from", "5", stdin=b"t\n", is_terminal=True)
    assert (done.code, "removed 8 records of t, which ends with seq 4 now" in done.text) == (0, True)
    assert started("read", "t").out == b"x 3\n"


def test_a_setting_turns_the_question_off(started: Run, tmp_path: Path) -> None:
    settings = tmp_path / "data" / "seglog.toml"
    settings.write_text(settings.read_text().replace('# confirm = "ask"', 'confirm = "never"'))
    assert started("topic", "delete", "u").code == 0
    assert started("topic", "list").text.split()[0] == "t"


def test_the_commit_or_the_oplog_keeps_the_message(started: Run) -> None:
    waits = started("delete", "t", "--before", "2", "--yes", "-m", "too early")
    assert "its commit will not have the message" in waits.err
    started("seal", "t")
    started("offload", "t")
    for number, arguments in enumerate(
        (("delete", "t", "--before", "3"), ("evict", "t", "--before", "4"), ("compact", "t", "--erase"))
    ):
        assert started(*arguments, "--yes", "-m", f"why {number}").code == 0
    assert started("truncate", "t", "--from", "12", "--yes", "-m", "why 3").code == 0
    found = [json.loads(line)["message"] for line in started("--json", "log", "t").out.splitlines()]
    assert [text for text in found if text][::-1] == ["why 0", "why 1", "why 2", "why 3"]
    assert started("branch", "delete", "t", "b", "--yes", "-m", "no more").code == 0
    started("append", "t", stdin=b"z\n")
    assert started("reset", "t", "--discard", "--yes", "-m", "not mine").code == 0
    text = started("oplog", "-n", "2").text
    assert ("branch delete" in text, "no more" in text, "not mine" in text) == (True, True, True)
    assert "branch delete" in started("undo").text
