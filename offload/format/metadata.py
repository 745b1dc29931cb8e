"""SegmentMetadata: our description of a data object, beyond PIP-17. Protobuf, in catalog/schema.proto.

    field                     meaning
    version                   1
    topic, topic_id           the topic (with @BRANCH for a branch), and its interned id, which every frame carries
    first_seq, last_seq       inclusive; entry id = seq - first_seq
    min_ts_ms, max_ts_ms      of all records
    codec, block_size         of the data object; a block's part number is its offset / block_size + 1
    chunks                    the chunk table: offset, stored and raw length, first seq, least and greatest ts, XXH3-64
                              of the stored bytes; a chunk's last seq is the one before the next chunk's first
    live                      portable Roaring bitmap of the entry ids whose frame is not marked deleted
    tags, tags_complete       per tag, ascending, such a bitmap of the entry ids that carry it; with more than 4,096
                              tags none, and tags_complete is false
    data_hash                 blake3 of the data object
    software                  the software that wrote it

META-1  Chunks are in order and do not overlap. Each lies inside one block, behind its header. They cover exactly the
    seqs.
META-2  Index entries follow from the chunk table, so neither can change alone.
    Codec none has one for each chunk (offset - 128), codec zstd one for each block.
META-3  A raw length is at least the least size of its entries, and at most the capacity of a block.
    So lengths bound the counts, and the block size bounds the lengths.

The caller decodes a bitmap when it needs it: a point read needs none. This module does no I/O.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from catalog.format.commit import Codec
from catalog.format.lazy_imports import pb, protobuf, pyroaring
from offload.errors import FormatUnsupported, InvalidIndex
from offload.format.block import BLOCK_HEADER_LENGTH, BlockRef, ChunkRef, raw_capacity
from offload.format.entry import ENTRY, MIN_DATA_LENGTH
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from offload.format.encoder import SegmentSummary

VERSION = 1
_MAX_BLOCK_SIZE = 2**31 - 1  # Pulsar's reader keeps it in a Java int
_MIN_ENTRY_BYTES = ENTRY.size + MIN_DATA_LENGTH


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """The decoded description of one data object. Lengths in bytes, times in ms since the epoch, seqs inclusive.

    `live` and the values of `tags` are portable Roaring bitmaps of entry ids: `decode_bitmap` reads them. If
    there were too many tags to list, `tags` is None, and says nothing about any tag.
    """

    topic: str
    topic_id: int
    first_seq: int
    last_seq: int
    min_ts_ms: int
    max_ts_ms: int
    codec: Codec
    block_size: int
    data_length: int
    data_hash: bytes
    chunks: tuple[ChunkRef, ...]
    live: bytes
    tags: Mapping[str, bytes] | None
    software: str

    @property
    def count(self) -> int:
        """The number of entries in the data object, deleted ones included."""
        return self.last_seq - self.first_seq + 1

    def chunks_between(self, first: int, last: int) -> tuple[ChunkRef, ...]:
        """Return the chunks that hold a seq of the range, ascending."""
        low = bisect_left(self.chunks, first, key=attrgetter("last_seq"))
        return self.chunks[low : bisect_right(self.chunks, last, key=attrgetter("first_seq"))]


@functools.cache
def _codecs() -> Mapping[int, Codec]:
    """Return the codecs by their numbers in a message."""
    return {pb.CODEC_NONE: Codec.NONE, pb.CODEC_ZSTD: Codec.ZSTD}


def encode_metadata(summary: SegmentSummary, topic: str, software: str) -> bytes:
    return pb.SegmentMetadata(
        version=VERSION,
        topic=topic,
        topic_id=summary.topic_id,
        first_seq=summary.first_seq,
        last_seq=summary.last_seq,
        min_ts_ms=summary.min_ts_ms,
        max_ts_ms=summary.max_ts_ms,
        codec=pb.CODEC_ZSTD if summary.codec is Codec.ZSTD else pb.CODEC_NONE,
        block_size=summary.block_size,
        chunks=[
            pb.Chunk(
                offset=chunk.offset,
                stored_length=chunk.stored_length,
                raw_length=chunk.raw_length,
                first_seq=chunk.first_seq,
                min_ts_ms=chunk.min_ts_ms,
                max_ts_ms=chunk.max_ts_ms,
                xxh3=chunk.xxh3,
            )
            for chunk in summary.chunks
        ],
        live=summary.live,
        tags=[pb.TagEntries(tag=tag, bitmap=bitmap) for tag, bitmap in (summary.tags or {}).items()],
        tags_complete=summary.tags is not None,
        data_hash=summary.data_hash,
        software=software,
    ).SerializeToString(deterministic=True)


def decode_metadata(body: bytes, data_length: int, key: str, offset: int) -> SegmentIndex:
    """Decode the metadata of a data object of `data_length` bytes. `key` and `offset` are its place, for the error.

    Raises `InvalidIndex`, and `FormatUnsupported` for another version or codec.
    """
    try:
        message = pb.SegmentMetadata.FromString(body)
    except protobuf.DecodeError as error:
        raise InvalidIndex(key, offset, f"its SegmentMetadata does not decode: {error}") from error
    if message.version != VERSION:
        raise FormatUnsupported(key, f"segment metadata of version {message.version}")
    if message.codec not in _codecs():
        raise FormatUnsupported(key, f"codec number {message.codec}")
    if not 0 < message.first_seq <= message.last_seq or len(message.data_hash) != 32:
        raise InvalidIndex(key, offset, f"its SegmentMetadata is of seqs {message.first_seq} to {message.last_seq}")
    chunks = _chunks(message)
    fault = _fault_in(chunks, message, data_length)
    if fault:
        raise InvalidIndex(key, offset, f"its chunk table: {fault}")
    return SegmentIndex(
        topic=message.topic,
        topic_id=message.topic_id,
        first_seq=message.first_seq,
        last_seq=message.last_seq,
        min_ts_ms=message.min_ts_ms,
        max_ts_ms=message.max_ts_ms,
        codec=_codecs()[message.codec],
        block_size=message.block_size,
        data_length=data_length,
        data_hash=message.data_hash,
        chunks=chunks,
        live=message.live,
        tags={item.tag: item.bitmap for item in message.tags} if message.tags_complete else None,
        software=message.software,
    )


def decode_bitmap(body: bytes, index: SegmentIndex, key: str) -> pyroaring.BitMap:
    """Return the entry ids in a bitmap of the data object. Raises `InvalidIndex` if `body` is no such bitmap."""
    try:
        bitmap = pyroaring.BitMap.deserialize(body)
    except (ValueError, IndexError) as error:
        raise InvalidIndex(key, 0, f"a bitmap in it does not decode: {error}") from error
    if bitmap and bitmap.max() >= index.count:
        raise InvalidIndex(key, 0, f"a bitmap in it names entry {bitmap.max()} of {index.count}")
    return bitmap


def index_entries(chunks: Sequence[ChunkRef], codec: Codec, block_size: int) -> tuple[BlockRef, ...]:
    """Return the PIP-17 index entries of a data object with these chunks."""
    entries: list[BlockRef] = []
    for chunk in chunks:
        block, inside = divmod(chunk.offset, block_size)
        if codec is Codec.NONE or inside == BLOCK_HEADER_LENGTH:
            entry_id = chunk.first_seq - chunks[0].first_seq
            entries.append(BlockRef(entry_id, block + 1, chunk.offset - BLOCK_HEADER_LENGTH))
    return tuple(entries)


def _chunks(message: pb.SegmentMetadata) -> tuple[ChunkRef, ...]:
    last_seqs = [chunk.first_seq - 1 for chunk in message.chunks[1:]] + [message.last_seq]
    return tuple(
        ChunkRef(
            offset=chunk.offset,
            stored_length=chunk.stored_length,
            raw_length=chunk.raw_length,
            first_seq=chunk.first_seq,
            last_seq=last_seq,
            min_ts_ms=chunk.min_ts_ms,
            max_ts_ms=chunk.max_ts_ms,
            xxh3=chunk.xxh3,
        )
        for chunk, last_seq in zip(message.chunks, last_seqs, strict=False)
    )


def _fault_in(chunks: Sequence[ChunkRef], message: pb.SegmentMetadata, data_length: int) -> str | None:
    """Return the fault of a chunk table in words, or None for a sound one."""
    if not chunks or chunks[0].first_seq != message.first_seq:
        return f"it does not begin with seq {message.first_seq}"
    if not BLOCK_HEADER_LENGTH < message.block_size <= _MAX_BLOCK_SIZE:
        return f"blocks of {message.block_size} bytes"
    codec = _codecs()[message.codec]
    longest = raw_capacity(message.block_size, codec)
    free_from = BLOCK_HEADER_LENGTH
    for number, chunk in enumerate(chunks):
        end = chunk.offset + chunk.stored_length
        block, inside = divmod(chunk.offset, message.block_size)
        if chunk.last_seq < chunk.first_seq or chunk.min_ts_ms > chunk.max_ts_ms:
            return f"chunk {number} has an empty range"
        if chunk.offset < free_from or end > data_length or chunk.stored_length == 0:
            return f"chunk {number} overlaps another or the end"
        if inside < BLOCK_HEADER_LENGTH or (end - 1) // message.block_size != block:
            return f"chunk {number} does not lie inside a block"
        if not chunk.count * _MIN_ENTRY_BYTES <= chunk.raw_length <= longest:
            return f"chunk {number} cannot hold {chunk.count} entries in {chunk.raw_length} bytes"
        if codec is Codec.NONE and chunk.raw_length != chunk.stored_length:
            return f"chunk {number} has two lengths"
        free_from = end
    return None
