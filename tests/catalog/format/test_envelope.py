"""The envelope: round trips, damage of every kind, and its docstring."""

from __future__ import annotations

import itertools
import re
import struct

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import FormatUnsupported, InvalidObject
from catalog.format import envelope
from catalog.format.envelope import HEADER, MessageType, unwrap, wrap

BODY = wrap(MessageType.COMMIT, b"a message")


@given(st.sampled_from(MessageType), st.binary(max_size=300))
def test_what_is_wrapped_unwraps(message_type: MessageType, data: bytes) -> None:
    assert unwrap(message_type, wrap(message_type, data), "here") == data


def test_the_bytes_are_as_written_down() -> None:
    head = b"SGL1" + bytes(3) + b"\x04" + b"a message"
    assert head + xxhash.xxh3_64_intdigest(head).to_bytes(8, "little") == BODY


def test_the_docstring_gives_the_header_as_the_code_has_it() -> None:
    rows = re.findall(r"^    (\d+) +(\d+) ", envelope.__doc__ or "", re.M)
    sizes = [int(size) for _, size in rows]
    assert [int(offset) for offset, _ in rows] == [sum(sizes[:n]) for n in range(len(sizes))]
    assert sum(sizes) == HEADER.size


def test_every_truncation_is_an_invalid_object() -> None:
    for length in range(len(BODY)):
        with pytest.raises(InvalidObject, match="here"):
            unwrap(MessageType.COMMIT, BODY[:length], "here")


def test_every_flipped_bit_is_found() -> None:
    for bit in range(len(BODY) * 8):
        damaged = bytearray(BODY)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((InvalidObject, FormatUnsupported), match="here"):
            unwrap(MessageType.COMMIT, bytes(damaged), "here")


@pytest.mark.parametrize("digit", "023456789")
def test_another_version_is_said_to_be_one_whatever_else_it_holds(digit: str) -> None:
    with pytest.raises(FormatUnsupported, match=rf"here: format version {digit} .*reads 1"):
        unwrap(MessageType.COMMIT, b"SGL" + digit.encode() + BODY[4:], "here")


def test_a_version_that_is_no_digit_is_damage() -> None:
    with pytest.raises(InvalidObject):
        unwrap(MessageType.COMMIT, b"SGL\x00" + BODY[4:], "here")


def test_a_message_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidObject, match="type is 4, not 16"):
        unwrap(MessageType.REF, BODY, "here")


def test_padding_that_is_not_zero_is_refused() -> None:
    head = b"SGL1" + b"\x00\x01\x00" + b"\x04"
    with pytest.raises(InvalidObject, match="padding"):
        unwrap(MessageType.COMMIT, head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)), "here")


def test_no_type_is_taken_for_another() -> None:
    for written, wanted in itertools.permutations(MessageType, 2):
        with pytest.raises(InvalidObject, match=f"message type is {written:d}, not {wanted:d}"):
            unwrap(wanted, wrap(written, b"data"), "here")
