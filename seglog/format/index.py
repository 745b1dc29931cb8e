"""One entry of a segment's .idx file: where the record with the seq `first_seq + i` lies in .data. Little-endian.

    offset  size  field   meaning
    0       4     offset  of the frame in .data
    4       4     length  of the whole frame, its length field included; 0: deleted, and the frame is not there any more
    8       8     ts      ms since the epoch, the frame's own
    16      1     flags   the frame's own, and bit3 deleted once a delete has reached the record
    17      3     check   low 24 bits of XXH3-64 of: seq as u64, then bytes 0 to 16 of this entry

I1  Entry i is that of seq first_seq + i: a direct seek, no scan. The seq takes part in the check, so an entry in
    another's place is found.
I2  Flags and check are one aligned word of 4 bytes and never straddle a sector: a delete rewrites them in place, and a
    crash leaves the old word or the new one.
I3  An offset has 32 bits: what would end behind 2^32 is `OffsetOverflow`, before anything is written.
    The same goes for WAL files.

Source: topics engine architecture, section 3.1; the check fills the three bytes that are padding there.
No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest, xxh3_64_intdigest

from seglog.errors import InvalidEntry
from seglog.format.frame import DELETED

__all__ = [
    "ENTRIES",
    "ENTRY",
    "OFFSET_END",
    "Entry",
    "encode_entries",
    "encode_entry",
    "load_entries",
    "mark_deleted",
    "read_entries",
]

ENTRY = struct.Struct("<IIQB3s")
#: I3.
OFFSET_END = 1 << 32
_PLAIN = struct.Struct("<QIIQB")
_SEQ = struct.Struct("<Q")
_CHECKED_BYTES = 17
_FLAGS_AT = 16

# So many are checked one by one in less time than it takes to set up the arrays.
_FEW = 8

#: ENTRY once more, for looking at thousands at once.
ENTRIES = np.dtype([("offset", "<u4"), ("length", "<u4"), ("ts_ms", "<u8"), ("flags", "u1"), ("check", "u1", (3,))])
_HASHED = np.dtype([("seq", "<u8"), ("plain", f"V{_CHECKED_BYTES}")])


class Entry(NamedTuple):
    offset: int
    length: int
    ts_ms: int
    flags: int


def encode_entry(seq: int, offset: int, length: int, ts_ms: int, flags: int) -> bytes:
    plain = _PLAIN.pack(seq, offset, length, ts_ms, flags)
    return plain[_SEQ.size :] + _check(plain)


def encode_entries(
    first_seq: int, first_offset: int, lengths: NDArray[Any], times: NDArray[Any], flags: NDArray[Any]
) -> bytes:
    """`encode_entry` for frames that lie one after the other from `first_offset` on."""
    entries = np.zeros(len(lengths), ENTRIES)
    entries["offset"] = first_offset + np.cumsum(lengths, dtype=np.int64) - lengths
    entries["length"], entries["ts_ms"], entries["flags"] = lengths, times, flags
    entries["check"] = _checks(entries.tobytes(), first_seq)
    return entries.tobytes()


def load_entries(raw: bytes, first_seq: int) -> NDArray[Any]:
    """The entries in `raw` as ENTRIES, of which the first is that of `first_seq`. Raises `InvalidEntry`."""
    if len(raw) % ENTRY.size == 0 and len(raw) > _FEW * ENTRY.size:
        entries = np.frombuffer(raw, ENTRIES)
        if np.array_equal(_checks(raw, first_seq), entries["check"]):
            return entries
    read_entries(raw, first_seq)
    return np.frombuffer(raw, ENTRIES)


def read_entries(raw: bytes, first_seq: int) -> list[Entry]:
    """The entries in `raw`, of which the first is that of `first_seq`. Raises `InvalidEntry`."""
    if len(raw) % ENTRY.size:
        raise InvalidEntry(len(raw) // ENTRY.size, "it is cut")
    entries = []
    for position, (offset, length, ts_ms, flags, check) in enumerate(ENTRY.iter_unpack(raw)):
        start = position * ENTRY.size
        if _check(_SEQ.pack(first_seq + position) + raw[start : start + _CHECKED_BYTES]) != check:
            raise InvalidEntry(position, f"check mismatch in the entry of seq {first_seq + position}")
        entries.append(Entry(offset, length, ts_ms, flags))
    return entries


def mark_deleted(raw: bytearray, position: int, seq: int) -> None:
    """Set the deleted flag of the entry at `position`, that of `seq`."""
    start = position * ENTRY.size
    raw[start + _FLAGS_AT] |= DELETED
    raw[start + _CHECKED_BYTES : start + ENTRY.size] = _check(_SEQ.pack(seq) + raw[start : start + _CHECKED_BYTES])


def _checks(raw: bytes, first_seq: int) -> NDArray[np.uint8]:
    """Of all entries in `raw`, three bytes each."""
    count = len(raw) // ENTRY.size
    hashed = np.empty(count, _HASHED)
    hashed["seq"] = np.arange(count, dtype=np.uint64) + np.uint64(first_seq)
    hashed["plain"] = np.ndarray(count, _HASHED["plain"], raw, strides=(ENTRY.size,))
    digests = b"".join(map(xxh3_64_digest, hashed.view(f"V{_HASHED.itemsize}").tolist()))
    return np.frombuffer(digests, np.uint8).reshape(count, 8)[:, :4:-1]


def _check(plain: bytes) -> bytes:
    return xxh3_64_intdigest(plain).to_bytes(8, "little")[:3]
