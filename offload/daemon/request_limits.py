"""The guard checks each request to a data directory before the API sees it: the number, the size and the pace.

    check                  answer            applies to requests over
    client                 421, 403, 401     TCP, before the guard (offload.daemon.clients)
    role of the token      403               TCP, behind the guard, if there is a token file (offload.daemon.http.roles)
    requests under way     429, Retry-After  TCP and Unix; probes and metrics pass even above the limit
    followers              429, Retry-After  TCP and Unix; a route says that its request waits (`become_follower`)
    bytes of all bodies    429, Retry-After  TCP and Unix (offload.daemon.request_places)
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

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from offload.daemon.asgi import ABORT, HOLD, STREAM_KEY, WITHIN, App, Headers, Receive, Scope, Send, headers_of
from offload.daemon.metrics import Metrics
from offload.daemon.pacing import PacedRequest, too_large
from offload.daemon.problems import refuse
from offload.daemon.quota import OverRate, Quota
from offload.daemon.request_places import Place, Places
from offload.errors import BodyBroken, Busy, Refused
from offload.operations.command import COMMANDS
from offload.settings import ServeSettings
from offload.token_rights import EVERYTHING, RIGHTS_KEY

_log = logging.getLogger("seglog.daemon")
PROBES = ("/healthz", "/readyz", "/metrics")
"""The paths that need no place, and that answer until the daemon ends."""


class Guard:
    """Two ASGI applications in front of one: `over_unix`, and `known` for a client over TCP that was checked before.

    The guard calls `settings` at each request, so that a reload takes effect.
    """

    def __init__(
        self, app: App, settings: Callable[[], ServeSettings], metrics: Metrics, quota: Quota | None = None
    ) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._quota = quota
        self._places = Places(lambda: metrics.count_rejected("busy"))
        metrics.http_running.set_function(lambda: self._places.taken)
        metrics.http_followers.set_function(lambda: self._places.followers)

    async def known(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request over TCP. The checks of clients have put the client's rights into the scope."""
        is_limited = scope["path"] not in PROBES
        await self._admit(self._app, scope, receive, send, self._quota, is_limited=is_limited)

    async def over_unix(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[RIGHTS_KEY] = EVERYTHING
        await self._admit(self._app, scope, receive, send, None, is_limited=scope["path"] not in PROBES)

    def before(self, app: App) -> App:
        """Return `app` behind the checks of `known`. The application itself bounds the requests at work."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await self._admit(app, scope, receive, send, self._quota, is_limited=False)

        return answer

    async def _admit(
        self, app: App, scope: Scope, receive: Receive, send: Send, quota: Quota | None, *, is_limited: bool
    ) -> None:
        """Check the room for a request, and pass it to the application."""
        settings = self._settings()
        try:
            if is_limited:
                self._places.check(settings)
            _check_length(scope, settings)
            if quota is not None and scope["path"] not in PROBES:
                quota.take_request()
        except (Busy, Refused) as refusal:
            if not isinstance(refusal, OverRate):  # the quota counts it
                self._metrics.count_rejected("busy" if isinstance(refusal, Busy) else refusal.reason)
            await refuse(refusal, send)
            return
        with Place(self._places, settings, limited=is_limited) as place:
            place.enter(scope)
            if scope["type"] == "websocket":
                scope[WITHIN] = functools.partial(self._within, quota)
                scope.setdefault("state", {})[HOLD] = functools.partial(self._hold, place)
            has_body = _has_body(scope["method"], headers_of(scope))
            if not has_body:
                place.take()
            count = self._metrics.count_rejected
            request = PacedRequest(scope, receive, send, settings, place, count, has_body=has_body)
            await self._pass(app, scope, request, place)

    @contextmanager
    def _within(self, quota: Quota | None) -> Iterator[Place]:
        """Check the room for a request that comes as a message of a WebSocket. Raises `Busy`."""
        settings = self._settings()
        try:
            self._places.check(settings)
            if quota is not None:
                quota.take_request()
        except Busy as refusal:
            if not isinstance(refusal, OverRate):
                self._metrics.count_rejected("busy")
            raise
        with Place(self._places, settings, limited=True) as place:
            yield place

    def _hold(self, place: Place, size_bytes: int) -> bool:
        try:
            place.holds(size_bytes)
        except Busy:
            self._metrics.count_rejected("busy")
            return False
        return True

    async def _pass(self, app: App, scope: Scope, request: PacedRequest, place: Place) -> None:
        start = time.perf_counter()
        try:
            await app(scope, request.receive, request.send)
        except TimeoutError:
            # The answer stays without its end, so the server closes the connection.
            self._metrics.count_rejected("slow")
            limit_s = self._settings().body_timeout_s
            _log.info("%s: a client took no byte of its answer in %d s", scope["path"], limit_s)
            scope.get("state", {}).get(ABORT, lambda: None)()
        except (BodyBroken, Busy, Refused) as refusal:
            if request.status:
                raise
            await refuse(refusal, request.send)
        finally:
            label, command = getattr(scope.get("route"), "path", "none"), _command_of(scope)
            self._metrics.http_requests_of(label, command, request.status).inc()
            if not place.is_follower and not scope.get(STREAM_KEY):
                self._metrics.http_s_of(label, command).observe(time.perf_counter() - start)


def _check_length(scope: Scope, settings: ServeSettings) -> None:
    """Raise `Refused` if the declared length of the body is no number, or too large for a route that wants it whole."""
    length = headers_of(scope).get(b"content-length", b"0")
    if not length.isdigit() or (int(length) > settings.max_body_bytes and not _is_append(scope)):
        raise too_large(settings)


def _command_of(scope: Scope) -> str:
    """Return the command of a request, or "" without one. A client cannot make up a label (METRIC-1)."""
    command = scope.get("path_params", {}).get("command", "")
    return command if command in COMMANDS else ""


def _has_body(method: str, headers: Headers) -> bool:
    """Return True if the request waits for a body. Only a POST and a PUT do."""
    is_empty = headers.get(b"content-length", b"0").strip(b"0") == b"" and b"transfer-encoding" not in headers
    return method in {"POST", "PUT"} and not is_empty


def _is_append(scope: Scope) -> bool:
    """Return True if the route bounds the body itself, because it takes bodies part by part."""
    path: str = scope["path"]
    return scope["method"] in {"POST", "PUT"} and path.startswith("/topics/") and path.endswith("/records")
