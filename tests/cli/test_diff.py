"""Test `seglog diff` of two points, and `seglog log --graph`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from offload.moment import Moment
from offload.operations.commits import CommitListed
from offload.operations.graph import Line, graphed, ordered
from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    """lsn 1: seq 1 to 3. A branch with a fourth of its own. lsn 2: seq 4 of main. lsn 3: a delete of seq 2."""
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "orders", "--tag", "x", stdin=b"one\n")
    run("append", "orders", "--tag", "y", stdin=b"two\n")
    _offload(run, "orders", b"three\n")
    assert run("branch", "create", "orders", "try").code == 0
    _offload(run, "orders@try", b"other\n")
    _offload(run, "orders", b"four\xff\n")
    assert run("tag", "create", "orders", "v1").code == 0
    assert run("delete", "orders", "--tag", "y", "--yes").code == 0
    assert run("offload", "orders").code == 0
    return run


def _offload(run: Run, topic: str, values: bytes) -> None:
    run("append", topic, stdin=values)
    run("seal", topic)
    assert run("offload", topic).code == 0


def _lines(run: Run, *arguments: str) -> list[dict[str, Any]]:
    done = run("--json", *arguments)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def _differences(run: Run, *points: str) -> tuple[list[tuple[int, int]], list[tuple[str, int]]]:
    """Return the appended and deleted records of each side, and the records with their sides."""
    left, right, *records = _lines(run, "diff", *points, "--records")
    sides = [(side["appended"], side["deleted"]) for side in (left, right)]
    return sides, [(record["only_in"], record["seq"]) for record in records]


def test_any_two_points_are_compared(started: Run) -> None:
    compared: dict[tuple[str, ...], object] = {
        ("orders:lsn:1", "orders:head"): ([(0, 0), (1, 1)], [("left", 2), ("right", 4)]),
        ("orders:lsn:1",): ([(0, 0), (1, 1)], [("left", 2), ("right", 4)]),
        ("orders", "orders:seq:1"): ([(2, 0), (0, 0)], [("left", 3), ("left", 4)]),
        ("orders@main", "orders@try"): ([(1, 1), (1, 0)], [("right", 2), ("left", 4), ("right", 4)]),
        ("orders@try:lsn:1", "orders@try"): ([(0, 0), (0, 0)], []),
        ("orders:tag:v1", "orders"): ([(0, 0), (0, 1)], [("left", 2)]),
        ("orders", "orders"): ([(0, 0), (0, 0)], []),
    }
    for points, differences in compared.items():
        assert _differences(started, *points) == differences, points


def test_the_records_of_a_diff_have_their_side_time_tag_and_value(started: Run) -> None:
    left, right, gone, new = started("diff", "orders:seq:3", "orders", "--records").text.splitlines()
    assert "0 records appended, 0 records deleted of those up to seq 3" in left
    assert "1 record appended, seq 4 to 4, 1 record deleted of those up to seq 3" in right
    assert gone.startswith("- seq 2  20")
    assert gone.endswith("Z tag y  two")
    assert new.startswith("+ seq 4  20")
    *_, listed = _lines(started, "diff", "orders:seq:3", "orders", "--records", "-n", "2")
    assert (listed["value_base64"], "value" in listed) == ("Zm91cv8=", False)
    assert len(_lines(started, "diff", "orders:seq:3", "--records", "-n", "1")) == 3


def test_a_wrong_point_is_refused(started: Run) -> None:
    for point, code in (
        ("nope", 3),
        ("orders:lsn:9", 3),
        ("orders:1999-01-01T00:00:00Z", 3),
        ("orders:soon", 2),
        ("orders@none:head", 3),
        (":head", 2),
    ):
        done = started("diff", point, "orders")
        assert (done.code, done.out, done.err.count("\n")) == (code, b"", 1), point


def test_the_graph_has_every_branch_with_its_fork_and_its_names(started: Run) -> None:
    lines = started("log", "orders", "--graph").text.splitlines()
    assert [line.partition("lsn")[0].rstrip() for line in lines] == ["*", "*", "| *", "|/", "*"]
    assert [line.endswith(f"  ({name})") for line, name in zip(lines, ("main", "tag:v1", "try"), strict=False)] == [
        True
    ] * 3
    assert [commit["names"] for commit in _lines(started, "log", "orders", "--graph")] == [
        ["main"],
        ["tag:v1"],
        ["try"],
        [],
    ]
    assert len(_lines(started, "log", "orders@try", "--graph", "-n", "2")) == 2
    assert started("log", "orders", "--graph", "--kind", "delete").code == 2
    assert all(line[0] in "*|" for line in started("log", "orders", "--graph", "--stat").text.splitlines())


def test_a_topic_without_commits_has_no_graph(run: Run, tmp_path: Path) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"a\n")
    done = run("log", "t", "--graph")
    assert (done.code, done.out, done.err) == (0, b"", "t: nothing is offloaded yet\n")


def test_forks_of_forks_and_clocks_that_disagree_draw_as_a_tree() -> None:
    lines = [
        Line("c", ("a", 2), iter([_commit("c", 1, 2)])),
        Line("a", None, iter([_commit("a", 3, 9), _commit("a", 2, 8), _commit("a", 1, 1)])),
        Line("b", ("a", 1), iter([_commit("b", 2, 5), _commit("b", 1, 4)])),
        Line("d", ("c", 1), iter([_commit("d", 1, 1)])),
    ]
    found = list(ordered(lines, {("b", 2): ["b"]}))
    assert [(each.commit.volume, each.commit.lsn) for each in found] == [
        ("a", 3), ("b", 2), ("b", 1), ("d", 1), ("c", 1), ("a", 2), ("a", 1),
    ]  # fmt: skip
    assert "\n".join(graphed(each, "x") for each in found).split("\n") == [
        "*  x",
        "|     *  x  (b)",
        "|     *  x",
        "|   * |  x",
        "| |/  |",
        "| *   |  x",
        "|/    |",
        "*     |  x",
        "|____/",
        "*  x",
    ]


def _commit(volume: str, lsn: int, created_at: int) -> CommitListed:
    now = Moment(created_at)
    target = f"lsn:{lsn}@{volume}"
    return CommitListed(
        target, volume, lsn, "", "offload", now, 0, None, now, 0, (), None, "w", 1, "", 0, 0, 0, 0, None
    )
