"""`read_batches` yields the same records, in lists, as `read` yields one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import seglog
from seglog import Evicted, FileCorrupt, Log, LogSettings, NoSuchTopic, Record, SeqOutOfRange, TopicConfig, Truncated
from seglog.segments.batch import FRAME_BATCH_MAX_RECORDS
from tests.worlds.cold_tier import Cold


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=LogSettings(segment_max_events=10)) as log:
        yield log


def _flat(batches: Iterator[list[Record]]) -> list[Record]:
    found = []
    for batch in batches:
        assert batch
        found += batch
    return found


def test_they_are_the_same_from_everywhere(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"released %d" % n for n in range(20)])
    topic.seal()
    log.attach_cold(Cold(list(topic.read())))
    topic.inner.release(20)
    topic.append([b"sealed %d" % n for n in range(20)], tag="a")
    topic.seal()
    topic.append([b"active"] * 5, node="n")
    log.checkpoint()
    topic.append([b"newest"] * 12, unterminated=True)
    topic.append([b""], tag="b")
    topic.delete(before=4)
    topic.delete(tag="b")
    records = list(topic.read())
    assert [record.seq for record in records] == list(range(4, 58))
    assert _flat(topic.read_batches()) == records
    for start, end in [(4, 4), (19, 22), (21, 40), (30, 100), (45, 58)]:
        assert _flat(topic.read_batches(start, end)) == list(topic.read(start, end))
    assert _flat(topic.read_batches(30, 20)) == []


def test_there_are_as_many_in_a_list_as_a_run_takes(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        topic.append([b"x"] * 3000)
        assert [len(batch) for batch in topic.read_batches()] == [FRAME_BATCH_MAX_RECORDS, FRAME_BATCH_MAX_RECORDS, 952]
        topic.seal()
        log.attach_cold(Cold(list(topic.read())))
        topic.inner.release(3000)
        assert [len(batch) for batch in topic.read_batches()] == [FRAME_BATCH_MAX_RECORDS, FRAME_BATCH_MAX_RECORDS, 952]


def test_what_is_sound_comes_before_the_error(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"value %d" % n for n in range(20)])
    topic.seal()
    [_, data] = sorted(log.path.glob("topics/*/*.data"))
    body = bytearray(data.read_bytes())
    body[body.index(b"value 15")] ^= 1
    data.write_bytes(body)
    batches = topic.read_batches()
    assert [record.seq for _ in range(2) for record in next(batches)] == list(range(1, 16))
    with pytest.raises(FileCorrupt) as caught:
        next(batches)
    assert caught.value.path == data


def test_what_the_cold_tier_gives_comes_before_its_error(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 10)
    topic.seal()
    log.attach_cold(Cold(list(topic.read()), fails_at=8))
    topic.inner.release(10)
    batches = topic.read_batches()
    assert [record.seq for record in next(batches)] == list(range(1, 8))
    with pytest.raises(ConnectionError):
        next(batches)


def test_a_delete_reaches_the_lists_that_come_after_it(log: Log) -> None:
    topic = log.topic("t")
    topic.append([b"x"] * 30, tag="a")
    topic.seal()
    batches = topic.read_batches()
    assert [record.seq for record in next(batches)] == list(range(1, 11))
    topic.delete(before=15)
    assert [record.seq for record in next(batches)] == list(range(15, 21))
    log.checkpoint()
    topic.delete(tag="a")
    assert list(batches) == []


def test_what_read_refuses_they_refuse(log: Log) -> None:
    topic = log.topic("t")
    with pytest.raises(NoSuchTopic):
        topic.read_batches()
    topic.append([b"x"] * 30)
    with pytest.raises(SeqOutOfRange):
        topic.read_batches(32)
    topic.seal()
    batches = topic.read_batches()
    next(batches)
    topic.truncate(5)
    with pytest.raises(Truncated):
        next(batches)


def test_what_retention_takes_on_the_way_is_told(log: Log) -> None:
    log.create_topic("t", TopicConfig(cap_records=10))
    topic = log.topic("t")
    topic.append([b"x"] * 10)
    batches = topic.read_batches(1)
    topic.append([b"x"] * 30)
    topic.seal()
    topic.enforce_retention()
    with pytest.raises(Evicted):
        next(batches)
