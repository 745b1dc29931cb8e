"""The check of the role that a route needs (offload.token_rights). An operation and a command say their own.

A route whose path has a topic needs the role on that topic. A command needs it on each topic that its arguments name,
and on all topics if they name none. A command that only reads with its arguments, such as a preview, needs `read`.

ROLES-1  Each route is a `RoledRoute`: another one does not start. A command that says nothing needs `admin`. So no part
    of the API is open by mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from offload.daemon.http.operations import RoledRoute
from offload.errors import NotAllowed
from offload.operations.command import Command
from offload.token_rights import Rights, Role, rights_of

_LISTS_TOPICS = "topic/list"


def guarded(route: RoledRoute) -> RoledRoute:
    """Return the route, which now checks the client's role first."""
    roles = dict(route.roles)
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


def check_command(
    request: Request, command: Command, values: Mapping[str, Any], more_topics: Sequence[str] = ()
) -> None:
    """Raise `NotAllowed` if the client may not run the command with these arguments, which mean `more_topics`."""
    rights, role = rights_of(request.scope), Role[command.role.upper()]
    if role > Role.READ and command.reads(values):
        role = Role.READ
    topics = [*_topics_of(command, values), *more_topics]
    for topic in topics:
        rights.check(role, topic)
    if not topics and command.path != _LISTS_TOPICS:
        rights.check_all_topics(role)


def shown_to(rights: Rights, command: Command) -> Callable[[Any], bool]:
    """Return whether the client may see a result of the command: of the list of topics, only its own."""
    return (lambda result: rights.shows(result.topic)) if command.path == _LISTS_TOPICS else (lambda _: True)


def _topics_of(command: Command, values: Mapping[str, Any]) -> list[str]:
    """Return the topics that the arguments name."""
    if command.path == "undo" and values["commit"] is None and (values["change"] or "0").isdecimal():
        return []  # the change is a number of the operations log, which may be any topic's
    return command.topics(values)
