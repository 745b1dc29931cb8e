"""Test sync, reset, takeover and recover, as a user types them.

The tests run them without a daemon, and through one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.command import Run


@pytest.fixture
def remote(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


@pytest.fixture
def two(run: Run, remote: str) -> Run:
    """Directory `one` writes the topic t. Directory `two` has only the remote's address."""
    for directory in ("one", "two"):
        assert run("init", "--remote", remote, directory=directory).code == 0
    ship(run, b"a\nb\n")
    return run


def ship(run: Run, lines: bytes, directory: str = "one") -> None:
    assert run("append", "t", stdin=lines, directory=directory).code == 0
    run("seal", "t", directory=directory)
    done = run("sync", "t", "--push", directory=directory)
    assert done.code == 0, done.err


def rows(run: Run, *arguments: str, directory: str = "two") -> list[dict[str, Any]]:
    done = run("--json", *arguments, directory=directory)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_second_directory_follows(two: Run) -> None:
    assert two("sync", "t", directory="two").text == "t: nothing new, replica at 2 r1\n"
    ship(two, b"c\n")
    ship(two, b"d\n")
    assert two("sync", "t", "--fetch", directory="two").text == "t: 2 r1+2\n"
    shown = two("status", "-v", directory="two").text.splitlines()
    assert shown[1].startswith("t: 2 records, safe in file:///")
    assert shown[1].endswith("Z), written elsewhere")
    assert shown[2].startswith("  nothing hot, cold up to 2 (lsn 1), 2 r1+2, ")
    assert two("read", "t", directory="two").out == b"a\nb\n"
    [synced] = rows(two, "sync", "t")
    assert (synced["role"], synced["commits"], synced["state"]) == ("replica", 2, "4 r3")
    assert two("read", "t", directory="two").out == b"a\nb\nc\nd\n"
    [fetched] = rows(two, "sync", "t", "--fetch")
    assert (fetched["kind"], fetched["state"], fetched["remote_ahead"]) == ("sync_position", "4 r3", 0)
    [shown] = rows(two, "status", "t")
    assert (shown["is_replica"], shown["state"], shown["writer_epoch"]) == (True, "4 r3", 0)


def test_a_push_and_a_fetch_do_half_of_a_sync_each(two: Run) -> None:
    two("sync", "t", directory="two")
    two("append", "t", stdin=b"c\n", directory="one")
    two("seal", "t", directory="one")
    done = two("sync", "t", "--fetch", directory="one")
    assert (done.code, done.text) == (0, "t: 2+1 r1\n")  # it sends nothing
    [pushed] = rows(two, "sync", "t", "--push", directory="one")
    assert (pushed["kind"], pushed["role"], pushed["lsns"], pushed["state"]) == ("synced_topic", "writer", [2], "3 r2")
    assert two("sync", "t", "--push", directory="one").text == "t: nothing new, writer at 3 r2\n"
    assert two("sync", "t", "--push", directory="two").code == 3  # the log of a replica has no such topic
    for words in (("--push", "--fetch"), ("--push", "--follow"), ("--fetch", "--follow")):
        assert two("sync", "t", *words, directory="one").code == 2
    for former in ("push", "pull", "fetch"):
        assert two(former, "t", directory="one").code == 2


def test_topic_commands_know_a_replica(two: Run) -> None:
    assert two("topic", "set", "t", "--ttl", "30d", directory="one").code == 0
    ship(two, b"c\n")
    two("sync", "t", directory="two")
    assert two("topic", "list", directory="two").text == f"{'t':<32} up to seq 3, replica\n"
    assert [row["is_replica"] for row in rows(two, "topic", "list", directory="one")] == [False]
    assert two("topic", "show", "t", directory="two").text.startswith("role            replica\n")
    [shown] = rows(two, "topic", "show", "t")
    assert (shown["is_replica"], shown["head_seq"], shown["hot_first_seq"], shown["ttl_ms"]) == (
        True, 3, 4, 30 * 86_400_000,
    )  # fmt: skip
    refused = two("topic", "set", "t", "--ttl", "7d", directory="two")
    assert (refused.code, refused.err) == (
        4,
        "seglog: this directory follows t, and does not write it; nothing was changed. `seglog takeover t` makes this "
        "directory its writer, as the next `seglog append t` does. It stops another writer\n",
    )
    assert two("takeover", "t", directory="two").code == 0
    assert two("topic", "set", "t", "--ttl", "7d", directory="two").code == 0


def test_a_replica_is_followed_while_it_is_read_and_then_no_more(two: Run) -> None:
    two("sync", "t", directory="two")
    ship(two, b"c\n")
    assert two("read", "t", "--follow", "--wait", "2", directory="two").out == b"a\nb\nc\n"
    assert two("sync", "t", "--follow", "--interval", "0.05", directory="nowhere").code == 3
    assert two("topic", "delete", "t", "--yes", directory="two").code == 0
    assert "t:" not in two("status", directory="two").text
    assert two("read", "t", directory="two").out == b"a\nb\nc\n"  # a read from the remote, as before
    assert two("status", "t", directory="two").code == 3


def test_the_preview_of_an_undo_tells_whom_it_stops(two: Run) -> None:
    lsn = rows(two, "delete", "t", "--before", "2", "--yes", directory="one")[0]["lsn"]
    words = ("undo", "t", f"lsn:{lsn}")
    told = "stops the directory that writes t, because this one does not"
    assert told not in two(*words, "--dry-run", directory="one").text
    two("sync", "t", directory="two")
    assert told in two(*words, "--dry-run", directory="two").text
    assert rows(two, *words, "--dry-run")[0]["is_replica"] is True
    assert two(*words, directory="two").code == 0
    two("append", "t", stdin=b"c\n", directory="one")
    two("seal", "t", directory="one")
    assert "was taken over by another writer" in two("offload", "t", directory="one").err
    assert told not in two(*words, "--dry-run", directory="two").text


def test_takeover_fences_and_reset_is_the_way_out(two: Run) -> None:
    done = two("takeover", "t", directory="two")
    assert done.text == "t is written here from seq 3 on (epoch 2)\n"
    two("append", "t", stdin=b"old\n", directory="one")
    two("seal", "t", directory="one")
    fenced = two("sync", "t", "--push", directory="one")
    assert (fenced.code, "was taken over by another writer" in fenced.err) == (4, True)
    told = two("status", directory="one").text.splitlines()[-2:]
    assert told[0].startswith("t: FENCED at lsn 2: another writer took it over (epoch 2); offload is stopped")
    assert told[1] == "  to do: `seglog reset t --as NAME`"
    refused = two("reset", "t", directory="one")
    assert refused.code == 4
    assert "1 record and 0 deletes that the remote lacks" in refused.err
    assert two("reset", "t", "--as", "old", "--discard", directory="one").code == 2
    done = two("reset", "t", "--as", "old", directory="one")
    assert done.text == (
        "t follows its volume at lsn 2; 1 record and 0 deletes are on t@old, in this directory only: "
        "`seglog seal t@old`, then `seglog offload t@old` bring them to the remote\n"
        "  the next append to t here takes it over, and stops another writer\n"
    )
    kept = two("undo", directory="one")
    assert (kept.code, "t@old is open for appends in this directory" in kept.err) == (4, True)
    assert "`seglog branch delete t old --dry-run` shows what would go" in kept.err
    assert two("read", "t@old", directory="one").out == b"a\nb\nold\n"
    ship(two, b"new\n", directory="two")
    assert rows(two, "sync", "t", directory="one")[0]["commits"] == 1
    assert two("read", "t", directory="one").out == b"a\nb\nnew\n"
    two("append", "t@old", stdin=b"x\n", directory="one")
    dropped = two("reset", "t@old", "--discard", "--yes", directory="one").text
    assert "; 2 records and 0 deletes were dropped\n" in dropped


def test_recover_makes_a_directory_from_the_remote_alone(two: Run, remote: str, tmp_path: Path) -> None:
    two("restore", "t", "--to", "seq:1", "--as", "first", directory="one")
    [main, first] = rows(two, "recover", remote, "new")
    assert (main["topic"], main["head_seq"], main["records"], main["last_seq"], main["is_writable"]) == (
        "t", 2, 2, 2, False,
    )  # fmt: skip
    assert first["topic"] == "t@first"
    assert two("read", "t", directory="new").out == b"a\nb\n"
    assert two("append", "t", stdin=b"c\n", directory="new").text.endswith("seq 3 to 3\n")
    again = two("recover", remote, "new")
    assert (again.code, "is not empty" in again.err) == (4, True)
    assert two("recover", remote, "third", "--topic", "t@first", "--writable").code == 0
    assert [row["name"] for row in rows(two, "status", directory="third")] == ["t@first"]
    empty = two("recover", (tmp_path / "nothing").as_uri(), "fourth")
    assert (empty.code, empty.out, "no topic at all in" in empty.err) == (3, b"", True)


def test_recover_goes_on_after_a_name_that_fails_and_ends_with_its_error(two: Run, remote: str, tmp_path: Path) -> None:
    two("restore", "t", "--to", "seq:1", "--as", "first", directory="one")
    [ref] = (tmp_path / "remote" / "refs" / "t").glob("first*")
    ref.write_bytes(ref.read_bytes()[:-1])
    ship(two, b"c\n")
    two("restore", "t", "--to", "seq:1", "--as", "second", directory="one")
    done = two("--json", "recover", remote, "new")
    assert [json.loads(line)["topic"] for line in done.out.splitlines()] == ["t", "t@second"]
    assert (done.code, "t@first: " in done.err) == (5, True)
