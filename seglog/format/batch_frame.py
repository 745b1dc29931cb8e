"""The bodies of BATCH and KEY frames, which make the next records a unit: all are there, or none. Little-endian.

A frame of type 14, BATCH, says that the next records are a batch of a producer. A frame of type 15, KEY, says that they
were appended under a key. Both have the seq of the first record, and the time of the records. Data of a BATCH frame:

    offset  size  field
    0       8     epoch      of the producer
    8       8     number     of the batch
    16      4     records    of the batch, 1 at least
    20      ...   producer   its id: UTF-8, 1 to 256 bytes

Data of a KEY frame:

    0       8     digest     of the values (seglog.values.append_key)
    8       4     records    of the append, 1 at least
    12      ...   key        UTF-8, 1 to 256 bytes

BATCHFRAME-1  The Append frames of the unit come right behind this frame, with nothing in between. The writer writes
    them with one call. A HEAD_WATERMARK frame stands before this frame.
BATCHFRAME-2  If some of these frames are missing in a torn write, recovery cuts the unit together with this frame. So
    the records agree with producers and keys after any crash. Anywhere else, a missing frame is damage.
BATCHFRAME-3  Only the WAL has these frames. A segment has the Append frames alone, byte for byte as of a plain append.

An older release refuses a WAL file with these types of frames as `FormatUnsupported`. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_64_digest

from seglog.errors import InvalidFrame, SeglogError
from seglog.format.frame import HEADER, LENGTH_BYTES, MIN_FRAME_BYTES, FrameType, Header
from seglog.values.append_key import KeyedAppend, Unit, check_key
from seglog.values.producer import AppendedBatch, Batch, check_id

__all__ = ["UNIT_TYPES", "encode_batch", "encode_key", "read_unit"]

#: The types of the frames that begin a unit.
UNIT_TYPES = frozenset({int(FrameType.BATCH), int(FrameType.KEY)})

_BATCH, _KEY = struct.Struct("<QQI"), struct.Struct("<QI")
# Header and body at once: each append of a producer, or under a key, makes one.
_WHOLE_BATCH, _WHOLE_KEY = struct.Struct(HEADER.format + "QQI"), struct.Struct(HEADER.format + "QI")
_OVERHEAD = MIN_FRAME_BYTES - LENGTH_BYTES


def encode_batch(topic_id: int, ts_ms: int, appended: AppendedBatch) -> bytes:
    """Return the BATCH frame. The caller has checked the ranges."""
    producer, epoch, (number, first_seq, records) = appended
    name = producer.encode()
    size = _BATCH.size + len(name)
    head = _WHOLE_BATCH.pack(
        _OVERHEAD + size, FrameType.BATCH, 0, topic_id, first_seq, ts_ms, 0, 0, size, epoch, number, records
    )
    body = head[LENGTH_BYTES:] + name
    # The digest has the bytes of the checksum in reverse order.
    return head[:LENGTH_BYTES] + body + xxh3_64_digest(body)[::-1]


def encode_key(topic_id: int, ts_ms: int, appended: KeyedAppend) -> bytes:
    """Return the KEY frame. The caller has checked the ranges."""
    key, first_seq, records, digest = appended
    name = key.encode()
    size = _KEY.size + len(name)
    head = _WHOLE_KEY.pack(_OVERHEAD + size, FrameType.KEY, 0, topic_id, first_seq, ts_ms, 0, 0, size, digest, records)
    body = head[LENGTH_BYTES:] + name
    return head[:LENGTH_BYTES] + body + xxh3_64_digest(body)[::-1]


def read_unit(header: Header, data: bytes) -> Unit:
    """Return the batch or the append under a key. Raise `InvalidFrame` for a body that does not fit."""
    try:
        unit = _read_batch(header, data) if header.type == FrameType.BATCH else _read_key(header, data)
    except (struct.error, ValueError, SeglogError) as error:
        raise InvalidFrame(0, f"the body of a {FrameType(header.type).name} frame does not fit: {error!r}") from error
    if unit.records < 1 or header.seq < 1:
        raise InvalidFrame(0, f"a {FrameType(header.type).name} frame has no records")
    return unit


def _read_batch(header: Header, data: bytes) -> AppendedBatch:
    epoch, number, records = _BATCH.unpack_from(data)
    return AppendedBatch(check_id(data[_BATCH.size :].decode()), epoch, Batch(number, header.seq, records))


def _read_key(header: Header, data: bytes) -> KeyedAppend:
    digest, records = _KEY.unpack_from(data)
    return KeyedAppend(check_key(data[_KEY.size :].decode()), header.seq, records, digest)
