"""Test `seglog cursor` as a user types it: on the directory itself, and what a recovery brings back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import pytest

import seglog
from catalog.format.control import Mark
from offload.operations.cursor import loaded_states
from offload.services.promotion import NAME_CHANGES
from seglog.delivery.cursor import TOPIC, Cursor, encode_cursor
from seglog.delivery.cursor_states import CursorStates
from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    run("append", "orders", stdin=b"one\ntwo\nthree\n")
    return run


def rows(run: Run, *arguments: str, directory: str = "data") -> list[dict[str, Any]]:
    done = run("--json", *arguments, directory=directory)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_cursor_is_made_listed_moved_and_deleted(started: Run) -> None:
    done = started("cursor", "create", "orders", "billing", "--at", "seq:1")
    assert (done.code, done.text) == (0, "orders/billing continues behind seq 1\n")
    assert started("cursor", "create", "orders", "audit").text == "orders/audit continues behind seq 3\n"
    taken = started("cursor", "create", "orders", "billing")
    assert (taken.code, "`seglog cursor reset orders billing TARGET` moves it" in taken.err) == (4, True)
    audit, billing = rows(started, "cursor", "list", "orders")
    assert (audit["cursor"], audit["lag_records"], audit["lag_bytes"], audit["lag_s"]) == ("audit", 0, 0, None)
    assert (billing["floor"], billing["acked_above"], billing["lag_records"], billing["epoch"]) == (1, 0, 2, 1)
    assert billing["lag_bytes"] > 0
    text = started("cursor", "list").text.splitlines()
    assert text[0] == "orders/audit: acked up to 3, at the head"
    assert text[1].startswith("orders/billing: acked up to 1, 2 records behind, about ")
    assert started("cursor", "reset", "orders", "billing", "earliest").text == "orders/billing continues behind seq 0\n"
    assert started("cursor", "reset", "orders", "billing", "head").text == "orders/billing continues behind seq 3\n"
    gone = started("cursor", "delete", "orders", "billing")
    assert gone.text == "cursor orders/billing is deleted; it was behind seq 3\n"
    assert [row["cursor"] for row in rows(started, "cursor", "list")] == ["audit"]
    assert started("cursor", "delete", "orders", "billing").code == 3


def test_a_reset_takes_a_time_and_an_lsn(started: Run) -> None:
    started("seal", "orders")
    assert started("offload", "orders").code == 0
    started("append", "orders", stdin=b"four\n")
    started("cursor", "create", "orders", "billing", "--at", "earliest")
    assert started("cursor", "reset", "orders", "billing", "lsn:1").text == "orders/billing continues behind seq 3\n"
    assert (
        started("cursor", "reset", "orders", "billing", "1 hour ago").text == "orders/billing continues behind seq 0\n"
    )
    assert started("cursor", "reset", "orders", "billing", "2100-01-01T00:00Z").text.endswith("behind seq 4\n")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (("create", "orders", "a/b"), 2),
        (("create", "orders", "x", "--at", "seq:9"), 3),
        (("create", "orders", "x", "--at", "sometime"), 2),
        (("create", "nothing", "x"), 3),
        (("create", "_seglog.cursors", "x"), 4),
        (("list", "nothing"), 3),
        (("reset", "orders", "nobody", "head"), 3),
        (("reset", "orders", "billing", "lsn:99"), 4),
        (("delete", "nothing", "billing"), 3),
    ],
)
def test_a_wrong_argument_changes_nothing(started: Run, given: tuple[str, ...], code: int) -> None:
    started("cursor", "create", "orders", "billing")
    before = rows(started, "cursor", "list")
    done = started("cursor", *given)
    assert (done.code, bool(done.err)) == (code, True), done.err
    assert [row["floor"] for row in rows(started, "cursor", "list")] == [row["floor"] for row in before]


def test_status_shows_cursors_on_demand(started: Run) -> None:
    assert "cursors" not in rows(started, "status", "orders")[-1]
    started("cursor", "create", "orders", "billing", "--at", "earliest")
    [shown] = rows(started, "status", "orders")[-1]["cursors"]
    assert (shown["cursor"], shown["lag_records"]) == ("billing", 3)
    assert "  cursor billing: acked up to 0, 3 records behind, about " in started("status", "-v").text


def acked(directory: Path, *seqs: int, ahead_ms: int | None = None) -> None:
    """Ack seqs, with a record that is so far ahead of the clock."""
    with seglog.open(directory) as log:
        topic = log.topic("orders")
        cursor = Cursor("orders", "billing", topic.incarnation(), topic.epoch, 0).acked(seqs)
        value = encode_cursor(CursorStates.of(log).storable(cursor))
        if ahead_ms is None:
            log.topic(TOPIC).append([value], tag=cursor.key)
        else:
            log.topic(TOPIC).append([value], tag=cursor.key, times_ms=[now_ms() + ahead_ms])


def now_ms() -> int:
    return seglog.SystemClock().now_ms()


def offload_all(run: Run, *topics: str) -> None:
    for topic in topics:
        run("seal", topic)
        done = run("offload", topic)
        assert done.code == 0, done.err


def test_after_a_recovery_each_cursor_is_as_of_the_last_offload(started: Run, tmp_path: Path) -> None:
    acked(tmp_path / "data", 1, 3)
    offload_all(started, "orders", TOPIC)
    acked(tmp_path / "data", 1, 2, 3)  # is lost with the machine
    assert started("recover", (tmp_path / "remote").as_uri(), "new", "--writable", directory=None).code == 0
    [shown] = rows(started, "cursor", "list", directory="new")
    assert (shown["floor"], shown["acked_above"], shown["lag_records"]) == (1, 1, 1)
    started("append", "orders", stdin=b"another four\n", directory="new")
    [shown] = rows(started, "cursor", "list", directory="new")
    assert (shown["floor"], shown["acked_above"], shown["lag_records"]) == (1, 1, 2)


def test_after_a_recovery_no_record_of_the_new_directory_counts_as_acked(started: Run, tmp_path: Path) -> None:
    """The ack of seq 4 was offloaded, and the record was not. Another one takes its seq."""
    offload_all(started, "orders")
    started("append", "orders", stdin=b"four\n")
    acked(tmp_path / "data", 1, 2, 3, 4)
    offload_all(started, TOPIC)
    assert started("recover", (tmp_path / "remote").as_uri(), "new", "--writable", directory=None).code == 0
    started("append", "orders", stdin=b"another four\n", directory="new")
    [shown] = rows(started, "cursor", "list", directory="new")
    assert (shown["floor"], shown["acked_above"], shown["lag_records"]) == (3, 0, 1)


@pytest.mark.parametrize("ahead_ms", [None, 240_000])
def test_after_a_recovery_no_record_in_the_place_of_a_truncated_one_counts_as_acked(
    started: Run, tmp_path: Path, ahead_ms: int | None
) -> None:
    acked(tmp_path / "data", 1, 2, 3, ahead_ms=ahead_ms)  # the clock may go back after that
    offload_all(started, "orders", TOPIC)
    assert started("truncate", "orders", "--from", "2", "--yes").code == 0
    started("append", "orders", stdin=b"another two\nanother three\n")
    offload_all(started, "orders")
    assert started("recover", (tmp_path / "remote").as_uri(), "new", "--writable", directory=None).code == 0
    [shown] = rows(started, "cursor", "list", directory="new")
    assert (shown["floor"], shown["lag_records"]) == (1, 2)


def test_after_a_recovery_what_was_acked_behind_a_truncation_counts(started: Run, tmp_path: Path) -> None:
    """The times of the orders are ahead of the clock, so the truncation is as well, and the ack is not."""
    begin_ms = now_ms()
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append([b"four"], times_ms=[begin_ms + 200_000])
    acked(tmp_path / "data", 1, 2, 3, 4)
    offload_all(started, "orders", TOPIC)
    assert started("truncate", "orders", "--from", "2", "--yes").code == 0
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append([b"another"] * 2, times_ms=[begin_ms + 200_001] * 2)
    acked(tmp_path / "data", 1, 2, 3)
    offload_all(started, "orders", TOPIC)
    assert started("recover", (tmp_path / "remote").as_uri(), "new", "--writable", directory=None).code == 0
    [shown] = rows(started, "cursor", "list", directory="new")
    assert (shown["floor"], shown["lag_records"]) == (3, 0)


def test_after_a_recovery_no_record_of_a_branch_that_became_main_counts_as_acked(started: Run, tmp_path: Path) -> None:
    acked(tmp_path / "data", 1, 2, 3)
    offload_all(started, "orders", TOPIC)
    assert started("restore", "orders", "--to", "seq:2", "--as", "before").code == 0
    assert started("branch", "promote", "orders", "before", "--leave").code == 0
    started("append", "orders", stdin=b"another three\nanother four\n")
    offload_all(started, "orders")
    assert rows(started, "cursor", "list") == [], "here it has ended with the former main"
    assert started("recover", (tmp_path / "remote").as_uri(), "new", "--writable", directory=None).code == 0
    [shown] = rows(started, "cursor", "list", directory="new")
    assert (shown["floor"], shown["acked_above"], shown["lag_records"]) == (0, 0, 4)


def test_after_a_recovery_the_commits_of_a_topic_are_read_one_by_one(tmp_path: Path) -> None:
    commits = WeakSet[Any]()

    class LongHistory:
        is_cut = False

        def __iter__(self) -> Iterator[Any]:
            for number in range(100):
                past = Past(number)
                commits.add(past)
                assert len(commits) <= 2, "this one, and perhaps the one before"
                yield past
                del past

    class Past:
        def __init__(self, number: int) -> None:
            cut = 5 if number == 50 else None
            self.commit = SimpleNamespace(truncate_from=cut, at_ts_ms=100, message="")

    assert floor_of_another_directory(tmp_path, LongHistory()) == 4


class Commits(list[SimpleNamespace]):
    """A history, newest first: (the first seq of a truncation, or None, and the time) of each commit.

    `cut_ms` is the latest time of what GC collected, and None if nobody knows it.
    """

    def __init__(
        self, *commits: tuple[int | None, int], is_cut: bool, cut_ms: int | None = None, promoted_ms: int | None = None
    ) -> None:
        self.is_cut = is_cut
        self.first_mark = None if cut_ms is None else Mark(1, cut_ms, 9)
        shown = [SimpleNamespace(truncate_from=cut, at_ts_ms=at_ms, message="") for cut, at_ms in commits]
        if promoted_ms is not None:
            fence = SimpleNamespace(truncate_from=None, at_ts_ms=0, message=NAME_CHANGES, created_at_ms=promoted_ms)
            shown.insert(1, fence)
        super().__init__(SimpleNamespace(commit=commit) for commit in shown)


@pytest.mark.parametrize(
    ("commits", "floor"),
    [
        (Commits((None, 120), (4, 110), (6, 101), (None, 90), is_cut=False), 3),
        (Commits((None, 120), (4, 100), (None, 90), is_cut=False), 3),  # at the same time: it may be later
        (Commits((None, 120), (4, 99), (None, 90), is_cut=False), 9),
        (Commits((6, 120), (None, 90), is_cut=True, cut_ms=99), 5),
        (Commits((6, 120), (None, 90), is_cut=True, cut_ms=100), 0),  # GC may have collected a deeper truncation
        (Commits((6, 120), (None, 90), is_cut=True), 0),
        (Commits(is_cut=False), 9),
        (Commits((None, 120), (None, 90), is_cut=False, promoted_ms=100 - 300_000), 0),  # its topic may be ahead
        (Commits((None, 120), (None, 90), is_cut=False, promoted_ms=99 - 300_000), 9),
    ],
)
def test_a_change_that_may_be_later_than_a_recovered_cursor_lowers_it(
    tmp_path: Path, commits: Commits, floor: int
) -> None:
    assert floor_of_another_directory(tmp_path, commits) == floor


def floor_of_another_directory(tmp_path: Path, commits: object) -> int:
    """Return the floor of a recovered cursor, which was 9 at the time 100, in a topic with this history."""
    with seglog.open(tmp_path / "d") as log:
        log.create_topic("orders", first_seq=10, is_taken_over=True)
        cursor = Cursor("orders", "billing", "another-00000001", 4, 9, ts_ms=100)
        log.topic(TOPIC).append([encode_cursor(cursor)], tag=cursor.key)
    with seglog.open(tmp_path / "d") as log:
        archive: Any = SimpleNamespace(history=SimpleNamespace(commits=lambda _: commits))
        return loaded_states(log, archive).find("orders", "billing").floor
