from __future__ import annotations

from dataclasses import replace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from catalog.format.commit import Codec
from offload.errors import InvalidChunk
from offload.format.block import ChunkRef
from offload.format.codec import chunk_encoder, decode_chunk

codecs = st.sampled_from(Codec)


def ref_of(stored: bytes, raw_length: int) -> ChunkRef:
    return ChunkRef(128, len(stored), raw_length, 1, 1, 5, 5, xxh3_64_intdigest(stored))


@given(st.binary(max_size=3000), codecs)
def test_a_chunk_comes_back(raw, codec):
    stored = bytes(chunk_encoder(codec, 3)(bytearray(raw)))
    assert decode_chunk(stored, ref_of(stored, len(raw)), codec, "k") == raw


@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_byte_and_every_truncation_is_found_with_the_place(codec):
    stored = bytes(chunk_encoder(codec, 3)(bytearray(b"some entries, " * 20)))
    chunk = ref_of(stored, 280)
    damaged = [stored[:n] for n in range(len(stored))]
    damaged += [stored[:n] + bytes([stored[n] ^ 0x10]) + stored[n + 1 :] for n in range(len(stored))]
    for body in damaged:
        with pytest.raises(InvalidChunk) as found:
            decode_chunk(body, chunk, codec, "k")
        assert (found.value.key, found.value.offset) == ("k", 128)


def test_a_frame_that_would_decompress_to_more_than_the_table_says_is_refused_before_it_is_decompressed():
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    with pytest.raises(InvalidChunk, match="does not decompress to 1000 bytes"):
        decode_chunk(bomb, ref_of(bomb, 1000), Codec.ZSTD, "k")


def test_a_frame_that_does_not_tell_its_size_is_refused():
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    stored = compressor.compress(b"raw")
    with pytest.raises(InvalidChunk, match="does not decompress to 3 bytes"):
        decode_chunk(stored, ref_of(stored, 3), Codec.ZSTD, "k")


def test_bytes_behind_the_frame_are_refused():
    stored = zstandard.ZstdCompressor().compress(b"raw") + b"more"
    with pytest.raises(InvalidChunk):
        decode_chunk(stored, ref_of(stored, 3), Codec.ZSTD, "k")


@given(st.binary(max_size=300), st.integers(0, 1 << 20))
def test_random_bytes_with_a_right_checksum_are_decoded_or_an_error(stored, raw_length):
    try:
        raw = decode_chunk(stored, ref_of(stored, raw_length), Codec.ZSTD, "k")
    except InvalidChunk:
        return
    assert len(raw) == raw_length


def test_a_chunk_of_another_object_is_found():
    stored = bytes(chunk_encoder(Codec.ZSTD, 3)(bytearray(b"one")))
    with pytest.raises(InvalidChunk, match="checksum"):
        decode_chunk(stored, replace(ref_of(stored, 3), xxh3=1), Codec.ZSTD, "k")
