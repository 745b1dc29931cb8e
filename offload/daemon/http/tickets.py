"""The route that gives a ticket to a client with a token (offload.daemon.tickets)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from offload.daemon.asgi import headers_of
from offload.daemon.http import operations as api
from offload.daemon.http.parameters import query_of
from offload.daemon.service import Service
from offload.daemon.tickets import LASTS_S, tickets_of
from offload.errors import Misuse
from offload.token_rights import Role, digest_of, rights_of

TICKETS = api.Operation(
    "POST", "/tickets", "newTicket", Role.METRICS, "daemon",
    "A ticket for the query of /events and /ws, with the rights of the token that asks.",
    {200: ("The ticket.", api.json_answer("ticket", {"ticket": "kJ3a…", "expires_s": LASTS_S}))},
    schemas={"ticket": api.object_of(ticket=str, expires_s=int)},
)  # fmt: skip


def ticket_routes(_service: Service) -> list[api.RoledRoute]:
    return [TICKETS.route(_new_ticket)]


async def _new_ticket(request: Request) -> Response:
    query_of(request)
    tickets = tickets_of(request.scope)
    if tickets is None:
        hint = "leave the ticket out here, or ask the daemon at its TCP address"
        raise Misuse("a client of the Unix socket needs neither a token nor a ticket", hint=hint)
    token = digest_of(headers_of(request.scope).get(b"authorization", b""))
    text = tickets.issue(rights_of(request.scope), token)
    headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
    return JSONResponse({"ticket": text, "expires_s": LASTS_S}, headers=headers)
