"""The body of a BATCH frame, which says that the next records are a batch of a producer. Little-endian.

The frame has type 14, the seq of the batch's first record, and the time of its records. Its data:

    offset  size  field
    0       8     epoch      of the producer
    8       8     number     of the batch
    16      4     records    of the batch, 1 at least
    20      ...   producer   its id: UTF-8, 1 to 256 bytes

BATCHFRAME-1  The Append frames of the batch come right behind its BATCH frame, with nothing in between. The writer
    writes them with one call. A HEAD_WATERMARK frame stands before the BATCH frame.
BATCHFRAME-2  If some of these frames are missing in a torn write, recovery cuts the batch together with its BATCH
    frame. So producers and records agree after any crash. Anywhere else, a missing frame is damage.
BATCHFRAME-3  Only the WAL has BATCH frames. A segment has the Append frames alone, byte for byte as without a producer.

An older release refuses a WAL file with this type of frame as `FormatUnsupported`. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import struct

from xxhash import xxh3_64_digest

from seglog.errors import InvalidFrame, SeglogError
from seglog.format.frame import HEADER, LENGTH_BYTES, MIN_FRAME_BYTES, FrameType, Header
from seglog.values.producer import AppendedBatch, Batch, check_id

__all__ = ["encode_batch", "read_batch"]

_BODY = struct.Struct("<QQI")
_WHOLE = struct.Struct(HEADER.format + "QQI")  # header and body at once: each append of a producer makes one
_OVERHEAD = MIN_FRAME_BYTES - LENGTH_BYTES


def encode_batch(topic_id: int, ts_ms: int, appended: AppendedBatch) -> bytes:
    """Return the BATCH frame. The caller has checked the ranges."""
    producer, epoch, (number, first_seq, records) = appended
    name = producer.encode()
    size = _BODY.size + len(name)
    head = _WHOLE.pack(
        _OVERHEAD + size, FrameType.BATCH, 0, topic_id, first_seq, ts_ms, 0, 0, size, epoch, number, records
    )
    body = head[LENGTH_BYTES:] + name
    # The digest has the bytes of the checksum in reverse order.
    return head[:LENGTH_BYTES] + body + xxh3_64_digest(body)[::-1]


def read_batch(header: Header, data: bytes) -> AppendedBatch:
    """Return the batch. Raise `InvalidFrame` for a body that does not fit."""
    try:
        epoch, number, records = _BODY.unpack_from(data)
        producer = check_id(data[_BODY.size :].decode())
    except (struct.error, ValueError, SeglogError) as error:
        raise InvalidFrame(0, f"the body of a BATCH frame does not fit: {error!r}") from error
    if records < 1 or header.seq < 1:
        raise InvalidFrame(0, "a BATCH frame has no records")
    return AppendedBatch(producer, epoch, Batch(number, header.seq, records))
