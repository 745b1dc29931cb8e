"""Encode the Append frames of one append. The bytes are those of seglog.format.frame. No I/O.

The records of one append share every field of their headers except seq and lengths. A few records are encoded one by
one. The headers of many records are filled as arrays, and no Python code runs for each of them.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from operator import add
from typing import TypeAlias

from xxhash import xxh3_64_digest

from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import (
    DURABLE,
    HAS_NODE,
    HAS_TAG,
    LENGTH_BYTES,
    MIN_FRAME_BYTES,
    UNTERMINATED,
    FrameType,
)
from seglog.format.frames import framed

__all__ = ["EncodedFrames", "encode_appends"]

#: Frames that lie one after the other in a few byte strings, the length of each frame, and the sum of the lengths.
EncodedFrames: TypeAlias = tuple[Sequence[bytes], Sequence[int], int]

_APPEND = int(FrameType.APPEND)
_OVERHEAD = MIN_FRAME_BYTES - LENGTH_BYTES

_LENGTH = struct.Struct("<I")
# A header without its length field. The checksum covers it together with the labels and the value.
_HEAD = struct.Struct("<BBQQQHHI")

# From this many records on, arrays take less time than one record after the other.
_MANY = 48
# The most records of one byte string, so that its parts stay in the processor's cache.
_PIECE_RECORDS = 256


def encode_appends(
    topic_id: int,
    seqs: range,
    ts_ms: int,
    values: Sequence[bytes],
    *,
    tag: str | None,
    node: str | None,
    unterminated: bool,
    durable: bool,
) -> EncodedFrames:
    """Return Append frames of `values`, which get these seqs. The caller has checked the ranges of all fields."""
    flags, labels, node_len, tag_len = (DURABLE if durable else 0) | (UNTERMINATED if unterminated else 0), b"", 0, 0
    if node is not None:
        labels = node.encode()
        flags, node_len = flags | HAS_NODE, len(labels)
    if tag is not None:
        labels += tag.encode()
        flags, tag_len = flags | HAS_TAG, len(labels) - node_len
    records = seqs.stop - seqs.start
    if records >= _MANY:
        return _encode_many((_APPEND, flags, topic_id, seqs.start, ts_ms, node_len, tag_len), labels, values)
    overhead, total = MIN_FRAME_BYTES + node_len + tag_len, 0
    frames: list[bytes] = []
    lengths: list[int] = []
    for seq, value in zip(seqs, values, strict=True):
        size = len(value)
        body = _HEAD.pack(_APPEND, flags, topic_id, seq, ts_ms, node_len, tag_len, size) + labels + value
        # No `append`: each append of a record runs this, and a call costs more than a list.
        frames += [_LENGTH.pack(overhead - LENGTH_BYTES + size) + body + xxh3_64_digest(body)[::-1]]
        lengths += [overhead + size]
        total += overhead + size
    return frames if records == 1 else [b"".join(frames)], lengths, total


def _encode_many(same: tuple[int, ...], labels: bytes, values: Sequence[bytes]) -> EncodedFrames:
    """Return the frames of many records. `same` are the fields of the first header, without its lengths."""
    sizes = np.fromiter(map(len, values), np.uint32, len(values))
    pieces = []
    for start in range(0, len(values), _PIECE_RECORDS):
        stop = start + _PIECE_RECORDS
        pieces.append(_encode_piece(same, start, labels, values[start:stop], sizes[start:stop]))
    lengths = sizes + np.uint32(MIN_FRAME_BYTES + len(labels))
    return pieces, array("I", lengths.tobytes()), int(lengths.sum(dtype=np.int64))


def _encode_piece(
    same: tuple[int, ...], start: int, labels: bytes, values: Sequence[bytes], sizes: NDArray[np.uint32]
) -> bytes:
    """Return the frames of records from position `start` of the append on, as one byte string."""
    heads = np.empty(len(values), dtypes.BODY_HEADS)
    heads["type"], heads["flags"], heads["topic_id"], first_seq, heads["ts_ms"] = same[:5]
    heads["seq"] = np.arange(len(values), dtype=np.uint64) + np.uint64(first_seq + start)
    heads["node_len"], heads["tag_len"], heads["data_len"] = *same[5:], sizes
    begins = heads.view(f"V{heads.itemsize}").tolist()
    if labels:
        begins = [head + labels for head in begins]
    return framed([*map(add, begins, values)], sizes + np.uint32(_OVERHEAD + len(labels)))[0]
