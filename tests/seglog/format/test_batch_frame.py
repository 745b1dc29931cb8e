"""The BATCH and the KEY frame: pinned bytes, round trips, and bodies that do not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidFrame
from seglog.format.batch_frame import encode_batch, encode_key, read_unit
from seglog.format.frame import FrameType, data_of, encode, read_header
from seglog.values.append_key import KeyedAppend
from seglog.values.producer import AppendedBatch, Batch

u64 = st.integers(0, 2**64 - 1)
FRAME = encode_batch(7, 1_720_000_000_661, AppendedBatch("prüfer", 3, Batch(41, 258, 5)))


KEY_FRAME = encode_key(7, 1_720_000_000_661, KeyedAppend("schl\u00fcss", 258, 5, 1_000))


def test_the_bytes_are_pinned() -> None:
    assert FRAME.hex() == (
        "45000000" "0e" "00" "0700000000000000" "0201000000000000" "9532fd7790010000" "0000" "0000" "1b000000"
        "0300000000000000" "2900000000000000" "05000000" "7072c3bc666572"
        f"{FRAME[-8:].hex()}"
    )  # fmt: skip
    assert FRAME[-8:].hex() == "d094e8747437a0d2"
    assert KEY_FRAME.hex() == (
        "3e000000" "0f" "00" "0700000000000000" "0201000000000000" "9532fd7790010000" "0000" "0000" "14000000"
        "e803000000000000" "05000000" "7363686cc3bc7373" "41659cf428dabf03"
    )  # fmt: skip


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


@given(u64, u64, u64, st.integers(1, 2**64 - 1), st.integers(1, 2**32 - 1), st.sampled_from(["k", "\u00fc" * 128]))
def test_a_key_comes_out_as_it_goes_in(
    topic_id: int, ts_ms: int, digest: int, seq: int, records: int, key: str
) -> None:
    appended = KeyedAppend(key, seq, records, digest)
    frame = encode_key(topic_id, ts_ms, appended)
    header = read_header(frame)
    assert (header.type, header.flags, header.topic_id, header.seq, header.ts_ms) == (15, 0, topic_id, seq, ts_ms)
    assert read_unit(header, data_of(frame, 0, header)) == appended


@pytest.mark.parametrize("frame", [FRAME, KEY_FRAME], ids=["batch", "key"])
def test_no_truncation_and_no_flipped_byte_passes(frame: bytes) -> None:
    for position in range(len(frame)):
        damaged = bytearray(frame)
        damaged[position] ^= 0x20
        for body in (frame[:position], bytes(damaged)):
            with pytest.raises(InvalidFrame):
                read_header(body)


@pytest.mark.parametrize(("kind", "before"), [(FrameType.BATCH, 16), (FrameType.KEY, 8)])
def test_a_body_that_does_not_fit_is_refused(kind: FrameType, before: int) -> None:
    one_record = bytes(before) + b"\1\0\0\0"
    for seq, body in (
        (1, b""),
        (1, bytes(before + 3)),
        (1, one_record),
        (1, bytes(before + 4) + b"p"),
        (0, one_record + b"p"),
        (1, one_record + b"\xff"),
        (1, one_record + b"p" * 257),
    ):
        header = read_header(encode(kind, topic_id=1, seq=seq, ts_ms=1, data=body))
        with pytest.raises(InvalidFrame, match=kind.name):
            read_unit(header, body)
