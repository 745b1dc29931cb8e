from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.format.commit import Codec
from offload.errors import InvalidChunk
from offload.format.block import ChunkRef
from offload.format.entry import ENTRY
from offload.read.cold_reader import arrays_of_chunk, records_of_chunk
from seglog import Record
from seglog.format.frame import DELETED, HAS_NODE, HAS_TAG, LOST, FrameType, encode
from tests.array_rows import seen
from tests.offload.samples import KEY, TOPIC_ID, Sample, encode_object, frames_of_samples, sample_lists
from tests.seams.archive import many_records, records_one_by_one


def chunk_of(samples: list[Sample], first_seq: int = 1) -> tuple[bytes, ChunkRef]:
    made = encode_object(frames_of_samples(samples, first_seq=first_seq), Codec.NONE, chunk_bytes=1 << 15)
    chunk = made.summary.chunks[0]
    return made.data[chunk.offset : chunk.offset + chunk.stored_length], chunk


def one_by_one(raw: bytes, chunk: ChunkRef, first: int, last: int) -> list[Record]:
    first, last = max(first, chunk.first_seq), min(last, chunk.last_seq)
    return list(records_one_by_one(raw, chunk, TOPIC_ID, KEY, first, last)) if first <= last else []


@given(samples=sample_lists, first=st.integers(1, 70), last=st.integers(1, 70), first_seq=st.integers(1, 2**40))
def test_many_at_once_are_what_one_by_one_gives(samples: list[Sample], first: int, last: int, first_seq: int) -> None:
    raw, chunk = chunk_of(samples, first_seq)
    first, last = first + first_seq - 1, last + first_seq - 1
    wanted = one_by_one(raw, chunk, first, last)
    assert list(records_of_chunk(raw, chunk, TOPIC_ID, KEY, first, last)) == wanted
    assert list(records_of_chunk(memoryview(raw), chunk, TOPIC_ID, KEY, first, last)) == wanted
    if wanted:
        many = many_records(raw, chunk, TOPIC_ID, max(first, chunk.first_seq), min(last, chunk.last_seq))
        assert many == wanted


PLAIN = [Sample(b"record %d" % number) for number in range(100)]


def flip(raw: bytes) -> bytes:
    place = raw.index(b"record 50") + 3
    return raw[:place] + b"X" + raw[place + 1 :]


@pytest.mark.parametrize(
    ("damage", "shown"),
    [
        (flip, 50),
        (lambda raw: raw[:-1], 99),
        (lambda raw: raw + bytes(3), 100),
        (lambda raw: struct.pack(">I", 1 << 31) + raw[4:], 0),
        (lambda raw: raw[: len(raw) // 2], None),
    ],
)
def test_what_is_sound_before_damage_is_shown_first(damage: Callable[[bytes], bytes], shown: int | None) -> None:
    raw, chunk = chunk_of(PLAIN)
    records = iter(records_of_chunk(damage(raw), chunk, TOPIC_ID, KEY, 1, 100))
    found: list[bytes] = []

    def take_all() -> None:
        found.extend(record.value for record in records)

    with pytest.raises(InvalidChunk) as caught:
        take_all()
    assert (caught.value.key, caught.value.offset) == (KEY, chunk.offset)
    assert found == [sample.value for sample in PLAIN[: len(found)]]
    assert shown in {None, len(found)}


def test_a_chunk_that_ends_early_at_an_entry_is_damage_and_not_the_end() -> None:
    raw, chunk = chunk_of(PLAIN)
    longer = replace(chunk, last_seq=chunk.last_seq + 1)
    with pytest.raises(InvalidChunk, match="ends before seq 101"):
        list(records_of_chunk(raw, longer, TOPIC_ID, KEY, 1, 200))
    for first in (99, 101):
        with pytest.raises(InvalidChunk, match="ends before seq 101"):
            list(records_of_chunk(raw, longer, TOPIC_ID, KEY, first, 101))
    with pytest.raises(InvalidChunk, match="is cut"):
        list(records_of_chunk(raw, replace(chunk, last_seq=110), TOPIC_ID, KEY, 105, 105))


def test_records_of_another_topic_or_place_are_refused() -> None:
    raw, chunk = chunk_of(PLAIN)
    moved = replace(chunk, first_seq=2, last_seq=101)
    for ref, topic_id in ((chunk, TOPIC_ID + 1), (moved, TOPIC_ID)):
        with pytest.raises(InvalidChunk, match="belongs"):
            list(records_of_chunk(raw, ref, topic_id, KEY, 1, 200))


def same_both_ways(raw: bytes, chunk: ChunkRef, first: int = 1, last: int = 200) -> tuple[object, str]:
    """Check that arrays show what records show. Return it."""
    found = [
        seen(lambda way=way, body=body: way(body, chunk, TOPIC_ID, KEY, first, last))  # type: ignore[misc]
        for way in (records_of_chunk, arrays_of_chunk)
        for body in (raw, memoryview(raw))
    ]
    assert found[1:] == found[:1] * 3
    return found[0]


@given(samples=sample_lists, first=st.integers(1, 70), last=st.integers(1, 70))
def test_arrays_have_the_records(samples: list[Sample], first: int, last: int) -> None:
    raw, chunk = chunk_of(samples)
    if first <= min(last, chunk.last_seq):
        assert same_both_ways(raw, chunk, first, last)[1] == ""


@pytest.mark.long
def test_each_changed_byte_is_the_same_damage_for_arrays() -> None:
    raw, chunk = chunk_of([Sample(b"a", "tag"), Sample(b"", deleted=True), *PLAIN[:18]])
    errors = 0
    for offset in range(len(raw)):
        damaged = raw[:offset] + bytes([raw[offset] ^ 2]) + raw[offset + 1 :]
        errors += same_both_ways(damaged, chunk)[1] != ""
    assert errors > len(raw) / 2
    for end in range(0, len(raw), 5):
        assert same_both_ways(raw[:end], chunk)[1] != ""


def test_labels_that_are_text_only_one_after_the_other_are_refused() -> None:
    frames = frames_of_samples(PLAIN[:30])
    for seq, tag in ((21, b"a\xc3"), (22, b"\xa4b")):
        frames[seq - 1] = encode(FrameType.APPEND, topic_id=TOPIC_ID, seq=seq, ts_ms=5, tag=tag, flags=HAS_TAG)
    raw = b"".join(ENTRY.pack(len(frame) - 4, number) + frame[4:] for number, frame in enumerate(frames))
    shown, error = same_both_ways(raw, replace(chunk_of(PLAIN[:30])[1], raw_length=len(raw)))
    assert error.startswith("InvalidChunk")
    assert len(shown) == 20  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("node", "tag", "flags"),
    [
        (b"n\xc3", b"\xa4t", HAS_NODE | HAS_TAG),  # together they are UTF-8
        (b"", b"\xff", HAS_TAG),
        (b"n", b"", 0),
        (b"", b"", 64),
        (b"", b"", LOST),
        (b"\xff", b"", HAS_NODE | DELETED),
    ],
)
def test_a_frame_with_a_right_checksum_that_no_log_writes_is_judged_alike(node: bytes, tag: bytes, flags: int) -> None:
    frames = frames_of_samples(PLAIN[:30])
    frames[20] = encode(FrameType.APPEND, topic_id=TOPIC_ID, seq=21, ts_ms=5, node=node, tag=tag, flags=flags)
    raw = b"".join(ENTRY.pack(len(frame) - 4, number) + frame[4:] for number, frame in enumerate(frames))
    chunk = replace(chunk_of(PLAIN[:30])[1], raw_length=len(raw))
    _, error = same_both_ways(raw, chunk)
    assert bool(error) == (not flags & DELETED)
