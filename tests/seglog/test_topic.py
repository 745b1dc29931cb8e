from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import seglog
from seglog import (
    ColdTierRequired,
    FileCorrupt,
    InvalidArgument,
    InvalidLabel,
    InvalidName,
    InvalidSetting,
    Log,
    LogClosed,
    LogSettings,
    NoSuchTopic,
    Record,
    RecordTooLarge,
    SeqOutOfRange,
    TopicConfig,
)
from seglog.format.frame import DELETED, read_header, record_of
from seglog.format.lines import Lines
from seglog.values.deletes import DeleteWhere
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=10, max_record_bytes=1000)


class Cold:
    """An archive that holds all records of a topic."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.asked: list[tuple[str, int, int]] = []

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        self.asked.append((topic, first, last))
        return (record for record in self.records if first <= record.seq <= last)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(1_000)


@pytest.fixture
def log(tmp_path: Path, clock: HandClock) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS, clock=clock) as log:
        yield log


def _seqs(records: Iterator[Record]) -> list[int]:
    return [record.seq for record in records]


def test_the_first_append_makes_the_topic(log: Log) -> None:
    topic = log.topic("orders")
    assert not topic.exists
    assert (topic.head_seq, topic.first_seq, topic.inner.hot_floor, topic.inner.sealed_seq, topic.inner.bytes_hot) == (
        0,
        1,
        1,
        0,
        0,
    )
    with pytest.raises(NoSuchTopic):
        topic.read()
    assert topic.append([b"one", b"two"], tag="eu", node="n1") == range(1, 3)
    assert topic.exists
    assert topic.append([b"three"]) == range(3, 4)
    assert list(topic.read()) == [
        Record(1, 1000, b"one", "eu", "n1"),
        Record(2, 1000, b"two", "eu", "n1"),
        Record(3, 1000, b"three"),
    ]
    assert topic.inner.record_count_hot == 3


def test_appending_nothing_does_nothing(log: Log) -> None:
    assert log.topic("orders").append([]) == range(1, 1)
    assert log.topics() == []


def test_values_come_back_as_they_went_in_from_everywhere(log: Log) -> None:
    values = [b"", b"\n", b"\r\n", bytes(range(256)), b"x" * 1000, "ß".encode("latin-1")]
    topic = log.topic("orders")
    topic.append(values)
    for _ in range(3):
        assert [record.value for record in topic.read()] == values
        log.checkpoint()
        assert [record.value for record in topic.read()] == values
        topic.seal()


def test_time_never_goes_back(log: Log, clock: HandClock) -> None:
    topic = log.topic("orders")
    for now in (5_000, 4_000, 6_000):
        clock.ms = now
        topic.append([b"x"])
    assert [record.ts_ms for record in topic.read()] == [5_000, 5_000, 6_000]
    clock.ms = 1
    assert topic.inner.delete(DeleteWhere(before=2)).ts_ms == 6_000
    assert topic.last_ts_ms == 6_000


@pytest.mark.parametrize("name", ["", "a b", "a\n", "-a", ".a", "a@", "@a", "a@b@c", "ä", "a" * 129, "a/b", "a@.x"])
def test_a_bad_name_is_refused(log: Log, name: str) -> None:
    with pytest.raises(InvalidName):
        log.topic(name)


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "_x", "a" * 128, "orders@fix", "a@b.c"])
def test_a_good_name_is_taken(log: Log, name: str) -> None:
    assert log.topic(name).name == name


def test_what_is_refused_changes_nothing(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"x"])
    with pytest.raises(RecordTooLarge):
        topic.append([b"fits", b"x" * 1001])
    with pytest.raises(RecordTooLarge, match="1001"):
        topic.append(Lines.of(b"fits\n" + b"x" * 1001 + b"\n"))
    with pytest.raises(InvalidLabel):
        topic.append([b"x"], tag="x" * 65_536)
    with pytest.raises(InvalidLabel):
        topic.append([b"x"], node="\ud800")
    with pytest.raises(InvalidSetting, match="none of fsync, disk, memory"):
        topic.append([b"x"], durability="sync")
    with pytest.raises(TypeError):
        topic.append(b"bytes")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        topic.append(["text"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        log.topic("other").append(["text"])  # type: ignore[list-item]
    assert topic.append([b"y"]) == range(2, 3)
    assert log.topics() == ["orders"]


def test_reads_are_bounded_by_what_is_there(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"x"] * 25)
    topic.seal()
    topic.append([b"y"] * 5)
    assert _seqs(topic.read(9, 12)) == [9, 10, 11, 12]
    assert _seqs(topic.read(24)) == list(range(24, 31))
    assert _seqs(topic.read(29, 1000)) == [29, 30]
    assert _seqs(topic.read(31)) == []
    assert _seqs(topic.read(5, 4)) == []
    for start in (0, 32):
        with pytest.raises(SeqOutOfRange, match="holds 1 to 30"):
            topic.read(start)
    with pytest.raises(InvalidArgument, match="start is -1"):
        topic.read(-1)


def test_a_reader_sees_what_was_there_when_it_began_while_more_is_appended(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"x"] * 30)
    reader = topic.read()
    seqs = [next(reader).seq]
    topic.append([b"y"] * 30)
    log.checkpoint()
    seqs += _seqs(reader)
    assert seqs == list(range(1, 31))


def test_segments_roll_and_seal(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"x"] * 25)
    assert topic.inner.segments() == ()
    log.checkpoint()
    assert [(s.first_seq, s.last_seq, s.sealed) for s in topic.inner.segments()] == [
        (1, 10, True),
        (11, 20, True),
        (21, 25, False),
    ]
    assert (topic.inner.sealed_seq, topic.inner.bytes_hot) == (20, 25 * 47)
    topic.seal()
    topic.seal()
    topic.append([b"x"])
    log.checkpoint()
    assert [(s.first_seq, s.last_seq, s.sealed) for s in topic.inner.segments()[2:]] == [
        (21, 25, True),
        (26, 26, False),
    ]


def test_a_segment_takes_one_record_whatever_its_size(tmp_path: Path) -> None:
    settings = LogSettings(segment_max_bytes=100)
    with seglog.open(tmp_path / "data", settings=settings) as log:
        topic = log.topic("orders")
        topic.append([b"x" * 500, b"x" * 10, b"x" * 10, b"x" * 200])
        topic.seal()
        assert [(s.first_seq, s.last_seq) for s in topic.inner.segments()] == [(1, 1), (2, 2), (3, 3), (4, 4)]


@pytest.mark.parametrize(
    ("overflow", "expected"),
    [
        (0, [(1, 2), (3, 4), (5, 5), (6, 6)]),
        (45, [(1, 2), (3, 4), (5, 5), (6, 6)]),
        (46, [(1, 3), (4, 4), (5, 5), (6, 6)]),
        (400, [(1, 3), (4, 5), (6, 6)]),
        (1000, [(1, 3), (4, 5), (6, 6)]),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_record_may_overflow_its_segment(
    tmp_path: Path, overflow: int, expected: list[tuple[int, int]], at_once: bool
) -> None:
    """Append four frames of 47 bytes, one of 446, one of 47. A segment has room for two frames of 47 and one byte."""
    settings = LogSettings(segment_max_bytes=94 + 1, max_store_overflow=overflow)
    with seglog.open(tmp_path / "data", settings=settings) as log:
        topic = log.topic("orders")
        for value in (b"x", b"x", b"x", b"x", b"x" * 400, b"x"):
            topic.append([value])
            if not at_once:
                log.checkpoint()
        topic.seal()
        assert [(s.first_seq, s.last_seq) for s in topic.inner.segments()] == expected
        assert len(list(topic.read())) == 6


def test_deleted_records_are_never_seen_again(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"1", b"2"], tag="eu-west")
    topic.append([b"3", b"4"], tag="eu")
    topic.append([b"5", b"6"], tag="us")
    topic.append([b"7"])
    reader = topic.read()
    assert next(reader).seq == 1
    topic.delete(tag="eu")
    assert _seqs(reader) == [2, 5, 6, 7]
    topic.delete(tag="eu*", before=2)
    topic.delete(tag="none*")
    topic.append([b"8"], tag="eu")
    for _ in range(3):
        assert _seqs(topic.read()) == [2, 5, 6, 7, 8]
        assert _seqs(topic.read(3, 6)) == [5, 6]
        topic.seal()
    topic.delete(before=100)
    assert _seqs(topic.read()) == []
    topic.append([b"9"])
    assert _seqs(topic.read()) == [9]


def test_a_delete_needs_a_condition_and_a_topic(log: Log) -> None:
    with pytest.raises(NoSuchTopic):
        log.topic("orders").delete(before=1)
    log.topic("orders").append([b"x"])
    with pytest.raises(InvalidSetting):
        log.topic("orders").delete()


def test_a_delete_reaches_readers_on_their_way_through_a_checkpoint(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"x"] * 10)
    topic.seal()
    reader = topic.read()
    assert next(reader).seq == 1
    topic.delete(before=9)
    log.checkpoint()
    assert topic.inner.delete_ops() == ()
    assert _seqs(reader) == [9, 10]


def test_deletes_stay_listed_until_settled_where_history_is_kept(log: Log) -> None:
    topic = log.create_topic("orders", TopicConfig(keep_history=True))
    topic.append([b"x"] * 4, tag="a")
    first, second = topic.inner.delete(DeleteWhere(before=2)), topic.inner.delete(DeleteWhere(tag="a"))
    assert (first.op, second.op, first.at_seq) == (1, 2, 4)
    topic.seal()
    assert topic.inner.delete_ops() == (first, second)
    topic.inner.settle_deletes(1)
    assert topic.inner.delete_ops() == (second,)
    topic.inner.settle_deletes(2)
    topic.inner.settle_deletes(2)
    assert topic.inner.delete_ops() == ()
    assert _seqs(topic.read()) == []


def test_frames_show_what_was_deleted_until_the_delete_is_settled(log: Log) -> None:
    topic = log.create_topic("orders", TopicConfig(keep_history=True))
    topic.append([b"one", b"two", b"three"], tag="a")
    op = topic.inner.delete(DeleteWhere(before=2))
    for _ in range(2):
        frames = list(topic.inner.frames(1, 3))
        assert [record_of(f, 0, read_header(f)).value for f in frames] == [b"one", b"two", b"three"]
        topic.seal()
    topic.inner.settle_deletes(op.op)
    headers = [read_header(frame) for frame in topic.inner.frames(1, 3)]
    assert [bool(header.flags & DELETED) for header in headers] == [True, False, False]
    assert [header.seq for header in headers] == [1, 2, 3]
    assert headers[0].data_len == headers[0].tag_len == 0


def test_frames_are_of_hot_records_only(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"x"] * 20)
    topic.seal()
    topic.inner.release(10)
    assert len(list(topic.inner.frames(11, 20))) == 10
    for first, last in ((10, 20), (11, 21)):
        with pytest.raises(SeqOutOfRange):
            topic.inner.frames(first, last)


def test_what_is_released_is_read_from_the_cold_tier(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"%d" % seq for seq in range(1, 26)])
    topic.seal()
    records = list(topic.read())
    topic.inner.release(19)
    assert (topic.inner.hot_floor, topic.inner.sealed_seq, topic.inner.record_count_hot) == (11, 25, 15)
    with pytest.raises(ColdTierRequired, match="1 to 10"):
        list(topic.read())
    assert _seqs(topic.read(11)) == list(range(11, 26))
    cold = Cold(records)
    log.attach_cold(cold)
    assert list(topic.read()) == records
    assert list(topic.read(5, 7)) == records[4:7]
    assert cold.asked == [("orders", 1, 10), ("orders", 5, 7)]
    topic.inner.release(25)
    assert (topic.inner.hot_floor, topic.inner.record_count_hot, topic.inner.bytes_hot, topic.inner.segments()) == (
        26,
        0,
        0,
        (),
    )
    assert list(topic.read()) == records
    assert topic.append([b"26"]) == range(26, 27)
    assert not list((log.path / "topics" / "00000001").glob("seg-000000000000000*"))


def test_a_reader_goes_on_in_the_cold_tier_when_the_hot_copy_goes(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"%d" % seq for seq in range(1, 31)])
    topic.seal()
    records = list(topic.read())
    log.attach_cold(Cold(records))
    reader = topic.read()
    found = [next(reader) for _ in range(5)]
    topic.inner.release(20)
    assert found + list(reader) == records


def test_a_delete_reaches_the_cold_tier_while_it_is_listed(log: Log) -> None:
    topic = log.create_topic("orders", TopicConfig(keep_history=True))
    topic.append([b"x"] * 10)
    topic.seal()
    log.attach_cold(Cold(list(topic.read())))
    topic.inner.release(10)
    log.configure("orders", TopicConfig())
    topic.delete(before=4)
    log.checkpoint()
    assert _seqs(topic.read()) == list(range(4, 11))
    assert len(topic.inner.delete_ops()) == 1


def test_a_delete_by_tag_reaches_the_cold_tier_and_readers_on_their_way_there(log: Log) -> None:
    topic = log.create_topic("orders", TopicConfig(keep_history=True))
    for tag in ("a", "b", "a", "b"):
        topic.append([b"x"] * 2, tag=tag)
    topic.seal()
    log.attach_cold(cold := Cold(list(topic.read())))
    topic.inner.release(8)
    reader = topic.read(gaps=True)
    assert next(reader) == cold.records[0]
    op = topic.inner.delete(DeleteWhere(tag="b"))
    assert _seqs(topic.read()) == [1, 2, 5, 6]
    cold.records = [record for record in cold.records if record.tag == "a"]
    topic.inner.settle_deletes(op.op)
    assert list(reader) == cold.records[1:]


def test_a_branch_begins_above_its_parent(log: Log, clock: HandClock) -> None:
    topic = log.create_topic("orders@fix", first_seq=101, ts_floor_ms=7_000)
    assert (topic.head_seq, topic.first_seq, topic.inner.hot_floor, topic.inner.sealed_seq) == (100, 101, 101, 100)
    assert topic.append([b"x"]) == range(101, 102)
    assert next(topic.read(101)).ts_ms == 7_000
    with pytest.raises(ColdTierRequired):
        list(topic.read())
    log.attach_cold(Cold([Record(seq, 1, b"parent") for seq in range(1, 101)]))
    assert _seqs(topic.read()) == list(range(1, 102))
    assert _seqs(topic.read(99)) == [99, 100, 101]


def test_a_topic_that_begins_higher_has_nothing_below(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        topic = log.create_topic("orders", first_seq=100)
        assert (topic.first_seq, topic.earliest_seq, topic.head_seq) == (100, 100, 99)
        assert list(topic.read()) == []
        assert topic.seq_at(0) == 100
        topic.append([b"a", b"b"])
    for _ in range(2):
        with seglog.open(tmp_path / "data") as log:
            topic = log.topic("orders")
            assert topic.earliest_seq == 100
            assert _seqs(topic.read()) == _seqs(topic.read(1)) == [100, 101]
            assert [record.seq for batch in topic.read_batches() for record in batch] == [100, 101]
            assert [record.seq for record in topic.follow(timeout_s=0.01)] == [100, 101]
            assert topic.seq_at(0) == 100
            assert next(topic.read(1, gaps=True)) == next(topic.read())
            log.checkpoint()
    with seglog.open(tmp_path / "data", read_only=True) as log:
        assert _seqs(log.topic("orders").read()) == [100, 101]


@pytest.mark.parametrize("name", ["orders", "orders@fix"])
def test_with_keep_history_what_is_below_is_in_the_cold_tier(tmp_path: Path, name: str) -> None:
    with seglog.open(tmp_path / "data") as log:
        topic = log.create_topic(name, TopicConfig(keep_history=True), first_seq=100)
        assert topic.earliest_seq == 1
        with pytest.raises(ColdTierRequired):
            list(topic.read())


def test_a_damaged_record_is_reported_with_its_place(log: Log) -> None:
    topic = log.topic("orders")
    topic.append([b"value-%d" % seq for seq in range(10)])
    topic.seal()
    data = log.path / "topics" / "00000001" / "seg-0000000000000001.data"
    body = bytearray(data.read_bytes())
    body[body.index(b"value-4")] ^= 1
    data.write_bytes(body)
    reader = topic.read()
    assert [next(reader).seq for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(FileCorrupt) as caught:
        next(reader)
    assert (caught.value.path, caught.value.offset) == (data, 4 * (46 + 7))
    with pytest.raises(FileCorrupt):
        list(topic.inner.frames(1, 10))
    assert _seqs(topic.read(6)) == [6, 7, 8, 9, 10]


@pytest.mark.parametrize("position", range(20))
def test_any_damaged_byte_of_an_index_entry_is_reported(log: Log, position: int) -> None:
    topic = log.topic("orders")
    topic.append([b"x"] * 10)
    topic.seal()
    idx = log.path / "topics" / "00000001" / "seg-0000000000000001.idx"
    body = bytearray(idx.read_bytes())
    body[60 + position] ^= 0x10
    idx.write_bytes(body)
    with pytest.raises(FileCorrupt) as caught:
        list(topic.read())
    assert (caught.value.path, caught.value.offset) == (idx, 60)


def test_frames_swapped_between_topics_are_found(log: Log) -> None:
    for name in ("a", "b"):
        log.topic(name).append([b"same"])
        log.topic(name).seal()
    first, second = sorted(log.path.glob("topics/*/*.data"))
    second.write_bytes(first.read_bytes())
    with pytest.raises(FileCorrupt, match="not that of seq 1"):
        list(log.topic("b").read())


def test_nothing_works_after_close(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "data")
    topic = log.topic("orders")
    topic.append([b"x"] * 3)
    reader = topic.read()
    log.close()
    log.close()
    for action in (lambda: topic.append([b"x"]), lambda: next(reader), topic.read, topic.seal, topic.inner.segments):
        with pytest.raises(LogClosed):
            action()


def test_many_appenders_and_readers_at_once(tmp_path: Path) -> None:
    settings = LogSettings(segment_max_events=50, wal_file_bytes=16_384)
    failures: list[BaseException] = []
    ranges: dict[str, list[range]] = {"a": [], "b": []}

    def append(log: Log, name: str, who: int) -> None:
        for turn in range(60):
            seqs = log.topic(name).append([b"%d %d %d" % (who, turn, i) for i in range(3)])
            ranges[name].append(seqs)

    def read(log: Log, name: str) -> None:
        last = 0
        while last < 3 * 60 * 3:
            if not log.has_topic(name):
                continue
            for record in log.topic(name).read(last + 1):
                assert record.seq == last + 1
                last = record.seq

    def run(target: object, *args: object) -> None:
        try:
            target(*args)  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    with seglog.open(tmp_path / "data", settings=settings) as log:
        threads = [threading.Thread(target=run, args=(append, log, name, who)) for name in "ab" for who in range(3)]
        threads += [threading.Thread(target=run, args=(read, log, name)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        for name in "ab":
            found = list(log.topic(name).read())
            assert sorted(seq for seqs in ranges[name] for seq in seqs) == [record.seq for record in found]
            by_writer: dict[bytes, list[bytes]] = {}
            for record in found:
                by_writer.setdefault(record.value.split()[0], []).append(record.value)
            for who, values in by_writer.items():
                assert values == [b"%s %d %d" % (who, turn, i) for turn in range(60) for i in range(3)]


@pytest.mark.parametrize("way", ["delete", "evict"])
@pytest.mark.parametrize("is_opened_again", [False, True])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_the_front_passes_what_an_earlier_delete_took(
    tmp_path: Path, way: str, *, is_opened_again: bool, is_sealed: bool
) -> None:
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        for number in range(9):
            topic.append([b"x"], tag="eu" if number in (4, 5) else None)
        topic.delete(tag="eu")
        if is_sealed:
            topic.seal()
        if not is_opened_again:
            getattr(topic, way)(before=5)
            assert topic.earliest_seq == 7
            return
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        assert topic.earliest_seq == 1
        getattr(topic, way)(before=5)
        assert topic.earliest_seq == 7


def test_the_front_passes_what_an_earlier_delete_took_where_retention_evicts(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=LogSettings(segment_max_events=4)) as log:
        topic = log.create_topic("t", TopicConfig(cap_records=5))
        for number in range(8):
            topic.append([b"x"], tag="eu" if number in (4, 5) else None)
        topic.delete(tag="eu")
        topic.append([b"x"])
        log.enforce_retention()
        assert (topic.inner.evict_floor, topic.earliest_seq) == (5, 7)


def test_the_front_is_a_record_that_took_the_seq_of_a_deleted_one(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        topic.append([b"x"] * 4, tag="us")
        topic.append([b"x"] * 4, tag="eu")
        topic.delete(tag="eu")
        topic.truncate(5)
        topic.append([b"y"] * 4, tag="eu")
        topic.delete(before=5)
        assert topic.earliest_seq == 5
