from __future__ import annotations

import pytest

from offload.errors import InvalidInput, TooManyRecords
from offload.wire import decode_lines, decode_values, encode_values


@pytest.mark.parametrize("values", [[], [b""], [b"one"], [b"", b"two", b"\x00" * 1_000]])
def test_values_come_back(values: list[bytes]) -> None:
    assert decode_values(encode_values(values)) == values


def test_a_body_that_is_cut_anywhere_is_refused() -> None:
    body = encode_values([b"one", b"two"])
    whole = {0, 7, len(body)}
    for length in range(len(body)):
        if length not in whole:
            with pytest.raises(InvalidInput):
                decode_values(body[:length])


def test_a_length_beyond_the_body_allocates_nothing() -> None:
    with pytest.raises(InvalidInput, match="cut off"):
        decode_values(b"\xff\xff\xff\xffrest")


def test_lines_come_back() -> None:
    assert [*decode_lines(b"one\n\r\n\n")] == [b"one", b"\r", b""]
    assert [*decode_lines(b"")] == []


def test_a_line_without_a_line_feed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="line 3 has no line feed"):
        decode_lines(b"one\n\nthr")


def test_a_body_has_a_bounded_number_of_values() -> None:
    assert decode_values(bytes(4 * 10), most=10) == [b""] * 10
    with pytest.raises(TooManyRecords, match="at most 10 records"):
        decode_values(bytes(4 * 10) + b"\xff\xff\xff\xff", most=10)
