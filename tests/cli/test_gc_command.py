"""Test `seglog gc`: the objects that it keeps, reports and deletes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for value in (b"one\ntwo\nthree\n", b"four\nfive\n", b"six\n"):
        run("append", "orders", stdin=value)
        run("seal", "orders")
        assert run("offload", "orders", "--drop-hot").code == 0
    return run


def rows(run: Run, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Run a command and return every key of every row. If a key occurs more than once, the last row wins."""
    done = run("--json", *arguments)
    assert done.code == code, done.err
    return {key: value for line in done.out.splitlines() for key, value in json.loads(line).items()}


def objects(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and ".locks" not in path.parts}


def test_without_a_window_only_the_newest_state_and_what_is_tagged_stays(started: Run, tmp_path: Path) -> None:
    assert started("tag", "create", "orders", "v1", "--at", "lsn:1").code == 0
    nothing = rows(started, "gc", "--grace", "0")
    assert (nothing["deleted"], nothing["planned"]) == ({}, {})
    planned = rows(started, "gc", "--grace", "0", "--retain", "0")
    assert (planned["deleted"], planned["planned"]) == ({}, {"commits": 1, "boundaries": 1})
    assert planned["waiting"] == 2
    found = started("gc", "--grace", "0", "--retain", "0")
    assert found.code == 0
    assert "deleted  1 commit, 0 B of segments" in found.text
    assert "kept     orders@main: lsn 1 by tag orders/v1; lsn 3 to 3 by branch orders" in found.text
    assert started("read", "orders").out == b"one\ntwo\nthree\nfour\nfive\nsix\n"
    assert started("read", "orders", "--at", "tag:v1").out == b"one\ntwo\nthree\n"
    refused = started("read", "orders", "--at", "lsn:2")
    assert (refused.code, "is outside the kept history. Restorable:" in refused.err) == (3, True)
    assert [each["operation"] for each in _lines(started, "oplog")][:2] == ["boundary", "gc"]


def _lines(run: Run, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("--json", *arguments).out.splitlines()]


def test_a_dry_run_changes_nothing(started: Run, tmp_path: Path) -> None:
    before = objects(tmp_path / "remote")
    found = rows(started, "gc", "--dry-run", "--retain", "0")
    assert (found["planned"], found["dry_run"]) == ({"commits": 2, "boundaries": 1}, True)
    assert objects(tmp_path / "remote") == before


def test_a_plan_waits_for_the_grace(started: Run) -> None:
    assert rows(started, "gc", "--retain", "0")["planned"]["commits"] == 2
    again = started("gc", "--retain", "0")
    assert "planned  nothing" in again.text
    assert "waiting  3 objects until " in again.text


def test_writing_goes_on_after_gc(started: Run) -> None:
    for _ in range(2):
        assert started("gc", "--grace", "0", "--retain", "0").code == 0
    started("append", "orders", stdin=b"seven\n")
    started("seal", "orders")
    assert started("offload", "orders", "--drop-hot").code == 0
    assert started("read", "orders").out.endswith(b"six\nseven\n")
    assert started("restore", "orders", "--to", "head", "--as", "fix").code == 0
    assert started("read", "orders@fix").out.endswith(b"six\nseven\n")


def test_damage_is_told_and_ends_with_its_exit_code(started: Run, tmp_path: Path) -> None:
    [damaged] = (tmp_path / "remote").glob("refs/orders/main")
    damaged.write_bytes(b"not a ref")
    before = objects(tmp_path / "remote")
    done = started("gc", "--grace", "0", "--retain", "0")
    assert (done.code, "BLOCKED" in done.text, "left alone" in done.err) == (5, True, True)
    assert objects(tmp_path / "remote") == before


@pytest.mark.parametrize("option", ["--retain", "--grace"])
def test_what_is_no_duration_is_a_wrong_call(started: Run, option: str) -> None:
    assert started("gc", option, "soon").code == 2
    assert started("gc", option, "none").code == 2


def test_a_delete_tells_by_when_its_records_are_erased(started: Run) -> None:
    assert started("delete", "orders", "--before", "2", "--yes").code == 0
    [told] = [each for each in _lines(started, "log", "orders") if each["commit_kind"] == "delete"]
    assert told["erased_by"] is None
    assert "seq 2-3 in one object" in started("compact", "orders", "--erase", "--yes").text
    assert started("compact", "orders", "--erase", "--yes").text == "orders: nothing to erase\n"
    [told] = [each for each in _lines(started, "log", "orders") if each["commit_kind"] == "delete"]
    assert told["erased_by"] > told["created_at"]
    assert f"erased by {told['erased_by']}" in started("log", "orders").text
    assert started("tag", "create", "orders", "old", "--at", "lsn:1").code == 0
    [told] = [each for each in _lines(started, "log", "orders") if each["commit_kind"] == "delete"]
    assert (told["erased_by"], told["kept_by"]) == (None, ["tag:old"])
    for words in (("log", "orders"), ("log", "orders", "--graph"), ("show", "orders", f"lsn:{told['lsn']}")):
        text = started(*words).text
        assert (", kept by tag:old\n" in text, "erased by" in text) == (True, False)
    assert started("tag", "delete", "orders", "old").code == 0
    assert started("read", "orders").out == b"two\nthree\nfour\nfive\nsix\n"


def test_a_topic_may_have_a_window_of_its_own(started: Run) -> None:
    assert started("topic", "set", "orders", "--window", "0").code == 0
    started("append", "orders", stdin=b"seven\n")
    started("seal", "orders")
    assert started("offload", "orders").code == 0
    assert rows(started, "gc", "--dry-run")["planned"]["commits"] >= 3
    assert started("topic", "set", "orders", "--window", "default").code == 0
    assert "pitr_window_s" not in started("topic", "show", "orders").text
    assert started("topic", "set", "orders", "--window", "soon").code == 2
    assert started("topic", "set", "orders", "--window", "none").code == 2


def test_status_tells_by_when_deleted_records_are_gone(started: Run) -> None:
    assert "deleted" not in started("status", "orders", "-v").text
    assert started("delete", "orders", "--before", "2", "--yes").code == 0
    before = rows(started, "status", "orders")
    assert before["unerased_objects"] == 1
    assert "deleted records are still in 1 object of the remote" in started("status", "orders", "-v").text
    assert started("compact", "orders", "--erase", "--yes").code == 0
    after = rows(started, "status", "orders")
    assert after["unerased_objects"] == 0
    assert after["erased_by_ms"] > before["erased_by_ms"]
    assert "what stays deleted is gone for good by 20" in started("status", "orders", "-v").text


def test_a_window_of_thousands_of_years_is_told(started: Run) -> None:
    assert started("topic", "set", "orders", "--window", "9999999d").code == 0
    assert started("delete", "orders", "--before", "3", "--yes").code == 0
    for command in (["status", "orders", "-v"], ["log", "orders"]):
        done = started(*command)
        assert (done.code, done.err) == (0, "")


def test_a_clock_that_is_not_the_stores_deletes_nothing(
    started: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = objects(tmp_path / "remote")
    with monkeypatch.context() as patch:
        patch.setattr("seglog.SystemClock.now_ms", lambda _: 4_102_444_800_000)  # the year 2100
        for arguments in (["gc", "--grace", "0", "--retain", "0"], ["gc", "--dry-run"]):
            done = started(*arguments)
            assert (done.code, done.out) == (1, b"")
            assert "gc did not begin: this machine's clock is " in done.err
            assert "days ahead of that of file:///" in done.err
            assert "by NTP" in done.err
        done = started("evict", "orders", "--older-than", "1d", "--yes")
        assert (done.code, "nothing of orders was evicted: this machine's clock" in done.err) == (1, True)
    assert objects(tmp_path / "remote") == before
    assert started("evict", "orders", "--older-than", "1d", "--yes").code == 0


def test_a_plan_is_shown_applied_or_refused_by_its_number(started: Run, tmp_path: Path) -> None:
    before = objects(tmp_path / "remote")
    dry = _lines(started, "gc", "plan", "--retain", "0", "--dry-run")
    assert objects(tmp_path / "remote") == before
    found = _lines(started, "gc", "plan", "--retain", "0")
    named = [each["key"] for each in found if each["kind"] == "planned_key"]
    assert named == [each["key"] for each in dry if each["kind"] == "planned_key"]
    [plan] = [each for each in found if each["kind"] == "plan_listed"]
    assert (plan["is_new"], len(named)) == (True, 2)
    number = str(plan["plan"])
    assert [each["key"] for each in _lines(started, "gc", "plan", number)] == named
    refused = started("gc", "apply", number, "--retain", "0")
    assert (refused.code, "younger than the grace" in refused.err) == (4, True)
    refused = started("gc", "apply", number, "--grace", "0")  # the window keeps all of it
    assert (refused.code, "names 2 objects that something may need now" in refused.err) == (4, True)
    assert objects(tmp_path / "remote") >= before
    assert f"{'':>10}  {named[0]}: the kept states of its volume begin with lsn 3" in started("gc", "plan", number).text
    explained = started("gc", "explain", named[0], "--retain", "0").text
    assert f"plan {number} names it" in explained
    assert (
        "is the first state of the window"
        in started("gc", "explain", f"{(tmp_path / 'remote').as_uri()}/{named[1]}").text
    )
    done = rows(started, "gc", "apply", number, "--retain", "0", "--grace", "0")
    assert done["deleted"] == {"commits": 2}
    assert started("gc", "explain", named[0]).code == 3
    assert started("read", "orders").out.count(b"\n") == 6
