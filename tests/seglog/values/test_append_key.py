"""The decision about an append under a key, and the digest of its values, without a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidArgument, KeyReused
from seglog.format.lines import Lines
from seglog.values.append_key import GivenKey, Key, check_key, digest_of, repeated_key

VALUES = [b"one", b"", b"two"]
KNOWN = Key(1_000, 7, 3, digest_of(VALUES))


def test_an_unknown_key_is_appended_and_a_known_one_has_its_seqs() -> None:
    assert repeated_key("t", None, GivenKey("k", 3, digest_of(VALUES))) is None
    assert repeated_key("t", KNOWN, GivenKey("k", 3, digest_of([*VALUES]))) == range(7, 10)


@pytest.mark.parametrize(
    "values", [[b"one", b"", b"twO"], [b"one", b"two"], [b"on", b"e", b"two"], [b"onetwo", b"", b""]]
)
def test_a_key_with_other_values_is_no_repetition(values: list[bytes]) -> None:
    with pytest.raises(KeyReused, match="under key 'k': 3 records from seq 7 on; nothing was appended") as caught:
        repeated_key("t", KNOWN, GivenKey("k", len(values), digest_of(values)))
    assert (caught.value.topic, caught.value.key) == ("t", "k")
    assert (caught.value.first_seq, caught.value.records) == (7, 3)


def test_the_number_of_records_counts_beside_the_digest() -> None:
    with pytest.raises(KeyReused):
        repeated_key("t", KNOWN, GivenKey("k", 2, KNOWN.digest))


def test_the_digest_is_pinned() -> None:
    assert f"{digest_of(VALUES):016x}" == "6ab5356fc29f8a48"


@given(st.lists(st.binary(max_size=4).map(lambda value: value.replace(b"\n", b"-")), min_size=1, max_size=6))
def test_the_lines_of_a_text_have_the_digest_of_their_values(values: list[bytes]) -> None:
    assert digest_of(Lines.of(b"".join(value + b"\n" for value in values))) == digest_of(values)


@given(st.lists(st.binary(max_size=3), max_size=5), st.lists(st.binary(max_size=3), max_size=5))
def test_equal_digests_are_those_of_equal_values(one: list[bytes], other: list[bytes]) -> None:
    assert (digest_of(one) == digest_of(other)) == (one == other)


@pytest.mark.parametrize("key", ["", "x" * 257, "\u00fc" * 129, "\ud800"])
def test_a_key_that_does_not_fit_is_refused(key: str) -> None:
    with pytest.raises(InvalidArgument, match="key"):
        check_key(key)


def test_a_key_has_up_to_256_bytes() -> None:
    assert check_key("\u00fc" * 128) == "\u00fc" * 128
