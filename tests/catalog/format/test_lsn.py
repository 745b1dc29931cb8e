"""CBE64: test vectors, and its order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import InvalidKey
from catalog.format.ids import MAX_LSN, from_cbe64, to_cbe64

VECTORS = [
    (1, "FFFFFFFFFFFFFFFE"),
    (2, "FFFFFFFFFFFFFFFD"),
    (2**63, "7FFFFFFFFFFFFFFF"),
    (2**64 - 1, "0000000000000000"),
]
lsns = st.integers(1, MAX_LSN)


@pytest.mark.parametrize(("lsn", "text"), VECTORS)
def test_vectors_hold(lsn: int, text: str) -> None:
    assert to_cbe64(lsn) == text
    assert from_cbe64(text) == lsn


@given(lsns, lsns)
def test_a_plain_ascending_listing_gives_the_newest_first(one: int, other: int) -> None:
    assert (to_cbe64(one) < to_cbe64(other)) == (one > other)
    assert from_cbe64(to_cbe64(one)) == one


@pytest.mark.parametrize("lsn", [0, -1, 2**64])
def test_what_is_no_lsn_has_no_text(lsn: int) -> None:
    with pytest.raises(ValueError, match="outside"):
        to_cbe64(lsn)


@pytest.mark.parametrize(
    "text", ["", "F" * 16, "fffffffffffffffe", "FFFFFFFFFFFFFFE", "FFFFFFFFFFFFFFFE\n", "0x00000000000000"]
)
def test_text_that_was_never_made_is_refused(text: str) -> None:
    with pytest.raises(InvalidKey):
        from_cbe64(text)
