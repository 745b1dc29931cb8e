"""The records of a decoded chunk: many at once, as objects or as arrays, or a few one by one.

CHUNK-1  This module checks every record before it returns it: XXH3, seq, topic, lengths. It checks many records as
    arrays, as the log does (seglog.format.frames.read_headers). If that check fails, it goes through the records one by
    one. So the caller gets the sound records before the damage first, and the error names the place.
CHUNK-2  A chunk has exactly the records that the chunk table says. A chunk that ends early is damage, not an end.

This module does no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import repeat

from offload.errors import InvalidChunk
from offload.format.block import ChunkRef
from offload.format.entry import ENTRY, entries, frame_of
from seglog.errors import InvalidFrame
from seglog.format.arrays import NDArray, np
from seglog.format.frame import (
    DELETED,
    HAS_NODE,
    HAS_TAG,
    UNTERMINATED,
    FrameType,
    Header,
    read_header,
    record_of,
)
from seglog.format.frames import read_headers
from seglog.format.record_arrays import RecordArrays, in_arrays
from seglog.values.record import Record

__all__ = ["arrays_of_chunk", "records_of_chunk"]

_FEW = 16
_ENTRY_LENGTH = struct.Struct(">I")
_FRAME_AT = ENTRY.size - 4  # offset within an entry: the frame's own length fits before the entry's data
_MORE_THAN_A_VALUE = HAS_TAG | HAS_NODE | UNTERMINATED


def records_of_chunk(
    raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, key: str, first: int, last: int
) -> Iterable[Record]:
    """Return the records with `first <= seq <= last` that are not erased, ascending.

    If a record is damaged, the iteration raises `InvalidChunk` when it gets there.
    """
    first, last = max(first, chunk.first_seq), min(last, chunk.last_seq)
    if first > last:
        return []
    if last - first >= _FEW:
        records = _many(raw, chunk, topic_id, first, last)
        if records is not None:
            return records
    return _one_by_one(raw, chunk, topic_id, key, first, last)


def arrays_of_chunk(
    raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, key: str, first: int, last: int
) -> Iterator[RecordArrays]:
    """Yield the records of `records_of_chunk` as arrays. None is empty.

    If a record is damaged, raises `InvalidChunk` after the sound records before it.
    """
    first, last = max(first, chunk.first_seq), min(last, chunk.last_seq)
    found = _checked(raw, chunk, topic_id, first, last)
    if found is None or not found.labels_are_text():
        yield from in_arrays(_one_by_one(raw, chunk, topic_id, key, first, last))
    elif len(found):
        yield found


def _many(raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, first: int, last: int) -> list[Record] | None:
    """Return the records, checked as arrays; None if anything is wrong."""
    found = _checked(raw, chunk, topic_id, first, last)
    if found is None:
        return None
    headers, body = found.headers, bytes(raw)
    if (headers["flags"] & _MORE_THAN_A_VALUE).any():
        try:
            return list(map(record_of, repeat(body), found.starts.tolist(), map(Header._make, headers.tolist())))
        except InvalidFrame:
            return None
    _, _, starts, ends = found.places()
    columns = headers["seq"].tolist(), headers["ts_ms"].tolist(), starts.tolist(), ends.tolist()
    return [Record(seq, ts_ms, body[start:end]) for seq, ts_ms, start, end in zip(*columns, strict=True)]


def _checked(raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, first: int, last: int) -> RecordArrays | None:
    """Return the records that are not erased; None if anything is wrong. Their labels may not be UTF-8."""
    bounds = _entry_bounds(raw)
    if bounds is None or len(bounds) != chunk.count + 1:
        return None
    starts, ends = bounds[:-1] + _FRAME_AT, bounds[1:]
    buffer = np.frombuffer(raw, dtype=np.uint8).copy()
    # An entry's data is a frame without its length. Write that length over the last bytes of the entry id.
    sizes = (ends - starts - np.int64(4)).astype("<u4")
    for place, byte in enumerate(sizes.view(np.uint8).reshape(-1, 4).T):
        buffer[starts + place] = byte
    headers = read_headers(buffer.data.cast("B"), starts, ends)  # type: ignore[arg-type]  # any buffer will do
    seqs = np.arange(chunk.first_seq, chunk.last_seq + 1, dtype=np.uint64)
    if headers is None or not ((headers["seq"] == seqs) & (headers["topic_id"] == topic_id)).all():
        return None
    wanted = slice(first - chunk.first_seq, last - chunk.first_seq + 1)
    found = RecordArrays(raw, starts[wanted], headers[wanted])
    return found.at(np.flatnonzero(found.headers["flags"] & DELETED == 0))


def _entry_bounds(raw: bytes | memoryview) -> NDArray[np.int64] | None:
    """Return where each entry begins, and where the last one ends.

    None: the last entry does not end with the chunk.
    """
    bounds: list[int] = []
    take, unpack = bounds.append, _ENTRY_LENGTH.unpack_from
    position, size, head_bytes = 0, len(raw), ENTRY.size
    try:
        while position < size:
            take(position)
            position += unpack(raw, position)[0] + head_bytes
    except struct.error:  # fewer than four bytes are left
        return None
    take(position)
    return np.array(bounds, dtype=np.int64) if position == size else None


def _one_by_one(
    raw: bytes | memoryview, chunk: ChunkRef, topic_id: int, key: str, first: int, last: int
) -> Iterator[Record]:
    start = _skip(raw, first - chunk.first_seq, key, chunk.offset)
    seq = first
    for _, entry in entries(memoryview(raw)[start:], key, chunk.offset):
        if seq > last:
            return
        record = _record_of(entry, seq, topic_id, key, chunk.offset)
        if record is not None:
            yield record
        seq += 1
    if seq <= last:
        raise InvalidChunk(key, chunk.offset, f"it ends before seq {seq}")


def _skip(raw: bytes | memoryview, count: int, key: str, offset: int) -> int:
    """Return where the entry after the first `count` entries begins. This is most of the work of a point read."""
    position, unpack = 0, _ENTRY_LENGTH.unpack_from
    try:
        for _ in range(count):
            position += unpack(raw, position)[0] + ENTRY.size
    except struct.error:
        raise InvalidChunk(key, offset, "its last entry is cut") from None
    return position


def _record_of(entry: memoryview, seq: int, topic_id: int, key: str, offset: int) -> Record | None:
    """Return the record in an entry's data, or None if it was erased. `key` and `offset` are its chunk's place.

    Raises `InvalidChunk` if the frame's checksum does not match, or if the record is not the promised one.
    """
    frame = frame_of(entry)
    try:
        header = read_header(frame)
        if (header.type, header.seq, header.topic_id) != (FrameType.APPEND, seq, topic_id):
            raise InvalidChunk(
                key, offset, f"seq {header.seq} of topic id {header.topic_id} is where seq {seq} belongs"
            )
        return None if header.flags & DELETED else record_of(frame, 0, header)
    except InvalidFrame as error:
        raise InvalidChunk(key, offset, f"the record with seq {seq}: {error.reason}") from error
