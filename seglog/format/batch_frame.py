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

from seglog.errors import InvalidFrame, SeglogError
from seglog.format.frame import FrameType, Header, encode
from seglog.values.producer import AppendedBatch, Batch, check_id

__all__ = ["encode_batch", "read_batch"]

_BODY = struct.Struct("<QQI")


def encode_batch(topic_id: int, ts_ms: int, appended: AppendedBatch) -> bytes:
    """Return the BATCH frame. The caller has checked the ranges."""
    batch = appended.batch
    data = _BODY.pack(appended.epoch, batch.number, batch.records) + appended.producer.encode()
    return encode(FrameType.BATCH, topic_id=topic_id, seq=batch.first_seq, ts_ms=ts_ms, data=data)


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
