from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.format.commit import Codec
from offload.errors import InvalidChunk
from offload.format.codec import decode_chunk
from offload.format.columns import Columns, decode_columns
from seglog.format.frame import DELETED, HAS_NODE, FrameType, encode
from seglog.format.frames import take_apart
from tests.offload.samples import (
    KEY,
    TOPIC_ID,
    EncodedObject,
    Sample,
    codecs,
    encode_frames,
    encode_object,
    frames_of_samples,
    sample_lists,
)


def columns_of(made: EncodedObject) -> list[Columns]:
    data, summary = made.data, made.summary
    return [
        decode_columns(
            decode_chunk(data[chunk.offset : chunk.offset + chunk.stored_length], chunk, summary.codec, KEY),
            lengths,
            chunk,
            summary.first_seq,
            summary.topic_id,
            KEY,
        )
        for chunk, lengths in zip(summary.chunks, summary.entry_lengths, strict=True)
    ]


@given(sample_lists, codecs, st.integers(1, 2**60))
def test_columns_hold_what_the_records_are(samples, codec, first_seq):
    made = encode_object(frames_of_samples(samples, first_seq=first_seq), codec, chunk_bytes=500)
    rows_seen = 0
    for columns in columns_of(made):
        rows = np.arange(len(columns.seq))
        expected = samples[rows_seen : rows_seen + len(rows)]
        assert columns.seq.tolist() == [first_seq + rows_seen + row for row in rows]
        assert columns.ts_ms.tolist() == [1_700_000_000_000 + (rows_seen + row) // 2 for row in rows]
        assert (columns.flags & DELETED != 0).tolist() == [sample.deleted for sample in expected]
        assert columns.value(rows).to_pylist() == [sample.value for sample in expected]
        assert columns.tag(rows).to_pylist() == [sample.tag for sample in expected]
        assert columns.node(rows).to_pylist() == [sample.node for sample in expected]
        rows_seen += len(rows)
    assert rows_seen == len(samples)


@given(sample_lists, st.data())
def test_only_the_rows_that_are_wanted_are_copied_in_their_order(samples, data):
    [columns] = columns_of(encode_object(frames_of_samples(samples), Codec.NONE, chunk_bytes=1 << 16))
    rows = np.array(data.draw(st.lists(st.integers(0, len(samples) - 1), unique=True)), dtype=np.int64)
    assert columns.value(rows).to_pylist() == [samples[row].value for row in rows]
    assert columns.tag(rows).to_pylist() == [samples[row].tag for row in rows]


def test_the_columns_have_sparks_types():
    [columns] = columns_of(encode_object(frames_of_samples([Sample(b"v", None, "n")]), Codec.ZSTD))
    rows = np.arange(1)
    assert columns.value(rows).type == pa.binary()
    assert columns.tag(rows).type == columns.node(rows).type == pa.string()


SAMPLES = [Sample(b"first", "eu", "n1"), Sample(b"second"), Sample(b"third", "us")]
MADE = encode_object(frames_of_samples(SAMPLES), Codec.NONE)
[CHUNK] = MADE.summary.chunks
[LENGTHS] = MADE.summary.entry_lengths
RAW = MADE.data[128:]


def decode(raw: bytes, *, lengths=LENGTHS, chunk=CHUNK, first_seq=1, topic_id=TOPIC_ID) -> Columns:
    return decode_columns(raw, lengths, chunk, first_seq, topic_id, KEY)


def test_every_flipped_bit_of_a_chunk_is_found_by_the_records_own_checks():
    for position in range(len(RAW)):
        for bit in range(8):
            damaged = bytearray(RAW)
            damaged[position] ^= 1 << bit
            with pytest.raises(InvalidChunk) as found:
                decode(bytes(damaged))
            assert (found.value.key, found.value.offset) == (KEY, 128)


def test_the_record_that_does_not_match_its_checksum_is_named():
    damaged = RAW.replace(b"second", b"SECOND")
    with pytest.raises(InvalidChunk, match="the record of seq 2 does not match its checksum"):
        decode(damaged)


def test_every_truncation_is_found():
    for length in range(len(RAW)):
        with pytest.raises(InvalidChunk):
            decode(RAW[:length])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"lengths": LENGTHS[:-1]}, "do not make"),
        ({"lengths": LENGTHS[[1, 0, 2]]}, "entry length"),
        ({"lengths": np.array([0, LENGTHS[0] + LENGTHS[1], LENGTHS[2]], dtype=np.uint32)}, "do not make"),
        ({"chunk": replace(CHUNK, first_seq=2, last_seq=4)}, "seq 2 has another seq"),
        ({"chunk": replace(CHUNK, last_seq=4)}, "do not make"),
        ({"first_seq": 0}, "another entry id"),
        ({"topic_id": 1}, "another topic"),
    ],
)
def test_a_chunk_of_another_place_is_refused(wrong, reason):
    with pytest.raises(InvalidChunk, match=reason):
        decode(RAW, **wrong)


@given(st.binary(min_size=46, max_size=400))
def test_random_bytes_are_an_error(raw):
    with pytest.raises(InvalidChunk):
        decode(raw, lengths=np.array([len(raw) - 12], dtype=np.uint32), chunk=replace(CHUNK, last_seq=1))


def test_a_label_that_is_not_utf_8_is_an_error_with_the_place():
    frame = encode(FrameType.APPEND, topic_id=TOPIC_ID, seq=1, ts_ms=1, node=b"\xff", flags=HAS_NODE)
    [columns] = columns_of(encode_object([frame], Codec.NONE))
    with pytest.raises(InvalidChunk, match="UTF-8"):
        columns.node(np.arange(1))


def test_a_frame_with_a_wrong_checksum_of_its_own_is_found_though_the_chunks_matches():
    frames = take_apart(frames_of_samples([Sample(b"v")]))
    with pytest.raises(InvalidChunk, match="seq 1 does not match"):
        columns_of(encode_frames([replace(frames, checksums=frames.checksums + np.uint64(1))], Codec.ZSTD))


def test_without_the_records_checksums_only_their_places_and_lengths_are_checked():
    damaged = bytearray(RAW)
    damaged[-9] ^= 1  # the last byte of a value, before its checksum
    with pytest.raises(InvalidChunk, match="does not match its checksum"):
        decode(bytes(damaged))
    found = decode_columns(bytes(damaged), LENGTHS, CHUNK, 1, TOPIC_ID, KEY, check_records=False)
    assert len(found.seq) == CHUNK.count
