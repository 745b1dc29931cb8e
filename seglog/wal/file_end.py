"""Classify the bytes of a WAL file after its last valid frame. `seglog.wal.wal` looks for sync marks after them.

    whole     length and checksum fit, and the type or a flag is unknown: another version wrote the frame. No crash
              leaves such a frame. The type 0 is of no version: the sector with the header was lost, and a value may
              have the checksum
    cut       a frame begins there, by the rest of its header, and it extends past the end of the file. The size was
              durable before the frame was written (WAL-8). So no crash did that: somebody cut the file
    torn      anything else, if no sync mark follows

These checks miss one case: a file that was cut exactly after a frame, above the position that the manifest names.
"""

from __future__ import annotations

from xxhash import xxh3_64_intdigest

from seglog.errors import FileCorrupt, FormatUnsupported, InvalidFrame
from seglog.files.open_file import OpenFile
from seglog.format.frame import CHECKSUM, HEADER, KNOWN_FLAGS, LENGTH_BYTES, MIN_FRAME_BYTES, FrameType, Header

__all__ = ["check_begin", "check_known", "check_not_cut"]

_TYPES = frozenset(FrameType)


def check_known(file: OpenFile, error: InvalidFrame, size: int) -> None:
    """Raise `FormatUnsupported` if the frame at `error.offset` is whole and has an unknown type or flag."""
    length = int.from_bytes(file.read(LENGTH_BYTES, error.offset), "little")
    if not MIN_FRAME_BYTES <= length + LENGTH_BYTES <= size - error.offset:
        return
    frame = file.read(length + LENGTH_BYTES, error.offset)
    if len(frame) < length + LENGTH_BYTES:
        return  # while this view reads, the writer has truncated the reserved space
    header = Header._make(HEADER.unpack_from(frame))
    is_known = header.type == 0 or (header.type in _TYPES and not header.flags & ~KNOWN_FLAGS)
    body, checksum = frame[LENGTH_BYTES : -CHECKSUM.size], frame[-CHECKSUM.size :]
    if not is_known and checksum == CHECKSUM.pack(xxh3_64_intdigest(body)):
        raise FormatUnsupported(file.path, f"1 with frames of type {header.type} and flags {header.flags:#04x}")


def check_not_cut(file: OpenFile, error: InvalidFrame, size: int) -> None:
    """Raise `FileCorrupt` if the bytes at `error.offset` begin a frame and the file ends within that frame."""
    room = size - error.offset
    front = file.read(min(HEADER.size, room), error.offset)
    is_cut = room < MIN_FRAME_BYTES
    if len(front) > LENGTH_BYTES:
        is_cut &= front[LENGTH_BYTES] in _TYPES
    if len(front) == HEADER.size:
        length, kind, _, _, _, _, node_bytes, tag_bytes, data_bytes = HEADER.unpack(front)
        parts = MIN_FRAME_BYTES + node_bytes + tag_bytes + data_bytes
        is_cut = kind in _TYPES and length + LENGTH_BYTES == parts > room
    if is_cut:
        raise FileCorrupt(file.path, error.offset, f"the file was cut: it ends at {size}, within a frame") from error


def check_begin(file: OpenFile, begin: int, size: int) -> None:
    """Raise `FileCorrupt` if the file ends before `begin`, the offset that the manifest names."""
    if size < begin:
        raise FileCorrupt(file.path, size, f"the file was cut: the manifest was made when it had {begin} bytes")
