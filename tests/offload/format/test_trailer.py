from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.format.commit import Codec
from offload.errors import FormatUnsupported, InvalidIndex, OffloadError
from offload.format.trailer import decode_directory, decode_lengths, decode_trailer, directory_length, encode_trailer
from tests.offload.samples import EncodedObject, Sample, codecs, encode_object, frames_of_samples, sample_lists

AT = 1000


def trailer_of(made: EncodedObject) -> bytes:
    return made.index.body[made.index.head_length :]


def small() -> EncodedObject:
    return encode_object(frames_of_samples([Sample(bytes(n * 7)) for n in range(12)]), Codec.ZSTD, chunk_bytes=300)


@given(sample_lists, codecs)
def test_the_lengths_of_every_chunk_come_back(samples, codec):
    frames = frames_of_samples(samples)
    made = encode_object(frames, codec, chunk_bytes=300)
    found = decode_trailer(trailer_of(made), made.summary.chunks, "k", AT)
    assert np.concatenate(found).tolist() == [len(frame) - 4 for frame in frames]
    assert [len(lengths) for lengths in found] == [chunk.count for chunk in made.summary.chunks]


def test_a_part_is_read_from_the_directory_and_the_chunks_own_bytes_alone():
    made = small()
    trailer = trailer_of(made)
    chunks = made.summary.chunks
    refs = decode_directory(trailer[: directory_length(len(chunks))], len(chunks), "k", AT)
    ref = refs[2]
    lengths = decode_lengths(trailer[ref.offset : ref.offset + ref.stored_length], ref, chunks[2], "k", AT)
    assert lengths.tolist() == made.summary.entry_lengths[2].tolist()


def test_equal_lengths_cost_next_to_nothing():
    made = encode_object(
        frames_of_samples([Sample(bytes(100))] * 3000), Codec.ZSTD, block_size=1 << 20, chunk_bytes=1 << 20
    )
    assert made.index.trailer_length < 100


def test_every_flipped_byte_and_every_truncation_is_found_with_the_place():
    made = small()
    trailer = trailer_of(made)
    damaged = [trailer[:n] for n in range(len(trailer))]
    damaged += [trailer[:n] + bytes([trailer[n] ^ 0x10]) + trailer[n + 1 :] for n in range(len(trailer))]
    damaged.append(trailer + b"\0")
    for body in damaged:
        with pytest.raises((InvalidIndex, FormatUnsupported)) as found:
            decode_trailer(body, made.summary.chunks, "k", AT)
        assert found.value.key == "k"
        if isinstance(found.value, InvalidIndex):
            assert found.value.offset >= AT


def test_another_version_is_told_as_such():
    made = small()
    trailer = bytearray(trailer_of(made))
    trailer[7] = 2
    with pytest.raises(FormatUnsupported, match="trailer version 2"):
        decode_trailer(bytes(trailer), made.summary.chunks, "k", AT)


def test_lengths_that_do_not_make_the_chunk_are_refused():
    made = small()
    right = made.summary.entry_lengths
    shorter = [lengths.copy() for lengths in right]
    for lengths in shorter:
        lengths[lengths.argmax()] -= 1
    for wrong in ([lengths + np.uint32(1) for lengths in right], shorter):
        with pytest.raises(InvalidIndex, match="do not make a chunk"):
            decode_trailer(encode_trailer(wrong), made.summary.chunks, "k", AT)


@given(st.binary(max_size=300))
def test_random_bytes_are_an_error(body):
    with pytest.raises(OffloadError):
        decode_trailer(body, small().summary.chunks, "k", AT)
