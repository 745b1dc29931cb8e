"""The stored form of a chunk's bytes: unchanged, or as one zstd frame.

CODEC-1  The chunk table's XXH3-64 is over the stored bytes. The reader checks it before it decompresses anything,
    unless a user of Spark asked for `verify=none`.
CODEC-2  A zstd frame states its content size. The reader takes memory only if that size equals the chunk table's.
CODEC-3  The frame has no content checksum of zstd's own. It would cover what each record's XXH3 inside covers already,
    for a tenth of the time to decompress. Frames of older objects have one, and decoders check it.

This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable

import zstandard
from xxhash import xxh3_64_intdigest

from catalog.format.commit import Codec
from offload.errors import InvalidChunk
from offload.format.block import ChunkRef


def chunk_encoder(codec: Codec, zstd_level: int) -> Callable[[memoryview], bytes | memoryview]:
    """Return a function from raw to stored bytes. Threads must not share it."""
    if codec is Codec.NONE:
        return _as_it_is
    return zstandard.ZstdCompressor(level=zstd_level, write_checksum=False, write_content_size=True).compress


def decode_chunk(
    stored: bytes | memoryview, chunk: ChunkRef, codec: Codec, key: str, *, check: bool = True
) -> bytes | memoryview:
    """Return the chunk's entries. `stored` was read at its place in the data object `key`. Raises `InvalidChunk`.

    Without `check`, the XXH3 is not compared. The lengths are compared in any case.
    """
    if len(stored) != chunk.stored_length:
        raise InvalidChunk(key, chunk.offset, f"{len(stored)} bytes of {chunk.stored_length}")
    if check and xxh3_64_intdigest(stored) != chunk.xxh3:
        raise InvalidChunk(key, chunk.offset, "its checksum does not match")
    if codec is Codec.NONE:
        return stored
    try:
        if zstandard.frame_content_size(stored) != chunk.raw_length:
            raise InvalidChunk(key, chunk.offset, f"it does not decompress to {chunk.raw_length} bytes")
        return zstandard.ZstdDecompressor().decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidChunk(key, chunk.offset, str(error)) from error


def _as_it_is(raw: memoryview) -> memoryview:
    return raw
