"""The routes of a proxy: the objects of the remote, and their keys (offload.daemon.proxy). `serve.proxy` turns them on.

OBJECTS-1  A key is read from the path as it came, because no key needs a percent sign. One that has it is absent.
OBJECTS-2  An object that fails after its first piece breaks off, so that no client takes a part for the whole.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from catalog.errors import AccessDenied, InvalidObject, NoSuchObject, StoreUnreachable
from catalog.format.keys import Key, is_fixed
from catalog.objects.http import ERROR_HEADER, OBJECT_HEADER, PAGE_KEYS
from catalog.objects.object_store import ObjectInfo
from offload.daemon.http import operations as api
from offload.daemon.http.answers import BrokenOff, Streamed
from offload.daemon.http.parameters import query_of, whole
from offload.daemon.problems import answer_of
from offload.daemon.proxy import CACHED, FETCHED, PIECE_BYTES, SHARED, Awaited, ProxyObjects
from offload.daemon.revocation import keep_open
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.daemon.waits import CLIENT_GONE, unless_gone
from offload.errors import InvalidOption, Refused
from offload.token_rights import Role, rights_of

_log = logging.getLogger("seglog.daemon")
T = TypeVar("T")
_Read: TypeAlias = Callable[[int, int], tuple[bytes, str] | Awaited[tuple[bytes, str]]]
_PASSED = "passed"
_TYPE = "application/octet-stream"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_START_AFTER = re.compile(r"[!-~]{0,1024}")
_KEY = {
    "name": "key", "in": "path", "required": True, "description": "The key of the object, below the prefix.",
    "schema": {"type": "string"}, "example": "refs/orders/main",
}  # fmt: skip
OBJECT = api.Operation(
    "GET", "/objects/{key:path}", "readObject", Role.READ, "objects", "An object of the remote, or a range of it.",
    {200: ("The object.", {_TYPE: {"schema": api.BYTES}}), 206: ("The range.", {_TYPE: {"schema": api.BYTES}})},
    errors=(404, 416),
    parameters=(_KEY, api.in_header("Range", "string", "One range of bytes, as bytes=0-99.")),
    headers={"etag": "The store's tag, if no cache answers.", OBJECT_HEADER: "Of HEAD: metadata and checksum."},
)  # fmt: skip
OBJECTS = api.Operation(
    "GET", "/objects", "listObjects", Role.READ, "objects", "The keys of objects that the token may read, ascending.",
    {200: ("The keys. `more`: there may be others after them.",
           api.json_answer("objects", {"keys": ["refs/orders/main"], "more": False}))},
    parameters=(
        api.in_query("prefix", "string", "Only keys that begin with it."),
        api.in_query("start_after", "string", "Only keys after this one."),
        api.in_query("limit", "integer", "At most so many keys.", minimum=1, maximum=PAGE_KEYS, default=PAGE_KEYS),
    ),
    schemas={"objects": api.object_of(keys={"type": "array", "items": api.TEXT}, more=bool)},
)  # fmt: skip


def object_routes(service: Service) -> list[api.RoledRoute]:
    objects = _Objects(service)
    return [OBJECTS.route(objects.keys), OBJECT.route(objects.object)]


def check_proxy(service: Service) -> ProxyObjects:
    """Return the objects. Raises `Refused` (404) if the daemon is no proxy."""
    if service.objects is None or not service.settings.proxy:
        hint = "set serve.proxy, and give the directory a remote; or ask another daemon"
        raise Refused(404, "route", "this daemon is no proxy", hint=hint)
    return service.objects


def of_store(error: AccessDenied | StoreUnreachable) -> StoreUnreachable:
    """Return the error for a reader, which has neither the URL of the store nor the role of the proxy. Log the rest."""
    _log.warning("the store of the proxy fails: %s", error)
    return StoreUnreachable("the store of the proxy", type(error).__name__, "the log of the proxy says why")


def absent(error: NoSuchObject) -> Response:
    """Return the answer from which a reader knows that the proxy, and no other server, has nothing there."""
    answer = answer_of(error)
    answer.headers[ERROR_HEADER] = NoSuchObject.__name__
    return answer


class _Objects:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def keys(self, request: Request) -> Response:
        query = query_of(request, api.names_of(OBJECTS.parameters))
        limit, start_after = whole(query, "limit"), query.get("start_after", "")
        if limit is not None and not 1 <= limit <= PAGE_KEYS:
            raise InvalidOption("limit", f"{limit} is not from 1 to {PAGE_KEYS}")
        if not _START_AFTER.fullmatch(start_after):
            raise InvalidOption("start_after", "is no text that a key may be compared with")
        objects, limit = check_proxy(self._service), limit or PAGE_KEYS
        rights, prefix = rights_of(request.scope), query.get("prefix", "")
        pages, keys, pool = objects.keys(rights, prefix, start_after, limit), list[str](), self._service.cold_reads

        async def gather() -> bool:
            try:
                while len(keys) < limit and (page := await in_threads(pool, next, pages, None)) is not None:
                    keys.extend(page)
            except (AccessDenied, StoreUnreachable) as error:
                raise of_store(error) from error
            return True

        keep_open(request.scope)
        if not await unless_gone(request, gather):
            return Response(status_code=CLIENT_GONE)
        self._service.metrics.proxied(_PASSED, 0)
        return JSONResponse({"keys": keys[:limit], "more": len(keys) >= limit})

    async def object(self, request: Request) -> Response:
        query_of(request)
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        text = raw.partition(b"?")[0].decode("latin-1").removeprefix("/objects/")
        objects = check_proxy(self._service)
        keep_open(request.scope)
        try:
            return await self._read(lambda: self._answer(objects, request, text))
        except NoSuchObject:
            return absent(NoSuchObject(text))  # PROXY-2: nothing tells an absent key from a foreign one
        except (AccessDenied, StoreUnreachable) as error:
            raise of_store(error) from error

    async def _read(self, work: Callable[[], T | Awaited[T]]) -> T:
        """Return the result of `work`. It holds no thread while it waits for what other readers fetch (PROXY-4)."""
        pool = self._service.cold_reads
        found: T | Awaited[T] = await in_threads(pool, work)
        if not isinstance(found, Awaited):
            return found
        await asyncio.wait([asyncio.wrap_future(flight) for flight in found.flights])
        return await in_threads(pool, found.finish)  # type: ignore[no-any-return]

    def _answer(self, objects: ProxyObjects, request: Request, text: str) -> Response | Awaited[Response]:
        """Return the answer, with its first piece if it has some, so that a range takes one turn of threads."""
        key = objects.checked(rights_of(request.scope), text)
        if request.method == "HEAD":
            return self._facts(objects.store.head(key))
        span = _RANGE.fullmatch(request.headers.get("range", ""))
        if not is_fixed(key):
            return self._passed(objects, key, span)
        size = objects.size_of(key)
        place = _place(span, size)
        start, end = place or (0, size)
        read = partial(objects.read, key, is_fresh="no-cache" in request.headers.get("cache-control", ""))
        headers = {"accept-ranges": "bytes", **({} if place is None else _range_of(start, end, size))}

        def begun(first: bytes, outcome: str) -> Response:
            status = 200 if place is None else 206
            if len(first) == end - start:
                self._service.metrics.proxied(outcome, len(first))
                return Response(first, status, headers, _TYPE)
            pieces = self._pieces(read, range(start, end), first, outcome)
            return Streamed(pieces, status, {**headers, "content-length": str(end - start)}, _TYPE)

        found = read(start, min(end, start + PIECE_BYTES))
        return Awaited(found.flights, lambda: begun(*found.finish())) if isinstance(found, Awaited) else begun(*found)

    async def _pieces(self, read: _Read, span: range, first: bytes, outcome: str) -> AsyncGenerator[bytes]:
        """Yield the first piece, and read the others (OBJECTS-2)."""
        yield first
        outcomes = {outcome}
        for at in range(span.start + PIECE_BYTES, span.stop, PIECE_BYTES):
            try:
                body, outcome = await self._read(partial(read, at, min(span.stop, at + PIECE_BYTES)))
            except Exception as error:
                raise BrokenOff from error
            outcomes.add(outcome)
            yield body
        worst = next(each for each in (FETCHED, SHARED, CACHED) if each in outcomes)
        self._service.metrics.proxied(worst, len(span))

    def _facts(self, info: ObjectInfo) -> Response:
        self._service.metrics.proxied(_PASSED, 0)
        checksum = {} if info.checksum is None else {info.checksum.kind.value: str(info.checksum)}
        facts = json.dumps({"metadata": dict(info.metadata), "checksum": checksum})
        headers = {OBJECT_HEADER: facts, "content-length": str(info.size), "accept-ranges": "bytes"}
        return Response(headers=headers, media_type=_TYPE)

    def _passed(self, objects: ProxyObjects, key: Key, span: re.Match[str] | None) -> Response:
        """Return the answer of the store of now."""
        body, headers = b"", {}
        if span is not None and span[1] and span[2] and 0 <= int(span[2]) - int(span[1]) < PIECE_BYTES:
            with suppress(InvalidObject):  # it ends earlier
                body = objects.store.get_range(key, int(span[1]), int(span[2]) - int(span[1]) + 1)
                headers = {"content-range": f"bytes {span[1]}-{span[2]}/*"}
        if not headers:
            stored = objects.store.get_with_etag(key)
            place = _place(span, len(stored.body))
            body = stored.body if place is None else stored.body[slice(*place)]
            headers = {"etag": stored.etag} if place is None else _range_of(*place, len(stored.body))
        self._service.metrics.proxied(_PASSED, len(body))
        return Response(body, 206 if "content-range" in headers else 200, headers, _TYPE)


def _place(span: re.Match[str] | None, size: int) -> tuple[int, int] | None:
    """Return the first byte of a range, and the one after its last; None for the whole object (RFC 9110, 14.1.2).

    Raises `Refused` (416).
    """
    if span is None or span[0] == "bytes=-" or (span[1] and span[2] and int(span[2]) < int(span[1])):
        return None
    start = int(span[1]) if span[1] else max(0, size - int(span[2]))
    if start >= size:
        raise Refused(416, "range", f"the object has {size} bytes, and the range begins after them")
    return start, min(size, int(span[2]) + 1) if span[1] and span[2] else size


def _range_of(start: int, end: int, size: int) -> dict[str, str]:
    return {"content-range": f"bytes {start}-{end - 1}/{size}"}
