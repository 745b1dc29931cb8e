"""Bodies of control frames: pinned bytes, round trips, and bodies that do not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidFrame
from seglog.format.control import (
    encode_delete,
    encode_evict,
    encode_topic_delete,
    encode_truncate,
    encode_undelete,
    read_delete,
    read_epoch,
    read_evict,
    read_undelete,
)
from seglog.format.frame import FrameType, data_of, encode, read_header
from seglog.values.deletes import DeleteOp, Floors, UndeleteOp
from seglog.values.seq_set import SeqSet

u64 = st.integers(0, 2**64 - 1)


def _body(frame: bytes) -> bytes:
    return data_of(frame, 0, read_header(frame))


def test_the_bytes_are_pinned() -> None:
    evict = encode_evict(7, 1720000000661, Floors(258, 17, 250))
    truncate = encode_truncate(7, 1720000000661, 258, 3)
    gone = encode_topic_delete(7, 1720000000661, 3)
    assert _body(evict) == b'{"evict_floor":250,"evict_from":17}'
    assert _body(truncate) == _body(gone) == b'{"epoch":3}'
    assert [frame[:38].hex() for frame in (evict, truncate, gone)] == [
        "4d000000" "07" "00" "0700000000000000" "0201000000000000" "9532fd7790010000" "0000" "0000" "23000000",
        "35000000" "0c" "00" "0700000000000000" "0201000000000000" "9532fd7790010000" "0000" "0000" "0b000000",
        "35000000" "03" "00" "0700000000000000" "0000000000000000" "9532fd7790010000" "0000" "0000" "0b000000",
    ]  # fmt: skip
    assert [frame[-8:].hex() for frame in (evict, truncate, gone)] == [
        "98a870a960011e56",
        "6542d825634a9db1",
        "e1b4b32061ded88b",
    ]


def test_an_eviction_is_a_delete_with_the_seq_from_which_it_tells() -> None:
    op = DeleteOp(3, 258, 1720000000661, before=200, evict_from=17)
    frame = encode_delete(7, op)
    assert _body(frame) == b'{"before":200,"evict_from":17,"op":3,"tag":null}'
    assert frame[-8:].hex() == "9de4c58e4c1530a7"
    assert read_delete(read_header(frame), _body(frame)) == op == DeleteOp.from_json(op.to_json())
    bad = encode(FrameType.DELETE, topic_id=7, seq=258, ts_ms=1, data=_body(frame).replace(b"17", b'"17"'))
    with pytest.raises(InvalidFrame):
        read_delete(read_header(bad), _body(bad))


def test_an_undelete_names_the_records_that_are_there_again() -> None:
    op = UndeleteOp(3, 1720000000661, SeqSet.of([(258, 260), (300, 300)]), 250)
    frame = encode_undelete(7, op)
    header = read_header(frame)
    assert _body(frame) == b'{"evict_floor":250,"op":3,"seqs":[258,3,39,1]}'
    assert (header.type, header.seq, header.ts_ms) == (FrameType.UNDELETE, 258, 1720000000661)
    assert read_undelete(header, _body(frame)) == op
    with pytest.raises(InvalidFrame, match="do not fit"):
        read_undelete(header._replace(seq=257), _body(frame))


@given(u64, u64, u64, u64, u64)
def test_what_goes_in_comes_out(topic_id: int, ts_ms: int, seq: int, low: int, floor: int) -> None:
    frame = encode_evict(topic_id, ts_ms, Floors(seq, low, floor))
    header = read_header(frame)
    assert read_evict(header, _body(frame)) == Floors(seq, low, floor)
    for kind, made in ((FrameType.TRUNCATE, encode_truncate(topic_id, ts_ms, seq, floor)),
                       (FrameType.TOPIC_DELETE, encode_topic_delete(topic_id, ts_ms, floor))):  # fmt: skip
        header = read_header(made)
        assert (header.type, header.topic_id, header.ts_ms) == (kind, topic_id, ts_ms)
        assert header.seq == (seq if kind == FrameType.TRUNCATE else 0)
        assert read_epoch(_body(made)) == floor


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"epoch":"1"}', b'{"epoch":true}', b'{"evict_floor":1}', b"\xff"]
)
def test_a_body_that_does_not_fit_is_refused(body: bytes) -> None:
    header = read_header(encode(FrameType.EVICT_WATERMARK, topic_id=1, seq=1, ts_ms=1, data=body))
    with pytest.raises(InvalidFrame):
        read_evict(header, body)
    with pytest.raises(InvalidFrame):
        read_epoch(body)
