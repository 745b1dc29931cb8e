"""The pace of one request: a limit of time for each byte of its body and of its answer, and the size of its body.

PACE-1  A limit counts what the client did, and not what the daemon has read. If the daemon itself stood still, its loop
    may make a timer before it reads the sockets. So whoever is late gets `READ_AGAIN_S` more, in which the loop reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from offload.daemon.asgi import BROKEN, EXCHANGE, WRITABLE, Message, Receive, Scope, Send
from offload.daemon.request_places import Place
from offload.daemon.revocation import check_again
from offload.errors import BodyBroken, Busy, Refused
from offload.settings import ServeSettings

READ_AGAIN_S = 0.01
_Found = TypeVar("_Found")


class PacedRequest:
    """A request whose `receive` and `send` keep the pace. The application calls these instead of its connection's.

    `status` is the status of the answer, or 0 before its start. `count_rejected` counts a refusal by its reason.
    """

    __slots__ = (
        "_count_rejected",
        "_exchange",
        "_has_body",
        "_is_whole",
        "_is_writable",
        "_place",
        "_receive",
        "_scope",
        "_send",
        "_settings",
        "_taken_bytes",
        "status",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        settings: ServeSettings,
        place: Place,
        count_rejected: Callable[[str], object],
        *,
        has_body: bool,
    ) -> None:
        self.status = 0
        self._scope = scope
        self._receive = receive
        self._send = send
        self._settings = settings
        self._place = place
        self._count_rejected = count_rejected
        self._has_body = has_body
        self._exchange: Any = scope.get(EXCHANGE)
        self._is_writable: Callable[[], bool] | None = scope.get("state", {}).get(WRITABLE)
        self._taken_bytes = 0
        self._is_whole = False

    async def receive(self) -> Message:
        """Return the next message. Raise `BodyBroken`, `Busy`, or `Refused` with 401, 408 or 413."""
        if self.status or self._is_whole:  # from now on the application waits only for a disconnect
            return await self._receive()
        message = await self._next()
        self._is_whole = not message.get("more_body", False)
        size_bytes = len(message.get("body", b""))
        self._taken_bytes += size_bytes
        if BROKEN in self._scope or (self._has_body and message["type"] == "http.disconnect"):
            raise BodyBroken(self._taken_bytes)
        if self._has_body:
            check_again(self._scope)
        if self._taken_bytes > self._settings.max_body_bytes and not self._place.is_by_parts:
            raise self._counted(too_large(self._settings))
        try:
            await self._place.came(size_bytes, is_whole=self._is_whole)
        except Busy:
            self._count_rejected("busy")
            raise
        return message

    async def _next(self) -> Message:
        """Return the next message of the body. Raise `Refused` if it does not come in time."""
        if self._exchange is not None and self._exchange.has_news:  # most bodies came with their head
            return await self._receive()
        try:
            return await self._in_time(self._receive)
        except TimeoutError:
            limit_s = self._settings.body_timeout_s
            raise self._counted(Refused(408, "slow", f"no byte of the body came in {limit_s} s")) from None

    async def send(self, message: Message) -> None:
        """Send a part of the answer. Raise `TimeoutError` if the client takes no byte in time."""
        if message["type"] in ("http.response.start", "websocket.accept"):
            self.status = message.get("status", 101)
        if self._scope["type"] == "websocket":  # its connection takes a message when the client has room for it
            is_writable = self._is_writable
            if is_writable is not None and is_writable():  # no time limit is needed, which costs more than to send
                await self._send(message)
            else:
                await self._in_time(lambda: self._send(message))
            return
        if self._exchange is not None and not self._exchange.is_writable:
            await self._in_time(self._exchange.drain)
        await self._send(message)

    async def _in_time(self, wait: Callable[[], Awaitable[_Found]]) -> _Found:
        """Return what the client lets come. Raise `TimeoutError` (PACE-1)."""
        for limit_s in (self._settings.body_timeout_s, READ_AGAIN_S):
            # `wait_for` would make a task, and can swallow a cancellation of its caller.
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    return await wait()
        raise TimeoutError

    def _counted(self, refusal: Refused) -> Refused:
        self._count_rejected(refusal.reason)
        return refusal


def too_large(settings: ServeSettings) -> Refused:
    """Return the refusal of a body that is taken as a whole, and too large for that."""
    hint = "send less at once, or raise serve.max_body_bytes"
    return Refused(
        413, "too_large", f"a body that is taken as a whole has at most {settings.max_body_bytes} bytes", hint=hint
    )
