"""The types of ASGI, the keys that the daemon puts into the scope of a request, and the ids of the one under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Headers: TypeAlias = Mapping[bytes, bytes]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The id of the request under way. It is empty outside a request."""

tenant_id: Final[ContextVar[str]] = ContextVar("tenant_id", default="")
"""The name of the tenant that the daemon works for. It is empty outside a tenant.

A request sets it in its own task, a background task has it from its start, and a thread of a service from its start.
"""

ABORT = "seglog.abort"
"""The key in the state of a WebSocket's scope: a function that ends its connection at once."""

BROKEN = "seglog.broken"
"""The key in the scope of a request whose body broke off, while the client may still read an answer."""

EXCHANGE = "seglog.exchange"
"""The key of the exchange in a scope (offload.daemon.connection), which says what needs no time limit."""

HOLD = "seglog.hold"
"""The key in the state of a WebSocket's scope: a function that takes the bytes that its messages hold from now on.

It returns whether there is room for them.
"""

PREFIX_KEY = "seglog.prefix"
"""The key in a scope of what its client put before the path: `/tenants/acme`, or nothing."""

STREAM_KEY = "seglog.stream"
"""A true value in a scope says that the answer ends when the client likes, so its time says nothing."""

WITHIN = "seglog.within"
"""The key in the scope of a WebSocket: a function that admits a request that comes as one of its messages."""

WRITABLE = "seglog.writable"
"""The key in the state of a WebSocket's scope: a function that returns whether `send` returns at once."""

_HEADERS = "seglog.headers"


def headers_of(scope: Scope) -> Headers:
    """Return the headers of a request, the last of each name. The first call makes the mapping."""
    headers: Headers | None = scope.get(_HEADERS)
    if headers is None:
        headers = scope[_HEADERS] = dict(scope["headers"])
    return headers


def over_websocket(send: Send) -> Send:
    """Return a `send` that takes the answer of a request, too. Before `websocket.accept`, it refuses the WebSocket."""

    async def sending(message: Message) -> None:
        kind = message["type"]
        await send({**message, "type": f"websocket.{kind}"} if kind.startswith("http.") else message)

    return sending
