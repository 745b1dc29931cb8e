"""The OpenAPI document, made from what the API is: its operations, and the types of the commands."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from offload.daemon.http import (
    appends,
    commit_news,
    cursors,
    events,
    objects,
    probes,
    queues,
    reads,
    tenant_router,
    tickets,
    topic_events,
    topics,
    websocket,
)
from offload.daemon.http import operations as api
from offload.daemon.http.stream_operations import STREAM_OPERATIONS
from offload.operations.command import SHOWN_TYPE, Command, Parameter, schemas
from offload.operations.result_json import schemas_of
from offload.token_rights import Role

OPERATIONS: Final[tuple[api.Operation, ...]] = (
    probes.HEALTH,
    probes.READY,
    probes.METRICS,
    probes.OPENAPI,
    events.EVENTS,
    tenant_router.TENANTS,
    topics.NAMES,
    topics.BOUNDS,
    reads.READ,
    reads.HEAD,
    appends.APPEND,
    appends.APPEND_ONE,
    reads.RECORD,
    topic_events.EVENTS,
    tickets.TICKETS,
    topics.TRUNCATE,
    cursors.LIST,
    cursors.ACKS,
    *queues.QUEUE_OPERATIONS,
    objects.OBJECTS,
    objects.OBJECT,
    commit_news.FORWARD,
    websocket.SOCKET,
    *STREAM_OPERATIONS,
)
"""The operations that are no commands, in the order of the document."""

_TAGS = {
    "probes": "What the daemon tells of itself.",
    "daemon": "Its state changes.",
    "topics": "Topics and their bounds.",
    "records": "Appends, reads and acks.",
    "objects": "Objects of the remote, from a daemon that is a proxy.",
    "streams": "Durable Streams: streams of bytes or JSON messages.",
    "commands": "The commands of the command line. Options have their names, with underscores.",
}
_FOR_PEOPLE = {SHOWN_TYPE: {"schema": {"description": "For people: all fields, progress, and an error as a line."}}}
_COMMAND_ERRORS = (404, 409, 410, 415, 422, 507)


def openapi(commands: Mapping[str, Command]) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path.replace(":path}", "}"), {})[operation.method.lower()] = operation.json()
    for command in commands.values():
        paths[f"/rpc/{command.path}"] = {"post": _command(command, by_topic=False).json()}
        path = f"/topics/{{topic}}/rpc/{command.path}"
        if "topic" in command.parameters and path not in paths:
            paths[path] = {"post": _command(command, by_topic=True).json()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "seglog", "version": version("seglog"), "description": "A log, and its archive."},
        "tags": [{"name": name, "description": about} for name, about in _TAGS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {**schemas(), **_own_schemas()},
            "responses": {str(status): _problem(status, about) for status, about in api.ERRORS.items()},
        },
        "security": [{}, {"token": []}],
    }


def _command(command: Command, *, by_topic: bool) -> api.Operation:
    own = {name: each for name, each in command.parameters.items() if not (by_topic and name == "topic")}
    body = {
        "type": "object",
        "additionalProperties": False,
        "properties": {command.shown_name(each): _schema(each) for each in own.values()},
        "required": [command.shown_name(each) for each in own.values() if each.default is ...],
    }
    kinds = list(schemas_of(command.function))
    example = f'{{"schema": 1, "kind": "{kinds[0]}"}}\n'
    lines = api.lines_of({"anyOf": [api.ref(kind) for kind in kinds]}, example)
    return api.Operation(
        "POST",
        f"/rpc/{command.path}",
        f"{command.path.replace('/', '_')}{'_of_topic' if by_topic else ''}",
        Role[command.role.upper()],
        "commands",
        command.help.partition("\n")[0],
        {200: ("One JSON object a line.", lines | _FOR_PEOPLE)},
        errors=_COMMAND_ERRORS,
        parameters=(api.TOPIC,) if by_topic else (),
        body={"required": bool(body["required"]), "content": {"application/json": {"schema": body}}},
    )


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": parameter.about.help}
    if issubclass(parameter.kind, enum.Enum):
        schema |= {"type": "string", "enum": [each.value for each in parameter.kind]}
    else:
        schema["type"] = api.TYPES[parameter.kind]
    if parameter.kind in (int, float):
        schema |= {"minimum": parameter.about.least or 0, "maximum": 2**63 - 1}
    return schema


def _problem(status: int, about: str) -> dict[str, Any]:
    example = {"title": "NoSuchTopic", "status": status, "detail": "there is no topic orders"}
    content: dict[str, Any] = {"schema": api.ref("problem")}
    if status == 404:
        content["example"] = example
    headers = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    found: dict[str, Any] = {"description": about, "content": {"application/problem+json": content}}
    return {**found, "headers": headers} if status in (429, 503, 507) else found


def _own_schemas() -> dict[str, Any]:
    """Return the schemas of bodies and answers that are no results of commands."""
    problem = api.object_of(
        "hint", "reason", "class", "fields", title=str, status=int, detail=str, hint=str, reason=str, fields={},
        **{"class": str},
    )  # fmt: skip
    about = "RFC 9457. `title` is the name of the error, `class` that of its Python class. `reason` is of Refused."
    found = {"problem": {**problem, "description": about}}
    for operation in OPERATIONS:
        found |= operation.schemas
    fields = {"value": {}, "value_base64": str, "tag": str, "node": str, "unterminated": bool}
    line = api.object_of(*fields, **fields)
    return {**found, "line": {**line, "description": "Either `value` or `value_base64`."}}
