"""The trailer of an index object: the entry lengths of each chunk. Big-endian, except for the lengths themselves.

    offset    size    field
    0         4       magic           0x53474C54 ("SGLT")
    4         4       version         1
    8         4       chunk count C
    12        12 * C  per chunk: stored length (4), XXH3-64 of the stored bytes (8)
    12+12C    8       XXH3-64 of all before: magic, version, count and directory
    20+12C    ...     per chunk, one after the other: a zstd frame (content size present) of its entries' lengths, in
                      order, u32 little-endian each

TRAILER-1  A scan that knows the lengths finds every record of a chunk at once, without walking the chunk.
    A point read needs no lengths, and never fetches the trailer.
TRAILER-2  The directory comes first, and each chunk's lengths stand alone.
    So a task that scans a part of a large object reads exactly the directory and its own part.
TRAILER-3  Equal lengths cost next to nothing: they compress to some 20 bytes a chunk.
TRAILER-4  The index object's head says how many lengths a chunk has. With 12 bytes more for each entry, the lengths add
    up to the chunk's raw length.

This module does no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import zstandard
from xxhash import xxh3_64_intdigest

from offload.errors import FormatUnsupported, InvalidIndex
from offload.format.block import ChunkRef
from offload.format.entry import ENTRY, MIN_DATA_LENGTH
from seglog.base.dataclasses import dataclass
from seglog.format.arrays import NDArray, np

MAGIC = 0x53474C54
VERSION = 1
HEADER = struct.Struct(">III")
_DIRECTORY = struct.Struct(">IQ")
_CHECKSUM = struct.Struct(">Q")
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class LengthsRef:
    """The place of a chunk's lengths. `offset` is from the trailer's first byte."""

    offset: int
    stored_length: int
    xxh3: int


def encode_trailer(entry_lengths: Sequence[NDArray[np.uint32]]) -> bytes:
    """Return the trailer. `entry_lengths` has an array for each chunk, in order."""
    compress = zstandard.ZstdCompressor(level=3).compress
    stored = [compress(lengths.astype("<u4").tobytes()) for lengths in entry_lengths]
    directory = b"".join(_DIRECTORY.pack(len(piece), xxh3_64_intdigest(piece)) for piece in stored)
    front = HEADER.pack(MAGIC, VERSION, len(stored)) + directory
    return b"".join([front, _CHECKSUM.pack(xxh3_64_intdigest(front)), *stored])


def directory_length(chunk_count: int) -> int:
    """Return how many bytes of a trailer come before the first chunk's lengths."""
    return HEADER.size + _DIRECTORY.size * chunk_count + _CHECKSUM.size


def decode_directory(front: bytes, chunk_count: int, key: str, at: int) -> tuple[LengthsRef, ...]:
    """Return the places of all lengths. `front` is the first `directory_length` bytes of a trailer, or more.

    The trailer begins at `at` of the index object `key`. Raises `InvalidIndex`. For another version, raises
    `FormatUnsupported`.
    """
    end = directory_length(chunk_count)
    if len(front) < end:
        raise InvalidIndex(key, at, f"its trailer begins with {end} bytes of directory, here are {len(front)}")
    magic, version, found_count = HEADER.unpack_from(front)
    if magic != MAGIC:
        raise InvalidIndex(key, at, f"0x{magic:08X} is not the magic of a trailer")
    if version != VERSION:
        raise FormatUnsupported(key, f"trailer version {version}")
    checked = end - _CHECKSUM.size
    if found_count != chunk_count:
        raise InvalidIndex(key, at, f"its trailer is of {found_count} chunks, not {chunk_count}")
    if _CHECKSUM.unpack_from(front, checked)[0] != xxh3_64_intdigest(front[:checked]):
        raise InvalidIndex(key, at, "its trailer's checksum does not match")
    refs: list[LengthsRef] = []
    offset = end
    for stored_length, xxh3 in _DIRECTORY.iter_unpack(front[HEADER.size : checked]):
        refs.append(LengthsRef(offset, stored_length, xxh3))
        offset += stored_length
    return tuple(refs)


def decode_lengths(stored: bytes, ref: LengthsRef, chunk: ChunkRef, key: str, at: int) -> NDArray[np.uint32]:
    """Return the entry lengths of `chunk`. `stored` lies at `ref` of the trailer at `at` of the index object `key`.

    Raises `InvalidIndex`.
    """
    offset = at + ref.offset
    if len(stored) != ref.stored_length:
        raise InvalidIndex(key, offset, f"{len(stored)} bytes of {ref.stored_length}")
    if xxh3_64_intdigest(stored) != ref.xxh3:
        raise InvalidIndex(key, offset, "the checksum of these entry lengths does not match")
    try:
        if zstandard.frame_content_size(stored) != chunk.count * _LENGTH_BYTES:
            raise InvalidIndex(key, offset, f"it does not hold {chunk.count} entry lengths")
        raw = zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidIndex(key, offset, str(error)) from error
    lengths: NDArray[np.uint32] = np.frombuffer(raw, dtype="<u4")
    if int(lengths.min()) < MIN_DATA_LENGTH or int(lengths.sum(dtype=np.uint64)) + ENTRY.size * chunk.count != (
        chunk.raw_length
    ):
        raise InvalidIndex(key, offset, f"the entry lengths do not make a chunk of {chunk.raw_length} bytes")
    return lengths


def decode_trailer(trailer: bytes, chunks: Sequence[ChunkRef], key: str, at: int) -> list[NDArray[np.uint32]]:
    """Return the entry lengths of every chunk, in order, from a whole trailer.

    Raises `InvalidIndex` and `FormatUnsupported`.
    """
    refs = decode_directory(trailer, len(chunks), key, at)
    end = refs[-1].offset + refs[-1].stored_length if refs else directory_length(0)
    if end != len(trailer):
        raise InvalidIndex(key, at, f"its trailer is {len(trailer)} bytes long, not {end}")
    return [
        decode_lengths(trailer[ref.offset : ref.offset + ref.stored_length], ref, chunk, key, at)
        for ref, chunk in zip(refs, chunks, strict=True)
    ]
