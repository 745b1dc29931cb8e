"""The BATCH frame: pinned bytes, round trips, and bodies that do not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidFrame
from seglog.format.batch_frame import encode_batch, read_unit
from seglog.format.frame import FrameType, data_of, encode, read_header
from seglog.values.producer import AppendedBatch, Batch

u64 = st.integers(0, 2**64 - 1)
FRAME = encode_batch(7, 1_720_000_000_661, AppendedBatch("prüfer", 3, Batch(41, 258, 5)))


def test_the_bytes_are_pinned() -> None:
    assert FRAME.hex() == (
        "45000000" "0e" "00" "0700000000000000" "0201000000000000" "9532fd7790010000" "0000" "0000" "1b000000"
        "0300000000000000" "2900000000000000" "05000000" "7072c3bc666572"
        f"{FRAME[-8:].hex()}"
    )  # fmt: skip
    assert FRAME[-8:].hex() == "d094e8747437a0d2"


@given(u64, u64, u64, u64, st.integers(1, 2**64 - 1), st.integers(1, 2**32 - 1), st.text(min_size=1, max_size=64))
def test_what_goes_in_comes_out(
    topic_id: int, ts_ms: int, epoch: int, number: int, seq: int, records: int, producer: str
) -> None:
    try:
        producer.encode()
    except UnicodeEncodeError:
        producer = "p"
    appended = AppendedBatch(producer, epoch, Batch(number, seq, records))
    frame = encode_batch(topic_id, ts_ms, appended)
    header = read_header(frame)
    assert (header.type, header.flags, header.topic_id, header.seq, header.ts_ms) == (14, 0, topic_id, seq, ts_ms)
    assert read_unit(header, data_of(frame, 0, header)) == appended


def test_no_truncation_and_no_flipped_byte_passes() -> None:
    for position in range(len(FRAME)):
        damaged = bytearray(FRAME)
        damaged[position] ^= 0x20
        for body in (FRAME[:position], bytes(damaged)):
            with pytest.raises(InvalidFrame):
                read_header(body)


@pytest.mark.parametrize(
    ("seq", "body"),
    [
        (1, b""),
        (1, bytes(19)),
        (1, bytes(16) + b"\1\0\0\0"),
        (1, bytes(20) + b"p"),
        (0, bytes(16) + b"\1\0\0\0" + b"p"),
        (1, bytes(16) + b"\1\0\0\0" + b"\xff"),
        (1, bytes(16) + b"\1\0\0\0" + b"p" * 257),
    ],
)
def test_a_body_that_does_not_fit_is_refused(seq: int, body: bytes) -> None:
    header = read_header(encode(FrameType.BATCH, topic_id=1, seq=seq, ts_ms=1, data=body))
    with pytest.raises(InvalidFrame):
        read_unit(header, body)
