"""The step from entry data to a record. It checks and opens the frame inside, as the log itself does.

This module does no I/O.
"""

from __future__ import annotations

from offload.errors import InvalidChunk
from offload.format.entry import frame_of
from seglog.errors import InvalidFrame
from seglog.format.frame import DELETED, FrameType, read_header, record_of
from seglog.values.record import Record

__all__ = ["record_of_entry"]


def record_of_entry(entry: memoryview, seq: int, topic_id: int, key: str, offset: int) -> Record | None:
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
