"""The role that each route needs (offload.rights). A command says its own.

A route whose path has a topic needs the role on that topic. A command needs it on each topic that its arguments name,
and on all topics if they name none. A command that only reads with its arguments, such as a preview, needs `read`.

ROLES-1  A route without a line here does not start, and a command that says nothing needs `admin`. So no part of the
    API is open by mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from offload.errors import NotAllowed
from offload.operations.command import Command
from offload.rights import Rights, Role, rights_of

__all__ = ["ROUTE_ROLES", "check_command", "guarded", "shown_to"]

_METRICS, _READ, _APPEND, _ADMIN = Role.METRICS, Role.READ, Role.APPEND, Role.ADMIN

#: A method and a path, with the role. None: any client, also one without a token.
ROUTE_ROLES: Final[Mapping[tuple[str, str], Role | None]] = {
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): _METRICS,
    ("GET", "/metrics"): _METRICS,
    ("GET", "/openapi.json"): _METRICS,
    ("GET", "/daemon/events"): _READ,
    ("GET", "/tenants"): _ADMIN,  # only of a daemon of many, and only for a token that is not bound
    ("GET", "/topics"): _READ,
    ("GET", "/topics/{topic}/index_bounds"): _READ,
    ("GET", "/topics/{topic}/records"): _READ,
    ("GET", "/topics/{topic}/records/{seq}"): _READ,
    ("POST", "/topics/{topic}/records"): _APPEND,
    ("POST", "/topics/{topic}/rpc/truncate"): _ADMIN,
    # The route checks the topic of the stream, and of the source of a fork.
    ("GET", "/streams/{path:path}"): _READ,
    ("PUT", "/streams/{path:path}"): _APPEND,
    ("POST", "/streams/{path:path}"): _APPEND,
    ("DELETE", "/streams/{path:path}"): _ADMIN,
    # The command decides: `check_command`.
    ("POST", "/topics/{topic}/rpc/{command:path}"): _READ,
    ("POST", "/rpc/{command:path}"): _READ,
}

_LISTS_TOPICS = "topic/list"


def guarded(route: Route) -> Route:
    """Return the route, which now checks the client's role first. Raises `KeyError` for a route without a role."""
    methods = (route.methods or set()) - {"HEAD"}
    roles = {method: ROUTE_ROLES[method, route.path] for method in methods}
    if "GET" in roles:
        roles["HEAD"] = roles["GET"]
    names_no_topic = "{" not in route.path or ":path}" in route.path
    route.app = _Checked(route.app, roles, is_for_all="{topic}" not in route.path and not names_no_topic)
    return route


class _Checked:
    """An ASGI application that asks for a role before another one."""

    def __init__(self, app: ASGIApp, roles: Mapping[str, Role | None], *, is_for_all: bool) -> None:
        self._app = app
        self._roles = roles
        self._is_for_all = is_for_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        role = self._roles[scope["method"]]
        if role is not None and self._is_for_all:
            rights_of(scope).check_all_topics(role)
        elif role is not None:
            topic = scope["path_params"].get("topic")
            try:
                rights_of(scope).check(role, topic)
            except NotAllowed as error:
                raise error if topic else NotAllowed(error.token, role.word, scope["path"]) from None
        await self._app(scope, receive, send)


def check_command(request: Request, command: Command, values: Mapping[str, Any]) -> None:
    """Raise `NotAllowed` if the client may not run the command with these arguments."""
    rights, role = rights_of(request.scope), Role[command.role.upper()]
    if role > Role.READ and command.reads(values):
        role = Role.READ
    topics = _topics_of(command, values)
    for topic in topics:
        rights.check(role, topic)
    if not topics and command.path != _LISTS_TOPICS:
        rights.check_all_topics(role)


def shown_to(rights: Rights, command: Command) -> Callable[[Any], bool]:
    """Return whether the client may see a result of the command: of the list of topics, only its own."""
    return (lambda result: rights.shows(result.topic)) if command.path == _LISTS_TOPICS else (lambda _: True)


def _topics_of(command: Command, values: Mapping[str, Any]) -> list[str]:
    """Return the topics that the arguments name."""
    if command.path == "undo" and values["commit"] is None:
        return []  # the change is a number of the operations log, which may be any topic's
    return command.topics(values)
