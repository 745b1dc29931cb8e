"""The body of an append as its bytes come: decoded, and bounded in size.

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
from collections.abc import AsyncIterator, Iterator, MutableMapping
from typing import Any, Protocol

from starlette.requests import Request
from zstandard import ZstdDecompressor, ZstdError

from offload.daemon.asgi import headers_of
from offload.daemon.pacing import too_large
from offload.daemon.request_places import Place
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.errors import BodyBroken, OffloadError, Refused
from seglog.base.errors import Misuse

_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024
# A block of zstd takes 4 bytes at least, and makes 128 KiB at most. The decoder has no bound of its own for a step.
_ZSTD_STEP_BYTES = 256
_GZIP_OUT_BYTES = 1024 * 1024
_GZIP_BITS = 16 + zlib.MAX_WBITS


class InvalidEncoding(Misuse, OffloadError):
    """A body is not of its Content-Encoding, is cut off, or has other bytes behind its end."""

    encoding: str
    reason: str
    message = "the body is not valid {encoding}: {reason}"
    hint = "send the whole output of the encoder, with a window of at most 8 MiB, and nothing else"


class RequestBody:
    """The body of one request. Nothing of it comes before `pieces` or `whole` asks for it.

    A body with a `Content-Encoding` has at most `max_body_bytes` once it is decoded. Without one, only a body that is
    taken as a whole has that bound. `most_records` is the bound of its records, None without one.
    """

    def __init__(self, service: Service, request: Request, *, is_whole: bool) -> None:
        """Raises `Refused` with 413 for a declared length that is too large, and with 415 for an unknown encoding."""
        self._service = service
        self._request = request
        self._settings = service.settings
        self.place = Place.of(request.scope, service.settings)
        headers = headers_of(request.scope)
        self._decoder = decoder_of(headers.get(b"content-encoding", b"").decode("latin-1"))
        self.is_encoded = self._decoder is not None
        self._is_bounded = is_whole or self.is_encoded
        self.most_records = self._settings.max_body_records if self._is_bounded else None
        self._came_bytes = self._out_bytes = 0
        self._first: MutableMapping[str, Any] | None = None
        self.is_ended = False
        length = headers.get(b"content-length", b"")
        #: The size of the body as it comes; None if the client does not say it before.
        self.declared_bytes = int(length) if length.isdigit() else None
        if is_whole and (self.declared_bytes or 0) > self._settings.max_body_bytes:
            raise self._counted(too_large(self._settings))
        self.place.by_parts()

    async def at_once(self, most_bytes: int) -> bytes | None:
        """Return the whole body if it comes as one message of so many bytes, else None. Raises what `pieces` does.

        After None, `pieces` yields the body from its begin.
        """
        if self._decoder is not None:
            return None
        message = await self._request.receive()
        data: bytes = message.get("body", b"")
        if message["type"] == "http.disconnect" or message.get("more_body", False) or len(data) > most_bytes:
            self._first = message
            return None
        self.is_ended = True
        return self._bounded(data)

    async def whole(self) -> bytes:
        """Return the whole body. Raises the errors of `pieces`."""
        pieces = [piece async for piece in self.pieces()]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the decoded bytes as they come. `is_ended` is True once no bytes follow.

        Raises `BodyBroken` if the client ends first, `InvalidEncoding`, `Refused` with 413 or 408, and `Busy`.
        """
        while not self.is_ended:
            message, self._first = self._first or await self._request.receive(), None
            data: bytes = message.get("body", b"")
            self._came_bytes += len(data)
            if message["type"] == "http.disconnect":
                raise BodyBroken(self._came_bytes)
            is_last = not message.get("more_body", False)
            if self._decoder is None:
                self.is_ended = is_last
                yield self._bounded(data)
                continue
            # A thread decodes, because a few bytes may become many.
            steps = self._decoder.feed(data)
            while (piece := await in_threads(self._service.local, next, steps, None)) is not None:
                await self.place.came(len(piece), is_whole=False)
                yield self._bounded(piece)
            self.place.let_go(len(data))
            self.is_ended = is_last
        if self._decoder is not None:
            self._decoder.end()

    def _bounded(self, piece: bytes) -> bytes:
        self._out_bytes += len(piece)
        if self._is_bounded and self._out_bytes > self._settings.max_body_bytes:
            if self._decoder is None:
                raise self._counted(too_large(self._settings))
            told = f"a body decodes to at most {self._settings.max_body_bytes} bytes"
            hint = "send less at once, or raise serve.max_body_bytes"
            raise self._counted(Refused(413, "too_large", told, hint=hint))
        return piece

    def _counted(self, refusal: Refused) -> Refused:
        self._service.metrics.count_rejected(refusal.reason)
        return refusal


class _ContentDecoder(Protocol):
    """The decoder of one body."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bytes that `data` decodes to, piece by piece. Raise `InvalidEncoding`."""

    def end(self) -> None:
        """Raise `InvalidEncoding` if the body may not end here."""


def decoder_of(encoding: str) -> _ContentDecoder | None:
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
