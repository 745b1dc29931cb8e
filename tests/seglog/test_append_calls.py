"""An append makes few function calls. The counts are exact, so no slow machine fails these tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import seglog
from benchmarks.append_calls import (
    AIMS,
    calls_of_a_batch,
    calls_of_a_key,
    calls_of_a_producer,
    calls_of_a_task,
)
from seglog import aio
from seglog.format.lines import Lines
from tests.seams.log import behind_encoded_ahead, engine_of, note_encoded_under_lock

ROOM = 1.1
VALUE = b"x" * 200


# Batches make fewer calls than the aim allows. So the counts that were reached are held.
@pytest.mark.parametrize(("records", "most"), [(1, AIMS["alone"]), (32, 2.85), (64, 1.46), (1_024, 0.105)])
def test_an_append_makes_few_calls_for_each_record(tmp_path: Path, records: int, most: float) -> None:
    assert calls_of_a_batch(tmp_path / "data", [VALUE] * records) <= most * ROOM


def test_an_append_with_an_identity_makes_few_calls(tmp_path: Path) -> None:
    assert calls_of_a_producer(tmp_path / "producer", VALUE) <= AIMS["producer"]
    assert calls_of_a_key(tmp_path / "key", VALUE) <= AIMS["key"]


@pytest.mark.parametrize("values", [[b""] * 1_000, [bytes(100_000)] * 3], ids=["many", "large"])
def test_a_long_append_is_encoded_before_it_takes_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[bytes]
) -> None:
    async def append() -> None:
        async with aio.open(tmp_path / "data") as log:
            under_lock = note_encoded_under_lock(monkeypatch, engine_of(log.sync).committer.raw_lock)
            await log.topic("t").append(values)  # makes the topic
            await asyncio.gather(*[log.topic("t").append(values) for _ in range(2)])
            await log.topic("t").append(values, key="k")
            log.topic("t").sync.append(values)
            assert under_lock == []
            await log.topic("t").append([b"short"])
            assert under_lock == [1]
            assert [record.value for record in log.topic("t").sync.read()] == [*values * 5, b"short"]

    asyncio.run(append())


def test_another_append_meanwhile_takes_the_place_of_the_frames_that_were_encoded_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seglog.open(tmp_path / "data") as log:
        topic = log.topic("t")
        topic.append([b"first"])
        behind_encoded_ahead(monkeypatch, lambda: topic.append([b"between"]))
        assert topic.append([b"x"] * 300) == range(3, 303)
        assert [record.value for record in topic.read()] == [b"first", b"between", *[b"x"] * 300]


def test_the_lines_of_a_text_make_no_call_for_each_line(tmp_path: Path) -> None:
    assert calls_of_a_batch(tmp_path / "data", Lines.of((VALUE + b"\n") * 8_192)) <= AIMS["lines"] * ROOM


def test_tasks_make_few_calls_for_each_record(tmp_path: Path) -> None:
    assert calls_of_a_task(tmp_path / "data", 256, VALUE) <= AIMS["tasks"] * ROOM
