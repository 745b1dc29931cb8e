"""Clocks are wrong, jump or differ, and times are given wrongly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import ClocksDisagree, InvalidTarget, OutOfWindow
from offload.archive import Archive
from seglog import Evicted, Log, TopicConfig
from tests.promises.mistakes.scene import numbered, tree
from tests.worlds.clock import HandClock

DAY_MS = 24 * 3600 * 1000


@contextmanager
def attached(base: Path, clock: HandClock, name: str = "data") -> Iterator[tuple[Log, Archive]]:
    """The data directory `name`, with its archive, on a machine with that clock."""
    with (
        seglog.open(base / name, clock=clock) as log,
        offload.attach(log, (base / "remote").as_uri(), clock=clock) as archive,
    ):
        yield log, archive


@pytest.fixture
def clock() -> HandClock:
    """It is right, until a test sets it."""
    return HandClock(time.time_ns() // 1_000_000)


def ship(log: Log, archive: Archive, *given: bytes, drop_hot: bool = False) -> None:
    log.topic("orders").append(list(given))
    log.topic("orders").seal()
    archive.offload("orders", drop_hot=drop_hot)


def test_a_clock_is_set_back_a_year(tmp_path: Path, clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    """An operator sets the clock of the machine back by a year, and the program is started again.

    Outcome: nothing is lost. Records keep their order, their times never go back, and a warning says so.
    """
    with seglog.open(tmp_path, clock=clock) as log:
        log.topic("orders").append(numbered(10))
    clock.ms -= 365 * DAY_MS
    with seglog.open(tmp_path, clock=clock) as log:
        log.topic("orders").append(numbered(10, 11))
        log.topic("orders").seal()
    assert "365 days ahead of the clock" in caplog.text
    with seglog.open(tmp_path, clock=clock) as log:
        found = list(log.topic("orders").read())
    assert [each.value for each in found] == numbered(20)
    assert [each.ts_ms for each in found] == sorted(each.ts_ms for each in found)


def test_a_clock_goes_ahead_a_month_and_back(
    tmp_path: Path, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A machine starts with a clock that is a month ahead, and NTP sets it right again while records are appended.

    Outcome: nothing is lost. A warning comes with the jump, and one with the way back; `seq:N` finds each state.
    """
    with attached(tmp_path, clock) as (log, archive):
        ship(log, archive, b"before")
        clock.ms += 31 * DAY_MS - 3_600_000
        ship(log, archive, b"wrong")
        clock.ms -= 31 * DAY_MS - 3_600_000
        ship(log, archive, b"after", drop_hot=True)
        assert "the clock went ahead by 30 days at once" in caplog.text
        assert "ahead of the clock" in caplog.text
        assert [each.value for each in log.topic("orders").read()] == [b"before", b"wrong", b"after"]
        assert [each.value for each in archive.read("orders", at="seq:2")] == [b"before", b"wrong"]
        assert [each.value for each in archive.read("orders", at="seq:3")] == [b"before", b"wrong", b"after"]


def test_a_ttl_meets_a_clock_that_goes_ahead_and_back(tmp_path: Path, clock: HandClock) -> None:
    """The clock of a machine is a month ahead for a minute, and a topic has a ttl of a day.

    Outcome: the ttl evicts records meanwhile, and a reader from the first record gets `Evicted`, or a gap. Readers
    get all records that are appended after the clock is right again.
    """
    with seglog.open(tmp_path, clock=clock) as log:
        topic = log.create_topic("orders", TopicConfig(ttl_ms=DAY_MS))
        topic.append(numbered(10))
        clock.ms += 31 * DAY_MS
        assert list(topic.read()) == []
        log.checkpoint()
        clock.ms -= 31 * DAY_MS
        topic.append(numbered(10, 11))
    with seglog.open(tmp_path, clock=clock) as log:
        topic = log.topic("orders")
        with pytest.raises(Evicted):
            list(topic.read(1))
        gap, *found = topic.read(1, gaps=True)
        assert isinstance(gap, seglog.Gap)
        assert (gap.gap_from, gap.gap_to) == (1, 10)
        assert [each.value for each in found if isinstance(each, seglog.Record)] == numbered(10, 11)


def test_gc_runs_while_the_clock_is_ahead(tmp_path: Path, clock: HandClock) -> None:
    """The clock of a machine is a month ahead, and stays so while GC runs day after day.

    Outcome: every run is refused with `ClocksDisagree`. All states of the window are restorable afterwards.
    """
    with attached(tmp_path, clock) as (log, archive):
        for number in range(3):
            ship(log, archive, b"%d" % number, drop_hot=True)
        before = tree(tmp_path / "remote")
        for _ in range(3):
            clock.ms += 31 * DAY_MS
            with pytest.raises(ClocksDisagree, match="days ahead of that of file://"):
                archive.upkeep.collect()
        clock.ms -= 93 * DAY_MS
        assert tree(tmp_path / "remote") == before
        archive.upkeep.collect()
        for lsn in (1, 2, 3):
            assert len(list(archive.read("orders", at=f"lsn:{lsn}"))) == lsn


def test_gc_runs_while_the_clock_is_behind(tmp_path: Path, clock: HandClock) -> None:
    """The battery of a machine is empty: its clock begins with 1970, and GC runs.

    Outcome: refused with `ClocksDisagree`. Nothing is deleted.
    """
    with attached(tmp_path, clock) as (log, archive):
        ship(log, archive, b"one", drop_hot=True)
        before = tree(tmp_path / "remote")
        clock.ms = 1000
        with pytest.raises(ClocksDisagree, match="behind that of file://"):
            archive.upkeep.collect()
        assert tree(tmp_path / "remote") == before
        ship(log, archive, b"two", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == [b"one", b"two"]


def test_two_machines_have_clocks_that_differ(tmp_path: Path, clock: HandClock) -> None:
    """Two machines write to one topic in turn, and the clock of the second one is a week behind.

    Outcome: nothing is lost. Times of the second one follow those of the first one, and every state is found.
    """
    behind = HandClock(clock.ms - 7 * DAY_MS)
    with attached(tmp_path, clock) as (log, archive):
        ship(log, archive, b"first")
    with attached(tmp_path, behind, "second") as (log, second):
        second.replication.take_over("orders").append([b"second"])
        log.topic("orders").seal()
        second.offload("orders", drop_hot=True)
        found = list(second.read("orders"))
        assert [each.value for each in found] == [b"first", b"second"]
        assert found[0].ts_ms <= found[1].ts_ms
        assert [each.value for each in second.read("orders", at="seq:1")] == [b"first"]


def test_a_branch_is_deleted_on_a_machine_whose_clock_is_behind(tmp_path: Path, clock: HandClock) -> None:
    """A machine whose clock is a month behind deletes a branch, and GC runs on another machine.

    Outcome: nothing is lost. The window of the branch begins with the store's time, which is later.
    """
    with attached(tmp_path, clock) as (log, archive):
        ship(log, archive, b"one")
        archive.restore("orders", to="head", name="fix")
        clock.ms -= 31 * DAY_MS
        archive.branches.delete_branch("orders", "fix")
        clock.ms += 31 * DAY_MS
        archive.upkeep.collect(grace_s=0)
        archive.upkeep.collect(grace_s=0)
        archive.branches.undelete_branch("orders", "fix")
        assert [each.value for each in archive.read("orders@fix")] == [b"one"]


# ---------------------------------------------------------------- targets


def refused(tmp_path: Path, clock: HandClock, target: str, error: type[Exception], match: str) -> None:
    """Every call that takes a target is, and no name is made; all records are there afterwards."""
    with attached(tmp_path, clock) as (log, archive):
        ship(log, archive, *numbered(10))
        before = archive.branches.remote_names()
        for act in (
            lambda: list(archive.read("orders", at=target)),
            lambda: archive.restore("orders", to=target, name="fix"),
            lambda: archive.tags.tag("orders", "v1", to=target),
        ):
            with pytest.raises(error, match=match):
                act()
        assert (archive.branches.remote_names(), archive.tags.list("orders")) == (before, [])
        assert [each.value for each in archive.read("orders")] == numbered(10)


def test_a_target_has_no_zone(tmp_path: Path, clock: HandClock) -> None:
    """Somebody gives a time without a zone as the target of a restore.

    Outcome: refused with `InvalidTarget`, which asks for the zone. The zone of the machine is not guessed.
    """
    refused(tmp_path, clock, "2026-01-31T12:00:00", InvalidTarget, "a time needs its zone")


def test_a_target_is_before_1970(tmp_path: Path, clock: HandClock) -> None:
    """Somebody gives a target of the year 1926.

    Outcome: refused with `OutOfWindow`, which says what is restorable.
    """
    refused(tmp_path, clock, "1926-01-31T12:00:00Z", OutOfWindow, "1926-01-31.* is outside the kept history")


def test_a_target_is_before_all_times(tmp_path: Path, clock: HandClock) -> None:
    """Somebody gives a target so many weeks ago that it is before the first year.

    Outcome: refused with `OutOfWindow`.
    """
    refused(tmp_path, clock, "999999999 weeks ago", OutOfWindow, "is outside the kept history")


def test_a_target_is_after_9999(tmp_path: Path, clock: HandClock) -> None:
    """Somebody gives a target of the year 12026, and one that a zone moves beyond 9999.

    Outcome: refused, with `InvalidTarget` or `OutOfWindow`.
    """
    refused(tmp_path, clock, "12026-01-31T12:00:00Z", InvalidTarget, "12026")


def test_a_target_at_the_end_of_9999_in_a_zone_behind(tmp_path: Path, clock: HandClock) -> None:
    """Somebody gives the last hour of the year 9999 in a zone behind UTC, which is in the year 10000 there.

    Outcome: refused with `OutOfWindow`: the future is not restorable.
    """
    refused(tmp_path, clock, "9999-12-31T23:30:00-12:00", OutOfWindow, "is outside the kept history")


def test_a_target_is_in_another_zone(tmp_path: Path, clock: HandClock) -> None:
    """Somebody gives a target in the zone of another office.

    Outcome: nothing is lost. The same moment in any zone is the same state.
    """
    clock.ms = clock.ms // 1000 * 1000 - 3_600_000
    with attached(tmp_path, clock) as (log, archive):
        ship(log, archive, b"one")
        moment = clock.ms + 1000
        clock.ms += 5000
        ship(log, archive, b"two")
        clock.ms += 5000
        for hours, zone in ((0, "Z"), (2, "+02:00"), (-9, "-09:00"), (5.75, "+05:45")):
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment / 1000 + hours * 3600)) + zone
            assert [each.value for each in archive.read("orders", at=text)] == [b"one"], text


def test_the_clock_is_at_the_end_of_its_range(tmp_path: Path, clock: HandClock) -> None:
    """A broken clock tells the year 2232, the last one that Linux takes, for a while.

    Outcome: nothing is lost. The records are read, offloaded and found by their seq.
    """
    with attached(tmp_path, clock) as (log, archive):
        ship(log, archive, b"before")
        clock.ms += 206 * 365 * DAY_MS
        ship(log, archive, b"far")
        archive.restore("orders", to="head", name="fix")
        clock.ms -= 206 * 365 * DAY_MS
        ship(log, archive, b"after", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == [b"before", b"far", b"after"]
        assert [each.value for each in archive.read("orders", at="seq:1")] == [b"before"]
        assert [each.value for each in archive.read("orders@fix")] == [b"before", b"far"]


def test_the_clock_begins_with_1970(tmp_path: Path, clock: HandClock) -> None:
    """A machine without a battery writes and offloads with the clock of 1970, until NTP sets it.

    Outcome: nothing is lost. The records are read, offloaded and restored.
    """
    clock.ms, now_ms = 0, clock.ms
    with attached(tmp_path, clock) as (log, archive):
        ship(log, archive, b"early", drop_hot=True)
        archive.restore("orders", to="head", name="fix")
        clock.ms = now_ms
        ship(log, archive, b"right", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == [b"early", b"right"]
        assert [each.value for each in archive.read("orders", at="seq:1")] == [b"early"]
        assert [each.value for each in archive.read("orders@fix")] == [b"early"]
