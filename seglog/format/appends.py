"""Encode the Append frames of one append. The bytes are those of seglog.format.frame. No I/O.

The records of one append share every field of their headers except seq and lengths. A few records are encoded one by
one. The headers of many records are filled as arrays, and C code joins them with the values: no Python code runs for
each record. The values may be the lines of a text (seglog.format.lines): then no object is made for each of them
either.
"""

from __future__ import annotations

import io
import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import repeat
from operator import add
from typing import Any, TypeAlias

from xxhash import xxh3_64, xxh3_64_digest

from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import (
    CHECKSUM,
    DURABLE,
    HAS_NODE,
    HAS_TAG,
    LENGTH_BYTES,
    MIN_FRAME_BYTES,
    UNTERMINATED,
    FrameType,
)
from seglog.format.frames import framed, scatter
from seglog.format.lines import Lines

#: Frames that lie one after the other in a few byte strings, the length of each frame, and the sum of the lengths.
EncodedFrames: TypeAlias = tuple[Sequence[bytes], Sequence[int], int]

_APPEND = int(FrameType.APPEND)
_FEED = b"\n"

_LENGTH = struct.Struct("<I")
# A header without its length field. The checksum covers it together with the labels and the value.
_HEAD = struct.Struct("<BBQQQHHI")

# From this many records on, arrays take less time than one record after the other.
_MANY = 32
# The most records of one byte string, and about the most bytes, so that its parts stay in the processor's cache.
_PIECE_RECORDS, _PIECE_BYTES = 1024, 512 * 1024


class LargeValue(tuple[bytes]):
    """The value of an append that has one: a view of a mapped file in place of bytes, so that nothing copies it."""

    __slots__ = ()


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
    times_ms: Sequence[int] | None = None,
) -> EncodedFrames:
    """Return Append frames of `values`, which get these seqs, and `ts_ms` or each a time of its own.

    The caller has checked the ranges of all fields.
    """
    if times_ms is not None:
        labels_and_flags = {"tag": tag, "node": node, "unterminated": unterminated, "durable": durable}
        return _encode_timed(topic_id, seqs, times_ms, values, **labels_and_flags)
    flags, labels, node_len, tag_len = (DURABLE if durable else 0) | (UNTERMINATED if unterminated else 0), b"", 0, 0
    if node is not None:
        labels = node.encode()
        flags, node_len = flags | HAS_NODE, len(labels)
    if tag is not None:
        labels += tag.encode()
        flags, tag_len = flags | HAS_TAG, len(labels) - node_len
    records = seqs.stop - seqs.start
    if type(values) is LargeValue:
        return _encode_large((_APPEND, flags, topic_id, seqs.start, ts_ms, node_len, tag_len), labels, values[0])
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


def _encode_large(same: tuple[int, ...], labels: bytes, value: bytes) -> EncodedFrames:
    """Return the frame of one record in three pieces, of which the value is one."""
    size = MIN_FRAME_BYTES + len(labels) + len(value)
    head = _HEAD.pack(*same, len(value)) + labels
    digest = xxh3_64(head)
    digest.update(value)
    pieces = [_LENGTH.pack(size - LENGTH_BYTES) + head, value, digest.digest()[::-1]]
    return pieces, [size], size


def _encode_timed(
    topic_id: int, seqs: range, times_ms: Sequence[int], values: Sequence[bytes], **same: Any
) -> EncodedFrames:
    frames = [
        encode_appends(topic_id, range(seq, seq + 1), ts_ms, [value], **same)[0][0]
        for seq, ts_ms, value in zip(seqs, times_ms, values, strict=True)
    ]
    lengths = [*map(len, frames)]
    return [b"".join(frames)], lengths, sum(lengths)


def _encode_many(same: tuple[int, ...], labels: bytes, values: Sequence[bytes]) -> EncodedFrames:
    """Return the frames of many records. `same` are the fields of the first header, without its lengths."""
    sizes = values.sizes if type(values) is Lines else np.fromiter(map(len, values), np.int64, len(values))
    lengths = sizes + (MIN_FRAME_BYTES + len(labels))
    total = int(lengths.sum())
    # Pieces of about the same size: each fills a batch of a checkpoint (seglog.wal.wal).
    parts = min(max(-(-len(values) // _PIECE_RECORDS), -(-total // _PIECE_BYTES)), len(values))
    pieces = []
    for part in range(parts):
        start, stop = len(values) * part // parts, len(values) * (part + 1) // parts
        if type(values) is Lines:
            pieces.append(_encode_lines(same, start, labels, values.behind_feeds(start, stop), sizes[start:stop]))
        else:
            pieces.append(_encode_values(same, start, labels, values[start:stop], sizes[start:stop]))
    return pieces, array("I", lengths.astype(np.uint32).tobytes()), total


def _encode_values(
    same: tuple[int, ...], start: int, labels: bytes, values: Sequence[bytes], sizes: NDArray[np.int64]
) -> bytes:
    """Return the frames of records from position `start` of the append on, as one byte string."""
    kind, flags, topic_id, first_seq, ts_ms, *label_sizes = same
    head = _HEAD.pack(kind, flags, topic_id, 0, ts_ms, *label_sizes, 0)
    heads = np.frombuffer(bytearray(head * len(values)), dtypes.BODY_HEADS)
    heads["seq"] = np.arange(len(values), dtype=np.uint64) + np.uint64(first_seq + start)
    heads["data_len"] = sizes
    ahead: Iterable[bytes] = heads.view(dtypes.RAW_BODY_HEADS).tolist()
    if labels:
        ahead = map(add, ahead, repeat(labels))
    bodies = [*map(add, ahead, values)]
    return framed(bodies, sizes + (MIN_FRAME_BYTES - LENGTH_BYTES + len(labels)))[0]


def _encode_lines(same: tuple[int, ...], start: int, labels: bytes, text: bytes, sizes: NDArray[np.int64]) -> bytes:
    """Do the same for lines, each behind a line feed in `text`.

    Blank headers take the place of all line feeds. They are then filled, all at once.
    """
    joints = np.empty(len(sizes), dtypes.JOINTS)
    joints["type"], joints["flags"], joints["topic_id"], first_seq, joints["ts_ms"] = same[:5]
    joints["seq"] = np.arange(len(sizes), dtype=np.uint64) + np.uint64(first_seq + start)
    joints["node_len"], joints["tag_len"], joints["data_len"] = *same[5:], sizes
    body_sizes = sizes + (_HEAD.size + len(labels))
    joints["length"] = body_sizes + CHECKSUM.size
    places = np.cumsum(body_sizes) - body_sizes
    bodies = _filled(text.replace(_FEED, bytes(_HEAD.size) + labels), joints.view(dtypes.JOINT_PARTS)["head"], places)
    # `read` cuts out one body after the other, and each takes the memory of the one before.
    digests = b"".join(map(xxh3_64_digest, map(bodies.read, body_sizes.tolist())))
    joints["checksum"][1:] = np.frombuffer(digests, ">u8")[:-1]
    places += np.arange(len(sizes)) * dtypes.BETWEEN.itemsize
    frames = _filled(text.replace(_FEED, bytes(dtypes.JOINTS.itemsize) + labels), joints, places)
    return frames.getvalue()[CHECKSUM.size :] + digests[: -CHECKSUM.size - 1 : -1]


def _filled(template: bytes, values: NDArray[Any], places: NDArray[np.int64]) -> io.BytesIO:
    """Return the bytes of `template` with each of the values at its place."""
    filled = io.BytesIO(template)
    scatter(values, filled.getbuffer(), places)
    return filled
