"""One item of a journal's section: bytes of any length, with a checksum. Little-endian.

    offset  size  field    meaning
    0       4     size     bytes of data
    4       ...   data     the caller's bytes
    ...     4     crc32    CRC-32 of data, as zlib computes it
    ...     ...   padding  0 to 15 bytes, up to the next multiple of 16; each byte is the number of padding bytes

A sync mark says that all bytes of the section before it are durable:

    0       8     zeros    as in an item without data
    8       8     check    XXH3-64 of: section as u64, position of the mark as u64, secret of the section

    <journal>/LOCK                              held while a process uses the journal
    <journal>/floor-<20 digits>                 empty: sections below that number were pruned; the highest counts
    <journal>/section-<20 digits>-<secret>.log  items and marks from position 0 on, nothing between them, nothing behind

ITEM-1  An offset counts units of 16 bytes, as u32. An item that would begin past 16 * (2^32 - 1) is `OffsetOverflow`.
ITEM-2  A reader detects a change of any one byte of an item, padding included. Padding is not zeros, because an item
    without data would then be all zeros. A power cut leaves zeros where a file had grown.
ITEM-3  A mark does not fit in another place or another section. Data begin 4 bytes into a unit. So if the bytes of a
    section are stored as an item of another section, they hold no marks there. The secret is 8 random bytes, 16 hex
    digits in the name of the file. So an item that somebody else chose holds no mark of its own place. The sections of
    an older release have no secret in the name, and none in their marks.
ITEM-4  An item can be checked only with all its data. Without them, neither its size nor a prefix of its data is
    verified.
ITEM-5  This module cannot tell a torn item from a damaged one. seglog.journal.section decides.

Source: journal of variable-size items, sections Format and Offset Alignment. Padding and marks are additions of this
project.
No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import struct
import zlib

from xxhash import xxh3_64_intdigest

from seglog.errors import InvalidEntry
from seglog.format.frame import Buffer

SIZE = struct.Struct("<I")
_MARK = struct.Struct("<8sQ")
_PLACE = struct.Struct("<QQ")

UNIT_BYTES = 16
MARK_BYTES = _MARK.size
OFFSET_MAX = 0xFFFF_FFFF
ITEM_MAX_BYTES = 0xFFFF_FFFF
_OVERHEAD = 2 * SIZE.size
_ZEROS = bytes(8)
_PADDING = tuple(bytes([count]) * count for count in range(UNIT_BYTES))


def slot_bytes(size: int) -> int:
    """Return the bytes that an item of `size` bytes of data takes in its section."""
    return (_OVERHEAD + size + UNIT_BYTES - 1) // UNIT_BYTES * UNIT_BYTES


def encode_item(data: bytes) -> list[bytes]:
    """Return the item in pieces, so that the data are not copied."""
    padding = _PADDING[-(_OVERHEAD + len(data)) % UNIT_BYTES]
    return [SIZE.pack(len(data)), data, SIZE.pack(zlib.crc32(data)) + padding]


def read_item(buffer: Buffer, position: int = 0) -> bytes:
    """Return the data of the whole item at `position`. Raises `InvalidEntry`."""
    room = len(buffer) - position
    size = SIZE.unpack_from(buffer, position)[0] if room >= SIZE.size else 0
    if slot_bytes(size) > room:
        raise InvalidEntry(position, f"an item of {size} bytes goes past the end")
    end = position + SIZE.size + size
    data = bytes(buffer[position + SIZE.size : end])
    if SIZE.unpack_from(buffer, end)[0] != zlib.crc32(data):
        raise InvalidEntry(position, "checksum mismatch")
    if buffer[end + SIZE.size : position + slot_bytes(size)] != _PADDING[-(_OVERHEAD + size) % UNIT_BYTES]:
        raise InvalidEntry(position, "the padding has changed")
    return data


def encode_mark(section: int, position: int, secret: bytes) -> bytes:
    return _MARK.pack(_ZEROS, xxh3_64_intdigest(_PLACE.pack(section, position) + secret))


def is_mark(buffer: Buffer, index: int, section: int, position: int, secret: bytes) -> bool:
    """Tell whether the bytes at `index` of the buffer are a mark. They lie at `position` of the section."""
    slot = buffer[index : index + MARK_BYTES]
    return slot[: len(_ZEROS)] == _ZEROS and slot == encode_mark(section, position, secret)
