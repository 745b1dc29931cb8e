"""Server-sent events: their lines, and the route that streams state changes of the daemon (offload.daemon.events).

    event: offloaded
    data: {"at": "2026-11-23T10:00:00.000Z", "topic": "orders", "offloaded_seq": 812}

    lost   {"lost": 12}               the client was slow, and did not get so many events
    end    {"reason": "stopping"}     the daemon stops

A client gets the events of topics that its token may read, and those of the whole daemon. Events have no id: a client
that comes back has missed what happened meanwhile, and asks `status`. A comment each 15 s keeps the connection alive.

Source: the HTML standard, section 9.2, https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from offload.daemon.events import Event
from offload.daemon.http import operations as api
from offload.daemon.http.answers import begun
from offload.daemon.http.parameters import query_of
from offload.daemon.request_places import become_follower
from offload.daemon.service import Service
from offload.moment import Moment
from offload.token_rights import Role, rights_of

_TYPE = "text/event-stream"
_ALIVE_S = 15.0
KEEP_ALIVE: Final = b":\n\n"
"""A comment. It keeps proxies from closing an idle connection, and readers pass over it."""

_LINE_END = re.compile("\r\n|\r|\n")


_EVENT = 'event: offloaded\ndata: {"at": "2026-11-23T10:00:00.000Z", "topic": "orders", "offloaded_seq": 812}\n\n'

EVENTS = api.Operation(
    "GET", "/daemon/events", "events", Role.READ, "daemon", "State changes of the daemon, as server-sent events.",
    {200: ("The events, as they come.", {"text/event-stream": {"schema": api.TEXT, "example": _EVENT}})},
)  # fmt: skip


def event_routes(service: Service) -> list[api.RoledRoute]:
    return [EVENTS.route(_Events(service).events)]


class _Events:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def events(self, request: Request) -> Response:
        query_of(request)
        become_follower(request.scope)
        rights = rights_of(request.scope)
        answer = await begun(request, self._lines(lambda event: not event.topic or rights.shows(event.topic)), _TYPE)
        answer.headers["cache-control"] = "no-store"
        return answer

    async def _lines(self, wants: Any) -> AsyncGenerator[bytes]:
        stopping = self._service.stopping
        with self._service.events.listening(wants) as listener:
            yield KEEP_ALIVE
            while not stopping.is_set():
                found, lost = await listener.take(_ALIVE_S)
                yield b"".join(map(_encoded, found)) or KEEP_ALIVE
                if lost:
                    yield _message("lost", {"lost": lost})
            yield _message("end", {"reason": "stopping"})


def _encoded(event: Event) -> bytes:
    topic = {"topic": event.topic} if event.topic else {}
    return _message(event.kind, {"at": str(Moment(event.at_ms)), **topic, **event.details})


def _message(kind: str, data: Mapping[str, Any]) -> bytes:
    return encode_event(kind, json.dumps(data))


def encode_event(name: str, data: str, event_id: str | None = None) -> bytes:
    """Return an event. Each line of `data` becomes a field, so its line ends arrive as line feeds.

    Raises ValueError if the name or the id is empty, or holds a line end or a NUL.
    """
    for text in (name, event_id):
        if text is not None and (not text or "\0" in text or _LINE_END.search(text)):
            raise ValueError(f"{text!r} is no name or id of an event")
    head = "" if event_id is None else f"id: {event_id}\n"
    fields = "".join(f"data: {line}\n" for line in _LINE_END.split(data))
    return f"{head}event: {name}\n{fields}\n".encode()
