from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.errors import InvalidIndex, ObjectDamaged
from offload.format.block import BlockRef
from offload.format.streamed import (
    BLOCK_HEADER,
    BLOCK_MAGIC,
    ENTRY,
    HEADER,
    MAGIC,
    decode_streamed_block_header,
    decode_streamed_index,
)
from tests.worlds.index_objects import Ledger, index_of


def test_ledgers_come_in_the_order_of_the_index_object():
    found = decode_streamed_index(index_of([(9, 40, [(3, 3, 600)]), (8, 12, [(0, 1, 0), (5, 2, 300)])], 900), "k")
    assert [(ledger.ledger_id, ledger.info.entries) for ledger in found.ledgers] == [(9, 40), (8, 12)]
    assert found.ledgers[1].entries == (BlockRef(0, 1, 0), BlockRef(5, 2, 300))
    assert found.data_length == 900


@pytest.mark.parametrize(
    ("ledgers", "data_length", "reason"),
    [
        ([(1, 1, [])], 900, "has no index entries"),
        ([(1, 1, [(0, 1, 0)]), (1, 1, [(0, 2, 300)])], 900, "a ledger twice"),
        ([(1, 1, [(0, 1, 0), (0, 2, 300)])], 900, "do not ascend"),
        ([(1, 1, [(0, 1, 300), (5, 2, 0)])], 900, "do not ascend"),
        ([(1, 1, [(0, 1, 300)])], 900, "do not lie in a data object"),
        ([(1, 1, [(0, 1, 0), (5, 2, 800)])], 900, "do not lie in a data object"),
        ([(1, 1, [(0, 1, 0)]), (2, 1, [(0, 2, 127)])], 900, "overlap"),
    ],
)
def test_what_no_writer_gives_is_refused(ledgers: list[Ledger], data_length: int, reason: str):
    with pytest.raises(InvalidIndex, match=reason):
        decode_streamed_index(index_of(ledgers, data_length), "k")


def test_a_ledger_goes_as_far_as_the_index_object_says_it_has_bytes():
    whole = index_of([(1, 1, [(0, 1, 0)]), (2, 1, [(0, 2, 300)])], 900)
    for length in range(HEADER.size + 1, len(whole)):
        stated = HEADER.pack(MAGIC, length, 900, 128) + whole[HEADER.size :]
        if length == len(index_of([(1, 1, [(0, 1, 0)])], 900)):
            assert len(decode_streamed_index(stated, "k").ledgers) == 1
        else:
            with pytest.raises(InvalidIndex, match="is cut"):
                decode_streamed_index(stated, "k")


def test_an_index_object_without_a_ledger_is_refused():
    with pytest.raises(InvalidIndex):
        decode_streamed_index(index_of([], 900), "k")


def test_another_header_length_or_magic_is_refused():
    with pytest.raises(InvalidIndex, match="block headers of 64 bytes"):
        decode_streamed_index(index_of([(1, 1, [(0, 1, 0)])], 900, data_header_length=64), "k")
    with pytest.raises(InvalidIndex, match="0xDE47DE47 is not the magic of a streamed index object"):
        decode_streamed_index(struct.pack(">I", 0xDE47DE47) + bytes(60), "k")


@given(st.binary(max_size=200), st.integers(0, 220))
def test_any_bytes_decode_or_are_refused_with_their_place(rest: bytes, length: int):
    body = HEADER.pack(MAGIC, length, 1000, 128) + rest
    try:
        found = decode_streamed_index(body, "k")
    except InvalidIndex as error:
        refused = error
    else:
        assert sum(len(ledger.entries) for ledger in found.ledgers) * ENTRY.size <= len(rest)
        return
    assert 0 <= refused.offset <= len(body)


def test_a_block_header_comes_back():
    header = BLOCK_HEADER.pack(BLOCK_MAGIC, 128, 5000, 17, 21).ljust(128, b"\0")
    found = decode_streamed_block_header(header, "k", 0)
    assert (found.length, found.first_entry_id, found.ledger_id) == (5000, 17, 21)
    for at in (*range(12), *range(36, 128)):
        flipped = bytearray(header)
        flipped[at] ^= 0x80
        with pytest.raises(ObjectDamaged):
            decode_streamed_block_header(bytes(flipped), "k", 0)
    with pytest.raises(ObjectDamaged, match="here are 127"):
        decode_streamed_block_header(header[:-1], "k", 0)
