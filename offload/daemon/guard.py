"""The guard checks each request before the API sees it: the client's rights, the number, the size and the pace.

    check                  answer            applies to requests over
    Host is on the list    421               TCP: a web page cannot choose its Host (DNS rebinding)
    Origin is on the list  403               TCP: browsers send one for a web page, which cannot change it
    bearer token           401               TCP, if there is a token file; /healthz needs no token
    role of the token      403               TCP, if there is a token file (offload.daemon.http.roles)
    requests under way     429, Retry-After  TCP and Unix; probes and metrics pass even above the limit
    followers              429, Retry-After  TCP and Unix; a route says that its request waits (`become_follower`)
    bytes of all bodies    429, Retry-After  TCP and Unix (offload.daemon.places)
    requests a second      429, Retry-After  TCP; probes and metrics pass (offload.daemon.quota)
    size of the body       413               TCP and Unix; by the declared length, and again by the bytes that arrive
    pace of the body       408               TCP and Unix; `body_timeout_s` without a byte of the body
    pace of the reader     closed            TCP and Unix; `body_timeout_s` without taking a byte of the answer
    end of the body        400               TCP and Unix; the body broke off, and the client may still read

The Unix socket is in the data directory, mode 0600. A client that may open it may read the files as well. The listener
tells the guard whether a request came over TCP. The guard never asks the connection: a TCP connection that was reset
has no peer address, so it looks like a Unix one.

GUARD-1  The API does no work for a request that the guard refuses. A slow client holds only its own connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

from offload.commands.registry import COMMANDS
from offload.daemon.clients import check_client
from offload.daemon.metrics import Metrics
from offload.daemon.origins import is_allowed, is_preflight, preflight_headers, with_origin
from offload.daemon.places import Place, Places
from offload.daemon.problems import error_answer
from offload.daemon.quota import Quota
from offload.errors import BodyBroken, Busy, OverRate, Refused
from offload.rights import EVERYTHING, RIGHTS_KEY, Tokens
from offload.settings import ServeSettings

__all__ = [
    "BROKEN",
    "EXCHANGE",
    "PREFIX_KEY",
    "PROBES",
    "STREAM_KEY",
    "Guard",
    "answer_preflight",
    "headers_of",
    "refuse",
    "too_large",
]

Scope: TypeAlias = MutableMapping[str, Any]
Headers: TypeAlias = Mapping[bytes, bytes]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

BROKEN = "seglog.broken"
"""The key in the scope of a request whose body broke off, while the client may still read an answer."""

EXCHANGE = "seglog.exchange"
"""The key of the exchange in a scope (offload.daemon.exchange), which says what needs no time limit."""

_HEADERS = "seglog.headers"

PREFIX_KEY = "seglog.prefix"
"""The key in a scope of what its client put before the path: `/tenants/acme`, or nothing."""

STREAM_KEY = "seglog.stream"
"""A true value in a scope says that the answer ends when the client likes, so its time says nothing."""

_log = logging.getLogger("seglog.daemon")
PROBES = ("/healthz", "/readyz", "/metrics")
"""The paths that need no place, and that answer until the daemon ends."""


class Guard:
    """Two ASGI applications, `over_tcp` and `over_unix`, in front of one.

    The guard calls `settings` and `tokens` at each request, so that a reload takes effect. The scope of a request that
    passes has the rights of the client.
    """

    def __init__(
        self,
        app: App,
        settings: Callable[[], ServeSettings],
        tokens: Callable[[], Tokens | None],
        metrics: Metrics,
        quota: Quota | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._tokens = tokens
        self._metrics = metrics
        self._quota = quota
        self._places = Places(metrics.rejected.labels("busy").inc)
        metrics.http_running.set_function(lambda: self._places.taken)
        metrics.http_followers.set_function(lambda: self._places.followers)

    async def over_tcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send, is_tcp=True)

    async def over_unix(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send, is_tcp=False)

    def before(self, app: App) -> App:
        """Return `app` behind the checks of TCP. The application itself bounds the requests at work."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await self._answer(scope, receive, send, is_tcp=True, app=app)

        return answer

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, *, is_tcp: bool, app: App | None = None
    ) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        settings, headers = self._settings(), headers_of(scope)
        if is_tcp and b"origin" in headers and is_allowed(headers, settings.allowed_origins):
            send = with_origin(send, headers)
        scope[RIGHTS_KEY] = EVERYTHING
        try:
            if is_tcp:
                check_client(scope, headers, settings, self._tokens())
        except Refused as refusal:
            await refuse(self._counted(refusal), send)
            return
        await self._admit(app, scope, receive, send, is_tcp=is_tcp)

    async def known(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose client was checked before: its rights are in the scope."""
        await self._admit(None, scope, receive, send, is_tcp=True)

    async def _admit(self, app: App | None, scope: Scope, receive: Receive, send: Send, *, is_tcp: bool) -> None:
        """Check the room for a request, and pass it to the application."""
        settings, headers = self._settings(), headers_of(scope)
        is_limited = app is None and scope["path"] not in PROBES
        try:
            self._check_room(scope, headers, settings, is_limited=is_limited, is_tcp=is_tcp)
        except OverRate as refusal:
            await refuse(refusal, send)
            return
        except (Busy, Refused) as refusal:
            await refuse(self._counted(refusal), send)
            return
        if is_tcp and is_preflight(scope["method"], headers):
            await answer_preflight(headers, send)
            return
        with Place(self._places, settings, limited=is_limited) as place:
            place.enter(scope)
            has_body = _has_body(scope["method"], headers)
            if not has_body:
                place.take()
            await self._pass(app or self._app, scope, receive, send, settings, place, has_body=has_body)

    def _check_room(
        self, scope: Scope, headers: Headers, settings: ServeSettings, *, is_limited: bool, is_tcp: bool
    ) -> None:
        if is_limited:
            self._places.check(settings)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or (int(length) > settings.max_body_bytes and not _is_append(scope)):
            raise too_large(settings)
        if is_tcp and self._quota is not None and scope["path"] not in PROBES:
            self._quota.take_request()

    async def _pass(
        self,
        app: App,
        scope: Scope,
        receive: Receive,
        send: Send,
        settings: ServeSettings,
        place: Place,
        *,
        has_body: bool,
    ) -> None:
        taken = 0
        status = 0
        is_whole = False
        exchange: Any = scope.get(EXCHANGE)
        start = time.perf_counter()

        async def paced_receive() -> MutableMapping[str, Any]:
            nonlocal taken, is_whole
            if status or is_whole:  # from now on the application waits only for a disconnect
                return await receive()
            if exchange is not None and exchange.has_news:  # most bodies came with their head
                message = await receive()
            else:
                message = await self._soon(receive, settings.body_timeout_s)
            is_whole = not message.get("more_body", False)
            size_bytes = len(message.get("body", b""))
            taken += size_bytes
            if BROKEN in scope or (has_body and message["type"] == "http.disconnect"):
                raise BodyBroken(taken)
            if taken > settings.max_body_bytes and not place.is_by_parts:
                raise self._counted(too_large(settings))
            try:
                await place.came(size_bytes, is_whole=is_whole)
            except Busy as busy:
                raise self._counted(busy) from None
            return message

        async def paced_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            if exchange is not None and exchange.is_writable:
                await send(message)
                return
            async with asyncio.timeout(settings.body_timeout_s):
                await send(message)

        try:
            await app(scope, paced_receive, paced_send)
        except TimeoutError:
            # The answer stays without its end, so the server closes the connection.
            self._metrics.rejected.labels("slow").inc()
            _log.info("%s: a client took no byte of its answer in %d s", scope["path"], settings.body_timeout_s)
        except (BodyBroken, Busy, Refused) as refusal:
            if status:
                raise
            await refuse(refusal, paced_send)
        finally:
            route = scope.get("route")
            label, command = getattr(route, "path", "none"), _command_of(scope)
            self._metrics.http_requests_of(label, command, status).inc()
            if not place.is_follower and not scope.get(STREAM_KEY):
                self._metrics.http_s_of(label, command).observe(time.perf_counter() - start)

    async def _soon(self, receive: Receive, limit_s: float) -> MutableMapping[str, Any]:
        """Return the next message of a body. Raise `Refused` if it does not come in time."""
        try:
            # `wait_for` would make a task, and can swallow a cancellation of its caller.
            async with asyncio.timeout(limit_s):
                return await receive()
        except TimeoutError:
            slow = Refused(408, "slow", f"no byte of the body came in {limit_s} s")
            raise self._counted(slow) from None

    def _counted(self, refusal: Busy | Refused) -> Busy | Refused:
        self._metrics.rejected.labels("busy" if isinstance(refusal, Busy) else refusal.reason).inc()
        return refusal


def headers_of(scope: Scope) -> Headers:
    """Return the headers of a request, the last of each name. The first call makes the mapping."""
    found: Headers | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = dict(scope["headers"])
    return found


def _command_of(scope: Scope) -> str:
    """Return the command of a request, or "" without one. A client cannot make up a label (METRIC-1)."""
    command = scope.get("path_params", {}).get("command", "")
    return command if command in COMMANDS else ""


async def answer_preflight(headers: Headers, send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": preflight_headers(headers)})
    await send({"type": "http.response.body", "body": b""})


async def refuse(refusal: Exception, send: Send) -> None:
    """Answer with an error, and close the connection."""
    status, headers, body = error_answer(refusal)
    # The guard does not read the rest of the body, so it closes the connection.
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def _has_body(method: str, headers: Headers) -> bool:
    """Return True if the request waits for a body. Only a POST and a PUT do."""
    is_empty = headers.get(b"content-length", b"0").strip(b"0") == b"" and b"transfer-encoding" not in headers
    return method in {"POST", "PUT"} and not is_empty


def _is_append(scope: Scope) -> bool:
    """Return True if the route bounds the body itself, because it takes bodies part by part."""
    path: str = scope["path"]
    return scope["method"] == "POST" and path.startswith("/topics/") and path.endswith("/records")


def too_large(settings: ServeSettings) -> Refused:
    """Return the refusal of a body that is taken as a whole, and too large for that."""
    hint = "send less at once, or raise serve.max_body_bytes"
    return Refused(
        413, "too_large", f"a body that is taken as a whole has at most {settings.max_body_bytes} bytes", hint=hint
    )
