"""One entry of a segment's .idx file: the place of the record with the seq `first_seq + i` in .data. Little-endian.

    offset  size  field   meaning
    0       4     offset  of the frame in .data
    4       4     length  of the whole frame, its length field included; 0: deleted, and .data has no frame of it
    8       8     ts      ms since the epoch, the frame's own
    16      1     flags   the frame's own, and bit3 deleted once a delete has reached the record
    17      3     check   low 24 bits of XXH3-64 of: seq as u64, then bytes 0 to 16 of this entry

IDX-1  Entry i belongs to seq first_seq + i, so a reader seeks to it without a scan. The check covers the seq, so a
    reader detects an entry that is in the place of another.
IDX-2  Flags and check are one aligned word of 4 bytes and never straddle a sector. A delete rewrites them in place. A
    crash leaves the old word or the new one.
IDX-3  An offset has 32 bits. If a frame would end behind 2^32, `OffsetOverflow` is raised before anything is written.
    The same holds for WAL files.

Source: topics engine architecture, section 3.1; the check fills the three bytes that are padding there. No I/O: bytes
in, bytes out.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from seglog.errors import InvalidEntry
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import DELETED, LOST

ENTRY = struct.Struct("<IIQB3s")
#: The exclusive end of offsets (IDX-3).
OFFSET_END = 1 << 32
_PLAIN = struct.Struct("<QIIQB")
_SEQ = struct.Struct("<Q")
_CHECKED_BYTES = 17
_FLAGS_AT = 16

# Up to this many entries are checked one by one: that is faster than setting up the arrays.
_FEW = 8
# From this many entries on, arrays compute the checks faster than one call an entry.
_MANY = 512
# The first 32 bytes of the default secret, as words.
_SECRET = (0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072)
_START = 25 * 0x9E3779B185EBCA87 % 2**64
_PRIME = 0x165667919E3779F9
_LOW = 0xFFFFFFFF


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
    """Return the entries of frames that lie one after the other from `first_offset` on."""
    entries = np.zeros(len(lengths), dtypes.ENTRIES)
    entries["offset"] = first_offset + np.cumsum(lengths, dtype=np.int64) - lengths
    entries["length"], entries["ts_ms"], entries["flags"] = lengths, times, flags
    entries["check"] = _checks(entries.tobytes(), first_seq)
    return entries.tobytes()


def load_entries(raw: bytes, first_seq: int) -> NDArray[Any]:
    """Return the entries in `raw` as an array of ENTRIES. The first belongs to `first_seq`. Raise `InvalidEntry`."""
    if len(raw) % ENTRY.size == 0 and len(raw) > _FEW * ENTRY.size:
        entries = np.frombuffer(raw, dtypes.ENTRIES)
        if np.array_equal(_checks(raw, first_seq), entries["check"]):
            return entries
    read_entries(raw, first_seq)
    return np.frombuffer(raw, dtypes.ENTRIES)


def read_entries(raw: bytes, first_seq: int) -> list[Entry]:
    """Return the entries in `raw`. The first one belongs to `first_seq`. Raise `InvalidEntry`."""
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
    """Set the deleted flag of the entry at `position`, which belongs to `seq`, and renew its check."""
    start = position * ENTRY.size
    raw[start + _FLAGS_AT] |= DELETED
    raw[start + _CHECKED_BYTES : start + ENTRY.size] = _check(_SEQ.pack(seq) + raw[start : start + _CHECKED_BYTES])


def mark_live(raw: bytearray, position: int, seq: int) -> None:
    """Remove the deleted flag of the entry at `position`, and renew its check. A record without bytes keeps it."""
    start = position * ENTRY.size
    [(_, length, _, flags, _)] = ENTRY.iter_unpack(raw[start : start + ENTRY.size])
    if length and flags & (DELETED | LOST) == DELETED:
        raw[start + _FLAGS_AT] ^= DELETED
        raw[start + _CHECKED_BYTES : start + ENTRY.size] = _check(_SEQ.pack(seq) + raw[start : start + _CHECKED_BYTES])


def _checks(raw: bytes, first_seq: int) -> NDArray[np.uint8]:
    """Return the checks of all entries in `raw`, three bytes each."""
    count = len(raw) // ENTRY.size
    if count >= _MANY:
        seqs = np.arange(count, dtype=np.uint64) + np.uint64(first_seq)
        words = (np.ndarray(count, "<u8", raw, at, (ENTRY.size,)) for at in (0, 1, 9))
        return _hashes_of_25_bytes(seqs, *words).astype("<u8", copy=False).view(np.uint8).reshape(count, 8)[:, :3]
    hashed = np.empty(count, dtypes.HASHED_ENTRIES)
    hashed["seq"] = np.arange(count, dtype=np.uint64) + np.uint64(first_seq)
    hashed["plain"] = np.ndarray(count, dtypes.HASHED_ENTRIES["plain"], raw, strides=(ENTRY.size,))
    digests = b"".join(map(xxh3_64_digest, hashed.view(f"V{dtypes.HASHED_ENTRIES.itemsize}").tolist()))
    return np.frombuffer(digests, np.uint8).reshape(count, 8)[:, :4:-1]


def _check(plain: bytes) -> bytes:
    return xxh3_64_intdigest(plain).to_bytes(8, "little")[:3]


def _hashes_of_25_bytes(
    first: NDArray[np.uint64], second: NDArray[np.uint64], third: NDArray[np.uint64], fourth: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return the XXH3-64 of each input of 25 bytes.

    A call of the xxhash library takes 25 bytes, and costs more than the hash itself. Here the inputs are four arrays of
    words, as the algorithm reads an input of 17 to 32 bytes: bytes 0 to 8, 8 to 16, 9 to 17, and 17 to 25.
    Source: the specification of XXH3, "medium-size inputs", with seed 0.
    """
    secret = [np.uint64(word) for word in _SECRET]
    hashes = _folded_product(first ^ secret[0], second ^ secret[1])
    hashes += _folded_product(third ^ secret[2], fourth ^ secret[3])
    hashes += np.uint64(_START)
    hashes ^= hashes >> 37
    hashes *= np.uint64(_PRIME)
    hashes ^= hashes >> 32
    return hashes


def _folded_product(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the lower half of each product of 128 bits, XORed with its upper half."""
    left_low, right_low = left & _LOW, right & _LOW
    left_high, right_high = left >> 32, right >> 32
    middle = left_low * right_low
    middle >>= 32
    crossed = left_high * right_low
    middle += crossed & _LOW
    middle += left_low * right_high
    middle >>= 32
    crossed >>= 32
    middle += crossed
    left_high *= right_high
    middle += left_high
    middle ^= left * right
    return middle
