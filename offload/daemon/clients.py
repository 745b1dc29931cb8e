"""The checks of a client over TCP, which are the same for each tenant: its host, its origin and its token.

    check                  answer   why
    Host is on the list    421      a web page cannot choose its Host (DNS rebinding)
    Origin is on the list  403      browsers send one for a web page, which cannot change it
    bearer token           401      if there is a token file; /healthz needs no token. /events and /ws take a ticket
                                    in its place (offload.daemon.tickets)

The checks come before the guard of a directory, and before the router of many tenants.

A web page on the list may call the daemon (CORS):

    1. The browser asks with OPTIONS whether the page may send its request (preflight). It sends no token.
    2. The daemon answers 204 with the methods and headers that it takes, if the Origin is on the list.
    3. The browser sends the request with the page's token. Each answer names the Origin, an error too.

A page needs a token as every other client. The daemon takes no cookies, so a page never acts for its reader.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from offload.daemon.asgi import App, Headers, Message, Receive, Scope, Send, headers_of
from offload.daemon.problems import refuse
from offload.daemon.revocation import OpenAnswers
from offload.daemon.tickets import Ticket, Tickets, takes_tickets, without_referrer
from offload.errors import Refused
from offload.settings import ServeSettings
from offload.token_rights import EVERYTHING, RIGHTS_KEY, Tokens

_CORS_METHODS = b"GET, HEAD, POST, PUT, DELETE"
_CORS_KEPT_S = b"600"


def for_checked_clients(
    app: App,
    settings: Callable[[], ServeSettings],
    tokens: Callable[[], Tokens | None],
    count_rejected: Callable[[str], object],
    open_answers: OpenAnswers | None = None,
    tickets: Tickets | None = None,
) -> App:
    """Return `app` behind the checks of its clients. The scope of a request that passes has the client's rights.

    Each request asks for `settings` and `tokens`, so that a reload takes effect. `count_rejected` counts a refusal by
    its reason. `open_answers` gets the requests whose rights a reload may take. `tickets` may stand for tokens.
    """
    held_tickets = Tickets() if tickets is None else tickets

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        serve, headers = settings(), headers_of(scope)
        if b"origin" in headers and _is_allowed(headers, serve.allowed_origins):
            send = _with_origin(send, headers)
        if takes_tickets(scope):
            send = without_referrer(send)
        try:
            _check_web_page(headers, serve)
            if _is_preflight(scope["method"], headers):
                await _answer_preflight(headers, send)
                return
            ticket = held_tickets.begin(scope)
            _set_rights(scope, headers, tokens(), open_answers, ticket)
        except Refused as refusal:
            count_rejected(refusal.reason)
            await refuse(refusal, send)
            return
        try:
            await app(scope, receive, send)
        finally:
            if ticket is not None:
                held_tickets.end(ticket)

    return answer


def _check_web_page(headers: Headers, settings: ServeSettings) -> None:
    """Raise `Refused` with 421 or 403 if a web page asks that is not on a list."""
    host = headers.get(b"host", b"").decode("latin-1")
    if not _is_on_list(host, settings.allowed_hosts):
        hint = "add it to serve.allowed_hosts"
        raise Refused(421, "host", f"this daemon does not answer for the host {host!r}", hint=hint)
    if b"origin" in headers and not _is_allowed(headers, settings.allowed_origins):
        hint = "add its origin to serve.allowed_origins"
        raise Refused(403, "origin", "the daemon refuses requests from this web page", hint=hint)


def _set_rights(
    scope: Scope, headers: Headers, tokens: Tokens | None, open_answers: OpenAnswers | None, ticket: Ticket | None
) -> None:
    """Put the rights of the client's token, or of its ticket, into the scope. Raises `Refused` with 401."""
    scope[RIGHTS_KEY] = EVERYTHING
    if scope["path"] == "/healthz":
        return
    if ticket is not None:
        scope[RIGHTS_KEY] = ticket.rights
    elif tokens is not None:
        scope[RIGHTS_KEY] = tokens.rights_of(headers.get(b"authorization", b""))
    if open_answers is not None:
        open_answers.begin(scope, tokens)


@lru_cache(256)
def _is_on_list(host: str, allowed_hosts: str) -> bool:
    return _name_of(host).lower() in {name.strip().lower() for name in allowed_hosts.split(",")}


def _name_of(host: str) -> str:
    """Return the host without its port."""
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]


def _is_allowed(headers: Headers, allowed_origins: str) -> bool:
    """Return whether the request is from a web page on the list."""
    origin = headers.get(b"origin", b"").decode("latin-1").lower()
    return bool(origin) and origin in {allowed.strip().lower().rstrip("/") for allowed in allowed_origins.split(",")}


def _is_preflight(method: str, headers: Headers) -> bool:
    return method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


async def _answer_preflight(headers: Headers, send: Send) -> None:
    """Answer 204, with the headers beside those of `_with_origin`."""
    # "*" would not cover Authorization, so the answer repeats the names.
    header_names = headers.get(b"access-control-request-headers", b"")
    more = [
        (b"access-control-allow-methods", _CORS_METHODS),
        (b"access-control-allow-headers", header_names),
        (b"access-control-max-age", _CORS_KEPT_S),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": more})
    await send({"type": "http.response.body", "body": b""})


def _with_origin(send: Send, headers: Headers) -> Send:
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
