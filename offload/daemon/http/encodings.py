"""The content encodings of a request body, decoded as the bytes come (sans I/O).

    Content-Encoding    format
    zstd                frames of RFC 8878, with a window of 8 MiB at most (RFC 9659); skippable frames count as nothing
    gzip, x-gzip        members of RFC 1952
    identity            the bytes as they are

DECODE-1  A step makes at most 8 MiB of a few bytes. So a bomb is refused by the size of its output, before it takes
    memory.
DECODE-2  A body that ends within a frame or a member, or has other bytes behind the last one, is an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from zstandard import ZstdDecompressor, ZstdError

from offload.errors import InvalidEncoding, Refused

__all__ = ["ContentDecoder", "decoder_of"]

_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
# A block of zstd takes 4 bytes at least, and makes 128 KiB at most. The decoder has no bound of its own for a step.
_ZSTD_STEP_BYTES = 256
_GZIP_OUT_BYTES = 1024 * 1024
_GZIP_BITS = 16 + zlib.MAX_WBITS


class ContentDecoder(Protocol):
    """The decoder of one body."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes that `data` decodes to, piece by piece. Raise `InvalidEncoding`."""
        ...

    def end(self) -> None:
        """Raise `InvalidEncoding` if the body may not end here."""
        ...


def decoder_of(encoding: str) -> ContentDecoder | None:
    """Return a decoder for a `Content-Encoding`, or None if there is nothing to decode. Raises `Refused` with 415."""
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return None
    if name == "zstd":
        return _Zstd()
    if name in {"gzip", "x-gzip"}:
        return _Gzip()
    raise Refused(415, "encoding", f"{encoding[:100]!r} is no known Content-Encoding", hint="send zstd, gzip or none")


class _Zstd:
    def __init__(self) -> None:
        self._decompressor = ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._frame = self._decompressor.decompressobj()
        self._is_within = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_STEP_BYTES):
            step = data[start : start + _ZSTD_STEP_BYTES]
            while step:
                if not self._is_within:
                    self._frame, self._is_within = self._decompressor.decompressobj(), True
                try:
                    out = self._frame.decompress(step)
                except ZstdError as error:
                    raise InvalidEncoding("zstd", str(error)) from error
                step, self._is_within = self._frame.unused_data, not self._frame.eof
                if out:
                    yield out

    def end(self) -> None:
        if self._is_within:
            raise InvalidEncoding("zstd", "it ends within a frame")


class _Gzip:
    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_BITS)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member.eof:
                self._member = zlib.decompressobj(_GZIP_BITS)
            try:
                out = self._member.decompress(data, _GZIP_OUT_BYTES)
            except zlib.error as error:
                raise InvalidEncoding("gzip", str(error)) from error
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if out:
                yield out

    def end(self) -> None:
        if not self._member.eof:
            raise InvalidEncoding("gzip", "it ends within a member")
