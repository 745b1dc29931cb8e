"""Blocks: what a data object consists of, one multipart part each. Big-endian.

    offset  size  field
    0       4     magic            0xFBDBABCB codec none (PIP-17), 0xFB534C5A codec zstd
    4       8     header length    128
    12      8     block length     whole block, header and padding included
    20      8     first entry id
    28      100   zeros
    128           payload: chunks, one after the other
    ...           FE DC DE AD repeated, cut where the block ends

B1  Every block but the last is exactly of the block size. The last one ends with its payload: it has no padding.
B2  Codec none: a chunk's bytes are its entries, so the payload is entries back to back, as Apache Pulsar reads them.
B3  Codec zstd: a chunk's bytes are one zstd frame (content size and content checksum present) of its entries. The magic
    word differs, so a reader of PIP-17 refuses the object instead of misreading it.
B4  A chunk never spans blocks. Codec none: an entry goes to the next block only when it does not fit this one. Codec
    zstd: a chunk goes to the next block only when its frame does not fit this one.
B5  Behind the last chunk of a block comes 0xFE (padding), 0xFB (the next block) or the end of the object: as the first
    byte of an entry length that is negative, and as that of a zstd frame it is none. So a scan needs no index.

Which records make a chunk, and how blocks are sent, is not decided here.
Source: PIP-17, "Payload format", with the constants of Apache Pulsar's code. This module does no I/O.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from catalog.format.commit import Codec
from offload.errors import InvalidBlock
from offload.format.entry import ENTRY

__all__ = [
    "BLOCK_HEADER_LENGTH",
    "BLOCK_MAGIC",
    "HEADER",
    "PADDING",
    "BlockBuilder",
    "BlockHeader",
    "BlockRef",
    "ChunkRef",
    "adjacent",
    "decode_block_header",
    "encode_block",
    "largest_entry",
    "raw_capacity",
]

HEADER = struct.Struct(">IQQQ")
BLOCK_HEADER_LENGTH = 128
BLOCK_MAGIC: Mapping[Codec, int] = {Codec.NONE: 0xFBDBABCB, Codec.ZSTD: 0xFB534C5A}
PADDING = bytes.fromhex("FEDCDEAD")

_CODEC_OF = {magic: codec for codec, magic in BLOCK_MAGIC.items()}
_ZEROS = bytes(BLOCK_HEADER_LENGTH - HEADER.size)


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A run of whole entries inside a block: what one ranged GET fetches. `offset` is in the data object."""

    offset: int
    stored_length: int
    raw_length: int
    first_seq: int
    last_seq: int
    min_ts_ms: int
    max_ts_ms: int
    xxh3: int

    @property
    def count(self) -> int:
        """How many entries it holds."""
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class BlockRef:
    """Where a reader of PIP-17 finds an entry: it seeks to `offset` + 128 of the data object. `part` counts from 1."""

    first_entry_id: int
    part: int
    offset: int


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """`length` in bytes, header and padding included."""

    codec: Codec
    length: int
    first_entry_id: int


def raw_capacity(block_size: int, codec: Codec) -> int:
    """How many bytes of entries an empty block surely takes, however badly they compress."""
    payload = block_size - BLOCK_HEADER_LENGTH
    if codec is Codec.NONE:
        return payload
    return (payload - 64) * 256 // 257  # zstd's own bound: a 256th and 64 bytes more than went in


def largest_entry(block_size: int, codec: Codec) -> int:
    """The greatest length of entry data, which is a frame_len, that fits a block of `block_size`."""
    return raw_capacity(block_size, codec) - ENTRY.size


class BlockBuilder:
    """One block after the other, each made in place.

    Memory that was never used costs the kernel more than the copy into it. So `spare` has full blocks that nobody needs
    any more, which are written over; without any, a block takes as much as it has.
    """

    def __init__(self, codec: Codec, block_size: int, spare: deque[bytearray] | None = None) -> None:
        self._codec = codec
        self._block_size = block_size
        self._spare = deque[bytearray]() if spare is None else spare
        self._buffer: bytearray | None = None  # taken when there is something to write, not before
        self._used = BLOCK_HEADER_LENGTH

    @property
    def used(self) -> int:
        """With the header."""
        return self._used

    @property
    def is_empty(self) -> bool:
        return self._used == BLOCK_HEADER_LENGTH

    def add(self, chunk: bytes | memoryview) -> None:
        buffer = self._begun()
        end = self._used + len(chunk)
        if self._used == len(buffer):
            buffer += chunk
        else:
            memoryview(buffer)[self._used : end] = chunk
        self._used = end

    def end(self, first_entry_id: int, *, last: bool) -> bytearray:
        """The block, padded unless it is the last one; another begins."""
        length = self._used if last else self._block_size
        free = length - self._used
        self.add((PADDING * (-(-free // len(PADDING))))[:free])
        block = self._begun()
        del block[length:]
        HEADER.pack_into(block, 0, BLOCK_MAGIC[self._codec], BLOCK_HEADER_LENGTH, length, first_entry_id)
        self._buffer, self._used = None, BLOCK_HEADER_LENGTH
        return block

    def _begun(self) -> bytearray:
        """The block that is being made."""
        if self._buffer is None:
            self._buffer = self._spare.pop() if self._spare else bytearray(BLOCK_HEADER_LENGTH)
            self._buffer[HEADER.size : BLOCK_HEADER_LENGTH] = _ZEROS
        return self._buffer


def encode_block(codec: Codec, first_entry_id: int, chunks: list[bytes], block_size: int | None) -> bytearray:
    """A whole block, padded to `block_size`; None for the last one, which is as long as it is."""
    builder = BlockBuilder(codec, block_size or 0)
    for chunk in chunks:
        builder.add(chunk)
    return builder.end(first_entry_id, last=block_size is None)


def decode_block_header(header: bytes, key: str, offset: int) -> BlockHeader:
    """From the first 128 bytes of a block at `offset` of the data object `key`. Raises `InvalidBlock`."""
    if len(header) < BLOCK_HEADER_LENGTH:
        raise InvalidBlock(key, offset, f"a block header has {BLOCK_HEADER_LENGTH} bytes, here are {len(header)}")
    magic, header_length, length, first_entry_id = HEADER.unpack_from(header)
    if magic not in _CODEC_OF:
        raise InvalidBlock(key, offset, f"0x{magic:08X} begins no block")
    if header_length != BLOCK_HEADER_LENGTH or length < BLOCK_HEADER_LENGTH:
        raise InvalidBlock(key, offset, f"impossible lengths: header {header_length}, block {length}")
    if header[HEADER.size : BLOCK_HEADER_LENGTH] != _ZEROS:
        raise InvalidBlock(key, offset, "the header's reserved bytes are not zero")
    return BlockHeader(_CODEC_OF[magic], length, first_entry_id)


def adjacent(chunks: Iterable[ChunkRef], max_bytes: int) -> Iterator[list[ChunkRef]]:
    """Runs of chunks that lie back to back, for one ranged GET each: at most `max_bytes`, or one chunk."""
    run: list[ChunkRef] = []
    for chunk in chunks:
        end = chunk.offset + chunk.stored_length
        if run and (chunk.offset != run[-1].offset + run[-1].stored_length or end - run[0].offset > max_bytes):
            yield run
            run = []
        run.append(chunk)
    if run:
        yield run
