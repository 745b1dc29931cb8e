"""Deletes of ranges and of single records show the same before and after a checkpoint, an opening and a reclaim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import (
    ConcurrentModification,
    DeleteOp,
    InvalidArgument,
    InvalidSetting,
    Log,
    LogSettings,
    Topic,
    TopicConfig,
)
from seglog.engine.work_thread import InCaller
from seglog.values.deletes import DeleteWhere
from seglog.values.seq_set import SEQ_RANGES_MAX, SeqSet

SETTINGS = LogSettings(segment_max_events=8)
RECORDS = 20


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS, upkeep=InCaller) as log:
        yield log


def _filled(log: Log, **config: Any) -> Topic:
    """Return a topic with 20 records: each third one is of web1."""
    topic = log.create_topic("t", TopicConfig(**config))
    for number in range(RECORDS):
        topic.append([b"%d" % number], tag="web1" if number % 3 == 0 else "web2")
    return topic


def _seqs(topic: Topic) -> list[int]:
    return [record.seq for record in topic.read()]


def _in_every_way(topic: Topic) -> list[int]:
    """Return the seqs that a read shows, after all other reads have shown the same."""
    found = _seqs(topic)
    assert [record.seq for batch in topic.read_batches() for record in batch] == found
    assert [seq for part in topic.read_arrays() for seq in part.seqs.tolist()] == found
    return found


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ({"start": 5, "end": 9}, [*range(5, 10)]),
        ({"start": 5, "before": 9}, [*range(5, 9)]),
        ({"start": 15}, [*range(15, 21)]),
        ({"end": 3}, [1, 2, 3]),
        ({"start": 1, "end": 3}, [1, 2, 3]),
        ({"start": 5, "end": 12, "tag": "web1"}, [7, 10]),
        ({"start": 5, "tag": "web*"}, [*range(5, 21)]),
        ({"seqs": [17, 3, 3, 9]}, [3, 9, 17]),
        ({"seqs": range(1, 21, 2), "tag": "web1"}, [1, 7, 13, 19]),
        ({"seqs": [3, 9], "start": 5}, [9]),
        ({"seqs": [0, 30]}, []),
        ({"start": 30}, []),
    ],
)
def test_a_delete_takes_what_meets_each_condition(tmp_path: Path, where: dict[str, Any], gone: list[int]) -> None:
    left = [seq for seq in range(1, RECORDS + 1) if seq not in gone]
    with seglog.open(tmp_path / "data", settings=SETTINGS, upkeep=InCaller) as log:
        topic = _filled(log)
        topic.delete(**where)
        assert _in_every_way(topic) == left
        log.checkpoint()
        assert _in_every_way(topic) == left
        assert topic.earliest_seq == (left[0] if left else RECORDS + 1)
        assert topic.append([b"new"], tag="web1") == range(21, 22)
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        assert _in_every_way(log.topic("t")) == [*left, 21]


def test_a_delete_that_no_checkpoint_has_is_read_from_the_log(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SETTINGS, upkeep=InCaller) as log:
        _filled(log, keep_history=True).delete(start=4, end=18, tag="web1")
        log.topic("t").delete(seqs=[2, 20])
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        topic = log.topic("t")
        assert _in_every_way(topic) == [1, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 19]
        first, second = topic.inner.delete_ops()
        assert (first.tag, first.seqs, first.below) == ("web1", SeqSet.of([(4, 18)]), 19)
        assert second == DeleteOp(2, 20, second.ts_ms, seqs=SeqSet.of_seqs([2, 20]))


def test_only_a_range_from_the_first_seq_on_is_the_same_as_all_below_its_end(log: Log) -> None:
    """An undo of the first delete brings the records back that the second one did not name."""
    topic = _filled(log)
    assert topic.inner.delete(DeleteWhere(start=1, end=3)) == DeleteOp(1, 20, topic.last_ts_ms, before=4)
    assert topic.inner.delete(DeleteWhere(start=3, end=6)) == DeleteOp(
        2, 20, topic.last_ts_ms, seqs=SeqSet.of([(3, 6)])
    )
    assert topic.earliest_seq == 7


def test_deletes_of_each_kind_add_up(log: Log) -> None:
    topic = _filled(log)
    topic.delete(start=18)
    topic.delete(tag="web1")
    topic.delete(seqs=[3, 5])
    topic.delete(before=3)
    assert _in_every_way(topic) == [6, 8, 9, 11, 12, 14, 15, 17]
    topic.delete(start=6, end=14)
    log.checkpoint()
    assert _in_every_way(topic) == [15, 17]
    assert topic.earliest_seq == 15


def test_ephemeral_records_are_taken_from_memory(log: Log) -> None:
    topic = _filled(log, durability="ephemeral")
    assert topic.inner.delete(DeleteWhere(start=3, end=5)).op == 0
    topic.delete(seqs=[7, 8])
    topic.delete(start=15, tag="web2")
    assert _seqs(topic) == [1, 2, 6, *range(9, 15), 16, 19]


def test_a_truncation_ends_the_reach(log: Log) -> None:
    topic = _filled(log, keep_history=True)
    topic.delete(start=12, end=18)
    topic.truncate(15)
    topic.append([b"again"] * 6)
    assert _in_every_way(topic) == [*range(1, 12), *range(15, 21)]
    log.checkpoint()
    assert _in_every_way(topic) == [*range(1, 12), *range(15, 21)]


def test_seqs_of_an_earlier_epoch_are_not_deleted(log: Log) -> None:
    topic = _filled(log)
    epoch = topic.epoch
    topic.truncate(15)
    topic.append([b"again"] * 6)
    with pytest.raises(ConcurrentModification):
        topic.delete(seqs=[16], epoch=epoch)
    assert _seqs(topic) == [*range(1, 21)]
    topic.delete(seqs=[16], epoch=topic.epoch)
    assert 16 not in _seqs(topic)


def test_reclaim_takes_the_bytes(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        topic = _filled(log)
        topic.seal()
        before = topic.inner.bytes_hot
        topic.delete(start=2, end=7)
        log.reclaim()
        assert topic.inner.bytes_hot < before
        assert _in_every_way(topic) == [1, *range(8, 21)]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda topic: topic.delete(), InvalidSetting, "needs before, tag, start, end, seqs"),
        (lambda topic: topic.delete(start=9, end=8), InvalidArgument, "a seq from start"),
        (lambda topic: topic.delete(start=-1), InvalidArgument, "start"),
        (lambda topic: topic.delete(seqs=["1"]), InvalidArgument, "seqs"),
        (lambda topic: topic.delete(seqs=range(1, 2 * SEQ_RANGES_MAX + 3, 2)), InvalidArgument, "delete them in parts"),
    ],
)
def test_what_is_no_delete_is_refused_and_changes_nothing(
    log: Log, call: Callable[[Topic], object], error: type[Exception], text: str
) -> None:
    topic = _filled(log)
    with pytest.raises(error, match=text):
        call(topic)
    assert topic.inner.delete_ops() == ()
    assert _seqs(topic) == [*range(1, RECORDS + 1)]


@pytest.mark.long
def test_a_hundred_thousand_single_records_go_with_one_frame(tmp_path: Path) -> None:
    settings = LogSettings(wal_file_bytes=1 << 20)
    gone = range(2, 200_001, 2)
    with seglog.open(tmp_path / "data", settings=settings, upkeep=InCaller) as log:
        topic = log.create_topic("t", TopicConfig(durability="memory", keep_history=True))
        topic.append([b"x"] * 200_000)
        log.checkpoint()
        topic.delete(seqs=gone)
        topic.append([b"after"])
    with seglog.open(tmp_path / "data", settings=settings, upkeep=InCaller) as log:
        topic = log.topic("t")
        assert sum(len(part) for part in topic.read_arrays()) == 100_001
        assert [op.seqs.range_count for op in topic.inner.delete_ops() if op.seqs is not None] == [100_000]
        log.checkpoint()
        assert _seqs(topic)[-3:] == [199_997, 199_999, 200_001]
