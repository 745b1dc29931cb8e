"""Test branches and tags from the command line: create, list, compare, rename, delete, undelete, and undo."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    for value in (b"one\ntwo\nthree\n", b"four\nfive\n"):
        run("append", "orders", stdin=value)
        run("seal", "orders")
        assert run("offload", "orders").code == 0
    return run


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    done = run("--json", *arguments)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_tag_is_a_target_for_good(started: Run) -> None:
    done = started("tag", "create", "orders", "v1", "--at", "seq:4", "-m", "before the import")
    assert (done.code, done.text.split()[:5]) == (0, ["v1", "main", "lsn", "2", "seq"])
    assert started("read", "orders", "--at", "tag:v1").out == b"one\ntwo\nthree\nfour\n"
    assert started("restore", "orders", "--to", "tag:v1", "--as", "again").code == 0
    assert started("read", "orders@again").out == b"one\ntwo\nthree\nfour\n"
    [shown] = rows(started, "tag", "list", "orders")
    assert (shown["tag"], shown["lsn"], shown["seq"], shown["message"]) == ("v1", 2, 4, "before the import")
    taken = started("tag", "create", "orders", "v1")
    assert (taken.code, taken.err) == (
        4,
        "seglog: orders has a tag v1 already. Choose another name, or delete that tag first: a tag never moves\n",
    )
    assert started("tag", "delete", "orders", "v1").code == 0
    gone = started("read", "orders", "--at", "tag:v1")
    assert (gone.code, "`seglog tag list orders` lists" in gone.err) == (3, True)


def test_a_deleted_branch_can_be_had_back(started: Run) -> None:
    started("branch", "create", "orders", "fix", "--at", "lsn:1", "-m", "try")
    assert started("branch", "delete", "orders", "fix", "--yes").text == (
        "orders@fix is deleted; `seglog branch undelete orders fix` brings it back\n"
    )
    assert started("read", "orders@fix").code == 3
    assert [row["branch"] for row in rows(started, "branch", "list", "orders")] == ["main"]
    [fix, _] = rows(started, "branch", "list", "orders", "--deleted")
    assert fix["deleted_at"]
    assert started("branch", "undelete", "orders", "fix").code == 0
    assert started("read", "orders@fix").out == b"one\ntwo\nthree\n"
    assert started("branch", "rename", "orders", "fix", "mended").text == "orders@fix is orders@mended now\n"
    assert started("read", "orders@mended").out == b"one\ntwo\nthree\n"
    for refused in (("delete", "orders", "main", "--yes"), ("rename", "orders", "main", "x")):
        assert started("branch", *refused).code == 2


def test_a_branch_that_is_open_here_is_not_deleted(started: Run) -> None:
    started("branch", "create", "orders", "fix", "--at", "lsn:1")
    started("append", "orders@fix", stdin=b"more\n")
    refused = started("branch", "delete", "orders", "fix", "--yes")
    assert (refused.code, "open for appends" in refused.err) == (4, True)


def test_branches_are_shown_as_a_tree_with_how_far_they_went(started: Run) -> None:
    started("branch", "create", "orders", "a", "--at", "lsn:1")
    started("branch", "create", "orders@a", "b")
    started("append", "orders@a", stdin=b"more\n")
    started("seal", "orders@a")
    assert started("offload", "orders@a").code == 0
    lines = [line.split()[0:2] for line in started("branch", "list", "orders", "--tree").text.splitlines()]
    assert lines[0][0] == "main"
    assert [line[0] for line in lines[1:]] == ["-", "-"]
    assert [line[1] for line in lines[1:]] == ["a", "b"]
    shown = {row["branch"]: (row["ahead"], row["behind"]) for row in rows(started, "branch", "list", "orders")}
    assert shown == {"main": (2, 0), "a": (1, 1), "b": (0, 1)}


def test_diff_counts_what_only_one_of_two_branches_has(started: Run) -> None:
    started("branch", "create", "orders", "fix", "--at", "seq:4")
    started("append", "orders@fix", stdin=b"x\ny\n")
    started("seal", "orders@fix")
    started("offload", "orders@fix")
    started("delete", "orders@fix", "--before", "3", "--yes")
    [main, fix] = rows(started, "branch", "diff", "orders", "orders@fix")
    assert (main["shared_seq"], main["appended"], main["first_seq"], main["deleted"]) == (4, 1, 5, 0)
    assert (fix["appended"], fix["first_seq"], fix["last_seq"], fix["deleted"]) == (2, 5, 6, 2)
    assert (
        "appended 2 records, seq 5 to 6; deleted 2 records of those up to seq 4"
        in started("branch", "diff", "orders", "orders@fix").text
    )


def test_undo_takes_back_what_the_oplog_shows(started: Run) -> None:
    started("branch", "create", "orders", "fix", "--at", "lsn:1", "-m", "why not")
    started("branch", "delete", "orders", "fix", "--yes")
    shown = rows(started, "oplog")
    assert [row["operation"] for row in shown] == ["branch delete", "branch create", "topic create"]
    assert shown[1]["message"] == "why not"
    for words in (("undo", "--dry-run"), ("undo", "3", "--dry-run")):
        seen = started(*words).text.splitlines()
        assert (seen[0].split()[:4], seen[1]) == (["would", "take", "back:", "3"], "  do it: `seglog undo 3`")
    assert rows(started, "undo", "--dry-run")[0]["is_preview"] is True
    assert started("read", "orders@fix").code == 3  # it changed nothing
    for words in (("1",), ("2",)):  # of the topic itself, and of a value that the name has no more
        refused = started("undo", *words, "--dry-run")
        assert (refused.code, refused.err) == (4, started("undo", *words).err)
    assert started("undo").text.startswith("undone: 3 ")
    assert started("read", "orders@fix").out == b"one\ntwo\nthree\n"
    again = started("undo", "3")
    assert (again.code, "has changed since" in again.err) == (4, True)
    assert started("undo", "99").code == 3


def test_a_bad_delete_is_undone_and_undo_alone_asks_which_change_is_meant(started: Run) -> None:
    assert (
        started("undo")
        .err.splitlines()[-1]
        .endswith("takes back a delete, and `seglog undo TOPIC lsn:N` one that has its commit")
    )
    started("branch", "create", "orders", "fix")
    deleted = started("delete", "orders", "--before", "4", "--yes")
    assert "\n  undo: `seglog undo orders lsn:3`, until 20" in deleted.text
    refused = started("undo")
    assert (refused.code, refused.err) == (4, started("undo", "--dry-run").err)
    assert (refused.code, "the newest change of orders is a commit of kind delete, lsn 3" in refused.err) == (4, True)
    assert "`seglog undo orders lsn:3` takes that back, `seglog undo 2` takes back the branch create" in refused.err
    seen = started("undo", "orders", "lsn:3", "--dry-run").text
    assert seen.startswith("undo of lsn 3 of orders, of kind delete, would bring back 3 records, seq 1 to 3\n")
    assert started("read", "orders").out == b"four\nfive\n"
    [done] = rows(started, "undo", "orders", "lsn:3", "-m", "it was wrong")
    assert (done["kind"], done["undone"], done["lsn"], done["records"]) == ("commit_undone", 3, 4, 3)
    assert started("read", "orders").out == b"one\ntwo\nthree\nfour\nfive\n"
    shown = started("log", "orders", "--kind", "restore", "--stat").text
    assert ("takes back lsn 3, of " in shown, "it was wrong" in shown) == (True, True)
    assert [row["lsn"] for row in rows(started, "log", "orders", "--record", "2")] == [4, 3, 1]
    assert "role  " not in started("topic", "show", "orders").text  # it is no replica
    assert "written elsewhere" not in started("status").text
    assert "safe in file:" in started("status").text.splitlines()[1]
    for words in (("undo", "orders", "lsn:3"), ("undo", "orders", "lsn:3", "--dry-run")):
        assert started(*words).text == (
            "lsn 3 of orders, of kind delete, is undone already (lsn 4): nothing more comes back\n"
        )
    assert started("append", "orders", stdin=b"six\n").text == "appended 1 record to orders, seq 6 to 6\n"
    assert started("undo").text.startswith("undone: 2 ")


def test_a_bad_delete_is_put_back_by_a_promotion(started: Run) -> None:
    started("delete", "orders", "--before", "4", "--yes")
    assert started("restore", "orders", "--to", "head~1", "--as", "good").code == 0
    promoted = started("branch", "promote", "orders", "good", "--keep", "bad", "-m", "the delete was wrong")
    assert (promoted.code, promoted.text) == (
        0,
        "orders is what orders@good was; the former main is orders@bad\n"
        "  only orders@bad deleted 3 records up to seq 5\n"
        "  undo: `seglog undo`\n",
    )
    assert started("read", "orders").out == b"one\ntwo\nthree\nfour\nfive\n"
    assert started("append", "orders", stdin=b"six\n").text == "appended 1 record to orders, seq 6 to 6\n"
    assert "the former main is bad: the delete was wrong" in started("oplog").text.splitlines()[0]
    assert "\n  stops the other directories that write the two branches\n" in started("undo", "--dry-run").text
    assert started("undo").text.startswith("undone: ")
    assert started("read", "orders").out == b"four\nfive\n"
    assert started("read", "orders@good").out == b"one\ntwo\nthree\nfour\nfive\nsix\n"
    for refused, code in (
        (("nope",), 3),
        (("main",), 2),
        (("good", "--keep", "good"), 4),
        (("good", "--keep", "main"), 2),
    ):
        assert started("branch", "promote", "orders", *refused).code == code


def test_a_promotion_that_would_leave_records_behind_is_refused(started: Run) -> None:
    started("restore", "orders", "--to", "seq:4", "--as", "good")
    refused = started("branch", "promote", "orders", "good")
    assert (refused.code, refused.err) == (
        4,
        "seglog: orders has 1 record above seq 4 that orders@good does not have; nothing was changed. "
        "`--carry` appends them to the branch first, `--leave` leaves them in the former main\n",
    )
    assert started("branch", "promote", "orders", "good", "--carry", "--leave").code == 2
    [done] = rows(started, "branch", "promote", "orders", "good", "--leave")
    assert (done["shared_seq"], done["after_fork"]) == (4, {"appended": 1, "first_seq": 5, "last_seq": 5, "deleted": 0})
    assert started("read", done["former"]).out.endswith(b"five\n")


def test_how_long_ago_is_a_time(started: Run) -> None:
    late = started("restore", "orders", "--to", "1 week ago", "--as", "old")
    assert (late.code, "is outside the kept history. Restorable: " in late.err) == (3, True)
    assert started("restore", "orders", "--to", "0 seconds ago", "--as", "now").code == 0
    assert started("read", "orders@now").out == b"one\ntwo\nthree\nfour\nfive\n"
