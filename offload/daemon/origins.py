"""Web pages that may call the daemon: the Origin of a request, and the headers of its answer (CORS).

    1. The browser asks with OPTIONS whether the page may send its request (preflight). It sends no token.
    2. The daemon answers 204 with the methods and headers that it takes, if the Origin is on the list.
    3. The browser sends the request with the page's token. Each answer names the Origin, an error too.

A page needs a token as every other client. The daemon takes no cookies, so a page never acts for its reader.
"""

from __future__ import annotations

from offload.daemon.asgi import Headers, Message, Send

__all__ = ["answer_preflight", "is_allowed", "is_preflight", "with_origin"]

_METHODS = b"GET, HEAD, POST, PUT, DELETE"
_KEPT_S = b"600"


def is_allowed(headers: Headers, allowed_origins: str) -> bool:
    """Return whether the request is from a web page on the list."""
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    return bool(origin) and origin in {each.strip().lower().rstrip("/") for each in allowed_origins.split(",")}


def is_preflight(method: str, headers: Headers) -> bool:
    return method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


async def answer_preflight(headers: Headers, send: Send) -> None:
    """Answer 204, with the headers beside those of `with_origin`."""
    # "*" would not cover Authorization, so the answer repeats the names.
    wanted = headers.get(b"access-control-request-headers", b"")
    more = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", wanted),
        (b"access-control-max-age", _KEPT_S),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": more})
    await send({"type": "http.response.body", "body": b""})


def with_origin(send: Send, headers: Headers) -> Send:
    """Return a `send` that lets the page read the answer."""
    more = [
        (b"access-control-allow-origin", headers[b"origin"]),
        (b"access-control-expose-headers", b"*"),
        (b"vary", b"Origin"),
    ]

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return sending
