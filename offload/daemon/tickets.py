"""Tickets: texts that stand for a token in a query, because a browser's EventSource and WebSocket send no header.

A page P with a token, and the daemon D:

    1  P asks POST /tickets with its token. D answers with a ticket, which has the rights of the token.
    2  P opens /events?topic=orders&ticket=TEXT. D finds the ticket, and counts the connection.
    3  The connection breaks, and the browser opens the same URL again. The ticket still works.
    4  P is closed. 60 s after its last connection the ticket ends. A URL that somebody copied is then of no use.

    the text    12 characters that find the ticket, and 43 that prove it. D keeps the SHA-256 of the latter alone

TICKET-1  Only /events and /ws take a ticket. To any other route it is an unknown parameter, so no ticket makes another.
TICKET-2  D never writes a ticket: not into a log line, a metric, an error or a file. A restart ends all tickets.
TICKET-3  A ticket has the rights that its token had when it asked. It ends when a reload takes one of them, and so do
    the connections that use it (offload.daemon.revocation).
TICKET-4  A text of the right form costs one comparison in constant time, whether it finds a ticket or none.
TICKET-5  The tokens of one tenant, and those of none, have 10,000 tickets at most. Then POST /tickets answers them 429,
    and no other tenant.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Final
from urllib.parse import parse_qsl

from offload.daemon.asgi import Message, Scope, Send
from offload.errors import Busy, Refused
from offload.token_rights import Rights, Tokens
from seglog.base.dataclasses import dataclass

LASTS_S: Final = 60
MOST_TICKETS: Final = 10_000
_TICKETS: Final = "seglog.tickets"
_BEHIND: Final = "seglog.behind_ticket"
_TAKES_TICKETS = re.compile(r"(/tenants/[^/]+)?/(events|ws)")
_FINDS = 12
_NOBODY = hashlib.sha256().digest()


@dataclass(slots=True, eq=False)
class Ticket:
    """One ticket: what finds it, the SHA-256 of its proof and of its token, the token's rights, and the connections
    that use it."""

    finds: str
    proof: bytes
    token: bytes
    rights: Rights
    uses: int = 0


class Tickets:
    """The tickets of a daemon's listener, in memory. The event loop owns it. `clock_s` never goes back."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._known: dict[str, Ticket] = {}
        self._held: Counter[str] = Counter()  # by the tenant
        self._ends_s: dict[str, float] = {}  # of those that no connection uses, in the order of their ends

    def __len__(self) -> int:
        self._forget_old()
        return len(self._known)

    def issue(self, rights: Rights, token: bytes) -> str:
        """Return the text of a new ticket. `token` is the SHA-256 of the client's token. Raises `Busy` (429)."""
        self._forget_old()
        if self._held[rights.tenant] >= MOST_TICKETS:
            raise Busy(LASTS_S, "of tickets")
        finds, proof = secrets.token_urlsafe(9), secrets.token_urlsafe(32)
        self._known[finds] = Ticket(finds, hashlib.sha256(proof.encode()).digest(), token, rights)
        self._held[rights.tenant] += 1
        self._ends_s[finds] = self._clock_s() + LASTS_S
        return finds + proof

    def begin(self, scope: Scope) -> Ticket | None:
        """Let a connection use the ticket in its query until `end`. None without one. Raises `Refused` (401)."""
        scope[_TICKETS] = self
        text = _ticket_in(scope)
        if text is None:
            return None
        ticket = self._find(text)
        scope[_BEHIND] = ticket.token
        ticket.uses += 1
        self._ends_s.pop(ticket.finds, None)
        return ticket

    def end(self, ticket: Ticket) -> None:
        """Take note that a connection uses the ticket no more. After the last one, it lasts 60 s."""
        ticket.uses -= 1
        if not ticket.uses and self._known.get(ticket.finds) is ticket:
            self._ends_s[ticket.finds] = self._clock_s() + LASTS_S

    def end_revoked(self, tokens: Tokens | None) -> None:
        """End the tickets whose token is gone, or has fewer rights by now (TICKET-3)."""
        if tokens is None:
            return
        keeps = cache(tokens.keeps)  # a look-up passes over all tokens, and thousands of tickets may stand for one
        for finds, ticket in tuple(self._known.items()):
            if not keeps(ticket.token, ticket.rights):
                self._forget(finds)
                self._ends_s.pop(finds, None)

    def _find(self, text: str) -> Ticket:
        self._forget_old()
        ticket = self._known.get(text[:_FINDS])
        proof = hashlib.sha256(text[_FINDS:].encode(errors="surrogateescape")).digest()
        is_proven = hmac.compare_digest(proof, _NOBODY if ticket is None else ticket.proof)
        if ticket is None or not is_proven:
            raise Refused(401, "ticket", "the ticket is unknown or has ended", hint="POST /tickets gives another one")
        return ticket

    def _forget_old(self) -> None:
        now_s = self._clock_s()
        while self._ends_s:
            finds, end_s = next(iter(self._ends_s.items()))
            if end_s > now_s:
                return
            del self._ends_s[finds]
            self._forget(finds)

    def _forget(self, finds: str) -> None:
        self._held[self._known.pop(finds).rights.tenant] -= 1


def tickets_of(scope: Scope) -> Tickets | None:
    """Return the tickets of the listener that has the request; None at a Unix socket, whose clients need no token."""
    tickets = scope.get(_TICKETS)
    return tickets if isinstance(tickets, Tickets) else None


def token_of_ticket(scope: Scope) -> bytes | None:
    """Return the SHA-256 of the token behind the ticket that a request uses; None without a ticket."""
    token: bytes | None = scope.get(_BEHIND)
    return token


def takes_tickets(scope: Scope) -> bool:
    """Return whether the path takes a ticket in its query (TICKET-1)."""
    return _TAKES_TICKETS.fullmatch(scope["path"]) is not None


def without_referrer(send: Send) -> Send:
    """Return a `send` whose answers let no page tell their address, which has the ticket, to another server."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [each for each in message.get("headers", ()) if each[0] != b"referrer-policy"]
            message = {**message, "headers": [*headers, (b"referrer-policy", b"no-referrer")]}
        await send(message)

    return sending


def _ticket_in(scope: Scope) -> str | None:
    raw: bytes = scope.get("query_string", b"")
    if b"ticket" not in raw or not takes_tickets(scope):
        return None
    query = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="surrogateescape")
    return next((text for name, text in query if name == "ticket"), None)
