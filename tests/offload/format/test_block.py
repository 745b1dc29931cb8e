from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.format.commit import Codec
from offload.errors import ObjectDamaged
from offload.format.block import (
    BLOCK_HEADER_LENGTH,
    HEADER,
    BlockHeader,
    ChunkRef,
    adjacent,
    decode_block_header,
)
from tests.offload.samples import encode_block


def test_a_block_has_the_bytes_of_pip_17():
    block = encode_block(Codec.NONE, 7, [b"entry one", b"entry two"], 157)
    assert block == (
        bytes.fromhex("fbdbabcb 0000000000000080 000000000000009d 0000000000000007")
        + bytes(100)
        + b"entry oneentry two"
        + bytes.fromhex("fedcdead fedcdead fedcde")
    )


def test_the_last_block_has_no_padding():
    block = encode_block(Codec.NONE, 0, [b"entry"], None)
    assert block[128:] == b"entry"
    assert decode_block_header(block, "k", 0) == BlockHeader(Codec.NONE, 133, 0)


@pytest.mark.parametrize("codec", Codec)
def test_a_reader_of_pip_17_takes_whatever_follows_the_entries_for_a_negative_length(codec):
    for block in (encode_block(codec, 0, [], 200), encode_block(codec, 0, [], None)):
        assert block[0] & 0x80
        assert all(byte & 0x80 for byte in block[128:])


@given(st.sampled_from(Codec), st.integers(0, 2**63 - 1), st.binary(max_size=50))
def test_the_header_comes_back(codec, first_entry_id, payload):
    block = encode_block(codec, first_entry_id, [payload], None)
    assert decode_block_header(block, "k", 0) == BlockHeader(codec, 128 + len(payload), first_entry_id)


@pytest.mark.parametrize("codec", Codec)
def test_a_flipped_bit_in_a_header_is_found_but_where_it_makes_another_length_or_entry_id(codec):
    block = encode_block(codec, 3, [], None)
    unguarded = range(12, HEADER.size)  # block length and first entry id: the index object has both values
    for position in range(BLOCK_HEADER_LENGTH):
        if position in unguarded:
            continue
        for bit in range(8):
            damaged = bytearray(block)
            damaged[position] ^= 1 << bit
            with pytest.raises(ObjectDamaged) as found:
                decode_block_header(bytes(damaged), "k", 4096)
            assert (found.value.key, found.value.offset) == ("k", 4096)


def test_every_truncation_of_a_header_is_found():
    block = encode_block(Codec.NONE, 0, [], None)
    for length in range(BLOCK_HEADER_LENGTH):
        with pytest.raises(ObjectDamaged, match=f"here are {length}"):
            decode_block_header(block[:length], "k", 0)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_header(body):
    with pytest.raises(ObjectDamaged):
        decode_block_header(body, "k", 0)


def chunk_at(offset: int, length: int) -> ChunkRef:
    return ChunkRef(offset, length, length, 1, 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("chunks", "max_bytes", "runs"),
    [
        ([], 10, []),
        ([(128, 50)], 10, [1]),
        ([(128, 5), (133, 5), (138, 5)], 10, [2, 1]),
        ([(128, 5), (133, 6)], 10, [1, 1]),
        ([(128, 5), (134, 5)], 100, [1, 1]),
        ([(128, 5), (133, 5), (266, 5), (271, 5)], 100, [2, 2]),
    ],
)
def test_chunks_that_lie_back_to_back_are_one_run_up_to_the_limit(chunks, max_bytes, runs):
    made = [chunk_at(*each) for each in chunks]
    found = list(adjacent(made, max_bytes))
    assert [len(run) for run in found] == runs
    assert [chunk for run in found for chunk in run] == made
