from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidFrame
from seglog.format.dtypes import HEADERS
from seglog.format.frame import (
    DELETED,
    DURABLE,
    HAS_NODE,
    HAS_TAG,
    HEADER,
    LOST,
    MIN_FRAME_BYTES,
    UNTERMINATED,
    FrameType,
    Header,
    encode,
    encode_lost,
    encode_sync_mark,
    read_header,
    record_of,
    tombstone,
)
from seglog.values.record import Record
from tests.seglog.frames import append_frames
from tests.seglog.tables import table_of

GOLDEN = bytes.fromhex(
    "33000000 01 07 0700000000000000 0201000000000000 9532fd7790010000 0200 0200 05000000"
    "6e31 6575 68656c6c6f 011f49555fa5317b"
)

labels = st.none() | st.text(max_size=20)
u64 = st.integers(0, 2**64 - 1)


def _append(value: bytes = b"hello", *, tag: str | None = "eu", node: str | None = "n1") -> bytes:
    [frame] = append_frames(7, 258, 1720000000661, [value], tag=tag, node=node, unterminated=False, durable=True)
    return frame


def test_headers_at_once_have_the_fields_of_one() -> None:
    frame = _append()
    assert HEADERS.itemsize == HEADER.size
    assert np.frombuffer(frame, HEADERS, 1)[0].item() == HEADER.unpack_from(frame)
    assert HEADERS.names == Header._fields


def test_the_table_in_the_docstring_is_the_struct() -> None:
    offset = 0
    for row, (at, size) in zip(HEADER.format[1:], table_of("seglog.format.frame")[:9], strict=True):
        assert at == offset
        assert size == {"I": 4, "B": 1, "Q": 8, "H": 2}[row]
        offset += size
    assert offset == HEADER.size == 38


def test_the_bytes_are_pinned() -> None:
    assert _append().hex() == GOLDEN.hex()


def test_a_tombstone_is_pinned() -> None:
    frame = tombstone(read_header(_append()))
    header = read_header(frame)
    assert (header.seq, header.ts_ms, header.topic_id, header.flags) == (258, 1720000000661, 7, DELETED | DURABLE)
    assert len(frame) == MIN_FRAME_BYTES
    assert record_of(frame, 0, header) == Record(258, 1720000000661, b"")


@given(u64, u64, u64, st.lists(st.binary(max_size=300), max_size=5), labels, labels, st.booleans(), st.booleans())
def test_what_goes_in_comes_out(
    topic_id: int,
    seq: int,
    ts_ms: int,
    values: list[bytes],
    tag: str | None,
    node: str | None,
    open_end: bool,
    durable: bool,
) -> None:
    seq = min(seq, 2**64 - 10)
    frames = append_frames(topic_id, seq, ts_ms, values, tag=tag, node=node, unterminated=open_end, durable=durable)
    buffer = b"before" + b"".join(frames)
    offset = 6
    for index, value in enumerate(values):
        header = read_header(buffer, offset)
        assert header.type == FrameType.APPEND
        assert header.topic_id == topic_id
        assert header.flags == (
            HAS_TAG * (tag is not None) | HAS_NODE * (node is not None) | DURABLE * durable | UNTERMINATED * open_end
        )
        assert record_of(buffer, offset, header) == Record(seq + index, ts_ms, value, tag, node, open_end)
        offset += header.frame_bytes
    assert offset == len(buffer)


def test_frames_of_many_records_are_those_of_each() -> None:
    values = [b"%d" % number * (number % 7) for number in range(1_000)]
    alone = [append_frames(7, 5 + number, 99, [value], tag="eu")[0] for number, value in enumerate(values)]
    assert append_frames(7, 5, 99, values, tag="eu") == alone
    assert append_frames(7, 5, 99, [bytearray(value) for value in values], tag="eu") == alone  # type: ignore[misc]
    assert append_frames(7, 5, 99, [memoryview(value) for value in values], tag="eu") == alone  # type: ignore[misc]


def test_a_sync_mark_is_a_frame_like_any_other() -> None:
    assert encode_sync_mark(3, 4096, 7) == encode(FrameType.SYNC_MARK, topic_id=3, seq=4096, ts_ms=7)


def test_no_truncation_passes() -> None:
    frame = _append()
    for length in range(len(frame)):
        with pytest.raises(InvalidFrame):
            read_header(frame[:length])


def test_no_flipped_bit_passes() -> None:
    frame = _append()
    for position in range(len(frame)):
        for bit in range(8):
            damaged = bytearray(frame)
            damaged[position] ^= 1 << bit
            with pytest.raises(InvalidFrame):
                read_header(damaged)


def test_zeros_are_never_a_frame() -> None:
    with pytest.raises(InvalidFrame):
        read_header(bytes(4096))


@pytest.mark.parametrize(
    ("flags", "tag", "node"),
    [(0, b"eu", b""), (0, b"", b"n1"), (1 << 5, b"", b""), (1 << 7, b"", b"")],
)
def test_flags_that_do_not_fit_are_refused_behind_a_right_checksum(flags: int, tag: bytes, node: bytes) -> None:
    frame = encode(FrameType.APPEND, topic_id=1, seq=1, ts_ms=1, data=b"x", tag=tag, node=node, flags=flags)
    with pytest.raises(InvalidFrame, match="flags"):
        read_header(frame)


def test_what_is_lost_has_a_seq_and_a_time_and_stays_lost() -> None:
    frame = encode_lost(7, 258, 1720000000661)
    header = read_header(frame)
    assert (header.seq, header.ts_ms, header.flags, len(frame)) == (258, 1720000000661, DELETED | LOST, MIN_FRAME_BYTES)
    assert tombstone(header) == frame


def test_an_unknown_type_is_refused() -> None:
    frame = encode(99, topic_id=1, seq=1, ts_ms=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidFrame, match="type 99"):
        read_header(frame)


def test_an_empty_tag_is_not_no_tag() -> None:
    for tag in (None, ""):
        frame = _append(tag=tag)
        assert record_of(frame, 0, read_header(frame)).tag == tag


def test_a_tag_that_is_not_utf8_is_refused() -> None:
    frame = encode(FrameType.APPEND, topic_id=1, seq=1, ts_ms=1, tag=b"\xff", flags=HAS_TAG)
    with pytest.raises(InvalidFrame, match="UTF-8"):
        record_of(frame, 0, read_header(frame))
