"""Test that a read of a past state changes nothing, and shows the same before an offload as after it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import OutOfWindow
from catalog.objects.memory import MemoryStore
from offload import Archive
from offload.errors import NotOffloaded
from offload.moment import format_time
from seglog import LogSettings, Topic, TopicConfig
from tests.array_rows import rows_of
from tests.faults.files import UnsyncedFiles
from tests.faults.store import EFFECTS, CountingStore
from tests.offload.replicas import opened, ship
from tests.seams.archive import change_ts_ms
from tests.worlds.clock import HandClock

_RARER = range(8, 25)


def _shown(archive: Archive, at: str) -> list[tuple[int, bytes]] | str:
    try:
        found = list(archive.read("t", at=at))
        if at.endswith(("3", "7", "Z")):
            assert rows_of(archive.read_arrays("t", at=at)) == found
        return [(record.seq, record.value) for record in found]
    except OutOfWindow:
        return "outside"
    except NotOffloaded:
        return "needs an offload"


def _writes(store: CountingStore) -> int:
    return sum(store.counts[method] for method in EFFECTS)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.soak(part=8)) for seed in _RARER)])
def test_every_target_shows_before_an_offload_what_it_shows_after_it(seed: int, tmp_path: Path) -> None:
    """The steps are appends, deletes, evictions, truncations, and offloads of a part."""
    chance = random.Random(seed)
    clock, store = HandClock(), CountingStore(MemoryStore())
    settings = LogSettings(segment_max_events=7)
    times: list[int] = []
    with (
        seglog.open(tmp_path, clock=clock, settings=settings) as log,
        offload.attach(log, store=store, clock=clock) as archive,
    ):
        topic = log.topic("t")
        for _ in range(chance.randint(5, 40)):
            _step(chance, archive, topic, store)
            times.append(clock.ms)
            clock.ms += chance.randint(0, 3)
        highest = topic.head_seq + 2
        targets = [f"seq:{seq}" for seq in range(1, highest)] + [format_time(ms) for ms in sorted(set(times))]
        writes, position, segments = _writes(store), topic.inner.position, topic.inner.segments()
        if writes:
            targets += ["head", "head~1", "head~2", "head~3"]
        before = {at: _shown(archive, at) for at in targets}
        targets = [at for at in targets if not (at.startswith("head~") and before[at] == "needs an offload")]
        assert (_writes(store), topic.inner.position, topic.inner.segments()) == (writes, position, segments)
        topic.seal()
        archive.offload("t", drop_hot=chance.random() < 0.5)
        for at in targets:
            assert _shown(archive, at) == before[at], at


def _step(chance: random.Random, archive: Archive, topic: Topic, store: CountingStore) -> None:
    act = chance.choices(["append", "delete", "tag", "evict", "truncate", "seal", "offload"], [8, 2, 1, 1, 1, 1, 2])[0]
    head_seq, floor = topic.head_seq, topic.inner.evict_floor
    if act == "append" or not head_seq:
        topic.append([b"%d" % chance.randrange(10**9)] * chance.randint(1, 4), tag=chance.choice(["a", "b", None]))
    elif act == "delete":
        topic.delete(before=chance.randint(1, head_seq + 1))
    elif act == "tag":
        topic.delete(tag=chance.choice(["a", "b"]))
    elif act == "evict" and chance.random() < 0.5:
        topic.evict(chance.randint(1, head_seq + 1))
    elif act == "truncate":
        topic.truncate(chance.randint(max(floor, 1), head_seq + 1))
    elif act == "seal":
        topic.seal()
    elif act == "offload":
        archive.offload("t", up_to=chance.choice([None, head_seq // 2]), drop_hot=chance.random() < 0.3)


def test_a_delete_before_the_first_record_is_no_past_state(tmp_path: Path) -> None:
    clock = HandClock()
    with seglog.open(tmp_path, clock=clock) as log, offload.attach(log, store=MemoryStore(), clock=clock) as archive:
        log.create_topic("t", TopicConfig(keep_history=True))
        archive.delete("t", tag="a")
        clock.ms += 1000
        log.topic("t").append([b"x"], tag="a")
        target = format_time(clock.ms - 500)
        for _ in range(2):
            with pytest.raises(OutOfWindow):
                archive.read("t", at=target)
            log.topic("t").seal()
            archive.offload("t")


def test_a_reader_of_a_past_state_goes_on_where_an_offload_moved_the_records(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, offload.attach(log, store=MemoryStore()) as archive:
        topic = log.topic("t")
        topic.append([b"x" * 1000] * 5000)
        topic.delete(before=4000)
        topic.append([b"after"])
        found = archive.read("t", at="seq:5000")
        seqs = [next(found).seq]
        topic.seal()
        archive.offload("t", drop_hot=True)
        seqs += [record.seq for record in found]
        assert seqs == list(range(1, 5001))


def test_a_truncation_of_the_last_offloaded_record_and_the_delete_after_it_are_told(tmp_path: Path) -> None:
    clock = HandClock()
    with (
        seglog.open(tmp_path, clock=clock, files=UnsyncedFiles()) as log,
        offload.attach(log, store=MemoryStore(), clock=clock) as archive,
    ):
        topic = log.topic("t")
        topic.append([b"1", b"2", b"3"])
        topic.seal()
        archive.offload("t")
        clock.ms += 1
        topic.truncate(3)
        clock.ms += 1
        topic.delete(before=2)
        clock.ms += 1
        topic.append([b"new"])
        for _ in range(2):
            assert _shown(archive, format_time(clock.ms - 3)) == [(1, b"1"), (2, b"2"), (3, b"3")]
            assert _shown(archive, format_time(clock.ms - 2)) == [(1, b"1"), (2, b"2")]
            assert _shown(archive, format_time(clock.ms - 1)) == [(2, b"2")]
            assert _shown(archive, format_time(clock.ms)) == [(2, b"2"), (3, b"new")]
            topic.seal()
            archive.offload("t")


def test_a_delete_is_in_the_past_of_a_topic_that_was_truncated_below_its_own_first_record(tmp_path: Path) -> None:
    """A takeover begins the topic at seq 9."""
    clock, store = HandClock(), MemoryStore()
    with opened(tmp_path / "first", store, clock) as (log, archive):
        ship(archive, log, "t", *[b"%d" % number for number in range(8)])
    with opened(tmp_path / "second", store, clock) as (log, archive):
        archive.replication.sync("t")
        archive.replication.take_over("t")
        topic = log.topic("t")
        topic.truncate(3)
        clock.ms += 1
        topic.append([b"new"] * 6)
        clock.ms += 1
        archive.evict("t", 7)
        before = [(7, b"new"), (8, b"new")]
        clock.ms += 1
        archive.evict("t", 8)
        for _ in range(2):
            assert _shown(archive, format_time(clock.ms - 1)) == before
            assert _shown(archive, format_time(clock.ms)) == before[1:]
            topic.seal()
            archive.offload("t")


def test_a_time_of_the_topics_own_is_not_in_the_future_for_a_clock_that_was_set_back(tmp_path: Path) -> None:
    clock = HandClock()
    with (
        seglog.open(tmp_path, clock=clock, files=UnsyncedFiles()) as log,
        offload.attach(log, store=MemoryStore(), clock=clock) as archive,
    ):
        log.topic("t").append([b"1"])
        newest_ms = clock.ms
        clock.ms -= 1000
        assert _shown(archive, format_time(newest_ms)) == [(1, b"1")]
        assert _shown(archive, format_time(newest_ms + 1)) == "outside"


def test_a_record_that_was_deleted_before_the_archive_came_is_in_no_past_state(tmp_path: Path) -> None:
    with seglog.open(tmp_path, files=UnsyncedFiles()) as log:
        topic = log.topic("t")
        for value in (b"1", b"2", b"3"):
            topic.append([value], tag="x" if value == b"2" else None)
        topic.delete(tag="x")
        log.checkpoint()
        with offload.attach(log, store=MemoryStore()) as archive:
            for _ in range(2):
                assert _shown(archive, "seq:3") == [(1, b"1"), (3, b"3")]
                topic.seal()
                archive.offload("t")


@pytest.mark.parametrize("how", ["offload", "truncation"])
def test_what_moves_records_beside_a_look_up_is_no_error(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        seglog.open(tmp_path, files=UnsyncedFiles()) as log,
        offload.attach(log, store=MemoryStore()) as archive,
    ):
        topic = log.topic("t")
        topic.append([b"x"] * 5)

        def move() -> None:
            if how == "truncation":
                topic.truncate(4)
            else:
                topic.seal()
                archive.offload("t", drop_hot=True)

        acts = [move]

        def acting(ts_ms: Callable[[Topic, int], int]) -> Callable[[Topic, int], int]:
            def act_first(topic: Topic, seq: int) -> int:
                if acts:
                    acts.pop()()
                return ts_ms(topic, seq)

            return act_first

        change_ts_ms(monkeypatch, acting)
        assert _shown(archive, "seq:3") == [(seq, b"x") for seq in (1, 2, 3)]
        assert not acts


def test_a_reader_of_a_past_state_shows_nothing_that_a_truncation_put_there_meanwhile(tmp_path: Path) -> None:
    """Each record is so large that it is a batch of its own."""
    clock = HandClock()
    with (
        seglog.open(tmp_path, clock=clock, files=UnsyncedFiles()) as log,
        offload.attach(log, store=MemoryStore(), clock=clock) as archive,
    ):
        topic = log.topic("t")
        topic.append([b"x" * 700_000] * 4)
        found = archive.read("t", at=format_time(clock.ms))
        assert next(found).seq == 1
        clock.ms += 1
        topic.truncate(2)
        topic.append([b"new"] * 3)
        assert list(found) == []


def test_the_commit_before_a_delete_is_found_whether_the_delete_is_offloaded_or_not(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log, offload.attach(log, store=MemoryStore()) as archive:
        topic = log.topic("t")
        topic.append([b"a"] * 60)
        topic.seal()
        archive.offload("t")
        topic.append([b"b"] * 40)
        topic.delete(before=50)
        everything = list(range(1, 101))
        with pytest.raises(NotOffloaded):
            archive.read("t", at="head~1")
        archive.restore("t", to="head~1", name="rescued")
        assert [record.seq for record in archive.read("t@rescued")] == everything
        assert [record.seq for record in archive.read("t", at="head~1")] == everything
        assert [record.seq for record in archive.read("t", at="head")] == everything[49:]
        topic.append([b"c"])
        assert [record.seq for record in archive.read("t", at="head~1")] == everything[49:]


def test_a_call_that_names_a_commit_says_how_to_get_one_and_makes_none(tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    with seglog.open(tmp_path) as log, offload.attach(log, store=store) as archive:
        log.topic("t").append([b"a"])
        for target in ("head", "seq:1", "lsn:1", "head~1"):
            for call in (archive.history.point, archive.history.snapshot):
                with pytest.raises(NotOffloaded) as refusal:
                    call("t", target)
                assert "`seglog seal t`, then `seglog offload t`" in (refusal.value.hint or "")
        assert _writes(store) == 0
        assert [record.value for record in archive.read("t", at="seq:1")] == [b"a"]
