"""The routes that run commands (offload.daemon.jobs)."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from offload.daemon.asgi import STREAM_KEY
from offload.daemon.http.answers import begun
from offload.daemon.http.operations import RoledRoute
from offload.daemon.http.parameters import json_of, query_of
from offload.daemon.http.roles import check_command, shown_to
from offload.daemon.jobs import Stream, start
from offload.daemon.problems import line_of
from offload.daemon.reserved import check_command_on
from offload.daemon.revocation import keep_open
from offload.daemon.service import Service
from offload.errors import Misuse, Stopping
from offload.operations.command import COMMANDS, LINES_HEADER, SHOWN_TYPE, Command
from offload.token_rights import Role, rights_of
from seglog.base.errors import Missing

_log = logging.getLogger("seglog.daemon")
_JSON_LINES_TYPE = "application/x-ndjson"
_ON_ROUTERS = frozenset({"router/delete", "router/pause", "router/resume"})
_HINT = 'send the arguments and options of the command as an object, such as {"topic": "orders"}'


def command_routes(service: Service) -> list[RoledRoute]:
    commands, roles = _Commands(service), {"POST": Role.READ}  # the command decides: `check_command`
    paths = ("/topics/{topic}/rpc/{command:path}", "/rpc/{command:path}")
    return [RoledRoute(path, commands.command, roles) for path in paths]


class _Commands:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def command(self, request: Request) -> Response:
        path = request.path_params["command"]
        command = COMMANDS.get(path)
        if command is None:
            like = " or ".join(difflib.get_close_matches(path, COMMANDS))
            hint = f"did you mean {like}?" if like else "GET /openapi.json has the commands"
            raise Missing(f"there is no command {path[:100]}", hint=hint)
        query_of(request)
        given = await json_of(request, _HINT)
        if "topic" in request.path_params:
            given = {**given, "topic": request.path_params["topic"]}
        values = command.arguments(given)
        more = await self._service.routers.topics_of(values["name"]) if path in _ON_ROUTERS else []
        check_command(request, command, values, more)
        if not command.reads(values):
            check_command_on(path, values)
        return await run_command(self._service, command, values, request)


async def run_command(service: Service, command: Command, values: dict[str, Any], request: Request) -> Response:
    """Run a command and answer with its results. The caller has checked the client's rights."""
    if service.stopping.is_set():
        raise Stopping
    rights = rights_of(request.scope)
    if rights.name and not command.reads(values):
        _log.info("%s runs %s %s", rights.name, command.path, values.get("topic") or "")
    request.scope[STREAM_KEY] = bool(values.get("follow"))
    if request.scope[STREAM_KEY]:
        keep_open(request.scope)
    remote = request.headers.get("seglog-remote")
    for_people = request.headers.get("accept") == SHOWN_TYPE
    stream = start(
        service, command, values,
        client=rights.name, shows=shown_to(rights, command),
        for_people=for_people, remote=remote, takes_lines=for_people and LINES_HEADER in request.headers,
    )  # fmt: skip
    return await begun(
        request, _lines(command, stream, for_people=for_people), SHOWN_TYPE if for_people else _JSON_LINES_TYPE
    )


async def _lines(command: Command, stream: Stream, *, for_people: bool) -> AsyncGenerator[bytes]:
    """Yield the lines of an answer. An error before them becomes its status, unless the client shows it to people."""
    is_begun = for_people
    try:
        while (line := await stream.take()) is not None:
            if line:
                is_begun = True
                yield line
        error = stream.error if for_people else _in_json(command, stream.error)
        if error is not None and not is_begun and isinstance(error, Exception):
            raise error
        if error is not None:
            yield json.dumps({"error": line_of(error)}).encode() + b"\n"
    finally:
        stream.abandon()


def _in_json(command: Command, error: BaseException | None) -> BaseException | None:
    """Return the error of a command. If the error names options, it names them as a request does."""
    if type(error) is not Misuse:
        return error
    return Misuse(command.in_json(str(error)), hint=error.hint).with_traceback(error.__traceback__)
