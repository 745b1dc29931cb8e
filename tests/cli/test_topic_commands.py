"""Test topics that drop records, and the messages to their readers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.s3_server import empty_remote
from tests.worlds.command import Run


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.soak(part=3))])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty remote. The commands of `test_main_job.py` run over S3 in the default run."""
    return empty_remote(request, tmp_path)


@pytest.fixture
def started(run: Run) -> Run:
    assert run("init").code == 0
    return run


def _fill(run: Run) -> None:
    """Append and seal four segments of five records each."""
    for number in range(4):
        run("append", "t", stdin=b"".join(b"record %d\n" % (number * 5 + i) for i in range(1, 6)))
        run("seal", "t")


def test_a_cap_evicts_and_readers_are_told(started: Run) -> None:
    _fill(started)
    done = started("topic", "set", "t", "--cap-records", "5")
    assert (done.code, "cap_records 5" in done.text) == (0, True)
    assert started("read", "t").out == b"".join(b"record %d\n" % i for i in range(16, 21))
    below = started("read", "t", "--from", "3", "--limit", "1")
    assert (below.out, below.err) == (b"record 16\n", "t: seq 3 to 15 were evicted\n")
    lines = [json.loads(line) for line in started("--json", "read", "t", "--from", "3").out.splitlines()]
    assert (lines[0], lines[1]["seq"]) == (
        {"schema": 1, "kind": "gap", "gap_from": 3, "gap_to": 15},
        16,
    )
    assert "evicted below seq 16" in started("status", "t", "-v").text
    shown = json.loads(started("--json", "topic", "show", "t").out)
    assert (shown["earliest_seq"], shown["evict_floor"], shown["head_seq"], shown["epoch"]) == (16, 16, 20, 1)
    assert started("topic", "set", "t", "--cap-records", "none").code == 0
    assert json.loads(started("--json", "topic", "show", "t").out)["cap_records"] is None


def test_a_full_topic_refuses(started: Run) -> None:
    started("append", "t", stdin=b"a\n")
    started("topic", "set", "t", "--cap-records", "2", "--discard", "reject", "--ttl", "7d", "--cap-bytes", "1GiB")
    shown = json.loads(started("--json", "topic", "show", "t").out)
    assert (shown["ttl_ms"], shown["cap_bytes"], shown["discard"]) == (604_800_000, 2**30, "reject")
    assert started("append", "t", stdin=b"b\n").code == 0
    refused = started("append", "t", stdin=b"c\n")
    assert refused.code == 1
    assert refused.err.startswith("seglog: topic t is full: cap_records is 2; nothing was appended. Delete records")


@pytest.mark.parametrize(
    "options",
    [(), ("--ttl", "7 weeks"), ("--ttl", "0s"), ("--cap-bytes", "1XB"), ("--cap-records", "1k"), ("--discard", "new")],
)
def test_what_cannot_be_set_is_refused(started: Run, options: tuple[str, ...]) -> None:
    started("append", "t", stdin=b"a\n")
    assert started("topic", "set", "t", *options).code == 2


def test_a_topic_has_a_priority(started: Run) -> None:
    started("topic", "create", "t", "--priority", "-100", "--auto-priority", "on")
    shown = json.loads(started("--json", "topic", "show", "t").out)
    assert (shown["priority"], shown["auto_priority"]) == (-100, True)
    assert started("topic", "set", "t", "--priority", "0", "--auto-priority", "off").code == 0
    assert not {"priority", "auto_priority"} & json.loads(started("--json", "topic", "show", "t").out).keys()
    assert "WAIT" not in started("status").text  # no daemon, no pressure


def test_a_topic_is_deleted_only_when_meant(started: Run) -> None:
    started("append", "t", stdin=b"a\n")
    assert started("topic", "delete", "t").code == 2
    assert started("topic", "delete", "t", "--dry-run").text.endswith("\n  the topic leaves this directory\n")
    assert started("topic", "delete", "t", "--yes").text == (
        "deleted topic t with all its records: this directory had offloaded none of them\n"
    )
    assert started("topic", "list").out == b""
    assert started("topic", "delete", "t", "--yes").code == 3
    started("append", "t", stdin=b"b\n")
    assert started("read", "t").out == b"b\n"


def test_a_topic_with_a_history_in_the_remote_is_not_deleted(run: Run, remote: str) -> None:
    run("init", "--remote", remote)
    run("append", "t", stdin=b"a\n")
    run("append", "u", stdin=b"a\n")
    run("seal", "t")
    run("offload", "t")
    refused = run("topic", "delete", "t", "--yes")
    assert (refused.code, "has a history in the remote" in refused.err) == (4, True)
    assert run("topic", "delete", "u", "--yes").code == 0
    assert run("read", "t").out == b"a\n"
    assert run("topic", "delete", "t", "--discard", "--yes").code == 2


@pytest.mark.parametrize("discard", [(), ("--discard",)])
def test_but_it_may_go_from_this_directory(run: Run, remote: str, discard: tuple[str, ...]) -> None:
    run("init", "--remote", remote)
    run("append", "t", stdin=b"a\n")
    run("seal", "t")
    run("offload", "t")
    run("append", "t", stdin=b"b\n")
    seen = run("topic", "delete", "t", "--detach", *discard, "--dry-run").text.splitlines()
    assert seen[0].startswith(f"topic delete of t would take {'1 of about 2 records' if discard else 'no record'}")
    assert seen[-1] == "  the topic leaves this directory, and the remote keeps what is offloaded"
    gone = run("topic", "delete", "t", "--detach", *discard, "--yes").text
    dropped = "; 1 record and 0 deletes that only it had were dropped" if discard else ""
    assert gone == (
        f"t is gone from this directory{dropped}; the remote keeps it up to lsn {1 if discard else 2}: "
        "`seglog sync t` follows it again, `seglog takeover t` writes it again\n"
    )
    assert run("topic", "list").out == b""
    assert run("topic", "delete", "t", "--detach", "--yes").code == 3
    assert run("sync", "t").code == 0
    seen = run("topic", "delete", "t", "--dry-run").text.splitlines()
    assert seen == ["topic delete of t would take no record", "  this directory follows the topic no more"]
    assert run("topic", "delete", "t", "--yes").text.startswith(
        "t is followed here no more; the remote keeps it up to lsn"
    )
    assert run("sync", "t").code == 0
    assert run("read", "t").out == (b"a\n" if discard else b"a\nb\n")
    run("append", "t", stdin=b"c\n")
    assert run("read", "t").out == (b"a\nc\n" if discard else b"a\nb\nc\n")


def test_retention_lets_go_of_hot_copies_once_they_are_in_the_remote(run: Run, remote: str) -> None:
    run("init", "--remote", remote)
    _fill(run)
    run("topic", "set", "t", "--cap-records", "5")
    assert json.loads(run("--json", "status", "t").out)["hot_first_seq"] == 1
    sent = json.loads(run("--json", "offload", "t", "--up-to", "15").out)
    assert sent["released_seq"] == 15
    status = json.loads(run("--json", "status", "t").out)
    assert (status["hot_first_seq"], status["evict_floor"]) == (16, 1)
    assert len(run("read", "t").out.splitlines()) == 20


def test_follow_goes_on_until_there_was_nothing_for_a_while(started: Run) -> None:
    started("append", "t", stdin=b"a\nb\n")
    assert started("read", "t", "--follow", "--wait", "0.05").out == b"a\nb\n"
    assert started("read", "t", "--follow", "--limit", "1").out == b"a\n"
    assert started("read", "t", "--follow", "--to", "2").code == 2


def test_status_shows_what_is_hot_and_what_is_relocated_and_verify_looks_at_both(started: Run, tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    (tmp_path / "data/seglog.toml").write_text('[log]\ncold_dir = "../cold"\nhot_retain_segments = 1\n')
    _fill(started)
    started("seal", "t")
    for _ in range(200):  # A thread relocates segments while a command runs.
        started("seal", "t")
        shown = json.loads(started("--json", "status", "t").out)
        if shown["relocated_bytes"] > 2 * shown["hot_bytes"]:
            break
    assert shown["relocated_bytes"] > 2 * shown["hot_bytes"]
    assert shown["relocated_bytes"] == sum(path.stat().st_size for path in (tmp_path / "cold").rglob("*.data"))
    assert f"{shown['hot_bytes']} B hot, {shown['relocated_bytes']} B relocated" in started("status", "t", "-v").text
    assert json.loads(started("--json", "topic", "show", "t").out)["relocated_bytes"] == shown["relocated_bytes"]
    assert started("read", "t").out == b"".join(b"record %d\n" % i for i in range(1, 21))
    assert "20 records in 4 files" in started("verify").text
    [damaged, *_] = sorted((tmp_path / "cold").rglob("*.data"))
    damaged.unlink()
    done = started("verify")
    assert done.code == 5
    assert "missing in the warm store" in done.text
    refused = started("read", "t")
    assert (refused.code, damaged.name in refused.err) == (5, True)


def test_truncate_removes_the_end_only_when_meant(started: Run) -> None:
    started("append", "t", stdin=b"a\nb\nc\nd\n")
    refused = started("truncate", "t", "--from", "3")
    assert (refused.code, "say --yes" in refused.err) == (2, True)
    assert started("read", "t").out == b"a\nb\nc\nd\n"
    done = json.loads(started("--json", "truncate", "t", "--from", "3", "--yes").out)
    assert done == {
        "schema": 1, "kind": "records_removed", "topic": "t", "removed": 2, "head_seq": 2, "epoch": 2, "lsn": None,
    }  # fmt: skip
    assert started("append", "t", stdin=b"C\n").text.strip()
    assert started("read", "t").out == b"a\nb\nC\n"
    assert (
        started("truncate", "t", "--from", "4", "--yes").text == "removed 0 records of t, which ends with seq 3 now\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("t", "--yes"), 2),
        (("t", "--from", "0", "--yes"), 2),
        (("t", "--from", "x", "--yes"), 2),
        (("t", "--from", "9", "--yes"), 3),
        (("none", "--from", "1", "--yes"), 3),
    ],
)
def test_what_cannot_be_truncated_is_refused(started: Run, arguments: tuple[str, ...], code: int) -> None:
    started("append", "t", stdin=b"a\n")
    assert started("truncate", *arguments).code == code
    assert started("read", "t").out == b"a\n"


def test_what_is_in_the_remote_is_truncated_by_a_commit(run: Run, remote: str) -> None:
    run("init", "--remote", remote)
    run("append", "t", stdin=b"a\nb\n")
    run("seal", "t")
    run("offload", "t", "--drop-hot")
    run("append", "t", stdin=b"c\nd\n")
    assert json.loads(run("--json", "truncate", "t", "--from", "4", "--yes").out)["lsn"] is None
    done = run("truncate", "t", "--from", "2", "--yes")
    assert done.undated == (
        "removed 2 records of t, which ends with seq 1 now (lsn 3)\n  undo: `seglog undo t lsn:3`, until TIME\n"
    )
    assert "from seq 2 on" in run("log", "t").text
    run("append", "t", stdin=b"B\n")
    assert run("read", "t").out == b"a\nB\n"
    assert run("restore", "t", "--to", "lsn:2", "--as", "before").code == 0
    assert run("read", "t@before").out == b"a\nb\nc\n"


def test_evict_takes_the_oldest_and_tells(run: Run, remote: str) -> None:
    run("init", "--remote", remote)
    run("append", "t", stdin=b"a\nb\nc\n")
    run("seal", "t")
    run("offload", "t", "--drop-hot")
    for arguments in ((), ("--before", "2", "--older-than", "1d"), ("--older-than", "none"), ("--before", "0")):
        assert run("evict", "t", *arguments, "--yes").code == 2
    assert (
        run("evict", "t", "--older-than", "1d", "--yes").text == "evicted 0 records of t, which begins with seq 1 now\n"
    )
    assert run("evict", "t", "--before", "3", "--yes").undated == (
        "evicted 2 records of t, which begins with seq 3 now (lsn 2)\n  undo: `seglog undo t lsn:2`, until TIME\n"
    )
    assert "records below seq 3" in run("log", "t").text
    assert run("read", "t").out == b"c\n"
    told = run("read", "t", "--from", "1")
    assert (told.out, "seq 1 to 2 were evicted" in told.err) == (b"c\n", True)
    assert run("read", "t", "--at", "lsn:1").out == b"a\nb\nc\n"


def test_evict_frees_the_disk_without_a_remote(started: Run) -> None:
    started("append", "t", stdin=b"a\nb\nc\n")
    done = json.loads(started("--json", "evict", "t", "--before", "2", "--yes").out)
    assert done == {
        "schema": 1, "kind": "records_evicted", "topic": "t", "evicted": 1, "earliest_seq": 2, "lsn": None,
    }  # fmt: skip


def test_the_command_appends_nothing_that_would_end_with_it(started: Run) -> None:
    assert started("topic", "create", "passing", "--durability", "ephemeral").code == 0
    for arguments in (("append", "passing"), ("append", "other", "--durability", "ephemeral")):
        refused = started(*arguments, stdin=b"a\n")
        assert refused.code == 2
        assert "this one ends at once; nothing was appended" in " ".join(refused.err.replace("│", "").split())
    assert started("append", "passing", "--durability", "disk", stdin=b"a\n").code == 0
    assert started("read", "passing").out == b"a\n"
    assert json.loads(started("--json", "topic", "show", "passing").out)["durability"] == "ephemeral"


def test_an_ephemeral_topic_has_nothing_to_offload(run: Run, tmp_path: Path) -> None:
    assert run("init", "--remote", f"file://{tmp_path}/remote").code == 0
    assert run("topic", "create", "passing", "--durability", "ephemeral").code == 0
    run("append", "kept", stdin=b"a\n")
    refused = run("offload", "passing")
    assert (refused.code, "its records are never written" in refused.err) == (2, True)
    assert run("topic", "set", "kept", "--durability", "ephemeral").code == 2
    run("seal", "kept")
    done = run("offload", "--all")
    assert (done.code, "kept: offloaded up to seq 1" in done.text, "passing" in done.text) == (0, True, False)
    assert run("delete", "passing", "--before", "1", "--yes").code == 0
    assert "\npassing: no records\n" in run("status").text


def test_status_tells_of_records_that_are_ahead_of_the_clock(started: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("seglog.SystemClock.now_ms", lambda _: 4_102_444_800_000)  # the year 2100
        assert started("append", "orders", stdin=b"one\n").code == 0
        assert "AHEAD" not in started("status", "orders").text
    told = started("status", "orders").text
    assert "AHEAD: its newest record has the time 2100-01-01T00:00:00.000Z" in told
    assert "none is sealed, offloaded or evicted by age" in told
    assert json.loads(started("--json", "status", "orders").out)["ahead_ms"] > 10**12


@pytest.mark.parametrize("option", ["--offload-after", "--tail-interval", "--window"])
@pytest.mark.parametrize("text", ["500ms", "1500ms"])
def test_a_part_of_a_second_is_refused_where_seconds_are_kept(started: Run, option: str, text: str) -> None:
    started("topic", "create", "t")
    before = started("topic", "show", "t").out
    refused = started("topic", "set", "t", option, text)
    assert refused.code == 2
    assert f"{option} takes whole seconds, at least 1s" in " ".join(refused.err.replace("│", "").split())
    assert started("topic", "show", "t").out == before
    assert started("topic", "set", "t", option, "1000ms").code == 0
