"""Test the commands that find a moment: `log` with its filters, `show`, `points` and `resolve`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    """A topic with two offloads, a delete of seq 2, an offload, and a truncation from seq 6 on."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "orders", "--tag", "x", stdin=b"one\n")
    run("append", "orders", "--tag", "y", stdin=b"two\n")
    _offload(run, b"three\n")
    _offload(run, b"four\n")
    assert run("delete", "orders", "--tag", "y", "--yes").code == 0
    _offload(run, b"five\nsix\n")
    assert run("truncate", "orders", "--from", "6", "--yes").code == 0
    return run


def _offload(run: Run, values: bytes, name: str = "orders") -> None:
    run("append", name, stdin=values)
    run("seal", name)
    assert run("offload", name).code == 0


def _lines(run: Run, *arguments: str) -> list[dict[str, Any]]:
    done = run("--json", *arguments)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_log_shows_only_the_commits_that_were_asked_for(started: Run) -> None:
    asked: dict[str, list[int]] = {
        "": [5, 4, 3, 2, 1],
        "-n 2": [5, 4],
        "--kind delete,truncate": [5, 3],
        "--kind offload -n 1": [4],
        "--record 2": [3, 1],
        "--record 3": [1],
        "--record 6": [5, 4],
        "--record 9": [],
        "--since 1h\u00a0ago": [5, 4, 3, 2, 1],
        "--until 1h\u00a0ago": [],
    }
    for options, lsns in asked.items():
        words = [word.replace("\u00a0", " ") for word in options.split(" ") if word]
        assert [commit["lsn"] for commit in _lines(started, "log", "orders", *words)] == lsns, options


def test_wrong_filters_are_refused(started: Run) -> None:
    for options in (
        ("--kind", "deletes"),
        ("--since", "head"),
        ("--until", "nonsense"),
        ("-n", "0"),
        ("--record", "0"),
    ):
        assert started("log", "orders", *options).code == 2


def test_one_commit_is_shown_with_all_that_it_says(started: Run) -> None:
    shown = started("show", "orders", "lsn:1")
    assert shown.code == 0
    assert "offload" in shown.text
    assert "3 records in" in shown.text
    assert ", epoch 1" in shown.text
    [commit] = _lines(started, "show", "orders", "head")
    assert (commit["lsn"], commit["commit_kind"], commit["truncate_from"]) == (5, "truncate", 6)
    assert ", epoch 1" in started("log", "orders", "-n", "1", "--stat").text
    for target, code in (("lsn:9", 3), ("nonsense", 2), ("tag:none", 3)):
        assert started("show", "orders", target).code == code


def test_each_point_that_is_listed_can_be_restored(started: Run) -> None:
    assert started("tag", "create", "orders", "v1", "--at", "seq:3").code == 0
    assert started("restore", "orders", "--to", "seq:4", "--as", "early").code == 0
    window, *found = _lines(started, "points", "orders")
    assert window["range"].endswith("(lsn 5), seq 1 to 6")
    assert {(point["target"], point["what"].split()[0]) for point in found} == {
        ("lsn:5", "truncate"),
        ("lsn:4", "before"),
        ("lsn:3", "delete"),
        ("lsn:2", "before"),
        ("tag:v1", "tag"),
        ("lsn:2", "fork"),
    }
    for number, point in enumerate(found):
        assert started("restore", "orders", "--to", point["target"], "--as", f"b{number}").code == 0
    assert len(_lines(started, "points", "orders", "--around", "1 second ago", "-n", "2")) == 3
    assert "lsn:3" in started("points", "orders").text
    assert started("points", "nope").code == 3


def test_a_point_counts_what_a_commit_took_below_a_seq_or_from_a_seq_on(run: Run, tmp_path: Path) -> None:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "t", stdin=b"".join(b"%d\n" % number for number in range(1, 11)))
    run("seal", "t")
    run("offload", "t")
    for words in (["delete", "t", "--seqs", "2,3"], ["delete", "t", "--before", "5"], ["evict", "t", "--before", "8"]):
        assert run(*words, "--yes").code == 0
    _, *found = _lines(run, "points", "t")
    assert [(each["what"], each["records"]) for each in found][:3] == [("evict", 3), ("delete", 2), ("delete", 2)]
    for name, target in (("listed", "lsn:2"), ("below", "lsn:3")):
        assert run("tag", "create", "t", name, "--at", target).code == 0
        assert f"tag, kept by tag {name}" in run("points", "t").text
        assert run("tag", "delete", "t", name).code == 0
    assert "evict, 3 records, kept by window" in run("points", "t").text
    for _ in range(2):  # GC passes the state before the eviction, of which this directory has a copy
        run("gc", "--retain", "0", "--grace", "0")
    assert "evict, 3 records, kept by window" in run("points", "t").text
    assert run("init", "--remote", (tmp_path / "remote").as_uri(), directory="other").code == 0
    assert "evict, kept by window" in run("points", "t", directory="other").text
    assert run("truncate", "t", "--from", "10", "--yes").code == 0
    assert "truncate, 1 record, kept by window" in run("points", "t").text


def test_a_tag_that_the_window_has_passed_is_listed_and_restored(started: Run) -> None:
    assert started("tag", "create", "orders", "v1", "--at", "seq:3").code == 0
    for _ in range(2):
        assert started("gc", "--retain", "0", "--grace", "0").code == 0
    assert started("restore", "orders", "--to", "lsn:1", "--as", "gone").code == 3
    _, *found = _lines(started, "points", "orders")
    assert [(point["target"], point["head_seq"]) for point in found] == [("lsn:5", 5), ("tag:v1", 3)]
    assert started("restore", "orders", "--to", "tag:v1", "--as", "back").code == 0
    assert started("read", "orders@back").out == b"one\ntwo\nthree\n"


def test_a_target_is_resolved_to_its_record_and_its_neighbours(started: Run) -> None:
    [found] = _lines(started, "resolve", "orders", "--to", "lsn:2", "--context", "1", "--pin", "1h")
    assert [record["start"] for record in found["before"]] == ["three", "four"]
    assert [record["start"] for record in found["after"]] == ["five"]
    assert (found["lsn"], found["seq"], found["next_commit"]["commit_kind"]) == (2, None, "delete")
    assert found["pin"]
    assert found["pinned_until"]
    text = started("resolve", "orders", "--to", "head").text
    assert "  > seq 5  " in text
    assert "no record follows today" in text
    assert "follows" not in started("resolve", "orders", "--to", "lsn:2", "--context", "0").text
    for options, code in ((("--to", "lsn:9"), 3), (("--to", "head", "--pin", "none"), 2)):
        assert started("resolve", "orders", *options).code == code


def test_a_pin_is_listed_extended_and_ended(started: Run) -> None:
    [made] = _lines(started, "resolve", "orders", "--to", "seq:2", "--pin", "1h")
    [found] = _lines(started, "pin", "list", "orders")
    assert (found["pin"], found["topic"], found["lsn"], found["seq"], found["is_expired"]) == (
        made["pin"], "orders", 1, 2, False,
    )  # fmt: skip
    assert found["expires_at"] == made["pinned_until"]
    [longer] = _lines(started, "pin", "refresh", found["pin"], "--for", "2h")
    assert longer["expires_at"] > found["expires_at"]
    [kept] = _lines(started, "pin", "refresh", found["pin"], "--for", "1s")
    assert kept["expires_at"] >= longer["expires_at"]
    assert f"{found['pin']} orders lsn 1 seq 2 " in started("pin", "list").text
    assert started("pin", "list", "other").out == b""
    assert started("pin", "release", found["pin"]).text == f"pin {found['pin']} is released\n"
    assert [pin["is_expired"] for pin in _lines(started, "pin", "list")] == [True]
    assert "orders lsn 1 seq 2           expired " in started("pin", "list", "orders").text
    for arguments, code in ((("refresh", found["pin"]), 4), (("release", "none"), 3), (("refresh", "none"), 3)):
        assert started("pin", *arguments).code == code


def test_the_names_that_are_shown_for_a_branch_mean_the_same_commits_for_good(started: Run) -> None:
    """Each commit of `log`, and each point of `points`, is the same after the branch got commits of those LSNs."""
    assert started("restore", "orders", "--to", "head", "--as", "fix").code == 0
    listed = _lines(started, "log", "orders@fix")
    points = [each for each in _lines(started, "points", "orders@fix") if each["kind"] == "point_listed"]
    assert [each["what"].partition(" lsn")[0] for each in points] == ["truncate", "fork", "before", "delete", "before"]
    pinned = {each["target"]: _lines(started, "resolve", "orders@fix", "--to", each["target"])[0] for each in points}
    for number in range(4):
        _offload(started, b"new %d\n" % number, "orders@fix")
    assert len(_lines(started, "log", "orders@fix")) == len(listed) + 4
    for commit in listed:
        assert _lines(started, "show", "orders@fix", commit["target"])[0]["hash"] == commit["hash"]
    for target, found in pinned.items():
        assert _lines(started, "resolve", "orders@fix", "--to", target)[0]["hash"] == found["hash"]
    delete = listed[2]
    [seen] = _lines(started, "undo", "orders@fix", delete["target"], "--dry-run")
    [done] = _lines(started, "undo", "orders@fix", seen["target"])
    assert (seen["target"], done["records"], seen["records"]) == (delete["target"], 1, 1)
    assert started("undo", "orders@fix", "lsn:3@main").code == 2


def test_a_search_goes_through_the_inherited_commits_of_a_branch(started: Run) -> None:
    """The branch has commits of the same LSNs as the good and the bad commit of its parent."""
    good, bad = (each["target"] for each in (_lines(started, "log", "orders")[at] for at in (4, 1)))
    assert started("restore", "orders", "--to", "head", "--as", "fix").code == 0
    names = {each["lsn"]: each["target"] for each in _lines(started, "log", "orders@fix")}
    for number in range(5):
        _offload(started, b"new %d\n" % number, "orders@fix")
    command = ("run", "sh", "-c", "! grep -q four")
    *_, found = _lines(started, "bisect", "orders@fix", "--good", names[1], "--bad", names[4], *command)
    assert (good, bad) == ("lsn:1", "lsn:4")
    assert (found["found"], found["record"]["seq"], found["commit"]["target"]) == ("record", 4, names[2])
