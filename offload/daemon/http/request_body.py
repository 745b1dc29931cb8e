"""The body of an append as its bytes come: decoded, and bounded in size."""

from __future__ import annotations

from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from starlette.requests import Request

from offload.daemon.asgi import headers_of
from offload.daemon.http.encodings import decoder_of
from offload.daemon.pacing import too_large
from offload.daemon.places import Place
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.errors import BodyBroken, Refused

__all__ = ["RequestBody"]


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
        self._is_bounded = is_whole or self._decoder is not None
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
