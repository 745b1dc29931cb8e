"""The format of Apache Pulsar's streaming offload: blocks of one or more ledgers in one data object. Big-endian.

The index object, version 2:

    offset    size    field
    0         4       magic                    0x3D1FB0BC
    4         4       length of the whole index object
    8         8       data object length
    16        8       data header length       128
    24        ...     then per ledger, until the end:
      0       8       ledger id
      8       4       index entry count C
      12      4       ledger info length N
      16      N       StreamedLedgerInfo of catalog/schema.proto, which is Pulsar's LedgerInfo
      16+N    20 * C  per block, ascending: first entry id (8), part (4), offset (8)

The header of a block. Its entries are as in offload.format.entry, with any data:

    offset  size  field
    0       4     magic            0x26A66D32
    4       8     header length    128
    12      8     block length     whole block, header and padding included
    20      8     first entry id
    28      8     ledger id
    36      92    zeros

STREAM-1  A block has entries of one ledger. The broker's settings give its least size.
    If the entries are fewer, the block is padded like a block of version 1. If they are more, the block ends with them,
    and the next block's magic follows. The first bit of that magic says nothing. So only lengths tell where a block's
    entries end.
STREAM-2  A ledger may begin above entry 0, and continue in other objects. Its blocks say how many of its entries are
    here.
STREAM-3  Ledgers may come in any order. Bytes behind the length that the index states are no part of it.
STREAM-4  The decoder checks every length and count against the bytes at hand before it uses them.

seglog reads this format, and does not write it. Source: Apache Pulsar's code. This module does no I/O.
"""

from __future__ import annotations

import struct
from itertools import pairwise

from catalog.format.lazy_imports import pb, protobuf
from offload.errors import InvalidIndex, ObjectDamaged
from offload.format.block import BLOCK_HEADER_LENGTH, BlockRef
from seglog.base.dataclasses import dataclass

HEADER = struct.Struct(">IIQQ")
LEDGER = struct.Struct(">QII")
ENTRY = struct.Struct(">QIQ")
BLOCK_HEADER = struct.Struct(">IQQQQ")
MAGIC = 0x3D1FB0BC
BLOCK_MAGIC = 0x26A66D32


@dataclass(frozen=True, slots=True)
class StreamedLedger:
    """One ledger in the data object: its blocks there, and Pulsar's info of the whole ledger."""

    ledger_id: int
    info: pb.StreamedLedgerInfo
    entries: tuple[BlockRef, ...]


@dataclass(frozen=True, slots=True)
class StreamedIndex:
    """The index of a streamed data object. Lengths in bytes."""

    index_length: int
    data_length: int
    ledgers: tuple[StreamedLedger, ...]


@dataclass(frozen=True, slots=True)
class StreamedBlockHeader:
    """The header of a streamed block. `length` is in bytes, header and padding included."""

    length: int
    first_entry_id: int
    ledger_id: int


def decode_streamed_index(body: bytes, key: str) -> StreamedIndex:
    """Decode the index object of a streaming offload. Raises `InvalidIndex`."""
    if len(body) < HEADER.size:
        raise InvalidIndex(key, 0, f"a streamed index object has {HEADER.size} bytes at least, here are {len(body)}")
    magic, index_length, data_length, data_header_length = HEADER.unpack_from(body)
    if magic != MAGIC:
        raise InvalidIndex(key, 0, f"0x{magic:08X} is not the magic of a streamed index object")
    if not HEADER.size < index_length <= len(body):
        raise InvalidIndex(key, 4, f"{len(body)} bytes of {index_length}")
    if data_header_length != BLOCK_HEADER_LENGTH:
        raise InvalidIndex(key, 16, f"block headers of {data_header_length} bytes")
    ledgers: list[StreamedLedger] = []
    position = HEADER.size
    while position < index_length:
        ledger, position = _decode_ledger(body, position, index_length, key)
        ledgers.append(ledger)
    _check(ledgers, data_length, key)
    return StreamedIndex(index_length, data_length, tuple(ledgers))


def decode_streamed_block_header(header: bytes, key: str, offset: int) -> StreamedBlockHeader:
    """Decode the first 128 bytes of a block at `offset` of the data object `key`. Raises `ObjectDamaged`."""
    if len(header) < BLOCK_HEADER_LENGTH:
        raise ObjectDamaged(key, offset, f"a block header has {BLOCK_HEADER_LENGTH} bytes, here are {len(header)}")
    magic, header_length, length, first_entry_id, ledger_id = BLOCK_HEADER.unpack_from(header)
    if magic != BLOCK_MAGIC:
        raise ObjectDamaged(key, offset, f"0x{magic:08X} is not the magic of a streamed block")
    if header_length != BLOCK_HEADER_LENGTH or length < BLOCK_HEADER_LENGTH:
        raise ObjectDamaged(key, offset, f"impossible lengths: header {header_length}, block {length}")
    if any(header[BLOCK_HEADER.size : BLOCK_HEADER_LENGTH]):
        raise ObjectDamaged(key, offset, "the header's reserved bytes are not zero")
    return StreamedBlockHeader(length, first_entry_id, ledger_id)


def _decode_ledger(body: bytes, position: int, end: int, key: str) -> tuple[StreamedLedger, int]:
    """Return the ledger at `position`, and where it ends."""
    if position + LEDGER.size > end:
        raise InvalidIndex(key, position, "its last ledger is cut")
    ledger_id, entry_count, info_length = LEDGER.unpack_from(body, position)
    info_start = position + LEDGER.size
    entries_start = info_start + info_length
    entries_end = entries_start + ENTRY.size * entry_count
    if entries_end > end:
        raise InvalidIndex(key, position, f"ledger {ledger_id} is cut")
    if not entry_count:
        raise InvalidIndex(key, position, f"ledger {ledger_id} has no index entries")
    try:
        info = pb.StreamedLedgerInfo.FromString(body[info_start:entries_start])
    except protobuf.DecodeError as error:
        raise InvalidIndex(key, info_start, f"the info of ledger {ledger_id} does not decode: {error}") from error
    entries = tuple(BlockRef(*fields) for fields in ENTRY.iter_unpack(body[entries_start:entries_end]))
    if any(b.first_entry_id <= a.first_entry_id or b.offset <= a.offset for a, b in pairwise(entries)):
        raise InvalidIndex(key, entries_start, f"the index entries of ledger {ledger_id} do not ascend")
    return StreamedLedger(ledger_id, info, entries), entries_end


def _check(ledgers: list[StreamedLedger], data_length: int, key: str) -> None:
    ids = [ledger.ledger_id for ledger in ledgers]
    if len(set(ids)) != len(ids):
        raise InvalidIndex(key, HEADER.size, "it has a ledger twice")
    offsets = sorted(entry.offset for ledger in ledgers for entry in ledger.entries)
    if offsets[0] != 0 or offsets[-1] + BLOCK_HEADER_LENGTH > data_length:
        raise InvalidIndex(key, HEADER.size, f"its blocks do not lie in a data object of {data_length} bytes")
    if any(b - a < BLOCK_HEADER_LENGTH for a, b in pairwise(offsets)):
        raise InvalidIndex(key, HEADER.size, "its blocks overlap")
