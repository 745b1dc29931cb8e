from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidEntry
from seglog.journal.item import (
    MARK_BYTES,
    OFFSET_MAX,
    SIZE,
    UNIT_BYTES,
    encode_item,
    encode_mark,
    is_mark,
    read_item,
    slot_bytes,
)
from tests.seglog.tables import table_of

GOLDEN_ITEM = "04000000 64617461 63f3f3ad 04040404"
GOLDEN_EMPTY = "00000000 00000000 08080808 08080808"
GOLDEN_MARK = "00000000 00000000 338c7adae7611be6"
GOLDEN_MARK_WITH_SECRET = "00000000000000004d65d54b26bd410c"


def encoded(data: bytes) -> bytes:
    return b"".join(encode_item(data))


def test_the_tables_in_the_docstring_are_the_structs() -> None:
    assert table_of("seglog.journal.item") == [(0, 4), (0, 8), (8, 8)]
    assert (SIZE.format, SIZE.size, MARK_BYTES, UNIT_BYTES, OFFSET_MAX) == ("<I", 4, 16, 16, 2**32 - 1)


def test_the_bytes_are_pinned() -> None:
    assert encoded(b"data") == bytes.fromhex(GOLDEN_ITEM)
    assert encoded(b"") == bytes.fromhex(GOLDEN_EMPTY)
    assert encode_mark(258, 4096, b"") == bytes.fromhex(GOLDEN_MARK)
    assert encode_mark(258, 4096, bytes(range(8))) == bytes.fromhex(GOLDEN_MARK_WITH_SECRET)


@given(st.binary(max_size=100))
def test_an_item_is_size_data_and_crc32_and_fills_its_units(data: bytes) -> None:
    raw = encoded(data)
    assert raw[: 8 + len(data)] == struct.pack("<I", len(data)) + data + struct.pack("<I", zlib.crc32(data))
    assert len(raw) == slot_bytes(len(data)) < 8 + len(data) + 16
    assert len(raw) % 16 == 0
    assert read_item(b"before" + raw + b"behind", 6) == data
    assert read_item(memoryview(raw)) == data


@pytest.mark.parametrize("data", [b"", b"data", b"8 bytes.", bytes(40), bytes(range(100))])
def test_no_flipped_bit_and_no_truncation_passes(data: bytes) -> None:
    raw = encoded(data)
    for position in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[position] ^= 1 << bit
            # Any bytes may follow the item. A longer buffer must not make a damaged item pass.
            for behind in (b"", bytes(300)):
                with pytest.raises(InvalidEntry):
                    read_item(bytes(damaged) + behind)
        with pytest.raises(InvalidEntry) as caught:
            read_item(b"12" + raw[:position], 2)
        assert caught.value.position == 2


@pytest.mark.parametrize("length", [16, 17, 4096])
def test_zeros_are_no_item(length: int) -> None:
    with pytest.raises(InvalidEntry):
        read_item(bytes(length))


@pytest.mark.parametrize("secret", [b"", bytes(range(8))])
def test_a_mark_fits_its_own_place_only(secret: bytes) -> None:
    mark = encode_mark(3, 160, secret)
    assert is_mark(b"x" + mark, 1, 3, 160, secret)
    assert not is_mark(mark, 0, 4, 160, secret)
    assert not is_mark(mark, 0, 3, 176, secret)
    assert not is_mark(mark, 0, 3, 160, b"another.")
    assert not is_mark(mark[:-1], 0, 3, 160, secret)
    assert not is_mark(encoded(b""), 0, 3, 160, secret)
    with pytest.raises(InvalidEntry):
        read_item(mark)
    for position in range(len(mark)):
        damaged = bytearray(mark)
        damaged[position] ^= 1
        assert not is_mark(damaged, 0, 3, 160, secret)
