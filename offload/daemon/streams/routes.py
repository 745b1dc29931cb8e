"""The routes of streams, with the headers of their answers.

PUT     /streams/{path}   make a stream, or a fork of one
POST    /streams/{path}   append to it, close it
GET     /streams/{path}   read it: offset, live=long-poll, live=sse, cursor
HEAD    /streams/{path}   what it is
DELETE  /streams/{path}   delete it
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from offload.daemon.asgi import PREFIX_KEY
from offload.daemon.problems import answer_of
from offload.daemon.request_places import become_follower
from offload.daemon.service import Service
from offload.daemon.streams.appends import append
from offload.daemon.streams.errors import StreamRefused, offset_gone
from offload.daemon.streams.live import Live
from offload.daemon.streams.messages import control_event, data_event, is_binary, joined
from offload.daemon.streams.reads import Piece, is_news, next_piece, read_piece
from offload.daemon.streams.requests import (
    NOW,
    ROOT,
    Read,
    Wait,
    append_of,
    create_of,
    cursor,
    location,
    path_of,
    read_of,
    topic_name,
)
from offload.daemon.streams.store import Streams
from offload.daemon.waits import CLIENT_GONE, unless_gone
from offload.token_rights import Role, rights_of
from seglog import SeglogError

_LONG_POLL_S = 20.0
_EVENTS_S = 60.0
_COMMENT_S = 15.0
_COMMENT = b": \n\n"
#: The headers of each answer: browsers neither guess the type nor let other sites embed it without asking.
_ALWAYS: Final[Mapping[str, str]] = MappingProxyType(
    {"x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-site"}
)
_SEALED = "private, max-age=60, stale-while-revalidate=300"


def stream_endpoint(service: Service) -> Callable[[Request], Awaitable[Response]]:
    return _Routes(service).answer


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._streams = Streams(service)
        service.repeat("streams", self._streams.sweep)
        self._takes = {
            "PUT": self._put,
            "POST": self._post,
            "GET": self._get,
            "HEAD": self._head,
            "DELETE": self._delete,
        }

    async def answer(self, request: Request) -> Response:
        role = request.scope["route"].roles[request.method]
        try:
            path = _path(request)
            rights_of(request.scope).check(role, topic_name(path))
            return await self._takes[request.method](request, path)
        except SeglogError as error:
            return _error_response(error)

    async def _put(self, request: Request, path: str) -> Response:
        parsed, body = create_of(request.headers), await request.body()
        if parsed.fork is not None:
            rights_of(request.scope).check(Role.READ, topic_name(parsed.fork.source))
        is_new, live = await self._streams.create(path, parsed, body)
        headers = {**_described(live), **_ALWAYS}
        if is_new:
            headers["location"] = _url(request, path)
        return Response(status_code=201 if is_new else 200, headers=headers)

    async def _post(self, request: Request, path: str) -> Response:
        parsed, body = append_of(request.headers), await request.body()
        live = await self._streams.find(path)
        status, headers = await append(self._service, live, parsed, body)
        return Response(status_code=status, headers={**headers, **_ALWAYS})

    async def _head(self, _request: Request, path: str) -> Response:
        live = await self._streams.find(path, uses=False)
        async with live.turns.shared():  # beside a closure, its end would count as a record of data
            headers = _described(live)
        return Response(headers={**headers, **_ALWAYS, "cache-control": "no-store"})

    async def _delete(self, _request: Request, path: str) -> Response:
        await self._streams.delete(path)
        return Response(status_code=204, headers=dict(_ALWAYS))

    async def _get(self, request: Request, path: str) -> Response:
        parsed = read_of(request.query_params.multi_items(), request.headers)
        live = await self._streams.find(path)
        after = live.place(parsed.offset)
        if parsed.live is not None:
            become_follower(request.scope)
        if parsed.live is Wait.SSE:
            return self._events(live, parsed, after)
        if parsed.live is Wait.LONG_POLL:
            answer = await unless_gone(request, lambda: self._long_poll(live, parsed, after))
            return answer or Response(status_code=CLIENT_GONE)
        is_now = parsed.offset == NOW
        piece = Piece((), after, is_tail=True, is_closed=live.mark.is_closed) if is_now else None
        piece = piece or await read_piece(self._service, live, after)
        return _piece_response(
            live, piece, _piece_headers(live, after, piece, cursor=None, is_now=is_now), parsed.etags
        )

    async def _long_poll(self, live: Live, parsed: Read, after: int) -> Response:
        epoch = live.topic.epoch
        piece = await next_piece(self._service, live, after, epoch)
        if piece and not piece.values and not piece.is_closed:
            is_there = await is_news(self._service, live, piece.last, _LONG_POLL_S)
            piece = await next_piece(self._service, live, after, epoch) if is_there else piece
        if live.is_gone:
            live = await self._streams.find(live.entry.path)
        if piece is None or live.is_cut(epoch, after):
            raise offset_gone(parsed.offset)
        headers = _piece_headers(live, after, piece, cursor=self._cursor(parsed), is_now=not piece.values)
        if piece.values:
            return _piece_response(live, piece, headers, parsed.etags)
        del headers["content-type"]
        return Response(status_code=204, headers={**headers, **_ALWAYS})

    def _events(self, live: Live, parsed: Read, after: int) -> Response:
        headers = {"cache-control": "no-cache", **_ALWAYS}
        if is_binary(live.entry.content_type):
            headers["stream-sse-data-encoding"] = "base64"
        headers["content-type"] = "text/event-stream"
        return StreamingResponse(self._event_texts(live, parsed, after), headers=headers)

    async def _event_texts(self, live: Live, parsed: Read, after: int) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end, is_first, epoch = loop.time() + _EVENTS_S, True, live.topic.epoch
        while not self._service.stopping.is_set():
            piece = await next_piece(self._service, live, after, epoch)
            if piece is None:
                return
            if piece.values or piece.is_closed or is_first:
                data = data_event(live.entry.content_type, piece.values) if piece.values else b""
                yield data + self._control(live, parsed, piece)  # together: no client sees data without its offset
            if piece.is_closed:
                return
            after, is_first = piece.last, False
            while piece.is_tail:
                left_s = end - loop.time()
                if left_s <= 0:
                    return
                if await is_news(self._service, live, after, min(left_s, _COMMENT_S)):
                    break
                if live.is_gone or self._service.stopping.is_set():
                    return
                yield _COMMENT

    def _control(self, live: Live, parsed: Read, piece: Piece) -> bytes:
        fields: dict[str, str | bool] = {"streamNextOffset": live.offset(piece.last)}
        if piece.is_closed:
            fields["streamClosed"] = True
        else:
            fields["streamCursor"] = self._cursor(parsed)
        if piece.is_tail:
            fields["upToDate"] = True
        return control_event(fields)

    def _cursor(self, parsed: Read) -> str:
        return cursor(self._service.now_ms(), parsed.cursor, random.random())


def _path(request: Request) -> str:
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return path_of(raw.partition(b"?")[0].removeprefix(ROOT.encode()))


def _url(request: Request, path: str) -> str:
    """Return the URL of a stream, as the client names the daemon."""
    return f"{request.url.scheme}://{request.url.netloc}{request.scope.get(PREFIX_KEY, '')}{location(path)}"


def _described(live: Live) -> dict[str, str]:
    """Return the headers of a stream, for HEAD and PUT."""
    entry = live.entry
    headers = {"content-type": entry.content_type, "stream-next-offset": live.tail_offset}
    if entry.ttl_s is not None:
        headers["stream-ttl"] = str(entry.ttl_s)
    if entry.expires_at is not None:
        headers["stream-expires-at"] = entry.expires_at
    if live.mark.is_closed:
        headers["stream-closed"] = "true"
    return headers


def _etag(live: Live, after: int, piece: Piece) -> str:
    """Return the strong tag of a piece: its place, a hash of its values, and whether a closed stream ends there.

    A delete of records changes the values of a place, so the place alone is no tag.
    """
    end = ":c" if piece.is_closed else ""
    digest = blake2b(digest_size=8)
    for value in piece.values:
        digest.update(len(value).to_bytes(8, "little"))
        digest.update(value)
    return f'"{live.topic.inner.topic_id:x}:{after}:{piece.last}:{digest.hexdigest()}{end}"'


def _piece_headers(live: Live, after: int, piece: Piece, *, cursor: str | None, is_now: bool) -> dict[str, str]:
    headers = {"content-type": live.entry.content_type, "stream-next-offset": live.offset(piece.last)}
    if piece.is_tail:
        headers["stream-up-to-date"] = "true"
    if piece.is_closed:
        headers["stream-closed"] = "true"
    if cursor is not None and not piece.is_closed:
        headers["stream-cursor"] = cursor
    if is_now:
        return headers | {"cache-control": "no-store"}
    is_sealed = bool(piece.values) and piece.last <= live.topic.inner.sealed_seq and not piece.is_tail
    return headers | {"etag": _etag(live, after, piece), "cache-control": _SEALED if is_sealed else "private, no-cache"}


def _piece_response(live: Live, piece: Piece, headers: Mapping[str, str], etags: frozenset[str]) -> Response:
    """Return the answer of a read, or 304 if the client has it already."""
    if "etag" in headers and (headers["etag"] in etags or "*" in etags):
        return Response(status_code=304, headers={**_without_type(headers), **_ALWAYS})
    return Response(joined(live.entry.content_type, piece.values), headers={**headers, **_ALWAYS})


def _error_response(error: Exception) -> Response:
    response = answer_of(error)
    headers = error.headers if isinstance(error, StreamRefused) else {}
    for name, text in {**headers, **_ALWAYS, "cache-control": "no-store"}.items():
        response.headers[name] = text
    return response


def _without_type(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name != "content-type"}
