"""A frame is one record on disk, in the WAL and in segments alike. Little-endian.

    offset  size  field      meaning
    0       4     length     bytes after this field
    4       1     type       see FrameType
    5       1     flags      bit0 has_tag, bit1 has_node, bit2 durable, bit3 deleted, bit4 unterminated (the value
                             was the last line of a text, without a line end), bit5 lost (an ephemeral record had this
                             seq; always with bit3, and nothing else is left of it); the others are zero
    6       8     topic_id   interned by the machine that wrote the frame
    14      8     seq        from 1; 0 in control frames, unless the type says otherwise
    22      8     ts         ms since the epoch
    30      2     node_len
    32      2     tag_len
    34      4     data_len
    38      ...   node, tag (UTF-8), data, one after the other
    end-8   8     xxh3       XXH3-64 of the bytes [4, end-8)

FRAME-1  A frame is valid iff all of these hold. Its type and flags are known. Its length is the sum of its parts. A
    node or tag with bytes has its flag set. A lost frame is also deleted. The checksum matches. So a reader detects a
    change of any one byte.
FRAME-2  Zeros are never a valid frame, so preallocated space is not data.
FRAME-3  A frame alone does not tell whether it is torn or corrupt. Recovery decides, from the bytes that
    follow (seglog.startup.recovery).
FRAME-4  A frame never changes between append and object storage, with one exception. If a delete is no longer part of
    the history, `tombstone` replaces the deleted record. It keeps the seq and time, and no value or label.

Source: topics engine architecture, section 2.1. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple, TypeAlias

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from seglog.errors import InvalidFrame
from seglog.values.record import LABEL_MAX_BYTES as LABEL_MAX_BYTES
from seglog.values.record import Record

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER = struct.Struct("<IBBQQQHHI")
CHECKSUM = struct.Struct("<Q")


MIN_FRAME_BYTES = HEADER.size + CHECKSUM.size

HAS_TAG = 1
HAS_NODE = 2
DURABLE = 4
DELETED = 8
UNTERMINATED = 16
LOST = 32
KNOWN_FLAGS = HAS_TAG | HAS_NODE | DURABLE | DELETED | UNTERMINATED | LOST
LENGTH_BYTES = 4
_OVERHEAD = MIN_FRAME_BYTES - LENGTH_BYTES


class FrameType(enum.IntEnum):
    """The type of a frame. 1 to 11 come from the source; the others are ours.

    TRUNCATE: `seq` is the first one removed. Later appends use it again.

    HEAD_WATERMARK: `seq` and `ts` are the last ones handed out. If no frame has a seq up to there, its record is lost.

    SYNC_MARK: all bytes of this WAL file before this frame are durable. `topic_id` is the file's number, `seq` is the
    offset of this frame in the file, and `ts` is the secret of the log's marks (WAL-9).

    BATCH: the next records are a batch of a producer. `seq` is the seq of the first one.

    KEY: the next records were appended under a key. `seq` is the seq of the first one.

    UNIT: the next records are one append of several records. `seq` is the seq of the first one.

    DELETE_SEQS: a delete of single records. A release that does not know it refuses the log, and deletes nothing else.

    UNDELETE: deleted records are there again. `seq` is the first of them. A release that does not know it refuses the
    log, and shows no state that is neither before nor after it.
    """

    APPEND = 1
    TOPIC_CREATE = 2
    TOPIC_DELETE = 3
    ROUTER_CREATE = 4
    ROUTER_DELETE = 5
    DELETE = 6
    EVICT_WATERMARK = 7
    CHECKPOINT_MARK = 8
    CONFIG_UPDATE = 9
    LEASE = 10
    HEAD_WATERMARK = 11
    TRUNCATE = 12
    SYNC_MARK = 13
    BATCH = 14
    KEY = 15
    UNIT = 16
    DELETE_SEQS = 17
    UNDELETE = 18


_KNOWN_TYPES = frozenset(int(kind) for kind in FrameType)
FIRST_TYPE, LAST_TYPE = min(_KNOWN_TYPES), max(_KNOWN_TYPES)
_SYNC_MARK = int(FrameType.SYNC_MARK)


class Header(NamedTuple):
    """The fixed part of a frame. Scans make one for each frame: a named tuple costs a third of a dataclass."""

    length: int
    type: int
    flags: int
    topic_id: int
    seq: int
    ts_ms: int
    node_len: int
    tag_len: int
    data_len: int

    @property
    def frame_bytes(self) -> int:
        """Return the length of the whole frame, its length field included."""
        return self.length + LENGTH_BYTES


def encode(
    kind: FrameType,
    *,
    topic_id: int,
    seq: int,
    ts_ms: int,
    data: bytes = b"",
    node: bytes = b"",
    tag: bytes = b"",
    flags: int = 0,
) -> bytes:
    """Return one whole frame. The caller has checked the ranges; if not, `struct.error` is raised."""
    length = _OVERHEAD + len(node) + len(tag) + len(data)
    header = HEADER.pack(length, kind, flags, topic_id, seq, ts_ms, len(node), len(tag), len(data))
    return _with_checksum(b"".join((header, node, tag, data)))


def encode_sync_mark(file_number: int, offset: int, secret: int = 0) -> bytes:
    """Return a SYNC_MARK frame. The marks of older releases have the secret 0."""
    header = HEADER.pack(_OVERHEAD, _SYNC_MARK, 0, file_number, offset, secret, 0, 0, 0)
    # The digest has the bytes of the checksum in reverse order.
    return header + xxh3_64_digest(header[LENGTH_BYTES:])[::-1]


def encode_lost(topic_id: int, seq: int, ts_ms: int) -> bytes:
    """Return the frame that stands in a segment for a record that was in memory only."""
    return encode(FrameType.APPEND, topic_id=topic_id, seq=seq, ts_ms=ts_ms, flags=DELETED | LOST)


def read_header(buffer: Buffer, offset: int = 0) -> Header:
    """Return the header of the frame at `offset`. Raise `InvalidFrame` if the frame is not whole and valid."""
    room = len(buffer) - offset
    if room < MIN_FRAME_BYTES:
        raise InvalidFrame(offset, f"{max(room, 0)} bytes are fewer than the smallest frame has")
    header = Header._make(HEADER.unpack_from(buffer, offset))
    length, kind, flags, _, _, _, node_len, tag_len, data_len = header
    if kind not in _KNOWN_TYPES:
        raise InvalidFrame(offset, f"type {kind} is unknown")
    if length != _OVERHEAD + node_len + tag_len + data_len:
        raise InvalidFrame(offset, f"length {length} is not the sum of its parts")
    if length + LENGTH_BYTES > room:
        raise InvalidFrame(offset, f"length {length} goes past the end")
    end = offset + length + LENGTH_BYTES - CHECKSUM.size
    if xxh3_64_intdigest(memoryview(buffer)[offset + LENGTH_BYTES : end]) != CHECKSUM.unpack_from(buffer, end)[0]:
        raise InvalidFrame(offset, "checksum mismatch")
    is_odd = flags & ~KNOWN_FLAGS or flags & (LOST | DELETED) == LOST
    if is_odd or (tag_len and not flags & HAS_TAG) or (node_len and not flags & HAS_NODE):
        raise InvalidFrame(offset, f"flags {flags:#04x} do not fit the frame")
    return header


def tag_of(buffer: Buffer, offset: int, header: Header) -> str | None:
    """Return the tag of the frame at `offset`; None if it has none. Raise `InvalidFrame` if the tag is not UTF-8."""
    start = offset + HEADER.size + header.node_len
    return _label(buffer, start, header.tag_len) if header.flags & HAS_TAG else None


def data_of(buffer: Buffer, offset: int, header: Header) -> bytes:
    start = offset + HEADER.size + header.node_len + header.tag_len
    return bytes(buffer[start : start + header.data_len])


def record_of(buffer: Buffer, offset: int, header: Header) -> Record:
    """Return the record of a frame that `read_header` has checked.

    Raise `InvalidFrame` for a tag or node that is not UTF-8.
    """
    flags = header.flags
    value = data_of(buffer, offset, header)
    if not flags & (HAS_TAG | HAS_NODE | UNTERMINATED):
        return Record(header.seq, header.ts_ms, value)
    node = _label(buffer, offset + HEADER.size, header.node_len) if flags & HAS_NODE else None
    return Record(header.seq, header.ts_ms, value, tag_of(buffer, offset, header), node, bool(flags & UNTERMINATED))


def tombstone(header: Header) -> bytes:
    """Return the frame that replaces a deleted record. It keeps the seq and time, so that seqs stay dense."""
    flags = header.flags & (DURABLE | LOST) | DELETED
    return encode(FrameType.APPEND, topic_id=header.topic_id, seq=header.seq, ts_ms=header.ts_ms, flags=flags)


def _label(buffer: Buffer, start: int, length: int) -> str:
    try:
        return str(buffer[start : start + length], "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFrame(start, f"a label is not UTF-8: {error.reason}") from error


def _with_checksum(body: bytes) -> bytes:
    return body + CHECKSUM.pack(xxh3_64_intdigest(memoryview(body)[LENGTH_BYTES:]))
