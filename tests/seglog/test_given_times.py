"""Test appends that give their records times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import accumulate
from pathlib import Path

import pytest

import seglog
from seglog import InvalidArgument, InvalidSetting, LogSettings, ProducerBatch, Record, aio
from tests.seams.log import engine_of, note_encoded_under_lock
from tests.worlds.clock import HandClock

DAY_MS = 24 * 3600 * 1000


def _times(records: list[Record]) -> list[int]:
    return [record.ts_ms for record in records]


@pytest.mark.parametrize("count", [1, 3, 40, 700])
def test_each_record_keeps_the_time_that_its_append_gave(tmp_path: Path, count: int) -> None:
    given = [*accumulate(range(count), initial=5)][:count]
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        assert topic.append([b"x"] * count, times_ms=given) == range(1, count + 1)
        assert topic.last_ts_ms == given[-1]
        assert topic.seq_at(given[-1]) == count
        assert _times(list(topic.read())) == given
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        assert _times(list(topic.read())) == given
        topic.seal()
        assert _times(list(topic.read())) == given
        topic.append([b"now"])
        assert topic.last_ts_ms > 10**12
    assert seglog.verify(tmp_path / "data").damages == ()


def test_times_that_do_not_fit_are_refused_before_anything_is_appended(tmp_path: Path) -> None:
    clock = HandClock(1_000_000)
    with seglog.open(tmp_path / "data", clock=clock) as log:
        topic = log.topic("t")
        topic.append([b"x"], times_ms=[100])
        for times, told in [
            ([99], "100 or later, the time of the newest record"),
            ([300, 299], "300 or later, the time of the value before it"),
            ([100], "a time for each of the 2 values"),
            ([100, 1_300_001], "at most five minutes ahead of the clock"),
        ]:
            with pytest.raises(InvalidArgument, match=told):
                topic.append([b"y", b"y"] if told[:3] != "100" else [b"y"], times_ms=times)
        with pytest.raises(InvalidSetting, match="ephemeral"):
            topic.append([b"y"], times_ms=[100], durability="ephemeral")
        assert topic.head_seq == 1
        assert topic.append([b"y", b"y"], times_ms=[100, 1_300_000]) == range(2, 4)
        assert topic.append([b"z"]) == range(4, 5)
        assert topic.last_ts_ms == 1_300_000


def test_a_producer_and_a_key_count_their_age_from_the_append(tmp_path: Path) -> None:
    clock = HandClock(100 * DAY_MS)
    settings = LogSettings(producer_keep_s=3600, idempotency_keep_s=3600)
    first, second = ProducerBatch("old", 0, 0), ProducerBatch("other", 0, 0)
    for _ in range(2):  # also after a recovery
        with seglog.open(tmp_path / "data", clock=clock, settings=settings) as log:
            topic = log.topic("t")
            assert topic.append([b"x", b"x"], producer=first, times_ms=[1, 2]) == range(1, 3)
            assert topic.append([b"y"], key="k", times_ms=[3]) == range(3, 4)
            assert topic.append([b"z"], producer=second, times_ms=[4]) == range(4, 5)
            known = topic.inner.known_producer("old")
            assert known is not None
            assert known.ts_ms == 100 * DAY_MS
            assert _times(list(topic.read())) == [1, 2, 3, 4]


def test_a_ttl_counts_from_the_time_of_the_record(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", clock=HandClock(100 * DAY_MS)) as log:
        log.create_topic("t", seglog.TopicConfig(ttl_ms=DAY_MS))
        log.topic("t").append([b"old", b"young"], times_ms=[DAY_MS, 100 * DAY_MS - 5])
        assert [item.value for item in log.topic("t").read(gaps=True) if isinstance(item, Record)] == [b"young"]


def test_tasks_give_times_too_and_such_appends_are_not_merged(tmp_path: Path) -> None:
    async def append() -> None:
        async with aio.open(tmp_path / "data") as log:
            topic = log.topic("t")
            await asyncio.gather(*[topic.append([b"x"], times_ms=[7]) for _ in range(3)], topic.append([b"y"]))
            once = await topic.append_once([b"z"], key="k", times_ms=[topic.sync.last_ts_ms])
            assert (once.seqs, once.duplicate) == (range(5, 6), False)
            assert _times(list(topic.sync.read()))[:3] == [7, 7, 7]

            async def chunks() -> AsyncIterator[bytes]:
                yield b"chunk"

            later = topic.sync.last_ts_ms + 9
            await topic.append_stream(chunks(), times_ms=[later])
            topic.sync.append_stream([b"chunk"], times_ms=[later])
            assert _times(list(topic.sync.read()))[-2:] == [later, later]
            with pytest.raises(InvalidArgument, match="times_ms"):
                topic.sync.append_stream([b"chunk"], times_ms=[later, later])

    asyncio.run(append())


def test_a_long_append_with_times_is_encoded_before_it_takes_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seglog.open(tmp_path / "data") as log:
        under_lock = note_encoded_under_lock(monkeypatch, engine_of(log).committer.raw_lock)
        log.topic("t").append([b"x"] * 300, times_ms=range(300))
        assert under_lock == []
        log.topic("t").append([b"x"] * 2, times_ms=[300, 301])
        assert under_lock == [2]
