"""Test the roles: each route and each command has one, and its check looks at all topics that it names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from catalog.objects.memory import MemoryStore
from offload.daemon import http
from offload.daemon.http.openapi import OPERATIONS
from offload.daemon.http.operations import RoledRoute
from offload.daemon.http.roles import check_command, guarded
from offload.daemon.http.tenant_router import make_root_app
from offload.daemon.tenants import Tenants
from offload.errors import NotAllowed
from offload.operations.command import COMMANDS
from offload.token_rights import RIGHTS_KEY, Grant, Rights, Role
from tests.worlds.services import serving

WEB_READER = Rights("reader", (Grant(Role.READ, ("web", "app-*")),))
READER = Rights("reader", (Grant(Role.READ, ("*",)),))
WEB_ADMIN = Rights("admin", (Grant(Role.ADMIN, ("web",)), Grant(Role.READ, ("app",))))


def test_each_route_is_declared_with_its_role_and_no_declaration_is_left_over(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore()) as service:
            tenants = Tenants(tmp_path, service.settings, {})
            found = (*http.make_app(service).routes, *make_root_app(tenants).routes)
            routes = [route for route in found if isinstance(route, RoledRoute)]
            assert len(routes) == len(found)
            roles.update({(method, each.path): each.roles[method] for each in routes for method in each.roles})

    roles: dict[tuple[str, str], Role | None] = {}
    asyncio.run(run())
    declared = {(each.method, each.path): each.role for each in OPERATIONS}
    of_commands = {("POST", f"{prefix}/rpc/{{command:path}}"): Role.READ for prefix in ("", "/topics/{topic}")}
    del declared["HEAD", "/topics/{topic}/records"]  # the route of GET takes it, with the same role
    assert roles == declared | of_commands
    assert [path for (_, path), role in roles.items() if role is None] == ["/healthz"]
    high = {path for (method, path), role in roles.items() if method == "GET" and role and role > Role.READ}
    assert high == {"/tenants", "/topics/{topic}/queues/{queue}/work"}  # work hands out jobs, so it is a change


def test_a_route_without_a_role_does_not_start() -> None:
    with pytest.raises(AttributeError):
        guarded(Route("/secret", lambda _: Response()))  # type: ignore[arg-type]


def test_each_command_has_a_role_and_one_that_always_reads_needs_read() -> None:
    for_readers = {path for path, each in COMMANDS.items() if each.role == "read"}
    assert for_readers == {path for path, each in COMMANDS.items() if path in ("read", "tail") or _reads_always(path)}


def _reads_always(path: str) -> bool:
    try:
        return COMMANDS[path].reads({})
    except KeyError:
        return False


@pytest.mark.parametrize(
    ("rights", "path", "given", "is_allowed"),
    [
        (WEB_READER, "read", {"topic": "web"}, True),
        (WEB_READER, "read", {"topic": "web@try", "follow": True}, True),
        (WEB_READER, "read", {"topic": "orders"}, False),
        (WEB_READER, "read", {"topic": "orders@web"}, False),
        (WEB_READER, "delete", {"topic": "web", "before": 3, "yes": True}, False),
        (WEB_READER, "delete", {"topic": "web", "before": 3, "dry_run": True}, True),
        (WEB_READER, "topic/list", {}, True),
        (WEB_READER, "status", {}, False),
        (WEB_READER, "status", {"topic": "web"}, True),
        (WEB_READER, "diff", {"left": "web:lsn:7", "right": "app-1"}, True),
        (WEB_READER, "diff", {"left": "web", "right": "orders:lsn:7"}, False),
        (WEB_READER, "branch/diff", {"left": "orders", "right": "web"}, False),
        (WEB_READER, "oplog", {}, False),
        (WEB_READER, "uploads", {}, False),
        (WEB_READER, "resolve", {"topic": "web", "to": "head"}, True),
        (WEB_READER, "resolve", {"topic": "web", "to": "head", "pin": "p"}, False),
        (READER, "oplog", {}, True),
        (READER, "status", {}, True),
        (READER, "gc", {}, False),
        (READER, "undo", {}, False),
        (WEB_ADMIN, "delete", {"topic": "web", "before": 3, "yes": True}, True),
        (WEB_ADMIN, "delete", {"topic": "app", "before": 3, "yes": True}, False),
        (WEB_ADMIN, "gc", {}, False),
        (WEB_ADMIN, "offload", {}, False),
        (WEB_ADMIN, "undo", {"change": "web", "commit": "lsn:3"}, True),
        (WEB_ADMIN, "undo", {"change": "web"}, True),
        (WEB_ADMIN, "undo", {"change": "7"}, False),
        (WEB_ADMIN, "pin/release", {"name": "web"}, False),
    ],
)  # fmt: skip
def test_a_command_needs_its_role_on_each_topic_that_it_names(
    rights: Rights, path: str, given: dict[str, object], is_allowed: bool
) -> None:
    command = COMMANDS[path]
    request = Request({"type": "http", RIGHTS_KEY: rights})
    if is_allowed:
        check_command(request, command, command.arguments(given))
        return
    with pytest.raises(NotAllowed):
        check_command(request, command, command.arguments(given))
