"""The bodies of BATCH, KEY and UNIT frames, which make the next records a unit: all are there, or none. Little-endian.

A frame of type 14, BATCH, says that the next records are a batch of a producer. A frame of type 15, KEY, says that they
were appended under a key. A frame of type 16, UNIT, is for any other append of more than one record, and for appends of
asyncio that the log merged. Each of them has the seq of the first record, and the time of the append. The records have
that time too, unless the caller gave them others. Data of a BATCH frame:

    offset  size  field
    0       8     epoch      of the producer
    8       8     number     of the batch
    16      4     records    of the batch, 1 at least
    20      ...   producer   its id: UTF-8, 1 to 256 bytes

Data of a KEY frame:

    0       8     digest     of the values (seglog.values.append_key)
    8       4     records    of the append, 1 at least
    12      ...   key        UTF-8, 1 to 256 bytes

Data of a UNIT frame:

    0       4     records    of the append, 1 at least

BATCHFRAME-1  The Append frames of the unit come right behind this frame, with nothing in between. The writer writes
    them with one call. A HEAD_WATERMARK frame stands before this frame.
BATCHFRAME-2  If some of these frames are missing in a torn write, recovery cuts the unit together with this frame. So
    the records agree with producers and keys after any crash, and an append is all or none. Anywhere else, a missing
    frame is damage.
BATCHFRAME-3  Only the WAL has these frames. A segment has the Append frames alone, byte for byte as of a lone record.
BATCHFRAME-4  A lone record without producer and key has no such frame. A WAL of an older release has no UNIT frames, so
    its appends of several records may be there in part.

An older release refuses a WAL file with these types of frames as `FormatUnsupported`. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from xxhash import xxh3_64_digest

from seglog.errors import InvalidFrame, SeglogError
from seglog.format.frame import HEADER, LENGTH_BYTES, MIN_FRAME_BYTES, FrameType, Header
from seglog.values.append_key import KeyedAppend, PlainAppend, Unit, check_key
from seglog.values.producer import AppendedBatch, Batch, check_id

#: The types of the frames that begin a unit.
UNIT_TYPES = frozenset({int(FrameType.BATCH), int(FrameType.KEY), int(FrameType.UNIT)})

_BATCH, _KEY = struct.Struct("<QQI"), struct.Struct("<QI")
#: The body of a UNIT frame.
RECORDS = struct.Struct("<I")
# Header and body at once: each append but that of a lone record makes one.
_WHOLE_BATCH, _WHOLE_KEY = struct.Struct(HEADER.format + "QQI"), struct.Struct(HEADER.format + "QI")
_WHOLE_UNIT = struct.Struct(HEADER.format + "I")
_OVERHEAD = MIN_FRAME_BYTES - LENGTH_BYTES
#: The length field of a UNIT frame.
UNIT_LENGTH = _OVERHEAD + RECORDS.size


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


def encode_unit(topic_id: int, ts_ms: int, first_seq: int, records: int) -> bytes:
    """Return the UNIT frame. The caller has checked the ranges."""
    head = _WHOLE_UNIT.pack(UNIT_LENGTH, FrameType.UNIT, 0, topic_id, first_seq, ts_ms, 0, 0, RECORDS.size, records)
    return head + xxh3_64_digest(head[LENGTH_BYTES:])[::-1]


def read_unit(header: Header, data: bytes) -> Unit:
    """Return what the frame says of the next records. Raise `InvalidFrame` for a body that does not fit."""
    try:
        unit = _READERS[header.type](header, data)
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


def _read_plain(header: Header, data: bytes) -> PlainAppend:
    (records,) = RECORDS.unpack(data)
    return PlainAppend(header.seq, records)


_READERS: dict[int, Callable[[Header, bytes], Unit]] = {
    FrameType.BATCH: _read_batch,
    FrameType.KEY: _read_key,
    FrameType.UNIT: _read_plain,
}
