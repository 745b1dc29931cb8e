from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from catalog import schema_pb2 as pb
from catalog.format.commit import Codec
from offload.errors import FormatUnsupported, InvalidIndex, OffloadError
from offload.format.index import decode_head
from offload.format.metadata import SegmentIndex, decode_bitmap, decode_metadata, encode_metadata
from tests.offload.samples import Sample, codecs, encode_object, frames_of_samples, sample_lists

MADE = encode_object(
    frames_of_samples([Sample(bytes(90), "eu")] * 40, first_seq=100), Codec.NONE, block_size=2048, chunk_bytes=500
)
BODY = encode_metadata(MADE.summary, "orders", "seglog test")
INDEX = decode_metadata(BODY, MADE.summary.data_length, "k", 32)


@given(sample_lists, codecs, st.integers(1, 2**50))
def test_what_was_encoded_comes_back(samples, codec, first_seq):
    summary = encode_object(frames_of_samples(samples, first_seq=first_seq), codec, block_size=1000).summary
    found = decode_metadata(encode_metadata(summary, "orders@b", "me"), summary.data_length, "k", 32)
    assert found == SegmentIndex(
        topic="orders@b",
        topic_id=summary.topic_id,
        first_seq=summary.first_seq,
        last_seq=summary.last_seq,
        min_ts_ms=summary.min_ts_ms,
        max_ts_ms=summary.max_ts_ms,
        codec=codec,
        block_size=1000,
        data_length=summary.data_length,
        data_hash=summary.data_hash,
        chunks=summary.chunks,
        live=summary.live,
        tags=summary.tags,
        software="me",
    )


def test_the_chunks_between_two_seqs_are_those_that_hold_one_of_the_range():
    for first in range(98, 142):
        for last in range(first, 142):
            assert INDEX.chunks_between(first, last) == tuple(
                chunk for chunk in INDEX.chunks if chunk.last_seq >= first and chunk.first_seq <= last
            )
    assert INDEX.chunks_between(120, 110) == ()


def _damage(change) -> bytes:
    message = pb.SegmentMetadata.FromString(BODY)
    change(message)
    return message.SerializeToString()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m.ClearField("chunks"), "does not begin with seq 100"),
        (lambda m: setattr(m, "first_seq", 99), "does not begin with seq 99"),
        (lambda m: setattr(m, "first_seq", 0), "of seqs 0 to 139"),
        (lambda m: setattr(m, "last_seq", 99), "of seqs 100 to 99"),
        (lambda m: setattr(m, "last_seq", 2**60), "cannot hold"),
        (lambda m: setattr(m, "data_hash", b"short"), "of seqs"),
        (lambda m: setattr(m, "block_size", 0), "blocks of 0 bytes"),
        (lambda m: setattr(m, "block_size", 2**40), "blocks of"),
        (lambda m: setattr(m.chunks[1], "first_seq", 100), "empty range"),
        (lambda m: setattr(m.chunks[1], "min_ts_ms", 2**63), "empty range"),
        (lambda m: setattr(m.chunks[1], "offset", 128), "overlaps"),
        (lambda m: setattr(m.chunks[1], "stored_length", 0), "overlaps"),
        (lambda m: setattr(m.chunks[-1], "stored_length", 10**6), "overlaps another or the end"),
        (lambda m: setattr(m.chunks[3], "offset", m.chunks[3].offset - 20), "overlaps|inside a block"),
        (lambda m: setattr(m.chunks[0], "raw_length", 1), "cannot hold"),
        (lambda m: setattr(m.chunks[0], "raw_length", 2**32 - 1), "cannot hold"),
        (lambda m: setattr(m.chunks[0], "raw_length", m.chunks[0].raw_length + 1), "two lengths"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(change, reason):
    with pytest.raises(InvalidIndex, match=reason):
        decode_metadata(_damage(change), MADE.summary.data_length, "k", 32)


@pytest.mark.parametrize(("field", "number"), [("version", 2), ("codec", 0), ("codec", 9)])
def test_another_version_or_codec_is_told_as_such(field, number):
    with pytest.raises(FormatUnsupported, match=str(number)):
        decode_metadata(_damage(lambda m: setattr(m, field, number)), MADE.summary.data_length, "k", 32)


@given(st.binary(max_size=300))
def test_random_bytes_are_an_error(body):
    with pytest.raises(OffloadError):
        decode_metadata(body, 10_000, "k", 32)


@given(st.data())
def test_a_damaged_table_is_an_error_or_still_one_that_holds_together(data):
    damaged = bytearray(BODY)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        index = decode_metadata(bytes(damaged), MADE.summary.data_length, "k", 32)
    except OffloadError:
        return
    assert sum(chunk.count for chunk in index.chunks) == index.count
    assert all(chunk.offset + chunk.stored_length <= index.data_length for chunk in index.chunks)


def test_a_bitmap_decodes():
    assert decode_bitmap(INDEX.live, INDEX, "k") == BitMap(range(40))


@given(st.binary(max_size=100))
def test_random_bytes_are_no_bitmap_or_one_within_the_object(body):
    with contextlib.suppress(InvalidIndex):
        assert all(entry_id < INDEX.count for entry_id in decode_bitmap(body, INDEX, "k"))


def test_a_bitmap_of_entries_that_are_not_there_is_refused():
    with pytest.raises(InvalidIndex, match="entry 40 of 40"):
        decode_bitmap(BitMap([40]).serialize(), INDEX, "k")


def test_the_index_object_carries_it():
    assert decode_head(MADE.index.body, "k").chunks == INDEX.chunks
