"""The first layer of each request: an id, an answer at the end of the daemon, a line in the log.

The id is the client's header `seglog-request-id` if it is 1 to 64 of A-Z, a-z, 0-9, `.`, `_`, `-`, else a random one.
Random ids come from the operating system: a client that sees its own cannot compute those of others.
The answer has it as a header of the same name, and a problem has it as `request_id`.

With `access_log`, the log gets a line for each request at its end: method, path, status, seconds, bytes, client, id.
A request of a tenant names it. A request with a token has the token's name, and never the token.
The path has no query, and stays percent-encoded. So a line shows no tags, and a client cannot break the line.

Without it, the mistakes of clients get a line each. A mistake is an answer from 400 to 499, but for those that a client
without a fault gets, too: 409, 412 and 429. The line has the title of the problem and the id of the request, and no
value that the client sent.

Once the daemon stops, a new request gets 503 after its body was read. Each answer then says `Connection: close`. A
request that lasts longer than `stop_timeout_s` is cancelled, and gets 503 too: it may wait for a store that does not
answer. So a request that the daemon reads gets an answer (STOP-1). The probes still answer.

MISTAKE-1  The log gets at most 10 lines of mistakes a second, so a client cannot flood it. The next line says how many
    were left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from offload.daemon.asgi import App, Receive, Scope, Send, headers_of, over_websocket, request_id, tenant_id
from offload.daemon.problems import error_answer
from offload.daemon.request_limits import PROBES
from offload.daemon.revocation import is_revoked, last_words, refusal
from offload.daemon.stopping import StopEvent
from offload.errors import Stopping
from offload.settings import ServeSettings
from offload.token_rights import rights_of
from seglog.base.dataclasses import dataclass

_MISTAKES_PER_S = 10
_NO_FAULT = frozenset({409, 412, 429})
LAST_ANSWER_S = 1.0
"""How long a client may take for the answer to a request that outlasted `stop_timeout_s`."""

_UPGRADED = 101  # the status of a request that became a WebSocket
_HEADER = b"seglog-request-id"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_log = logging.getLogger("seglog.access")


@dataclass(slots=True)
class Mistakes:
    """The lines of the second under way. Not thread-safe."""

    second: int = 0
    lines: int = 0
    left_out: int = 0

    def take(self, now_s: float) -> int | None:
        """Return how many mistakes were left out since the last line, or None if this one is left out (MISTAKE-1)."""
        if int(now_s) != self.second:
            self.second, self.lines = int(now_s), 0
        if self.lines >= _MISTAKES_PER_S:
            self.left_out += 1
            return None
        self.lines += 1
        left_out, self.left_out = self.left_out, 0
        return left_out


def is_mistake(status: int) -> bool:
    return 400 <= status < 500 and status not in _NO_FAULT


def title_of(body: bytes) -> str:
    """Return the title of a problem, and its reason if it has one. Return "" for another body."""
    try:
        problem = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(problem, dict):
        return ""
    return " ".join(str(problem[name]) for name in ("title", "reason") if name in problem)


class Host(Protocol):
    """The parts of a daemon that its entrance asks for: those of a service, or of all tenants."""

    is_leaving: bool

    @property
    def tenant(self) -> str: ...
    @property
    def settings(self) -> ServeSettings: ...
    @property
    def stopping(self) -> StopEvent: ...


def entrance(app: App, host: Host) -> App:
    """Return `app` with an id and a log line for each request, and with refusals once the daemon stops."""
    mistakes = Mistakes()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # its handshake is a GET, and the checks refuse it as one
            scope["method"], send = "GET", over_websocket(send)
        line = _Line(scope, send, lambda: host.is_leaving)
        token, before = request_id.set(line.request_id), tenant_id.set(host.tenant)
        try:
            if host.stopping.is_set() and scope["path"] not in PROBES:
                await _refuse(receive, line.send, host.settings.body_timeout_s)
            else:
                await app(scope, receive, line.send)
        except asyncio.CancelledError:
            if is_revoked(scope):
                limit_s = float(host.settings.body_timeout_s)
            elif host.stopping.is_set():
                limit_s = LAST_ANSWER_S
            else:
                raise
            with suppress(TimeoutError):  # the client takes nothing
                async with asyncio.timeout(limit_s):
                    await line.end()
        finally:
            request_id.reset(token)
            if host.settings.access_log:
                line.write()
            elif is_mistake(line.status) and (left_out := mistakes.take(time.monotonic())) is not None:
                line.write_mistake(left_out)
            tenant_id.reset(before)

    return answer


class _Line:
    """One request: it adds headers to the answer, and counts for the line of the log."""

    def __init__(self, scope: Scope, send: Send, is_leaving: Callable[[], bool]) -> None:
        self._scope = scope
        self._raw_path: bytes = scope.get("raw_path", b"")  # a router may change the path of the scope
        self._send = send
        self._is_leaving = is_leaving
        self._start = time.perf_counter()
        self.status = 0
        self._size_bytes = 0
        self._headers: Sequence[tuple[bytes, bytes]] = ()
        self._problem = self._end = b""
        request_header = headers_of(scope).get(_HEADER)
        if request_header is not None and _ID.fullmatch(request_header):
            self.request_id = request_header.decode()
        else:
            self.request_id = os.urandom(8).hex()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if is_revoked(self._scope):  # REVOKE-1: a task of the request may run before its cancellation
            raise asyncio.CancelledError
        await self._pass(message)

    async def _pass(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] in ("http.response.start", "websocket.accept"):
            self.status = message.get("status", _UPGRADED)
            self._headers = headers = [*message.get("headers", ()), (_HEADER, self.request_id.encode())]
            if self._is_leaving() and self.status != _UPGRADED and (b"connection", b"close") not in headers:
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        else:
            body: bytes = message.get("body") or message.get("bytes") or (message.get("text") or "").encode()
            self._size_bytes += len(body)
            self._end = body[-2:] or self._end
            if self.status >= 400:
                self._problem = self._problem or body
        await self._send(message)

    async def end(self) -> None:
        """End the answer of a request that was cancelled: its token is revoked, or the daemon stops.

        The client may be gone.
        """
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        if self.status == _UPGRADED:
            code, why = (1008, "revoked") if is_revoked(self._scope) else (1012, "stopping")
            await self._pass({"type": "websocket.close", "code": code, "reason": why})
            return
        if not self.status:
            status, headers, body = error_answer(refusal() if is_revoked(self._scope) else Stopping())
            await self._pass({"type": "http.response.start", "status": status, "headers": headers})
            await self._pass({"type": "http.response.body", "body": body})
            return
        media_type = dict(self._headers).get(b"content-type", b"")
        words = last_words(media_type, self._end) if is_revoked(self._scope) else None
        if words is not None:
            await self._pass({"type": "http.response.body", "body": words})

    def write(self) -> None:
        """Write the line of the access log."""
        figures = {"seconds": round(time.perf_counter() - self._start, 6), "sent_bytes": self._size_bytes}
        _log.info("request", extra={**self._fields(), **figures})

    def write_mistake(self, left_out: int) -> None:
        """Write the line of a client's mistake, and that the lines of so many others were left out."""
        earlier = f"; {left_out} more before it" if left_out else ""
        _log.info("a client's mistake: %s%s", title_of(self._problem) or "no reason", earlier, extra=self._fields())

    def _fields(self) -> dict[str, Any]:
        client, token = self._scope.get("client"), rights_of(self._scope).name
        fields = {
            "method": self._scope["method"],
            "path": self._raw_path.decode("ascii", "replace"),
            "status": self.status,
            "client": f"{client[0]}:{client[1]}" if client else "unix",
            "request_id": self.request_id,
        }
        return {**fields, "token": token} if token else fields


async def _refuse(receive: Receive, send: Send, limit_s: float) -> None:
    """Answer 503 after the body was read (STOP-1). A client that sends no byte for `limit_s` gets it before."""
    try:
        while True:
            async with asyncio.timeout(limit_s):
                message = await receive()
            if not message.get("more_body", False):
                break
    except TimeoutError:
        _log.info("a request that came at the end of the daemon sent no byte of its body in %s s", limit_s)
    status, headers, body = error_answer(Stopping())
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
