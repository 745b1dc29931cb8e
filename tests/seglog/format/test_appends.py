from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.format.appends import encode_appends
from seglog.format.frame import DURABLE, HAS_NODE, HAS_TAG, UNTERMINATED, FrameType, encode
from seglog.format.lines import Lines

# The product encodes this many records as arrays, and puts so many into a piece.
MANY, PIECE = 32, 1024
U64 = 2**64 - 1

labels = st.none() | st.text(max_size=20)


def _one_by_one(
    topic_id: int, seqs: range, ts_ms: int, values: list[bytes], tag: str | None, node: str | None, flags: int
) -> list[bytes]:
    """Return the frames as the encoder of single frames makes them."""
    return [
        encode(
            FrameType.APPEND, topic_id=topic_id, seq=seq, ts_ms=ts_ms, data=value, flags=flags,
            node=(node or "").encode(), tag=(tag or "").encode(),
        )
        for seq, value in zip(seqs, values, strict=True)
    ]  # fmt: skip


@settings(deadline=None)
@given(
    st.sampled_from([1, 2, MANY - 1, MANY, MANY + 1, PIECE, PIECE + 1, 2 * PIECE + 1]),
    st.lists(st.binary(max_size=50), min_size=1, max_size=7),
    st.integers(0, U64),
    st.integers(0, U64 - 3 * PIECE),
    st.integers(0, U64),
    labels,
    labels,
    st.booleans(),
    st.booleans(),
)
def test_frames_of_any_number_of_records_are_those_of_each_record(
    count: int, some: list[bytes], topic_id: int, first_seq: int, ts_ms: int,
    tag: str | None, node: str | None, open_end: bool, durable: bool,
) -> None:  # fmt: skip
    values = [some[number % len(some)] for number in range(count)]
    seqs = range(first_seq, first_seq + count)
    flags = (tag is not None) * HAS_TAG | (node is not None) * HAS_NODE | durable * DURABLE | open_end * UNTERMINATED
    wanted = _one_by_one(topic_id, seqs, ts_ms, values, tag, node, flags)
    pieces, lengths, size_bytes = encode_appends(
        topic_id, seqs, ts_ms, values, tag=tag, node=node, unterminated=open_end, durable=durable
    )
    assert b"".join(pieces) == b"".join(wanted)
    assert [*lengths] == [len(frame) for frame in wanted]
    assert size_bytes == sum(lengths)
    assert len(pieces) == -(-count // PIECE)


@settings(deadline=None)
@given(
    st.sampled_from([1, MANY - 1, MANY, PIECE, PIECE + 1, 2 * PIECE + 1]),
    st.lists(st.binary(max_size=50).map(lambda value: value.replace(b"\n", b"\r")), min_size=1, max_size=7),
    labels,
    labels,
)
def test_the_lines_of_a_text_have_the_frames_of_their_values(
    count: int, some: list[bytes], tag: str | None, node: str | None
) -> None:
    values = [some[number % len(some)] for number in range(count)]
    seqs = range(5, 5 + count)
    wanted, of_lines = [
        encode_appends(7, seqs, 99, each, tag=tag, node=node, unterminated=False, durable=True)
        for each in (values, Lines.of(b"\n".join(values) + b"\n"))
    ]
    assert b"".join(of_lines[0]) == b"".join(wanted[0])
    assert [*of_lines[1]] == [*wanted[1]]
    assert of_lines[2] == wanted[2]


@pytest.mark.parametrize("count", [1, MANY])
def test_a_large_value_is_written_whole(count: int) -> None:
    values = [b"x" * 3_000_000] + [b"y"] * (count - 1)
    wanted = _one_by_one(7, range(1, count + 1), 99, values, None, None, 0)
    pieces, _, _ = encode_appends(
        7, range(1, count + 1), 99, values, tag=None, node=None, unterminated=False, durable=False
    )
    assert b"".join(pieces) == b"".join(wanted)
