"""Append frames as a list, one per record. The product encodes them in one piece."""

from __future__ import annotations

from collections.abc import Sequence

from seglog.format.appends import encode_appends

__all__ = ["append_frames"]


def append_frames(
    topic_id: int,
    first_seq: int,
    ts_ms: int,
    values: Sequence[bytes],
    *,
    tag: str | None = None,
    node: str | None = None,
    unterminated: bool = False,
    durable: bool = True,
) -> list[bytes]:
    """Return one append frame for each of `values`, with seqs from `first_seq`."""
    seqs = range(first_seq, first_seq + len(values))
    pieces, lengths, total = encode_appends(
        topic_id, seqs, ts_ms, values, tag=tag, node=node, unterminated=unterminated, durable=durable
    )
    joined = b"".join(pieces)
    frames, start = [], 0
    for length in lengths:
        frames.append(joined[start : start + length])
        start += length
    assert start == len(joined) == total
    return frames
