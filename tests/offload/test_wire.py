from __future__ import annotations

import pytest

from offload.errors import InvalidInput
from offload.wire import decode_values, encode_values


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
