from __future__ import annotations

import struct
from collections import deque
from random import Random

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from catalog.format.commit import Codec
from offload.format.block import BLOCK_HEADER_LENGTH, PADDING, decode_block_header, largest_entry
from offload.format.codec import decode_chunk
from offload.format.encoder import MAX_TAGS, EntryTooLarge, FrameMismatch, SegmentEncoder
from offload.format.index import decode_head
from seglog.format.frame import FrameType, encode
from seglog.format.frames import take_apart
from tests.offload.pulsar_reader import PulsarReader
from tests.offload.samples import (
    KEY,
    TOPIC_ID,
    EncodedObject,
    Sample,
    codecs,
    encode_object,
    frame_of,
    frames_of,
    frames_of_samples,
    sample_lists,
)

BLOCK_SIZE = 1024
block_sizes = st.integers(800, 5000)


def frames_in(made: EncodedObject) -> list[bytes]:
    found: list[bytes] = []
    data = made.data
    for chunk in made.summary.chunks:
        raw = decode_chunk(data[chunk.offset : chunk.offset + chunk.stored_length], chunk, made.summary.codec, KEY)
        found.extend(frames_of(raw, KEY, chunk.offset))
    return found


@given(sample_lists, codecs, block_sizes, st.integers(60, 2000), st.integers(1, 2**40))
def test_the_frames_come_back_byte_for_byte(samples, codec, block_size, chunk_bytes, first_seq):
    frames = frames_of_samples(samples, first_seq=first_seq)
    made = encode_object(frames, codec, block_size=block_size, chunk_bytes=chunk_bytes)
    assert frames_in(made) == frames
    assert made.summary.frame_bytes == sum(map(len, frames))
    assert (made.summary.first_seq, made.summary.last_seq) == (first_seq, first_seq + len(frames) - 1)


@pytest.mark.parametrize("values", [[b"%03d" % number for number in range(300)], [b"one"] * 299 + [b"four"]])
def test_frames_of_one_length_are_entries_as_others_are(values):
    frames = [
        encode(FrameType.APPEND, topic_id=TOPIC_ID, seq=seq, ts_ms=seq, data=value)
        for seq, value in enumerate(values, 7)
    ]
    made = encode_object(frames, Codec.NONE, block_size=64_000, chunk_bytes=5_000)
    entries = [struct.pack(">IQ", len(frame) - 4, entry_id) + frame[4:] for entry_id, frame in enumerate(frames)]
    assert made.data[BLOCK_HEADER_LENGTH:] == b"".join(entries)


@given(sample_lists, codecs, block_sizes)
def test_every_block_but_the_last_is_exactly_of_the_block_size(samples, codec, block_size):
    made = encode_object(frames_of_samples(samples), codec, block_size=block_size)
    assert {len(block) for block in made.blocks[:-1]} <= {block_size}
    assert len(made.blocks[-1]) <= block_size
    for number, block in enumerate(made.blocks):
        header = decode_block_header(block, KEY, number * block_size)
        assert (header.codec, header.length) == (codec, len(block))
    assert made.summary.data_length == len(made.data)
    assert made.summary.data_hash == blake3(made.data).digest()


@given(sample_lists, codecs, block_sizes)
def test_behind_the_last_chunk_of_a_block_is_padding_and_behind_that_of_the_last_block_nothing(
    samples, codec, block_size
):
    made = encode_object(frames_of_samples(samples), codec, block_size=block_size)
    for number, block in enumerate(made.blocks):
        ends = [
            chunk.offset + chunk.stored_length - number * block_size
            for chunk in made.summary.chunks
            if chunk.offset // block_size == number
        ]
        padding = block[max(ends) :]
        assert padding == (PADDING * len(block))[: len(padding)]
        if number == len(made.blocks) - 1:
            assert padding == b""


@given(sample_lists, block_sizes)
def test_with_codec_none_the_last_block_has_the_size_that_pip_17_computes(samples, block_size):
    made = encode_object(frames_of_samples(samples), Codec.NONE, block_size=block_size)
    left = [chunk for chunk in made.summary.chunks if chunk.offset >= (len(made.blocks) - 1) * block_size]
    entries = sum(chunk.count for chunk in left)
    data_bytes = sum(chunk.raw_length for chunk in left) - 12 * entries
    assert len(made.blocks[-1]) == BLOCK_HEADER_LENGTH + 12 * entries + data_bytes


@given(sample_lists, block_sizes, codecs, st.integers(1, 20))
def test_frames_taken_many_at_a_time_make_the_same_bytes(samples, block_size, codec, step):
    frames = frames_of_samples(samples)
    one_by_one = encode_object(frames, codec, block_size=block_size, chunk_bytes=400)
    encoder = SegmentEncoder(block_size=block_size, codec=codec, chunk_bytes=400)
    blocks = [block for at in range(0, len(frames), step) for block in encoder.add(take_apart(frames[at : at + step]))]
    last, summary = encoder.finish()
    assert (*blocks, *last) == one_by_one.blocks
    assert summary.chunks == one_by_one.summary.chunks


@given(sample_lists, block_sizes)
def test_with_codec_none_a_block_is_padded_only_when_the_next_entry_does_not_fit(samples, block_size):
    frames = frames_of_samples(samples)
    made = encode_object(frames, Codec.NONE, block_size=block_size)
    for number in range(1, len(made.blocks)):
        before = [chunk for chunk in made.summary.chunks if chunk.offset // block_size == number - 1][-1]
        free = number * block_size - (before.offset + before.stored_length)
        next_entry = len(frames[before.last_seq + 1 - made.summary.first_seq]) + 8
        assert next_entry > free


@given(sample_lists, block_sizes, st.data())
def test_pulsars_reader_reads_codec_none_from_any_entry(samples, block_size, data):
    frames = frames_of_samples(samples)
    made = encode_object(frames, Codec.NONE, block_size=block_size, chunk_bytes=400)
    reader = PulsarReader(made.index.body, made.data)
    first = data.draw(st.integers(0, len(frames) - 1))
    assert [entry for _, entry in reader.read(first, len(frames) - 1)] == [frame[4:] for frame in frames[first:]]
    assert reader.data_length == len(made.data)
    assert reader.ledger.length == sum(len(frame) - 4 for frame in frames)


def test_pulsars_reader_seeks_to_the_chunk_and_not_only_to_the_block():
    frames = frames_of_samples([Sample(bytes(100))] * 50)
    made = encode_object(frames, Codec.NONE, chunk_bytes=1000)
    assert len(made.blocks) == 1
    reader = PulsarReader(made.index.body, made.data)
    assert len(reader.entries) == len(made.summary.chunks) > 5
    assert [entry_id for entry_id, _ in reader.read(40, 41)] == [40, 41]


@given(sample_lists, codecs)
def test_live_entries_are_those_without_the_deleted_flag(samples, codec):
    made = encode_object(frames_of_samples(samples), codec)
    assert list(BitMap.deserialize(made.summary.live)) == [
        number for number, sample in enumerate(samples) if not sample.deleted
    ]


@given(sample_lists, codecs)
def test_each_tag_has_the_bitmap_of_its_entries(samples, codec):
    made = encode_object(frames_of_samples(samples), codec, chunk_bytes=300)
    assert made.summary.tags is not None
    assert list(made.summary.tags) == sorted({sample.tag for sample in samples if sample.tag is not None})
    for tag, bitmap in made.summary.tags.items():
        assert list(BitMap.deserialize(bitmap)) == [n for n, sample in enumerate(samples) if sample.tag == tag]


@pytest.mark.parametrize(("count", "listed"), [(MAX_TAGS, True), (MAX_TAGS + 1, False)])
def test_beyond_4096_tags_none_is_listed(count, listed):
    made = encode_object(frames_of_samples(Sample(b"", tag=f"tag-{n}") for n in range(count)), Codec.ZSTD)
    assert (made.summary.tags is not None) is listed
    assert (decode_head(made.index.body, KEY).tags is not None) is listed


@given(sample_lists, codecs)
def test_a_chunk_knows_its_least_and_greatest_time(samples, codec):
    frames = frames_of_samples(samples)
    made = encode_object(frames, codec, chunk_bytes=200)
    for chunk in made.summary.chunks:
        times = [struct.unpack_from("<Q", frames[seq - 1], 22)[0] for seq in range(chunk.first_seq, chunk.last_seq + 1)]
        assert (chunk.min_ts_ms, chunk.max_ts_ms) == (min(times), max(times))
    assert made.summary.max_ts_ms == max(chunk.max_ts_ms for chunk in made.summary.chunks)


@pytest.mark.parametrize("codec", Codec)
def test_an_entry_that_just_fits_an_empty_block_is_taken_and_one_more_byte_is_refused(codec):
    room = largest_entry(BLOCK_SIZE, codec) - 42
    noise = bytes((n * n * 167 + n * 59) % 251 for n in range(room + 1))
    made = encode_object(frames_of_samples([Sample(noise[:room])] * 3), codec, block_size=BLOCK_SIZE)
    assert len(made.blocks) in {2, 3}
    encoder = SegmentEncoder(block_size=BLOCK_SIZE, codec=codec)
    with pytest.raises(EntryTooLarge) as refused:
        list(encoder.add(take_apart([frame_of(Sample(noise), 1, 1)])))
    assert refused.value.limit_bytes == largest_entry(BLOCK_SIZE, codec)


def test_chunks_that_fill_a_block_to_its_last_byte_are_in_it():
    frames = frames_of_samples([Sample(b"x" * 100)] * 4)
    [entry_bytes] = {chunk.raw_length for chunk in encode_object(frames, Codec.NONE, chunk_bytes=1).summary.chunks}
    made = encode_object(
        frames, Codec.NONE, block_size=BLOCK_HEADER_LENGTH + 4 * entry_bytes, chunk_bytes=2 * entry_bytes
    )
    assert len(made.blocks) == 1
    assert [chunk.count for chunk in made.summary.chunks] == [2, 2]
    assert made.summary.data_length == BLOCK_HEADER_LENGTH + 4 * entry_bytes


def test_the_largest_entry_and_its_head_fill_a_block():
    assert largest_entry(BLOCK_SIZE, Codec.NONE) == BLOCK_SIZE - 128 - 12
    assert largest_entry(BLOCK_SIZE, Codec.ZSTD) == (BLOCK_SIZE - 128 - 64) * 256 // 257 - 12


def test_a_last_block_in_a_spare_one_has_nothing_of_that():
    frames = frames_of_samples([Sample(b"only")])
    encoder = SegmentEncoder(block_size=BLOCK_SIZE, codec=Codec.NONE, spare=deque([bytearray(b"x" * BLOCK_SIZE)]))
    assert list(encoder.add(take_apart(frames))) == []
    blocks, _ = encoder.finish()
    assert blocks == encode_object(frames, Codec.NONE, block_size=BLOCK_SIZE).blocks


def test_a_chunk_never_exceeds_its_limit_unless_one_entry_does():
    sizes = [100, 100, 5000, 100, 100, 100]
    made = encode_object(frames_of_samples(Sample(bytes(size)) for size in sizes), Codec.ZSTD, chunk_bytes=400)
    assert [chunk.count for chunk in made.summary.chunks] == [2, 1, 2, 1]


def test_incompressible_records_fill_blocks_of_codec_zstd_too():
    random = Random(5)
    frames = frames_of_samples(Sample(random.randbytes(random.randint(200, 700))) for _ in range(30))
    made = encode_object(frames, Codec.ZSTD, block_size=BLOCK_SIZE, chunk_bytes=1 << 20)
    assert len(made.blocks) > 10
    assert frames_in(made) == frames


def test_finishing_may_give_two_blocks():
    random = Random(6)
    encoder = SegmentEncoder(block_size=BLOCK_SIZE, codec=Codec.ZSTD)
    for frame in frames_of_samples([Sample(random.randbytes(500)), Sample(random.randbytes(500))]):
        assert list(encoder.add(take_apart([frame]))) == []
    blocks, summary = encoder.finish()
    assert [len(block) for block in blocks] == [BLOCK_SIZE, summary.data_length - BLOCK_SIZE]


@given(sample_lists, codecs, block_sizes)
def test_a_block_that_is_used_again_makes_the_same_bytes(samples, codec, block_size):
    frames = frames_of_samples(samples)
    expected = encode_object(frames, codec, block_size=block_size).data
    spare: deque[bytearray] = deque()
    encoder = SegmentEncoder(block_size=block_size, codec=codec, chunk_bytes=1 << 10, spare=spare)
    found = bytearray()
    for block in encoder.add(take_apart(frames)):
        found += block
        block[:] = b"\xee" * len(block)
        spare.append(block)
    for block in encoder.finish()[0]:
        found += block
    assert found == expected


def test_equal_frames_give_equal_bytes():
    frames = frames_of_samples([Sample(b"x" * 50, "eu", "n1")] * 40)
    assert encode_object(frames, Codec.ZSTD).data == encode_object(frames, Codec.ZSTD).data


GOOD = frames_of_samples([Sample(b"a"), Sample(b"b"), Sample(b"c")])


def _append(seq: int, topic_id: int = TOPIC_ID, tag: bytes = b"", flags: int = 0) -> bytes:
    return encode(FrameType.APPEND, topic_id=topic_id, seq=seq, ts_ms=1, tag=tag, flags=flags)


def _encode_all(encoder: SegmentEncoder, frames: list[bytes]) -> None:
    for frame in frames:
        list(encoder.add(take_apart([frame])))
    encoder.finish()


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (_append(3), "another seq"),
        (_append(1), "another seq"),
        (_append(2, topic_id=1), "another topic"),
        (_append(2, tag=b"\xff", flags=1), "UTF-8"),
    ],
)
@pytest.mark.parametrize("codec", Codec)
def test_a_frame_that_is_not_the_next_one_is_refused_with_its_seq(codec, second, reason):
    encoder = SegmentEncoder(block_size=BLOCK_SIZE, codec=codec)
    with pytest.raises(FrameMismatch, match=reason) as refused:
        _encode_all(encoder, [GOOD[0], second, GOOD[2]])
    assert refused.value.seq in {1, 2}
