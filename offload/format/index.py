"""The index object. It has the place of each record in a data object, and a description of the data object. Big-endian.

    offset    size    field
    0         4       magic                    0xDE47DE47
    4         4       length of the whole index object, trailer included
    8         8       data object length
    16        8       data header length       128
    24        4       index entry count C
    28        4       segment metadata length N
    32        N       segment metadata: LedgerMetadata of catalog/schema.proto, which is Apache BookKeeper's
    32+N      20 * C  per index entry, ascending: first entry id (8), part (4), offset (8)
    32+N+20C  ...     trailer (offload.format.trailer); Pulsar's reader stops before it

The bytes before the trailer are the *head*. Our own addition is the value under the key `seglog` in the ledger's custom
metadata. It is a SegmentMetadata: the chunk table, the bitmap of live entries, one bitmap for each tag, and the data
object's blake3.

INDEX-1  Each block has an index entry with the block's offset, and with the number of its multipart part.
INDEX-2  With codec none, each chunk has an index entry, too. A chunk at position p is written as p - 128.
    A reader of PIP-17 adds the header length, and reads entries from there. The first chunk of a block gives the entry
    of the block.
INDEX-3  PIP-17 has no checksum of the head. The commit has the head's blake3, and `decode_head` checks it first.
INDEX-4  The decoder checks every length and count against the bytes at hand before it uses them.
    It also checks that the chunk table covers exactly the seqs, and lies in order within the blocks.
INDEX-5  The decoder also takes an index object of Pulsar's own, which has no SegmentMetadata.
    If an entry fits no block, Pulsar ends the ledger before it, and yet writes an index entry for it. That one lies at
    the data object's end, and the decoder drops it.
INDEX-6  Bytes behind the length that the index object states are no part of it.

Source: PIP-17, "Index format", with the constants of Apache Pulsar's code. This module does no I/O.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from blake3 import blake3

from catalog.format.lazy_imports import pb, protobuf
from offload.errors import FormatUnsupported, InvalidIndex
from offload.format.block import BLOCK_HEADER_LENGTH, BlockRef
from offload.format.labels import software_version
from offload.format.metadata import SegmentIndex, decode_metadata, encode_metadata, index_entries
from offload.format.trailer import encode_trailer
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from offload.format.encoder import SegmentSummary

HEADER = struct.Struct(">IIQQII")
ENTRY = struct.Struct(">QIQ")
MAGIC = 0xDE47DE47
MAGIC_V2 = 0x3D1FB0BC  # Pulsar's streaming offload: offload.format.streamed

_CUSTOM_KEY = "seglog"
_BOOKIE = "seglog:0"  # Pulsar's reader asks for an ensemble member that parses; it never connects to it


@dataclass(frozen=True, slots=True)
class IndexObject:
    """An encoded index object: `head_length` and `trailer_length` in bytes, `head_hash` the blake3 of the head."""

    body: bytes
    head_length: int
    trailer_length: int
    head_hash: bytes


@dataclass(frozen=True, slots=True)
class LedgerIndex:
    """An index object in the terms of PIP-17. `segment` is our own addition; None in an index object of Pulsar's."""

    index_length: int
    head_length: int
    data_length: int
    entries: tuple[BlockRef, ...]
    ledger: pb.LedgerMetadata
    segment: SegmentIndex | None


def encode_index(
    summary: SegmentSummary, *, topic: str, created_at_ms: int, software: str | None = None
) -> IndexObject:
    """Return the index object of the data object that `summary` describes. `software` defaults to this version."""
    entries = index_entries(summary.chunks, summary.codec, summary.block_size)
    segment = encode_metadata(summary, topic, software or f"seglog {software_version()}")
    ledger = _encode_ledger(summary, created_at_ms, segment)
    trailer = encode_trailer(summary.entry_lengths)
    head_length = HEADER.size + len(ledger) + ENTRY.size * len(entries)
    head = b"".join(
        [
            HEADER.pack(
                MAGIC, head_length + len(trailer), summary.data_length, BLOCK_HEADER_LENGTH, len(entries), len(ledger)
            ),
            ledger,
            *(ENTRY.pack(entry.first_entry_id, entry.part, entry.offset) for entry in entries),
        ]
    )
    return IndexObject(head + trailer, head_length, len(trailer), blake3(head).digest())


def decode_head(body: bytes, key: str, head_hash: bytes | None = None) -> SegmentIndex:
    """Decode one of our index objects, from its head or from all of it.

    `head_hash` comes from a commit, and the head's blake3 must equal it. Without it, a flipped bit may pass.
    Raises `InvalidIndex` and `FormatUnsupported`.
    """
    index = decode_ledger_index(body, key, head_hash)
    if index.segment is None:
        raise FormatUnsupported(key, "an index object without our segment metadata")
    return index.segment


def decode_ledger_index(body: bytes, key: str, head_hash: bytes | None = None) -> LedgerIndex:
    """Decode any PIP-17 index object of version 1. Raises `InvalidIndex` and `FormatUnsupported`."""
    if len(body) < HEADER.size:
        raise InvalidIndex(key, 0, f"an index object has {HEADER.size} bytes at least, here are {len(body)}")
    magic, index_length, data_length, data_header_length, entry_count, ledger_length = HEADER.unpack_from(body)
    if magic == MAGIC_V2:
        raise FormatUnsupported(
            key, "an index object of version 2, Pulsar's streaming offload, in the place of one of ours"
        )
    if magic != MAGIC:
        raise InvalidIndex(key, 0, f"0x{magic:08X} is not the magic of an index object")
    ledger_end = HEADER.size + ledger_length
    head_length = ledger_end + ENTRY.size * entry_count
    if head_length > len(body) or head_length > index_length:
        raise InvalidIndex(key, 4, f"a head of {head_length} bytes in {len(body)} bytes of {index_length}")
    if head_hash is not None and blake3(body[:head_length]).digest() != head_hash:
        raise InvalidIndex(key, 0, "its head is not the one that the commit names: the hash differs")
    if data_header_length != BLOCK_HEADER_LENGTH:
        raise InvalidIndex(key, 16, f"block headers of {data_header_length} bytes")
    ledger = _parse_ledger(body[HEADER.size : ledger_end], key)
    entries = tuple(BlockRef(*fields) for fields in ENTRY.iter_unpack(body[ledger_end:head_length]))
    if len(entries) > 1 and entries[-1].offset == data_length:
        entries = entries[:-1]
    _check_entries(entries, data_length, key, ledger_end)
    index = LedgerIndex(index_length, head_length, data_length, entries, ledger, None)
    return replace(index, segment=_segment_of(index, key))


def _encode_ledger(summary: SegmentSummary, created_at_ms: int, segment: bytes) -> bytes:
    return pb.LedgerMetadata(
        quorum_size=1,
        ensemble_size=1,
        length=summary.frame_bytes - 4 * summary.count,  # of the entries' data, which lack the frames' frame_len
        last_entry_id=summary.count - 1,
        state=pb.CLOSED,
        segment=[pb.LedgerSegment(ensemble_member=[_BOOKIE], first_entry_id=0)],
        digest_type=pb.CRC32C,
        ack_quorum_size=1,
        ctime=created_at_ms,
        custom_metadata=[pb.CustomMetadata(key=_CUSTOM_KEY, value=segment)],
    ).SerializeToString(deterministic=True)


def _parse_ledger(body: bytes, key: str) -> pb.LedgerMetadata:
    try:
        ledger = pb.LedgerMetadata.FromString(body)
    except protobuf.DecodeError as error:
        raise InvalidIndex(key, HEADER.size, f"its segment metadata does not decode: {error}") from error
    if ledger.state != pb.CLOSED or ledger.last_entry_id < 0:
        raise InvalidIndex(key, HEADER.size, "its segment metadata is not of a closed ledger with entries")
    return ledger


def _check_entries(entries: tuple[BlockRef, ...], data_length: int, key: str, offset: int) -> None:
    if not entries:
        raise InvalidIndex(key, 24, "it has no index entries")
    ids = [entry.first_entry_id for entry in entries]
    offsets = [entry.offset for entry in entries]
    if any(b <= a for a, b in pairwise(ids)) or any(b <= a for a, b in pairwise(offsets)):
        raise InvalidIndex(key, offset, "its index entries do not ascend")
    if offsets[0] != 0 or offsets[-1] + BLOCK_HEADER_LENGTH > data_length:
        raise InvalidIndex(key, offset, f"its index entries do not lie in a data object of {data_length} bytes")


def _segment_of(index: LedgerIndex, key: str) -> SegmentIndex | None:
    """Return our SegmentMetadata, checked against the fields of PIP-17; None if there is none."""
    values = [item.value for item in index.ledger.custom_metadata if item.key == _CUSTOM_KEY]
    if not values:
        return None
    segment = decode_metadata(values[0], index.data_length, key, HEADER.size)
    if segment.count != index.ledger.last_entry_id + 1:
        raise InvalidIndex(key, HEADER.size, f"{segment.count} seqs, but entries up to {index.ledger.last_entry_id}")
    if index_entries(segment.chunks, segment.codec, segment.block_size) != index.entries:
        raise InvalidIndex(key, HEADER.size, "its index entries are not those of its chunk table")
    return segment
