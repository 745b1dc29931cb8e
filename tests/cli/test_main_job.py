"""Test the commands in the order in which a user meets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.worlds.command import Run

NASTY = b"plain\ncrlf\r\nbare\rCR\n\n\xff\xfe\x00 not utf-8\n\nno line end"


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    return run


@pytest.fixture
def started_anywhere(run: Run, remote: str) -> Run:
    """`started` with a remote of each kind, for the jobs that meet every sort of request."""
    assert run("init", "--remote", remote).code == 0
    return run


def test_what_append_took_read_gives_back(started: Run, tmp_path: Path) -> None:
    (tmp_path / "nasty").write_bytes(NASTY)
    done = started("append", "t", "nasty", "--tag", "x")
    assert done.text == "appended 7 records to t, seq 1 to 7\n"
    assert started("read", "t").out == NASTY
    started("append", "t", stdin=b"\nmore\n")
    assert started("read", "t").out == NASTY + b"\nmore\n"
    assert started("read", "t", "--from", "2", "--to", "3").out == b"crlf\r\nbare\rCR\n"
    assert started("read", "t", "--limit", "1").out == b"plain\n"
    assert started("read", "t", "--tag", "y").out == b""


def test_json_lines_out_are_json_lines_in(started: Run) -> None:
    started("append", "t", stdin=NASTY)
    lines = started("--json", "read", "t")
    assert [json.loads(line)["seq"] for line in lines.out.splitlines()] == list(range(1, 8))
    assert json.loads(lines.out.splitlines()[4]) == {
        "schema": 1, "kind": "record", "seq": 5, "ts_ms": json.loads(lines.out.splitlines()[4])["ts_ms"],
        "value_base64": "//4AIG5vdCB1dGYtOA==",
    }  # fmt: skip
    started("append", "u", "--format", "jsonl", stdin=lines.out)
    assert [json.loads(line).get("value") for line in started("--json", "read", "u").out.splitlines()] == [
        json.loads(line).get("value") for line in lines.out.splitlines()
    ]


def test_offload_drop_read_delete_restore(started_anywhere: Run) -> None:
    started = started_anywhere
    body = b"".join(b"record %d\n" % number for number in range(100))
    started("append", "t", stdin=body)
    assert "100 records in the unsealed tail" in started("offload", "t").text
    started("seal", "t")
    sent = started("--json", "offload", "t", "--drop-hot")
    assert json.loads(sent.out)["lsns"] == [1]
    assert json.loads(sent.out)["released_seq"] == 100
    assert started("read", "t").out == body

    assert started("delete", "t", "--before", "51", "--yes").undated == (
        "deleted 50 records of t (lsn 2)\n  undo: `seglog undo t lsn:2`, until TIME\n"
    )
    assert started("read", "t").out == body[body.index(b"record 50\n") :]
    log = started("log", "t").text.splitlines()
    assert [line.split()[1] for line in log] == ["2", "1"]
    assert "delete" in log[0]
    assert "seq 1-100" in log[1]

    restored = started("restore", "t", "--to", "head~1", "--as", "before")
    assert restored.text.startswith("t@before holds 100 records, the last one seq 100 of ")
    assert started("read", "t@before").out == body
    assert started("read", "t", "--at", "lsn:1").out == body
    assert [line.split()[0] for line in started("branch", "list", "t").text.splitlines()] == ["before", "main"]


def test_branch_create_starts_at_the_head(started: Run) -> None:
    started("append", "t", stdin=b"a\nb\n")
    assert started("branch", "create", "t", "copy").text.startswith("t@copy holds 2 records")
    started("append", "t@copy", stdin=b"c\n")
    assert started("read", "t@copy").out == b"a\nb\nc\n"
    assert started("read", "t", "--branch", "copy").out == b"a\nb\nc\n"
    assert started("read", "t").out == b"a\nb\n"


def test_status_tells_where_everything_is(started: Run) -> None:
    assert "only on this disk" not in started("status").text
    started("append", "t", stdin=b"a\nb\n")
    assert started("status", "t").text.endswith("\nt: 2 records, only on this disk\n")
    assert "hot 1-2" in started("status", "t", "-v").text
    assert "nothing offloaded" in started("-v", "status", "t").text
    started("seal", "t")
    assert "seq 1-2 is sealed and not offloaded yet" in started("status", "-v").text
    started("offload", "--all", "--drop-hot")
    assert "  nothing hot, cold up to 2 (lsn 1)" in started("status", "-v").text
    assert re.search(r"^t: 2 records, safe in file:///.* up to 2 \(20\S+Z\)$", started("status").text, re.MULTILINE)
    started("append", "t", stdin=b"c\n")
    assert started("status").text.endswith("Z), 1 only on this disk\n")


def test_status_tells_of_each_run_what_pip_17_keeps_of_it(started: Run) -> None:
    for lines, flags in ((b"a\nb\n", ("--drop-hot",)), (b"c\n", ())):
        started("append", "t", stdin=lines)
        started("seal", "t")
        started("offload", "t", *flags)
    first, second = started("status", "t", "--runs").text.splitlines()[-2:]
    assert "seq 1-2  complete, hot copy gone, begun 20" in first
    assert "seq 3-3  complete, hot copy there, begun 20" in second
    runs = json.loads(started("--json", "status", "t", "--runs").text)["runs"]
    assert [(run["first_seq"], run["last_seq"], run["complete"], run["hot_deleted"]) for run in runs] == [
        (1, 2, True, True),
        (3, 3, True, False),
    ]
    assert {len(run["sid"]) for run in runs} == {len(first.split()[0])}
    assert "runs" not in json.loads(started("--json", "status", "t").text)


def test_topics_are_made_with_their_configuration(started: Run) -> None:
    assert started("topic", "create", "plain", "--codec", "none").code == 0
    started("append", "plain", stdin=b"x\n")
    started("append", "other", stdin=b"x\n")
    assert [line.split()[0] for line in started("topic", "list").text.splitlines()] == ["other", "plain"]
    started("seal", "plain")
    assert " none)" in (started("offload", "plain").text + started("log", "plain").text)


def test_dry_run_sends_nothing(started: Run) -> None:
    started("append", "t", stdin=b"x\n")
    started("seal", "t")
    assert "would be sent" in started("offload", "t", "--dry-run").text
    assert "nothing offloaded" in started("status", "t", "-v").text


def test_without_a_remote_everything_local_works(run: Run) -> None:
    run("init")
    run("append", "t", stdin=b"a\nb\nc\n")
    assert (
        run("delete", "t", "--before", "2", "--yes").text == "deleted 1 record of t\n  undo: `seglog undo t delete:1`\n"
    )
    assert run("read", "t").out == b"b\nc\n"
    assert run("status").text.endswith(", remote none\nt: 2 records, only on this disk\n")
    for command in (
        ("offload", "t"),
        ("offload", "--all"),
        ("read", "t", "--at", "head"),
        ("log", "t"),
        ("branch", "list", "t"),
    ):
        refused = run(*command)
        assert (refused.code, refused.out) == (2, b"")
        assert "no remote" in refused.err


def test_without_a_remote_and_without_topics_an_offload_of_all_is_refused_too(run: Run) -> None:
    run("init")
    for options in ((), ("--dry-run",)):
        refused = run("offload", "--all", *options)
        assert (refused.code, refused.out) == (2, b"")
        assert refused.err.count("no remote") == 1


def test_main_is_another_word_for_the_topic_itself(started: Run) -> None:
    started("append", "t@main", stdin=b"a\n")
    assert started("read", "t").out == started("read", "t", "--branch", "main").out == b"a\n"
    assert [line.split()[0] for line in started("topic", "list").text.splitlines()] == ["t"]


def test_a_delete_holds_while_the_remote_is_away_and_reaches_it_later(started: Run, tmp_path: Path) -> None:
    started("append", "t", stdin=b"a\nb\nc\n")
    started("seal", "t")
    started("offload", "t", "--drop-hot")
    started("append", "t", stdin=b"d\n")
    waits = started("delete", "t", "--before", "3", "--yes")
    assert waits.text == "deleted 2 records of t\n  undo: `seglog undo t delete:1`\n"
    assert "the remote learns of it later" in waits.err
    assert started("delete", "t", "--before", "4", "--yes").text == (
        "deleted 1 record of t\n  undo: `seglog undo t delete:2`\n"
    )
    assert started("read", "t").out == b"d\n"
    assert "2 deletes wait" in started("status", "t", "-v").text
    started("seal", "t")
    started("offload", "t")
    assert [line.split()[4] for line in started("log", "t").text.splitlines()] == [
        "delete", "delete", "offload", "offload",
    ]  # fmt: skip
    assert started("read", "t", "--at", "lsn:3").out == b"c\nd\n"
