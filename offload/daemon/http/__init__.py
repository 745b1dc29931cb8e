"""The HTTP API: records of a topic, objects of a proxy, Durable Streams, and the commands.

An operation that is no command declares its route beside its handler: the role, the parameters, the schemas, and the
entry in OpenAPI (offload.daemon.http.operations). `offload.daemon.http.openapi` has the list. The other routes are:

    POST /topics/{topic}/rpc/{command}         a command (offload.daemon.jobs)
    POST /rpc/{command}                        the same, with the topic in the body, or without a topic

Errors are application/problem+json with title (the error's class), detail and hint (offload.daemon.problems). If an
error comes after the first JSON lines, the answer ends with a line that has the key `error`.

An append is the request that comes most often, and Starlette costs as much as the append itself. So it has a short way
past the middleware and the other routes of Starlette (`direct`). The answer is the same on both ways: the role, the
errors, and the label of the metrics.

HTTP-1  At most one thread works for a connection, and only while the connection asks for more.
HTTP-2  Reads that begin below the hot floor use the threads of `cold_reads`, other reads those of `hot_reads`. So a
    store that hangs takes no thread from hot reads or appends.

Source: the commit log server of "Building segmented logs in Rust" (index_bounds, records, rpc/truncate); PIP-17.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from offload.daemon.asgi import App, Receive, Scope, Send
from offload.daemon.http.answers import app_of
from offload.daemon.http.appends import APPEND, append_routes
from offload.daemon.http.commands import command_routes
from offload.daemon.http.commit_news import forward_routes
from offload.daemon.http.cursors import cursor_routes
from offload.daemon.http.events import event_routes
from offload.daemon.http.objects import object_routes
from offload.daemon.http.operations import RoledRoute
from offload.daemon.http.probes import probe_routes
from offload.daemon.http.queues import queue_routes
from offload.daemon.http.reads import read_routes
from offload.daemon.http.roles import guarded
from offload.daemon.http.stream_operations import STREAM_OPERATIONS
from offload.daemon.http.tickets import ticket_routes
from offload.daemon.http.topic_events import topic_event_routes
from offload.daemon.http.topics import topic_routes
from offload.daemon.http.websocket import socket_routes
from offload.daemon.problems import answer_of
from offload.daemon.service import Service
from offload.daemon.streams import stream_endpoint
from offload.token_rights import rights_of
from seglog import SeglogError

__all__ = ["direct", "make_app"]

_BEFORE, _BEHIND = APPEND.path.split("{topic}")


def make_app(service: Service) -> Starlette:
    """Return the ASGI application of the API. The caller puts the guard (request_limits) in front."""
    makers = (
        *(probe_routes, event_routes, topic_event_routes, ticket_routes, read_routes, append_routes, topic_routes),
        *(cursor_routes, queue_routes, object_routes, forward_routes, socket_routes, _stream_routes, command_routes),
    )
    return app_of([guarded(route) for make in makers for route in make(service)])


def _stream_routes(service: Service) -> list[RoledRoute]:
    roles = {each.method: each.role for each in STREAM_OPERATIONS}
    return [RoledRoute(STREAM_OPERATIONS[0].path, stream_endpoint(service), roles)]


def direct(app: Starlette) -> App:
    """Return the application with the short way."""
    route = next(each for each in app.routes if isinstance(each, Route) and _takes_appends(each))
    append, role = route.endpoint, APPEND.role
    assert role is not None  # noqa: S101 - ROLES-1

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        topic = _topic_of(scope)
        if topic is None:
            await app(scope, receive, send)
            return
        scope["path_params"], scope["route"] = {"topic": topic}, route
        failure: Exception | None = None
        try:
            rights_of(scope).check(role, topic)
            response: Any = await append(Request(scope, receive))
        except SeglogError as error:
            response = answer_of(error)
        except Exception as error:
            response, failure = answer_of(error), error
        await response(scope, receive, send)
        if failure is not None:
            raise failure

    return answer


def _takes_appends(route: Route) -> bool:
    return route.path == APPEND.path and APPEND.method in (route.methods or ())


def _topic_of(scope: Scope) -> str | None:
    """Return the topic that a request appends to, or None for another request."""
    path: str = scope["path"]
    if scope["method"] != APPEND.method or not path.endswith(_BEHIND):
        return None
    topic = path[len(_BEFORE) : -len(_BEHIND)]
    return topic if path.startswith(_BEFORE) and topic and "/" not in topic else None
