"""The OpenAPI document, made from what the API is: its operations, and the types of the commands."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from offload.daemon.http.operations import ERRORS, OPERATIONS, TOPIC, Operation, lines_of, ref
from offload.daemon.http.stream_operations import STREAM_OPERATIONS
from offload.operations.command import SHOWN_TYPE, Command, Parameter, schemas
from offload.operations.results import schemas_of

__all__ = ["openapi"]

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_SEQ_OR_NULL = {"type": ["integer", "null"]}
_TAGS = {
    "probes": "What the daemon tells of itself.",
    "daemon": "Its state changes.",
    "topics": "Topics and their bounds.",
    "records": "Appends and reads.",
    "streams": "Durable Streams: streams of bytes or JSON messages.",
    "commands": "The commands of the command line. Options have their names, with underscores.",
}
_FOR_PEOPLE = {SHOWN_TYPE: {"schema": {"description": "For people: all fields, progress, and an error as a line."}}}
_COMMAND_ERRORS = (404, 409, 410, 415, 422, 507)


def openapi(commands: Mapping[str, Command]) -> dict[str, Any]:
    """Return the document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in (*OPERATIONS, *STREAM_OPERATIONS):
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.json()
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
            "responses": {str(status): _problem(status, about) for status, about in ERRORS.items()},
        },
        "security": [{}, {"token": []}],
    }


def _command(command: Command, *, by_topic: bool) -> Operation:
    own = {name: each for name, each in command.parameters.items() if not (by_topic and name == "topic")}
    body = {
        "type": "object",
        "additionalProperties": False,
        "properties": {command.shown_name(each): _schema(each) for each in own.values()},
        "required": [command.shown_name(each) for each in own.values() if each.default is ...],
    }
    kinds = list(schemas_of(command.function))
    example = f'{{"schema": 1, "kind": "{kinds[0]}"}}\n'
    lines = lines_of({"anyOf": [ref(kind) for kind in kinds]}, example)
    return Operation(
        "POST",
        f"/rpc/{command.path}",
        f"{command.path.replace('/', '_')}{'_of_topic' if by_topic else ''}",
        "commands",
        command.help.partition("\n")[0],
        {200: ("One JSON object a line.", lines | _FOR_PEOPLE)},
        errors=_COMMAND_ERRORS,
        parameters=(TOPIC,) if by_topic else (),
        body={"required": bool(body["required"]), "content": {"application/json": {"schema": body}}},
    )


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": parameter.about.help}
    if issubclass(parameter.kind, enum.Enum):
        schema |= {"type": "string", "enum": [each.value for each in parameter.kind]}
    else:
        schema["type"] = _TYPES[parameter.kind]
    if parameter.kind in (int, float):
        schema |= {"minimum": parameter.about.least or 0, "maximum": 2**63 - 1}
    return schema


def _problem(status: int, about: str) -> dict[str, Any]:
    example = {"title": "NoSuchTopic", "status": status, "detail": "there is no topic orders"}
    content: dict[str, Any] = {"schema": ref("problem")}
    if status == 404:
        content["example"] = example
    headers = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    found: dict[str, Any] = {"description": about, "content": {"application/problem+json": content}}
    return {**found, "headers": headers} if status in (429, 503, 507) else found


def _object(required: Iterable[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _own_schemas() -> dict[str, Any]:
    """Return the schemas of bodies and answers that are no results of commands."""
    text, whole, switch = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
    states = {"enum": ["opening", "open", "failed"]}
    tenant = _object(("name", "state"), name=text, state=states, error=text)
    problem = _object(("title", "status", "detail"), title=text, status=whole, detail=text, hint=text, reason=text)
    return {
        "problem": {**problem, "description": "RFC 9457. `title` is the class of the error. `reason` is of Refused."},
        "health": _object(("status",), status={"enum": ["ok", "poisoned"]}),
        "ready": _object(
            ("ready", "disk", "stopping"), ready=switch, disk={"enum": ["fine", "alarm", "full"]}, stopping=switch
        ),
        "tenants": _object(("tenants",), tenants={"type": "array", "items": tenant}),
        "topics": _object(("topics",), topics={"type": "array", "items": text}),
        "index_bounds": _object(
            ("earliest_seq", "head_seq", "hot_first_seq"), earliest_seq=whole, head_seq=whole, hot_first_seq=whole
        ),
        "records_appended": _object(
            ("first_seq", "last_seq", "appended", "next_seq", "incarnation"),
            first_seq=_SEQ_OR_NULL, last_seq=_SEQ_OR_NULL, appended=whole, next_seq=whole, incarnation=text,
            duplicate=switch,
        ),
        "truncate": {
            **_object(
                ("seq",), seq={"type": "integer", "minimum": 1, "maximum": 2**63 - 1}, message=text, dry_run=switch,
                yes={"type": "boolean", "default": True},
            ),
            "additionalProperties": False,
        },
        "truncated": _object(
            ("topic", "head_seq", "lsn", "waits_for"),
            topic=text, head_seq=whole, lsn=_SEQ_OR_NULL, waits_for={"type": ["string", "integer", "null"]},
        ),
        "line": {
            **_object((), value={}, value_base64=text, tag=text, node=text, unterminated=switch),
            "description": "Either `value` or `value_base64`.",
        },
    }  # fmt: skip
