"""The routes that run commands (offload.daemon.jobs)."""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from offload.daemon.asgi import STREAM_KEY
from offload.daemon.http.answers import begun
from offload.daemon.http.parameters import json_of, query_of
from offload.daemon.http.roles import check_command, shown_to
from offload.daemon.jobs import Stream, encode_end, start
from offload.daemon.revocation import keep_open
from offload.daemon.service import Service
from offload.daemon.streams.reserved import check_command_on
from offload.errors import InvalidParameters, NoSuchCommand, Stopping
from offload.operations.command import COMMANDS, Command
from offload.operations.results import problem
from offload.rights import rights_of
from offload.wire import LINES_HEADER, STREAM_TYPE, encode_message

__all__ = ["command_routes", "run_command"]

_log = logging.getLogger("seglog.daemon")
_JSON_LINES_TYPE = "application/x-ndjson"
_HINT = 'send the arguments and options of the command as an object, such as {"topic": "orders"}'


def command_routes(service: Service) -> list[Route]:
    commands = _Commands(service)
    return [
        Route("/topics/{topic}/rpc/{command:path}", commands.command, methods=["POST"]),
        Route("/rpc/{command:path}", commands.command, methods=["POST"]),
    ]


class _Commands:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def command(self, request: Request) -> Response:
        path = request.path_params["command"]
        command = COMMANDS.get(path)
        if command is None:
            raise NoSuchCommand(path, difflib.get_close_matches(path, COMMANDS))
        query_of(request)
        given = await json_of(request, _HINT)
        if "topic" in request.path_params:
            given = {**given, "topic": request.path_params["topic"]}
        values = command.arguments(given)
        check_command(request, command, values)
        if not command.reads(values):
            check_command_on(path, values)
        is_stream = request.headers.get("accept") == STREAM_TYPE
        return await run_command(self._service, command, values, request, is_stream=is_stream)


async def run_command(
    service: Service, command: Command, values: dict[str, Any], request: Request, *, is_stream: bool = False
) -> Response:
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
    takes_lines = is_stream and LINES_HEADER in request.headers
    stream = start(
        service, command, values,
        client=rights.name, shows=shown_to(rights, command),
        is_stream=is_stream, remote=remote, takes_lines=takes_lines,
    )  # fmt: skip
    if is_stream:
        return await begun(request, _messages(stream), STREAM_TYPE)
    return await begun(request, _results(command, stream), _JSON_LINES_TYPE)


async def _messages(stream: Stream) -> AsyncGenerator[bytes]:
    try:
        while True:
            kind, body = await stream.take()
            if kind == b"x":
                yield encode_end(stream.error)
                return
            yield encode_message(kind, body)
    finally:
        stream.abandon()


async def _results(command: Command, stream: Stream) -> AsyncGenerator[bytes]:
    is_begun = False
    try:
        while True:
            kind, body = await stream.take()
            if kind == b"o" and body:
                is_begun = True
                yield body
            if kind == b"x":
                error = _in_json(command, stream.error)
                if error is not None and not is_begun and isinstance(error, Exception):
                    raise error
                if error is not None:
                    yield json.dumps({"error": problem(error)}).encode() + b"\n"
                return
    finally:
        stream.abandon()


def _in_json(command: Command, error: BaseException | None) -> BaseException | None:
    """Return the error of a command. If the error names options, it names them as a request does."""
    if type(error) is not InvalidParameters:
        return error
    return InvalidParameters(command.in_json(str(error)), hint=error.hint).with_traceback(error.__traceback__)
