"""Verifying a batch of frames gives the same result as verifying them one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import FileCorrupt
from seglog.format.dtypes import ENTRIES
from seglog.format.frame import CHECKSUM
from seglog.segments.batch import FrameBatch
from seglog.values.record import Record
from tests.seglog.frames import append_frames

PATH = Path("file")
TS_MS = 1720000000661


def _batch(
    values: list[bytes], *, tag: str | None = None, gap: int = 0, topic_id: int = 7, first_seq: int = 100
) -> FrameBatch:
    """Return a batch of frames as read from offset 1000 of a file, with `gap` other bytes between frames."""
    frames = append_frames(7, 100, TS_MS, values, tag=tag, node=None, unterminated=False, durable=True)
    lengths = np.array([len(frame) for frame in frames])
    entries = np.zeros(len(frames), ENTRIES)
    entries["offset"] = 1000 + np.cumsum(lengths + gap) - lengths - gap
    entries["length"], entries["ts_ms"] = lengths, TS_MS
    return FrameBatch(PATH, topic_id, first_seq, entries, (b"\xaa" * gap).join(frames))


def _damaged(batch: FrameBatch, position: int, bit: int = 0) -> FrameBatch:
    body = bytearray(batch.buffer)
    body[position] ^= 1 << bit
    return FrameBatch(batch.path, batch.topic_id, batch.first_seq, batch.entries, bytes(body))


def _first_bad(batch: FrameBatch) -> int | None:
    for index in range(len(batch)):
        try:
            batch.frame(index)
        except FileCorrupt:
            return index
    return None


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=30), st.sampled_from([None, "", "eu"]), st.integers(0, 9))
def test_frames_and_records_come_back_from_any_run(values: list[bytes], tag: str | None, gap: int) -> None:
    batch = _batch(values, tag=tag, gap=gap)
    headers = batch.verified()
    assert headers["seq"].tolist() == list(range(100, 100 + len(values)))
    frames = append_frames(7, 100, TS_MS, values, tag=tag, node=None, unterminated=False, durable=True)
    assert batch.frames() == frames
    assert batch.piece(0, len(batch)) == b"".join(frames)
    assert batch.piece(len(batch) // 2, len(batch)) == b"".join(frames[len(batch) // 2 :])
    expected = [Record(seq, TS_MS, value, tag) for seq, value in enumerate(values, 100)]
    assert list(batch.records(np.arange(len(batch)))) == expected
    assert list(batch.records(np.arange(len(batch))[::3])) == expected[::3]
    assert [batch.record(index) for index in range(len(batch))] == expected


def test_no_flipped_bit_passes_and_the_place_is_that_of_the_first_bad_frame() -> None:
    batch = _batch([b"value-%02d" % number for number in range(12)], tag="eu")
    size = len(batch.buffer) // 12
    for position in range(len(batch.buffer)):
        damaged = _damaged(batch, position, position % 8)
        assert damaged.headers() is None
        with pytest.raises(FileCorrupt) as caught:
            damaged.verified()
        assert (caught.value.path, caught.value.offset) == (PATH, 1000 + position // size * size)
        assert _first_bad(damaged) == position // size


def test_what_is_sound_before_the_damage_can_be_read() -> None:
    batch = _damaged(_batch([b"value-%d" % number for number in range(30)]), -1)
    records = batch.records(np.arange(len(batch)))
    assert [next(records).seq for _ in range(29)] == list(range(100, 129))
    with pytest.raises(FileCorrupt):
        next(records)


@pytest.mark.parametrize("wrong", [{"topic_id": 8}, {"first_seq": 99}])
def test_frames_of_another_place_are_found(wrong: dict[str, int]) -> None:
    batch = _batch([b"x"] * 20, **wrong)  # type: ignore[arg-type]
    assert batch.headers() is None
    with pytest.raises(FileCorrupt, match="not that of seq"):
        batch.verified()


@pytest.mark.parametrize(("field", "change"), [("ts_ms", 1), ("length", 1), ("length", -1), ("length", -60)])
def test_entries_that_say_something_else_are_found(field: str, change: int) -> None:
    batch = _batch([b"x" * 30] * 20)
    entries = batch.entries.copy()
    entries[field][7] = int(entries[field][7]) + change
    damaged = FrameBatch(PATH, 7, 100, entries, batch.buffer)
    assert damaged.headers() is None
    assert _first_bad(damaged) == 7


labels = st.none() | st.text(max_size=5)


@given(st.lists(st.tuples(st.binary(max_size=50), labels, labels, st.booleans()), min_size=9, max_size=30))
def test_labels_come_back_whichever_records_have_them(parts: list[tuple[bytes, str | None, str | None, bool]]) -> None:
    frames = []
    for seq, (value, tag, node, unterminated) in enumerate(parts, 100):
        frames += append_frames(7, seq, TS_MS, [value], tag=tag, node=node, unterminated=unterminated)
    entries = np.zeros(len(frames), ENTRIES)
    lengths = np.array([*map(len, frames)])
    entries["offset"], entries["length"], entries["ts_ms"] = np.cumsum(lengths) - lengths, lengths, TS_MS
    batch = FrameBatch(PATH, 7, 100, entries, b"".join(frames))
    expected = [
        Record(seq, TS_MS, value, tag, node, unterminated)
        for seq, (value, tag, node, unterminated) in enumerate(parts, 100)
    ]
    assert list(batch.records(np.arange(len(batch)))) == expected
    assert list(batch.records(np.arange(len(batch))[1::2])) == expected[1::2]
    assert [batch.record(index) for index in range(len(batch))] == expected


def test_a_label_that_is_not_text_is_reported_with_its_place() -> None:
    from xxhash import xxh3_64_intdigest

    batch = _batch([b"x"] * 20, tag="eu")
    body = bytearray(batch.buffer)
    size = len(body) // 20
    start = 5 * size
    body[start + 38] = 0xFF
    body[start + size - 8 : start + size] = CHECKSUM.pack(xxh3_64_intdigest(bytes(body[start + 4 : start + size - 8])))
    damaged = FrameBatch(PATH, 7, 100, batch.entries, bytes(body))
    assert damaged.headers() is not None
    with pytest.raises(FileCorrupt, match="not UTF-8") as caught:
        list(damaged.records(np.arange(20)))
    assert caught.value.offset == 1000 + start
