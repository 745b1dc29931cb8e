"""Test the cursors of a log: truncations, restarts, other topics, damage, and changes that fail, beside a model."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglog
from seglog import AppendsHeld, Log, LogSettings, TopicConfig, WriterPoisoned
from seglog.base.errors import Conflict, Corrupt, Missing
from seglog.delivery.cursor import TOPIC, Cursor, decode_cursor, encode_cursor
from seglog.delivery.cursor_states import MOST_CURSORS, CursorStates
from seglog.errors import InvalidArgument, NoSuchTopic, SeqOutOfRange
from tests.faults.disk import SimulatedDisk
from tests.faults.files import FailingFiles, UnsyncedFiles
from tests.seams.limits import Limit, set_limit
from tests.waiting import wait_until
from tests.worlds.clock import HandClock

KEY = "orders/billing"


def states_of(log: Log, told: list[str] | None = None) -> CursorStates:
    states = CursorStates.of(log)
    topic = log.topic(TOPIC)
    states.load(
        lambda: topic.read() if topic.exists else (),
        (told if told is not None else []).append,
        delete=lambda before: topic.delete(before=before),
    )
    return states


@contextmanager
def opened(directory: Path) -> Iterator[tuple[Log, CursorStates]]:
    with seglog.open(directory, files=UnsyncedFiles()) as log:
        yield log, states_of(log)


def made(log: Log, records: int = 10, floor: int = 0) -> CursorStates:
    log.topic("orders").append([b"x"] * records)
    states = states_of(log)
    states.put(Cursor("orders", "billing", "", log.topic("orders").epoch, floor))
    return states


def ack(states: CursorStates, *seqs: int, epoch: int | None = None) -> Cursor:
    cursor = states.find("orders", "billing")
    return states.put(states.acked(cursor, seqs, cursor.epoch if epoch is None else epoch))


def acked(states: CursorStates) -> set[int]:
    cursor = states.find("orders", "billing")
    return {*range(1, cursor.floor + 1), *cursor.acked_above}


def test_a_restart_finds_each_cursor_as_it_was_acked(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        states = made(log)
        ack(states, 2, 9)
        ack(states, 1)
        states.put(Cursor("orders", "audit", "", 1, 4))
    with opened(tmp_path / "d") as (log, states):
        assert acked(states) == {1, 2, 9}
        assert [(each.name, each.floor) for each in states.all("orders")] == [("audit", 4), ("billing", 2)]
        assert states.all("web") == []
        assert CursorStates.of(log) is states


def test_a_truncation_lowers_the_floor_to_the_cut_and_a_later_ack_keeps_that(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        states = made(log)
        ack(states, 1, 2, 3, 4, 5, 8, 9)
        log.topic("orders").truncate(9)
        assert acked(states) == {1, 2, 3, 4, 5, 8}
        log.topic("orders").truncate(4)
        log.topic("orders").append([b"new"] * 7)
        assert acked(states) == {1, 2, 3}
        assert states.find("orders", "billing").epoch == log.topic("orders").epoch == 3
        ack(states, 6)
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == {1, 2, 3, 6}


def test_a_truncation_that_no_ack_followed_before_a_restart_takes_the_cursor_back_to_the_start(tmp_path: Path) -> None:
    """CURSORS-3: its reader gets records again, and misses none."""
    with opened(tmp_path / "d") as (log, _):
        ack(made(log), 1, 2, 3, 7)
        log.topic("orders").truncate(7)
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == set()


def test_a_cursor_ends_with_its_topic_also_if_the_topic_is_made_again(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        states = made(log, floor=5)
        log.delete_topic("orders")
        with pytest.raises(NoSuchTopic):
            states.find("orders", "billing")
        log.topic("orders").append([b"x"] * 9)
        with pytest.raises(Missing, match="topic orders has no cursor billing"):
            states.find("orders", "billing")
        assert states.all() == []
        assert not states.has("orders", "billing")
    with opened(tmp_path / "d") as (_, states):
        assert states.all() == []


def test_a_cursor_of_another_directory_counts_up_to_the_records_that_were_taken_over(tmp_path: Path) -> None:
    """CURSORS-4: seqs from the takeover on are records of this directory."""
    with opened(tmp_path / "d") as (log, _):
        log.create_topic("orders", first_seq=8, is_taken_over=True)
        log.topic("orders").append([b"x"] * 5)
        state = Cursor("orders", "billing", "another-00000001", 4, 0).acked([1, 2, 3, 7, 8, 9])
        log.topic(TOPIC).append([encode_cursor(state)], tag=KEY)
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == {1, 2, 3, 7}
        ack(states, 9)
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == {1, 2, 3, 7, 9}


def test_a_truncation_in_the_history_lowers_a_cursor_of_another_directory(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        log.create_topic("orders", first_seq=8, is_taken_over=True)
        log.topic(TOPIC).append([encode_cursor(Cursor("orders", "billing", "another-00000001", 4, 7))], tag=KEY)
    with seglog.open(tmp_path / "d") as log:
        asked: list[str] = []
        states = CursorStates.of(log)
        states.load(log.topic(TOPIC).read, cut=lambda cursor: asked.append(cursor.key) or 4)
        assert acked(states) == {1, 2, 3}
        assert asked == [KEY]


def test_an_ack_that_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        states = made(log)
        ack(states, 3)
        for seqs, epoch, kind in (((11,), 1, SeqOutOfRange), ((0,), 1, InvalidArgument), ((4,), 2, Conflict)):
            with pytest.raises(kind):
                ack(states, *seqs, epoch=epoch)
        with pytest.raises(SeqOutOfRange):
            ack(states, 4, 5, 11)
        assert acked(states) == {3}


def test_a_change_that_fails_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        states = made(log)
        ack(states, 3)
        log.hold_appends("the disk is full")
        with pytest.raises(AppendsHeld):
            ack(states, 4)
        assert acked(states) == {3}
        log.hold_appends(None)
        ack(states, 5)
        assert acked(states) == {3, 5}
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == {3, 5}


def test_a_damaged_record_makes_its_cursor_unknown_and_no_other_one(tmp_path: Path) -> None:
    told: list[str] = []
    with opened(tmp_path / "d") as (log, _):
        states = made(log, floor=2)
        states.put(Cursor("orders", "audit", "", 1, 4))
        log.topic(TOPIC).append([b"\x07 of a later version"], tag=KEY)
        log.topic(TOPIC).append([b"nothing"])
    with seglog.open(tmp_path / "d") as log:
        states = states_of(log, told)
        with pytest.raises(Corrupt, match=f"the state of the cursor {KEY} is unknown: record 3 of {TOPIC}"):
            states.find("orders", "billing")
        assert states.has("orders", "billing")
        assert [each.name for each in states.all()] == ["audit"]
    assert [line.partition(":")[0] for line in told] == [f"record {seq} of {TOPIC}" for seq in (3, 4)]


def test_a_compaction_keeps_the_cursors_that_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "d") as (log, _):
        states = made(log)
        for seq in range(1, 9):
            ack(states, seq)
        log.topic("gone").append([b"x"])
        states.put(Cursor("gone", "billing", "", 1, 1))
        log.delete_topic("gone")
        states.put(replace(Cursor("orders", "old", "", 1, 1), is_deleted=True))
        foreign = Cursor("not-here-yet", "billing", "another-00000001", 1, 1)
        log.topic(TOPIC).append([encode_cursor(foreign)], tag=foreign.key)
    set_limit(monkeypatch, Limit.STREAM_ENTRIES_OUTDATED, 1)
    with opened(tmp_path / "d") as (log, states):
        assert acked(states) == {*range(1, 9)}
        assert {record.tag for record in log.topic(TOPIC).read()} == {KEY, foreign.key}
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == {*range(1, 9)}


def test_a_log_takes_so_many_cursors(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        states = made(log)
        for number in range(MOST_CURSORS - 1):
            states.take(replace(states.find("orders", "billing"), name=f"c{number}"))
        with pytest.raises(Conflict, match="1,000 cursors"):
            states.check_room()


def test_a_log_that_is_open_for_reading_only_shows_its_cursors(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        ack(made(log), 1, 2)
    with seglog.open(tmp_path / "d", read_only=True) as log:
        states = CursorStates.of(log)
        states.load(log.topic(TOPIC).read)
        assert acked(states) == {1, 2}


steps = st.lists(
    st.tuples(st.just("append"), st.integers(1, 5))
    | st.tuples(st.just("ack"), st.lists(st.integers(1, 30), min_size=1, max_size=5))
    | st.tuples(st.just("failed ack"), st.lists(st.integers(1, 30), min_size=1, max_size=3))
    | st.tuples(st.just("truncate"), st.integers(1, 30))
    | st.tuples(st.just("restart"), st.none()),
    max_size=20,
)


@given(steps)
def test_a_cursor_over_a_log_has_what_a_plain_set_has(plan: list[tuple[str, object]]) -> None:
    """The model is the set of acked seqs, and whether a truncation is only in memory."""
    with TemporaryDirectory() as place:
        log = seglog.open(Path(place) / "d", files=UnsyncedFiles())
        try:
            states, model, is_stored = made(log), set[int](), True
            for kind, value in plan:
                topic = log.topic("orders")
                if kind == "append":
                    topic.append([b"y"] * int(str(value)))
                elif kind == "restart":
                    log.close()
                    log = seglog.open(Path(place) / "d", files=UnsyncedFiles())
                    states, model = states_of(log), model if is_stored else set()
                elif kind == "truncate":
                    seq = int(str(value))
                    if seq <= topic.head_seq:
                        topic.truncate(seq)
                        model, is_stored = {each for each in model if each < seq}, False
                else:
                    assert isinstance(value, list)
                    is_held = kind == "failed ack"
                    log.hold_appends("held" if is_held else None)
                    try:
                        ack(states, *value)
                    except (AppendsHeld, SeqOutOfRange):
                        assert is_held or max(value) > topic.head_seq
                    else:
                        assert not is_held
                        model, is_stored = model | {*value}, True
                    log.hold_appends(None)
                assert acked(states) == model
        finally:
            log.close()


def test_an_ack_whose_sync_fails_changes_nothing_here_and_a_restart_shows_what_is_durable(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 0, errno.EIO, for_good=True, only=("datasync",))
    log = seglog.open(tmp_path / "d", files=files)
    states = made(log)
    ack(states, 3)
    files.at, files.counted = 1, 0
    for _ in range(2):
        with pytest.raises(WriterPoisoned):
            ack(states, 4)
        assert acked(states) == {3}
    files.at = 0
    with suppress(WriterPoisoned):
        log.close()
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) in ({3}, {3, 4})  # the record of a failed sync may be there or not


@pytest.mark.parametrize("shards", [1, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "durability", ["fsync", *(pytest.param(each, marks=pytest.mark.long) for each in ("memory", "ephemeral"))]
)
def test_no_record_after_a_crash_counts_as_acked_because_a_lost_one_was(shards: int, durability: str) -> None:
    """CURSORS-5: later records get the seqs of those that the crash took."""
    disk, settings = SimulatedDisk(), LogSettings(wal_shards=shards)
    log = seglog.open("/parent/data", files=disk, settings=settings)
    for number in range(3):  # else both topics are in the same shard
        log.create_topic(f"t{number}")
    log.create_topic("orders", TopicConfig(durability=durability))
    log.topic("orders").append([b"x"] * 5, durability="fsync")
    log.create_topic(TOPIC)
    log.topic("orders").append([b"x"] * 5)
    states = states_of(log)
    states.put(Cursor("orders", "billing", "", 1, 0))
    ack(states, *range(1, 11))
    assert acked(states) == {*range(1, 11)}
    ack(states, 3)
    images = [disk.after_kill(), disk.after_power_cut()]
    log.close()
    for image in images:
        again = seglog.open("/parent/data", files=SimulatedDisk(image), settings=settings)
        head_seq = again.topic("orders").head_seq
        assert head_seq == (5 if durability == "ephemeral" else 10)
        assert acked(states_of(again)) == {*range(1, head_seq + 1)}
        again.close()


def test_no_truncation_after_a_crash_is_older_than_a_cursor_that_had_seen_an_ephemeral_record() -> None:
    """CURSORS-4: a recovery compares the two times. The crash takes that of the record, and the clock is set back."""
    disk = SimulatedDisk()
    with seglog.open("/parent/data", files=disk, clock=HandClock(1_000_000)) as log:
        states = made(log, floor=4)
        assert stored(log).ts_ms == 1_000_000
    with seglog.open("/parent/data", files=disk, clock=HandClock(1_200_000)) as log:
        states = states_of(log)
        log.topic("orders").append([b"y"], durability="ephemeral")
        ack(states, 5, 11)
        image = disk.after_kill()
    with seglog.open("/parent/data", files=SimulatedDisk(image), clock=HandClock(1_100_000)) as again:
        again.topic("orders").truncate(3)
        found = stored(again)
        assert (found.floor, found.ts_ms <= again.topic("orders").last_ts_ms) == (5, True)


def stored(log: Log) -> Cursor:
    """Return the newest state of a cursor, as its record says it."""
    *_, record = log.topic(TOPIC).read()
    return decode_cursor(record.value, record.tag)


def test_a_truncation_is_stored_without_an_ack(tmp_path: Path) -> None:
    with opened(tmp_path / "d") as (log, _):
        states = made(log)
        ack(states, 1, 2, 3, 7)
        before = log.topic(TOPIC).head_seq
        states.keep_up(lambda _: None)
        log.topic("orders").truncate(7)
        states.keep_up(lambda _: None)
        states.keep_up(lambda _: None)
        assert log.topic(TOPIC).head_seq == before + 1
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == {1, 2, 3}


def test_a_compaction_beside_changes_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CURSORS-6: one cursor is acked during the compaction, and another one is in the making when it begins."""
    set_limit(monkeypatch, Limit.STREAM_ENTRIES_OUTDATED, 5)
    with opened(tmp_path / "d") as (log, states):
        states = made(log)
        for seq in range(1, 10):
            ack(states, seq)
        log.topic("gone").append([b"x"])
        gone = states.put(Cursor("gone", "billing", "", 1, 1))
        log.delete_topic("gone")
        topic = log.topic(TOPIC)
        new = Cursor("orders", "new", log.topic("orders").incarnation(), 1, 4)
        states.claim(new.key)
        topic.append([encode_cursor(new)], tag=new.key)
        states.claim(KEY)
        deleted: list[int] = []

        def delete(seq: int) -> None:
            topic.delete(before=seq)
            deleted.append(seq)

        compaction = threading.Thread(target=states.keep_up, args=(delete,), daemon=True)
        compaction.start()
        wait_until(lambda: not states.is_stored(gone))
        ack(states, 10)
        states.release(KEY)
        states.take(new)
        states.release(new.key)
        compaction.join()
        assert len(deleted) == 1
        assert [record.tag for record in topic.read()].count(KEY) == 2
        states.keep_up(deleted.append)
        assert len(deleted) == 1  # it was not outdated again
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == {*range(1, 11)}
        assert states.find("orders", "new").floor == 4


def test_a_compaction_that_fails_is_not_tried_at_each_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.STREAM_ENTRIES_OUTDATED, 5)
    with opened(tmp_path / "d") as (log, states):
        states = made(log)
        for seq in range(1, 10):
            ack(states, seq)

        def delete(_: int) -> None:
            raise Conflict("another directory wrote the topic")

        with pytest.raises(Conflict):
            states.keep_up(delete)
        states.keep_up(delete)
    with opened(tmp_path / "d") as (_, states):
        assert acked(states) == {*range(1, 10)}
