"""Ephemeral records are never written. Readers see them while the process runs, and a gap after a restart."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import seglog
from seglog import Evicted, Gap, InvalidSetting, Log, LogSettings, Record, Topic, TopicConfig, TopicFull, aio
from seglog.engine.entries import EvictEntry
from seglog.engine.work_thread import InCaller
from seglog.format.frame import LOST, read_header
from seglog.values.deletes import DeleteWhere
from seglog.writing import append
from tests.faults.disk import SimulatedDisk
from tests.faults.files import Effects, UnsyncedFiles
from tests.faults.gated_files import GatedFiles
from tests.seams.limits import Limit, set_limit
from tests.seams.log import engine_of, new_topic_entry, queue_of
from tests.waiting import wait_until
from tests.worlds.clock import HandClock

SMALL = LogSettings(segment_max_events=4, wal_file_bytes=4096)
PASSING = TopicConfig("ephemeral")
ROOT = Path("/log")


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000)


@pytest.fixture
def log(tmp_path: Path, clock: HandClock) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SMALL, clock=clock, upkeep=InCaller) as log:
        log.create_topic("t", PASSING)
        yield log


def _shown(topic: Topic, start: int = 1) -> list[tuple[int, bytes] | Gap]:
    return [item if isinstance(item, Gap) else (item.seq, item.value) for item in topic.read(start, gaps=True)]


def _reopen(log: Log, settings: LogSettings = SMALL) -> Log:
    log.close()
    return seglog.open(log.path, settings=settings, upkeep=InCaller)


def _append(topic: Topic, *values: str, durability: str | None = None, tag: str | None = None) -> None:
    topic.append([value.encode() for value in values], durability=durability, tag=tag)


def test_appends_and_deletes_touch_no_file(tmp_path: Path) -> None:
    files = Effects(UnsyncedFiles())
    with seglog.open(tmp_path / "data", files=files, settings=SMALL, upkeep=InCaller) as log:
        log.create_topic("t", PASSING)
        before, wal_bytes = files.effects, log.wal_bytes
        for number in range(50):
            _append(log.topic("t"), "x" * 1000, tag="ab"[number % 2])
        log.topic("t").delete(before=10)
        assert log.topic("t").inner.delete(DeleteWhere(tag="a")).op == 0
        assert len(list(log.topic("t").read())) == 21
        assert (files.effects, log.wal_bytes) == (before, wal_bytes)
        log.checkpoint()
        assert not list(log.topic("t").inner.segments())


def test_they_have_all_that_records_have(log: Log, clock: HandClock) -> None:
    topic = log.topic("t")
    assert topic.append([b"one"], tag="eu", node="n") == range(1, 2)
    clock.ms += 50
    topic.append([b"two", b"three"], unterminated=True)
    assert list(topic.read()) == [
        Record(1, 1000, b"one", "eu", "n"),
        Record(2, 1050, b"two", None, None, True),
        Record(3, 1050, b"three", None, None, True),
    ]
    assert [record.seq for record in topic.read(2, 2)] == [2]
    assert [record.seq for record in topic.read(since_ms=1001)] == [2, 3]
    assert [record.seq for record in topic.read(until_ms=1049)] == [1]
    assert [topic.seq_at(ts_ms) for ts_ms in (0, 1000, 1001, 1051)] == [1, 1, 2, 4]
    assert len(list(topic.inner.frames(1, 3))) == 3
    assert (topic.head_seq, topic.earliest_seq, topic.last_ts_ms) == (3, 1, 1050)
    assert topic.inner.bytes_hot == sum(map(len, topic.inner.frames(1, 3)))


def test_they_are_followed(log: Log) -> None:
    topic, found = log.topic("t"), []

    def follow() -> None:
        for record in topic.follow(1, timeout_s=60):
            found.append(record.value)
            if record.value == b"end":
                return

    follower = threading.Thread(target=follow)
    follower.start()
    for value in ("a", "b", "end"):
        _append(topic, value)
    follower.join(60)
    assert found == [b"a", b"b", b"end"]


def test_they_go_with_the_process_and_readers_are_told(log: Log) -> None:
    _append(log.topic("t"), "a", "b", "c")
    with _reopen(log) as again:
        topic = again.topic("t")
        assert topic.config == PASSING
        assert (topic.head_seq, topic.earliest_seq, topic.inner.evict_floor) == (3, 4, 4)
        assert _shown(topic) == [Gap(1, 3)]
        with pytest.raises(Evicted) as error:
            list(topic.read(2))
        assert (error.value.gap_from, error.value.gap_to) == (2, 3)
        assert list(topic.read()) == []
        _append(topic, "d")
        assert _shown(topic) == [Gap(1, 3), (4, b"d")]
    assert seglog.verify(log.path).damages == ()


def test_a_checkpoint_keeps_the_head_and_nothing_else() -> None:
    disk = SimulatedDisk()
    log = seglog.open(ROOT, files=disk, settings=SMALL, upkeep=InCaller)
    log.create_topic("t", PASSING)
    _append(log.topic("t"), "in memory", "b", "c")
    log.checkpoint()
    _append(log.topic("t"), *"de")
    image = disk.after_power_cut()
    assert not [path for path, body in image.tree.items() if body and b"in memory" in body]
    with seglog.open(ROOT, files=SimulatedDisk(image), settings=SMALL, upkeep=InCaller) as again:
        assert _shown(again.topic("t")) == [Gap(1, 3)]
        assert again.topic("t").append([b"new"]) == range(4, 5)
    log.close()


def test_a_checkpoint_without_news_writes_nothing(tmp_path: Path) -> None:
    files = Effects(UnsyncedFiles())
    with seglog.open(tmp_path / "data", files=files, settings=SMALL, upkeep=InCaller) as log:
        log.create_topic("t", PASSING)
        _append(log.topic("t"), "a")
        log.checkpoint()
        before = files.effects
        log.checkpoint()
        assert files.effects == before


def test_both_sides_of_a_gap_read_back(log: Log) -> None:
    topic = log.topic("mixed")
    _append(topic, "1", "2")
    _append(topic, "3", "4", durability="ephemeral")
    _append(topic, "5", durability="disk")
    log.checkpoint()
    _append(topic, "6", durability="ephemeral")
    log.checkpoint()
    _append(topic, "7", durability="memory")
    _append(topic, "8", durability="ephemeral")
    everything = [(seq, b"%d" % seq) for seq in range(1, 9)]
    assert _shown(topic) == everything
    log.checkpoint()
    assert _shown(topic) == everything
    assert len(list(topic.inner.frames(1, 8))) == 8
    with _reopen(log) as again:
        topic = again.topic("mixed")
        told = [(1, b"1"), (2, b"2"), Gap(3, 4), (5, b"5"), Gap(6, 6), (7, b"7"), Gap(8, 8)]
        assert _shown(topic) == told
        assert _shown(topic, 4) == [Gap(4, 4), *told[3:]]
        with pytest.raises(Evicted) as error:
            list(topic.read())
        assert (error.value.gap_from, error.value.gap_to) == (3, 4)
        batches = topic.read_batches()
        assert [record.seq for record in next(batches)] == [1, 2]
        with pytest.raises(Evicted):
            next(batches)
        assert topic.append([b"9"]) == range(9, 10)
        assert len(list(topic.inner.frames(1, 9))) == 9
    with seglog.open(log.path, settings=SMALL) as again:
        assert _shown(again.topic("mixed")) == [*told, (9, b"9")]
    assert seglog.verify(log.path).damages == ()


def test_no_gap_goes_beyond_the_end_of_a_read(log: Log) -> None:
    """Read after the last segment, where only memory had the records."""
    topic = log.topic("mixed")
    _append(topic, "1")
    log.checkpoint()
    _append(topic, *"234", durability="ephemeral")
    log.checkpoint()
    _append(topic, "5", durability="memory")
    engine_of(log).topics["mixed"].drop_oldest_ephemeral()
    for end, gap in ((2, Gap(2, 2)), (3, Gap(2, 3)), (4, Gap(2, 4)), (5, Gap(2, 4))):
        assert next(topic.read(2, end, gaps=True)) == gap


def test_a_gap_ends_where_the_next_record_in_memory_begins(tmp_path: Path) -> None:
    """The first ephemeral records are lost, and memory holds the others."""
    settings = LogSettings(ephemeral_max_bytes=16_384)
    with seglog.open(tmp_path / "data", settings=settings, upkeep=InCaller) as log:
        topic = log.topic("mixed")
        _append(topic, "first")
        for number in range(2, 40):
            _append(topic, f"{number:04}" * 250, durability="ephemeral")
        for _ in range(2):
            first = engine_of(log).topics["mixed"].ephemeral_buffer.chunks[0].first_seq
            assert 2 < first < 39
            assert _shown(topic, 2)[:2] == [Gap(2, first - 1), (first, b"%04d" % first * 250)]
            assert next(topic.read(2, first, gaps=True)) == Gap(2, first - 1)
            _append(topic, "last")


def test_a_durable_record_may_be_the_first_after_ephemeral_ones(log: Log) -> None:
    topic = log.topic("t")
    _append(topic, "a", "b")
    _append(topic, "c", durability="fsync")
    assert _shown(topic) == [(1, b"a"), (2, b"b"), (3, b"c")]
    log.checkpoint()
    assert _shown(topic) == [(1, b"a"), (2, b"b"), (3, b"c")]
    with _reopen(log) as again:
        assert _shown(again.topic("t")) == [Gap(1, 2), (3, b"c")]


def test_times_are_found_on_both_sides_of_a_gap(log: Log, clock: HandClock) -> None:
    topic = log.topic("mixed")
    for number, durability in enumerate(("fsync", "ephemeral", "ephemeral", "fsync", "ephemeral", "fsync")):
        clock.ms = 1_000 + 100 * number
        _append(topic, str(number), durability=durability)
    wanted = [1, 2, 3, 4, 5, 6, 7]
    for _ in range(2):
        assert [topic.seq_at(900 + 100 * number + 1) for number in range(7)] == wanted
        assert [record.seq for record in topic.read(since_ms=1_150, until_ms=1_450)] == [3, 4, 5]
        log.checkpoint()
    with _reopen(log) as again:
        topic = again.topic("mixed")
        assert [item.seq for item in topic.read(since_ms=1_250, gaps=True) if isinstance(item, Record)] == [4, 6]


def test_a_snapshot_may_know_of_more_seqs_than_a_frame_that_was_on_its_way(log: Log, tmp_path: Path) -> None:
    topic = log.topic("t")
    _append(topic, *"abcde", durability="fsync")
    topic.seal()
    _append(topic, "lost")
    engine = engine_of(log)
    with engine.committer.lock:
        state = engine.state("t")
        engine.committer.enqueue(evict := EvictEntry(state, state.floors.evicted(3, Gap(1, 2))))
    # Use another thread, because this thread has an entry in the queue.
    for work in (lambda: _append(topic, "waits for nothing"), log.checkpoint):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    engine.committer.finish(evict)
    _append(topic, "last", durability="fsync")
    shutil.copytree(log.path, tmp_path / "killed")
    with seglog.open(tmp_path / "killed", settings=SMALL, upkeep=InCaller) as again:
        assert _shown(again.topic("t")) == [Gap(1, 2), (3, b"c"), (4, b"d"), (5, b"e"), Gap(6, 7), (8, b"last")]


def test_a_delete_reaches_no_record_that_takes_a_seq_later() -> None:
    disk = SimulatedDisk()
    log = seglog.open(ROOT, files=disk, settings=SMALL, upkeep=InCaller)
    topic = log.topic("mixed")
    _append(topic, "1", tag="x")
    _append(topic, "2", "3", durability="ephemeral", tag="x")
    topic.delete(tag="x")
    assert _shown(topic) == []
    with seglog.open(ROOT, files=SimulatedDisk(disk.after_power_cut()), settings=SMALL, upkeep=InCaller) as again:
        assert again.topic("mixed").append([b"4"], tag="x") == range(4, 5)
        assert _shown(again.topic("mixed"), 4) == [(4, b"4")]
    log.close()


def test_what_was_deleted_is_passed_over_in_silence(log: Log) -> None:
    topic = log.topic("t")
    _append(topic, "a", "b", tag="x")
    _append(topic, "c")
    topic.delete(tag="x")
    assert (topic.earliest_seq, _shown(topic)) == (3, [(3, b"c")])
    topic.delete(before=4)
    assert (topic.earliest_seq, topic.inner.evict_floor, _shown(topic)) == (4, 1, [])
    assert topic.inner.bytes_hot == 0


def test_the_first_live_record_is_behind_all_that_a_tag_takes_from_memory(log: Log) -> None:
    topic = log.topic("t")
    _append(topic, *["x"] * 100, tag="debug")
    _append(topic, "kept", durability="fsync")
    log.seal(["t"])
    log.checkpoint()
    topic.delete(tag="debug")
    assert (topic.earliest_seq, _shown(topic)) == (101, [(101, b"kept")])
    with _reopen(log) as again:
        assert (again.topic("t").earliest_seq, _shown(again.topic("t"))) == (101, [(101, b"kept")])


def test_a_reader_on_its_way_shows_no_record_deleted_before_it_got_there(log: Log) -> None:
    _append(log.topic("t"), *"abcd")
    reader = log.topic("t").read()
    assert next(reader).seq == 1
    log.topic("t").delete(before=4)
    assert [record.seq for record in reader] == [4]


@pytest.mark.parametrize("seq", range(1, 11))
@pytest.mark.parametrize("is_absorbed", [False, True])
def test_a_topic_is_truncated_wherever_it_is(log: Log, seq: int, is_absorbed: bool) -> None:
    topic = log.topic("mixed")
    for number, durability in enumerate(("fsync", "ephemeral", "fsync", "ephemeral"), 1):
        _append(topic, f"{number}a", f"{number}b", durability=durability)
    values = [(number, value) for number, (_, value) in enumerate(_shown(topic), 1)]  # type: ignore[misc]
    if is_absorbed:
        log.checkpoint()
    if seq > 9:
        with pytest.raises(seglog.SeqOutOfRange):
            topic.truncate(seq)
        return
    topic.truncate(seq)
    assert _shown(topic) == values[: seq - 1]
    _append(topic, "next", durability="ephemeral")
    _append(topic, "last")
    assert _shown(topic) == [*values[: seq - 1], (seq, b"next"), (seq + 1, b"last")]
    with _reopen(log) as again:
        lost = {3, 4, 7, 8}
        told = _shown(again.topic("mixed"))
        kept = [item for item in told if not isinstance(item, Gap)]
        assert kept == [*(value for value in values[: seq - 1] if value[0] not in lost), (seq + 1, b"last")]
        gone = {number for item in told if isinstance(item, Gap) for number in range(item.gap_from, item.gap_to + 1)}
        assert gone == {*(number for number in lost if number < seq), seq}


def test_full_memory_takes_the_oldest_and_says_so(tmp_path: Path) -> None:
    settings = LogSettings(ephemeral_max_bytes=16_384)
    with seglog.open(tmp_path / "data", settings=settings, upkeep=InCaller) as log:
        log.create_topic("t", PASSING)
        for number in range(100):
            _append(log.topic("t"), f"{number:03}" * 100)
            assert engine_of(log).memory.used_bytes <= 16_384
        [gap, *rest] = _shown(log.topic("t"))
        assert isinstance(gap, Gap)
        assert gap.gap_from == 1
        assert 10 < len(rest) == 100 - gap.gap_to
        assert log.topic("t").earliest_seq == log.topic("t").inner.evict_floor == gap.gap_to + 1
        with pytest.raises(TopicFull, match="ephemeral_max_bytes"):
            _append(log.topic("t"), "x" * 16_384)
        assert log.topic("t").head_seq == 100


def test_full_memory_is_taken_from_whoever_has_most_and_lets_it_go(tmp_path: Path) -> None:
    settings = LogSettings(ephemeral_max_bytes=16_384)
    with seglog.open(tmp_path / "data", settings=settings, upkeep=InCaller) as log:
        log.create_topic("small", PASSING)
        log.create_topic("large", PASSING)
        log.create_topic("firm", TopicConfig("ephemeral", discard="reject"))
        _append(log.topic("small"), "s" * 500)
        _append(log.topic("firm"), "f" * 500)
        for _ in range(40):
            _append(log.topic("large"), "l" * 1000)
        assert log.topic("large").earliest_seq > 20
        assert (log.topic("small").earliest_seq, log.topic("firm").earliest_seq) == (1, 1)
        with pytest.raises(TopicFull, match="ephemeral_max_bytes"):
            _append(log.topic("firm"), "f" * 5000)
        assert log.topic("firm").head_seq == 1
        log.delete_topic("large")
        assert engine_of(log).memory.used_bytes < 5000
        _append(log.topic("firm"), "f" * 5000)


def test_full_memory_is_never_taken_from_a_topic_that_refuses_appends(tmp_path: Path) -> None:
    settings = LogSettings(ephemeral_max_bytes=16_384)
    with seglog.open(tmp_path / "data", settings=settings, upkeep=InCaller) as log:
        log.create_topic("firm", TopicConfig("ephemeral", discard="reject"))
        log.create_topic("small", PASSING)
        for _ in range(5):
            _append(log.topic("firm"), "f" * 1000)
        for _ in range(20):
            _append(log.topic("small"), "s" * 1000)
        assert len(_shown(log.topic("firm"))) == 5
        assert log.topic("small").earliest_seq > 10


def test_a_cap_takes_none_of_them_behind_records_that_it_leaves(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SMALL, upkeep=InCaller) as log:
        topic = log.create_topic("capped", TopicConfig(cap_bytes=5000))
        _append(topic, "first")
        log.checkpoint()
        for _ in range(60):
            _append(topic, "x" * 8000, durability="ephemeral")
        log.checkpoint()
        _append(topic, "last", durability="ephemeral")
        assert [record.seq for record in topic.read()] == [*range(1, 63)]


def test_full_memory_between_durable_records_leaves_them(tmp_path: Path) -> None:
    settings = LogSettings(ephemeral_max_bytes=16_384)
    with seglog.open(tmp_path / "data", settings=settings, upkeep=InCaller) as log:
        topic = log.topic("mixed")
        _append(topic, "first")
        for _ in range(40):
            _append(topic, "x" * 1000, durability="ephemeral")
        _append(topic, "last")
        for _ in range(2):
            shown = _shown(topic)
            assert (shown[0], shown[-1]) == ((1, b"first"), (42, b"last"))
            assert isinstance(shown[1], Gap)
            assert (shown[1].gap_from, topic.inner.evict_floor) == (2, 1)
            assert len(shown) == 2 + 1 + 41 - shown[1].gap_to
            log.checkpoint()


def test_ttl_and_caps_take_them_too(tmp_path: Path, clock: HandClock) -> None:
    settings = LogSettings(ephemeral_max_bytes=128 * 1024)
    with seglog.open(tmp_path / "data", settings=settings, clock=clock, upkeep=InCaller) as log:
        for name, config in (
            ("records", TopicConfig("ephemeral", cap_records=10)),
            ("bytes", TopicConfig("ephemeral", cap_bytes=20_000)),
            ("ttl", TopicConfig("ephemeral", ttl_ms=100)),
        ):
            log.create_topic(name, config)
        for number in range(30):
            _append(log.topic("records"), "r" * 2000)
            _append(log.topic("bytes"), "b" * 2000)
            assert len(list(log.topic("records").read())) >= min(10, number + 1)
        assert log.topic("records").inner.evict_floor > 1
        assert log.topic("bytes").inner.evict_floor > 1
        assert 20_000 <= log.topic("bytes").inner.bytes_hot < 20_000 + 16 * 1024 + 2100
        _append(log.topic("ttl"), "old")
        clock.ms += 101
        [done] = log.enforce_retention()
        assert (done.topic, done.evicted_seq) == ("ttl", 1)
        assert _shown(log.topic("ttl")) == [Gap(1, 1)]
        log.configure("records", TopicConfig("ephemeral", cap_records=3, discard="reject"))
        with pytest.raises(TopicFull):
            _append(log.topic("records"), "x")


def test_lost_ones_are_told_when_their_segment_is_evicted(log: Log) -> None:
    log.create_topic("mixed", TopicConfig(cap_records=1))
    topic = log.topic("mixed")
    _append(topic, "1", "2")
    _append(topic, "3", "4", durability="ephemeral")
    _append(topic, "5", "6", "7", "8")
    topic.enforce_retention()
    assert topic.inner.evict_floor == 5
    assert _shown(topic)[0] == Gap(1, 4)
    with _reopen(log) as again:
        assert _shown(again.topic("mixed"))[0] == Gap(1, 4)


def test_lost_ones_are_told_behind_what_a_delete_took(log: Log) -> None:
    topic = log.topic("mixed")
    _append(topic, "1", tag="x")
    _append(topic, "2", durability="ephemeral")
    _append(topic, "3", tag="x")
    with _reopen(log) as again:
        topic = again.topic("mixed")
        topic.delete(tag="x")
        assert _shown(topic) == [Gap(2, 2)]
        assert topic.earliest_seq == 2


def test_what_keeps_its_history_takes_none(log: Log) -> None:
    kept = log.create_topic("kept", TopicConfig(keep_history=True))
    with pytest.raises(InvalidSetting, match="use memory, or another topic"):
        _append(kept, "x", durability="ephemeral")
    assert kept.head_seq == 0
    log.topic_defaults = TopicConfig(keep_history=True)
    with pytest.raises(InvalidSetting):
        _append(log.topic("new"), "x", durability="ephemeral")
    assert not log.has_topic("new")


def test_an_archive_gets_none_of_them_from_a_topic_that_keeps_its_history_from_now_on(log: Log) -> None:
    topic = log.topic("t")
    _append(topic, "a")
    _append(topic, "b", durability="fsync")
    _append(topic, "c")
    topic.seal()
    log.configure("t", TopicConfig(keep_history=True))
    found = list(topic.inner.frames(1, 3))
    assert [read_header(frame).flags & LOST != 0 for frame in found] == [True, False, True]
    assert [read_header(frame).data_len for frame in found] == [0, 1, 0]
    assert _shown(topic) == [(1, b"a"), (2, b"b"), (3, b"c")]
    with _reopen(log) as again:
        assert list(again.topic("t").inner.frames(1, 2)) == found[:2]


def test_nothing_is_waited_for(tmp_path: Path) -> None:
    files = GatedFiles()
    with seglog.open(tmp_path / "data", files=files) as log:
        log.create_topic("t", PASSING)
        log.create_topic("other")
        files.gate.clear()
        files.waiting.clear()
        slow = threading.Thread(target=log.topic("other").append, args=([b"slow"],))
        slow.start()
        assert files.waiting.wait(60)
        _append(log.topic("t"), "quick")
        assert [record.value for record in log.topic("t").read()] == [b"quick"]
        assert log.topic("other").head_seq == 0
        files.gate.set()
        slow.join()


def test_one_of_a_topic_that_is_being_made_waits_for_that(log: Log) -> None:
    engine = engine_of(log)
    with engine.committer.lock:
        create = new_topic_entry(engine, "new", PASSING)
        engine.committer.enqueue(create)
    begun = append.begin_append(engine, "new", [b"value"], 1, 5, append.AppendOptions(durability="ephemeral"))
    assert create.state.head_seq == 0
    engine.committer.finish(create)
    assert append.finish_append(engine, begun) == range(1, 2)
    assert _shown(log.topic("new")) == [(1, b"value")]


def test_one_behind_a_durable_append_comes_after_it(tmp_path: Path) -> None:
    files = GatedFiles()
    with seglog.open(tmp_path / "data", files=files) as log:
        topic = log.create_topic("t")
        files.gate.clear()
        files.waiting.clear()
        first = threading.Thread(target=topic.append, args=([b"first"],))
        first.start()
        assert files.waiting.wait(60)
        second = threading.Thread(target=topic.append, args=([b"second"],), kwargs={"durability": "ephemeral"})
        second.start()
        wait_until(lambda: queue_of(log))
        assert topic.head_seq == 0
        files.gate.set()
        first.join()
        second.join()
        assert _shown(topic) == [(1, b"first"), (2, b"second")]


def test_the_index_of_what_is_not_absorbed_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.LOST_RECORDS_IN_TAIL, 10)
    with seglog.open(tmp_path / "data", settings=SMALL, upkeep=InCaller) as log:
        topic = log.topic("mixed")
        _append(topic, "durable")
        for number in range(30):
            _append(topic, str(number), durability="ephemeral")
            assert len(engine_of(log).state("mixed").tail) <= 12
        assert len(_shown(topic)) == 31


def test_all_classes_at_once_from_many_threads(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        topic = log.topic("mixed")
        wanted: dict[int, tuple[str, bytes]] = {}

        def work(durability: str) -> None:
            for number in range(40):
                value = f"{durability} {number}".encode()
                wanted[topic.append([value], durability=durability)[0]] = (durability, value)

        classes = ["ephemeral", "ephemeral", "fsync", "disk", "memory"]
        threads = [threading.Thread(target=work, args=(durability,)) for durability in classes]
        for thread in threads:
            thread.start()
        for _ in range(20):
            log.checkpoint()
            assert not [item for item in topic.read(gaps=True) if isinstance(item, Gap)] if topic.exists else True
        for thread in threads:
            thread.join()
        assert _shown(topic) == [(seq, wanted[seq][1]) for seq in range(1, 201)]
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        kept = [(seq, value) for seq, (durability, value) in sorted(wanted.items()) if durability != "ephemeral"]
        assert [item for item in _shown(log.topic("mixed")) if not isinstance(item, Gap)] == kept
        assert log.topic("mixed").head_seq == 200


def test_tasks_append_them_too(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        async with aio.open(tmp_path / "data", settings=SMALL) as log:
            topic = log.topic("t")
            classes = ["ephemeral", "fsync", "ephemeral", "disk"]
            await asyncio.gather(*[topic.append([name.encode()], durability=name) for name in classes])
            return [record.value async for record in topic.read()]

    assert asyncio.run(main()) == [b"ephemeral", b"fsync", b"ephemeral", b"disk"]
