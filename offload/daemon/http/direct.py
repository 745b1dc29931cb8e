"""A short way to the route of appends, past the middleware and the other routes of Starlette.

An append is the request that comes most often, and Starlette costs as much as the append itself. The answer is the same
on both ways: the role, the errors, and the label of the metrics.
"""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from offload.daemon.asgi import App, Receive, Scope, Send
from offload.daemon.http.roles import ROUTE_ROLES
from offload.daemon.problems import answer_of
from offload.rights import rights_of
from seglog import SeglogError

__all__ = ["direct"]

_METHOD, _PATH = "POST", "/topics/{topic}/records"
_BEFORE, _BEHIND = _PATH.split("{topic}")


def direct(app: Starlette) -> App:
    """Return the application with the short way."""
    route = next(each for each in app.routes if isinstance(each, Route) and _takes_appends(each))
    append, role = route.endpoint, ROUTE_ROLES[_METHOD, _PATH]
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
    return route.path == _PATH and _METHOD in (route.methods or ())


def _topic_of(scope: Scope) -> str | None:
    """Return the topic that a request appends to, or None for another request."""
    path: str = scope["path"]
    if scope["method"] != _METHOD or not path.endswith(_BEHIND):
        return None
    topic = path[len(_BEFORE) : -len(_BEHIND)]
    return topic if path.startswith(_BEFORE) and topic and "/" not in topic else None
