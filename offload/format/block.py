"""Blocks. A data object consists of blocks, one multipart part each. Big-endian.

    offset  size  field
    0       4     magic            0xFBDBABCB codec none (PIP-17), 0xFB534C5A codec zstd
    4       8     header length    128
    12      8     block length     whole block, header and padding included
    20      8     first entry id
    28      100   zeros
    128           payload: chunks, one after the other
    ...           FE DC DE AD repeated, cut where the block ends

BLOCK-1  Every block but the last has exactly the block size. The last block ends with its payload, without padding.
BLOCK-2  Codec none: a chunk's bytes are its entries. So the payload is entries back to back, as Apache Pulsar reads
    them.
BLOCK-3  Codec zstd: a chunk's bytes are one zstd frame (content size present) of its entries.
    The magic word differs, so a reader of PIP-17 refuses the object instead of misreading it.
BLOCK-4  A chunk never spans blocks. Codec none: if an entry does not fit this block, it goes to the next block.
    Codec zstd: if the frame of a chunk does not fit this block, the chunk goes to the next block.
BLOCK-5  Behind the last chunk of a block comes 0xFE (padding), 0xFB (the next block) or the end of the object.
    No entry begins with one of these bytes, because its length would be negative. No zstd frame does, either. So a scan
    needs no index.

Other modules decide which records make a chunk, and how blocks are sent.
Source: PIP-17, "Payload format", with the constants of Apache Pulsar's code. This module does no I/O.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

from catalog.format.commit import Codec
from offload.errors import ObjectDamaged
from offload.format.entry import ENTRY
from seglog.base.dataclasses import dataclass

HEADER = struct.Struct(">IQQQ")
BLOCK_HEADER_LENGTH = 128
BLOCK_MAGIC: Mapping[Codec, int] = {Codec.NONE: 0xFBDBABCB, Codec.ZSTD: 0xFB534C5A}
PADDING = bytes.fromhex("FEDCDEAD")

_CODEC_OF = {magic: codec for codec, magic in BLOCK_MAGIC.items()}
_ZEROS = bytes(BLOCK_HEADER_LENGTH - HEADER.size)


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A run of whole entries inside a block, for one ranged GET. `offset` is in the data object."""

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
        """The number of entries in the chunk."""
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class BlockRef:
    """An index entry. A reader of PIP-17 seeks to `offset` + 128 of the data object. `part` counts from 1."""

    first_entry_id: int
    part: int
    offset: int


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The header of a block. `length` is in bytes, header and padding included."""

    codec: Codec
    length: int
    first_entry_id: int


def raw_capacity(block_size: int, codec: Codec) -> int:
    """Return how many bytes of entries an empty block surely takes, however badly they compress."""
    payload = block_size - BLOCK_HEADER_LENGTH
    if codec is Codec.NONE:
        return payload
    return (payload - 64) * 256 // 257  # zstd's own bound: its output is longer by a 256th and 64 bytes


def largest_entry(block_size: int, codec: Codec) -> int:
    """Return the greatest length of entry data (a frame_len) that fits a block of `block_size`."""
    return raw_capacity(block_size, codec) - ENTRY.size


class BlockBuilder:
    """Builds one block after the other, each in place.

    The first use of fresh memory costs the kernel more than the copy into it. So `spare` has full blocks that are no
    longer needed, and the builder writes over them. Without a spare block, a new one grows with its content.
    """

    def __init__(self, codec: Codec, block_size: int, spare: deque[bytearray] | None = None) -> None:
        self._codec = codec
        self._block_size = block_size
        self._spare = deque[bytearray]() if spare is None else spare
        self._buffer: bytearray | None = None  # taken at the first write
        self._used = BLOCK_HEADER_LENGTH

    @property
    def used(self) -> int:
        """The number of bytes in the open block, header included."""
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
        """Return the block, padded unless it is the last one. The next `add` begins another."""
        length = self._used if last else self._block_size
        free = length - self._used
        self.add((PADDING * (-(-free // len(PADDING))))[:free])
        block = self._begun()
        del block[length:]
        HEADER.pack_into(block, 0, BLOCK_MAGIC[self._codec], BLOCK_HEADER_LENGTH, length, first_entry_id)
        self._buffer, self._used = None, BLOCK_HEADER_LENGTH
        return block

    def _begun(self) -> bytearray:
        """Return the open block. If there is none, begin one."""
        if self._buffer is None:
            self._buffer = self._spare.pop() if self._spare else bytearray(BLOCK_HEADER_LENGTH)
            self._buffer[HEADER.size : BLOCK_HEADER_LENGTH] = _ZEROS
        return self._buffer


def decode_block_header(header: bytes, key: str, offset: int) -> BlockHeader:
    """Decode the first 128 bytes of a block at `offset` of the data object `key`. Raises `ObjectDamaged`."""
    if len(header) < BLOCK_HEADER_LENGTH:
        raise ObjectDamaged(key, offset, f"a block header has {BLOCK_HEADER_LENGTH} bytes, here are {len(header)}")
    magic, header_length, length, first_entry_id = HEADER.unpack_from(header)
    if magic not in _CODEC_OF:
        raise ObjectDamaged(key, offset, f"0x{magic:08X} is not the magic of a block")
    if header_length != BLOCK_HEADER_LENGTH or length < BLOCK_HEADER_LENGTH:
        raise ObjectDamaged(key, offset, f"impossible lengths: header {header_length}, block {length}")
    if header[HEADER.size : BLOCK_HEADER_LENGTH] != _ZEROS:
        raise ObjectDamaged(key, offset, "the header's reserved bytes are not zero")
    return BlockHeader(_CODEC_OF[magic], length, first_entry_id)


def adjacent(chunks: Iterable[ChunkRef], max_bytes: int) -> Iterator[list[ChunkRef]]:
    """Yield runs of chunks that lie back to back, for one ranged GET each: at most `max_bytes`, or one chunk."""
    run: list[ChunkRef] = []
    for chunk in chunks:
        end = chunk.offset + chunk.stored_length
        if run and (chunk.offset != run[-1].offset + run[-1].stored_length or end - run[0].offset > max_bytes):
            yield run
            run = []
        run.append(chunk)
    if run:
        yield run
