"""Entries: one record each, in the data objects of both codecs. Big-endian, except for the frame inside.

    offset  size  field
    0       4     entry length     of the data alone
    4       8     entry id         seq - first seq of the object
    12      len   entry data       the frame without its first four bytes, its frame_len

The entry data starts with the fixed part of a frame (seglog.format.frame), little-endian:

    12      1     type             1, an Append
    13      1     flags            the frame's own, with bit 3 for a deleted record
    14      8     topic_id
    22      8     seq
    30      8     ts               ms since the epoch
    38      2     node_len
    40      2     tag_len
    42      4     data_len
    46            node, tag, data, then XXH3-64 (8) over all entry data before it

ENTRY-1  The entry length equals the frame's frame_len. So a frame is the entry length, in little-endian, and the entry
    data.
ENTRY-2  Entry ids are dense. A deleted record stays as an entry whose frame has the deleted flag and no data.
ENTRY-3  A chunk is a run of whole entries and nothing else. The next entry starts where the last one ends.

This module checks no checksum, and does not know the former bytes of a deleted record.
Source: PIP-17, "Payload format". This module does no I/O.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from typing import Any

from offload.errors import InvalidChunk
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import MIN_FRAME_BYTES

ENTRY = struct.Struct(">IQ")

_FRAME_LEN = struct.Struct("<I")
MIN_DATA_LENGTH = MIN_FRAME_BYTES - _FRAME_LEN.size


def entries(raw: bytes | memoryview, key: str, offset: int) -> Iterator[tuple[int, memoryview]]:
    """Yield (entry id, entry data) of a decoded chunk. `key` and `offset` are its place, for the error.

    Raises `InvalidChunk` if the entries do not end with the chunk.
    """
    view = memoryview(raw)
    size = len(raw)
    position = 0
    while position < size:
        start = position + ENTRY.size
        if start > size:
            raise InvalidChunk(key, offset, "its last entry is cut")
        length, entry_id = ENTRY.unpack_from(raw, position)
        position = start + length
        if length < MIN_DATA_LENGTH or position > size:
            raise InvalidChunk(key, offset, f"entry {entry_id} has an impossible length of {length}")
        yield entry_id, view[start:position]


def frame_of(data: memoryview) -> bytes:
    """Return the whole frame that is in an entry's data."""
    return _FRAME_LEN.pack(len(data)) + data


def entry_starts(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Return where each entry starts in its chunk. One more element says where the last one ends."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    starts += ENTRY.size * np.arange(len(starts))
    return starts


@functools.cache
def entry_head() -> np.dtype[Any]:
    """Return the dtype of an entry with the fixed part of its frame, to read and write thousands of them at once."""
    return np.dtype([("length", ">u4"), ("entry_id", ">u8"), *dtypes.BODY_HEADS.descr])


def entry_heads(raw: bytes | bytearray | memoryview, starts: NDArray[np.int64]) -> NDArray[Any]:
    """Return the heads of the entries at `starts`. Each entry must have `MIN_DATA_LENGTH` of data in `raw`."""
    head = entry_head()
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(raw, dtype=np.uint8), head.itemsize)
    gathered: NDArray[Any] = windows[starts].view(head)[:, 0]
    return gathered
