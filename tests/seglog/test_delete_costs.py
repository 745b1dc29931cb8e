"""The cost of reads, deletes and checkpoints does not depend on the number of deletes not yet checkpointed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import seglog
from benchmarks.calls import count_calls
from seglog import Gap, Log, LogSettings, Topic, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.format.frame import DELETED, read_header
from seglog.segments.segment import SegmentFiles
from tests.seams.limits import Limit, set_limit
from tests.seams.log import engine_of

RECORDS = 2_000
SETTINGS = LogSettings(segment_max_events=500)
WAYS: dict[str, Callable[[Topic, int], object]] = {
    "before": lambda topic, number: topic.delete(before=2 + number % 3),
    "tag": lambda topic, number: topic.delete(tag=f"gone-{number}"),
    "prefix": lambda topic, number: topic.delete(tag=f"gone-{number:04}*"),
    "range": lambda topic, number: topic.delete(start=9 + 6 * number, end=10 + 6 * number),
    "range of a tag": lambda topic, number: topic.delete(start=9 + 6 * number, tag=f"gone-{number % 3}"),
}
READS: dict[str, Callable[[Topic], int]] = {
    "read": lambda topic: sum(1 for _ in topic.read()),
    "read_batches": lambda topic: sum(map(len, topic.read_batches())),
    "read_arrays": lambda topic: sum(map(len, topic.read_arrays())),
    "frames": lambda topic: sum(1 for _ in topic.inner.frames(topic.inner.hot_floor, topic.head_seq)),
}


@pytest.fixture(params=[pytest.param(False, id=""), pytest.param(True, id="keep_history", marks=pytest.mark.long)])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS, upkeep=InCaller) as log:
        topic = log.create_topic("t", TopicConfig(durability="memory", keep_history=request.param))
        for number in range(0, RECORDS, 10):
            topic.append([b"x"] * 10, tag=f"tag-{number % 70}")
        log.checkpoint()
        yield log


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_what_a_read_or_a_delete_does_is_the_same_after_one_delete_and_after_many(log: Log, way: str) -> None:
    topic, delete = log.topic("t"), WAYS[way]
    for _ in range(4):
        delete(topic, 2)
    counts: list[dict[str, int]] = []
    for _ in range(2):
        for read in READS.values():
            read(topic)
        counts.append({name: count_calls(lambda read=read: read(topic)) for name, read in READS.items()})  # type: ignore[misc]
        counts[-1]["delete"] = count_calls(lambda: delete(topic, 2))
        for number in range(300):
            delete(topic, number)
    # If a delete without a tag reaches a record, a read shows one record fewer. Ranges reach into each batch of a read.
    share = 1.3 if way == "range" else 1
    for name, count in counts[1].items():
        assert count <= share * counts[0][name] + 30, name


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_what_a_checkpoint_does_follows_the_number_of_deletes_and_not_its_square(log: Log, way: str) -> None:
    topic, counts = log.topic("t"), []
    for number in (100, 400):
        for each in range(number):
            WAYS[way](topic, each)
        topic.inner.settle_deletes(1)
        topic.append([b"x"])
        for each in range(number):
            WAYS[way](topic, each)
        counts.append(count_calls(log.checkpoint))
    assert counts[1] < 6 * counts[0]


def test_a_consumer_that_deletes_what_it_has_read_reads_each_record_once(log: Log) -> None:
    topic = log.topic("t")
    found = []
    for record in topic.read():
        found.append(record.seq)
        topic.delete(before=record.seq + 1)
        if record.seq == 300:
            break
    assert found == [*range(1, 301)]
    assert topic.earliest_seq == 301
    assert [record.seq for record in topic.read()] == [*range(301, RECORDS + 1)]


def test_a_reader_on_its_way_does_not_show_what_is_deleted_before_it_gets_there(log: Log) -> None:
    topic = log.topic("t")
    reader = topic.read()
    assert next(reader).seq == 1
    topic.delete(before=6)
    assert next(reader).seq == 6
    topic.delete(tag="tag-0")
    assert next(reader).seq == 11
    topic.delete(tag="tag-1*")
    assert next(reader).seq == 21
    log.checkpoint()
    topic.delete(tag="tag-2*")
    assert next(reader).seq == 31


def test_a_reader_on_its_way_is_told_of_what_is_evicted_before_it_gets_there(log: Log) -> None:
    topic = log.topic("t")
    reader = topic.read(gaps=True)
    next(reader)
    topic.evict(before=6)
    assert next(reader) == Gap(2, 5)


def test_an_acknowledged_front_is_found_without_looking_at_the_segment_each_time(log: Log) -> None:
    """A queue has one tag per message. Every delete reaches the first record."""
    topic = log.topic("t")
    first = topic.append([b"x"], tag="ack-0", durability="fsync")[0]
    for number in range(1, 400):
        topic.append([b"x"], tag=f"ack-{number}")
    topic.delete(before=first)
    topic.seal()
    counts = [count_calls(lambda number=number: topic.delete(tag=f"ack-{number}")) for number in range(300)]  # type: ignore[misc]
    assert topic.earliest_seq == first + 300
    assert max(counts[200:]) <= 2 * max(counts[:10])
    assert max(counts) < 2_000


@pytest.mark.parametrize("way", ["delete", "evict"])
def test_a_delete_without_a_tag_looks_at_no_record_behind_the_reach_of_each_delete_by_tag(log: Log, way: str) -> None:
    topic = log.topic("t")

    def count(before: int) -> int:
        return count_calls(lambda: getattr(topic, way)(before=before))

    least = min(count(before) for before in range(2, 50))
    topic.delete(tag="tag-*", before=300)
    assert topic.earliest_seq == 300
    assert min(count(before) for before in range(301, 350)) == least
    topic.delete(tag="tag-0", before=700)
    assert min(count(before) for before in range(351, 400)) > least + 100
    assert min(count(before) for before in range(701, 750)) == least


def test_a_checkpoint_is_asked_for_when_there_are_many_by_tag(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limit(monkeypatch, Limit.DELETES_BY_TAG, 50)
    topic, pending = log.topic("t"), []
    for number in range(200):
        topic.delete(tag=f"gone-{number}")
        pending.append(len(engine_of(log).state("t").pending))
    assert max(pending) < 50
    kept = topic.config.keep_history
    assert [op.tag for op in topic.inner.delete_ops()] == [
        f"gone-{number}" for number in range(0 if kept else 150 + 50, 200)
    ]


def test_a_checkpoint_flags_what_was_acknowledged_since_the_last_one(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, flagged = log.topic("t"), list[int]()
    set_deleted = SegmentFiles.set_deleted

    def noted(segment: SegmentFiles, first: int, last: int, seqs: list[int]) -> None:
        flagged.extend(seqs)
        set_deleted(segment, first, last, seqs)

    monkeypatch.setattr(SegmentFiles, "set_deleted", noted)
    for before in (101, 201, 301):
        topic.delete(before=before)
        log.checkpoint()
    assert flagged == [*range(1, 301)]
    topic.delete(before=1)
    topic.delete(tag="tag-0")
    log.checkpoint()
    assert flagged[300:] == [seq for seq in range(1, RECORDS + 1) if (seq - 1) // 10 * 10 % 70 == 0]


def test_records_that_take_the_seqs_of_acknowledged_ones_are_flagged_by_their_own_delete(log: Log) -> None:
    topic = log.topic("t")
    topic.delete(before=1801)
    log.checkpoint()
    topic.truncate(1601)
    topic.append([b"y"] * 400)
    log.checkpoint()
    topic.delete(before=1701)
    log.checkpoint()
    assert [record.seq for record in topic.read()] == [*range(1701, 2001)]
    for op in topic.inner.delete_ops():
        topic.inner.settle_deletes(op.op)
    flags = [read_header(frame).flags & DELETED for frame in topic.inner.frames(topic.inner.hot_floor, 2000)]
    assert flags == [DELETED] * (1701 - topic.inner.hot_floor) + [0] * 300
