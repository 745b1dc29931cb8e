"""Answers that begin late, and answers of errors."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from offload.daemon.problems import answer_of, refuse
from offload.daemon.waits import CLIENT_GONE, unless_gone
from offload.errors import Refused
from seglog import SeglogError

_log = logging.getLogger("seglog.daemon")
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class BrokenOff(Exception):
    """A body cannot be completed. Its connection closes without the end of the answer, so the client notices."""


class ShortAnswer(Response):
    """A JSON object as an answer. It skips what `JSONResponse` does for cookies, backgrounds and other encodings."""

    def __init__(self, told: Mapping[str, Any], status: int) -> None:
        self.status_code, self.background, self.body = status, None, _JSON.encode(told).encode()
        self.raw_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(self.body))]

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body})


class Streamed(StreamingResponse):
    """An answer in pieces, whose body may break off."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except BrokenOff as broken:
            _log.error("an answer breaks off: %s", broken.__cause__)


async def answer_error(_request: Request, error: Exception) -> Response:
    return answer_of(error)


def app_of(routes: Sequence[Route], hint: str = "see GET /openapi.json") -> Starlette:
    """Return an ASGI application. `hint` is for a request that no route takes. A slash at the end is another path."""

    async def no_route(request: Request, error: Exception) -> Response:
        return await _answer_no_route(request, error, hint)

    handlers = {HTTPException: no_route, ClientDisconnect: _note_gone, Exception: answer_error, **OURS}
    app = Starlette(routes=routes, exception_handlers=handlers)

    async def no_socket(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # Starlette would answer 403, without a word
            await refuse(Refused(404, "route", f"GET {scope['path']}: Not Found", hint=hint), send)
            return
        await not_found(scope, receive, send)

    not_found, app.router.default = app.router.default, no_socket
    app.router.redirect_slashes = False  # a redirect names http:// also behind a proxy with TLS
    return app


async def _note_gone(_request: Request, _error: Exception) -> Response:
    """Return what only the metrics see: the client left before its request was read."""
    return Response(status_code=CLIENT_GONE)


async def _answer_no_route(request: Request, error: Exception, hint: str) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    told = f"{request.method} {request.url.path}: {error.detail}"
    answer = await answer_error(request, Refused(error.status_code, "route", told, hint=hint))
    if error.status_code == 405:
        answer.headers["allow"] = ", ".join(sorted(_methods_of(request)))
    return answer


def _methods_of(request: Request) -> set[str]:
    """Return the methods of the path. Several routes may have it, and Starlette names those of the first one."""
    routes = [each for each in request.app.routes if isinstance(each, Route)]
    fitting = [each for each in routes if each.matches(request.scope)[0] is not Match.NONE]
    return {method for each in fitting for method in each.methods or ()}


def _ours() -> dict[Any, Any]:
    return {SeglogError: answer_error}


OURS: Final = MappingProxyType(_ours())
"""The handler of each group of our errors."""


async def begun(
    request: Request,
    body: AsyncGenerator[bytes],
    media_type: str,
    headers: Callable[[], Mapping[str, str]] = dict,
    status: int = 200,
) -> Response:
    """Return the answer once `body` has yielded its first bytes. An error before them becomes the answer's status.

    `headers` is called after the first bytes.

    The first bytes may take long or never come, for example if a command follows a topic without new records. So the
    wait also ends when the client disconnects.
    """
    begun = await unless_gone(request, lambda: anext(body, b""))
    if begun is None:
        return Response(status_code=CLIENT_GONE)

    async def whole() -> AsyncIterator[bytes]:
        try:
            yield begun
            async for piece in body:
                yield piece
        finally:
            await body.aclose()

    return Streamed(whole(), status, media_type=media_type, headers=headers())
