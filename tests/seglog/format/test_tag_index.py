from __future__ import annotations

import pytest
from xxhash import xxh3_64_hexdigest

from seglog.errors import InvalidEntry
from seglog.format.tag_index import encode_tag_index, read_directory, read_head, read_positions

POSITIONS = {b"us": [1, 4, 70_000], "grüß".encode(): [0], b"": [2], b"x" * 300: [5, 6]}
RAW = encode_tag_index(7, 101, 80_000, POSITIONS)


def _read(raw: bytes) -> dict[bytes, list[int]]:
    head = read_head(raw)
    places = read_directory(raw[: head.directory_end], head)
    return {
        tag: read_positions(raw[place.offset : place.offset + place.length], place).tolist()
        for tag, place in places.items()
    }


def test_what_goes_in_comes_out() -> None:
    assert read_head(RAW)[:3] == (7, 101, 80_000)
    assert _read(RAW) == POSITIONS
    assert list(_read(RAW)) == sorted(POSITIONS)
    assert _read(encode_tag_index(7, 101, 3, {})) == {}


def test_the_bytes_are_pinned() -> None:
    assert xxh3_64_hexdigest(RAW) == "61d605211c240cd3"


def test_no_truncation_and_no_flipped_byte_passes() -> None:
    for position in range(len(RAW)):
        damaged = bytearray(RAW)
        damaged[position] ^= 0x20
        for raw in (RAW[:position], bytes(damaged)):
            with pytest.raises(InvalidEntry):
                _read(raw)
