"""The OpenAPI document, made from what the API is: its routes, and the types of the commands."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from offload.commands.parameters import Parameter
from offload.commands.registry import Command
from offload.commands.schemas import schemas, schemas_of
from offload.wire import LINES_TYPE, VALUES_TYPE

__all__ = ["openapi"]

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_TOPIC = {"name": "topic", "in": "path", "required": True, "schema": {"type": "string"}}
_PROBLEM = {"description": "what is wrong, and what to do", "content": {"application/problem+json": {"schema": {
    "type": "object", "properties": {name: {"type": "string"} for name in ("title", "detail", "hint")},
}}}}  # fmt: skip
_JSON_ANSWER = {"description": "done", "content": {"application/json": {"schema": {"type": "object"}}}}
_APPENDED = {
    "type": "object",
    "required": ["first_seq", "last_seq", "appended", "next_seq", "incarnation"],
    "properties": {
        "first_seq": {"type": ["integer", "null"]},
        "last_seq": {"type": ["integer", "null"]},
        "appended": {"type": "integer"},
        "next_seq": {"type": "integer"},
        "incarnation": {"type": ["string", "null"]},
        "duplicate": {"type": "boolean", "description": "only with a producer or a key"},
    },
}
_APPEND_ANSWERS = {
    "201": {"description": "appended", "content": {"application/json": {"schema": _APPENDED}}},
    "200": {"description": "an earlier request appended it", "content": {"application/json": {"schema": _APPENDED}}},
    **{
        status: {"description": told, "content": _PROBLEM["content"]}
        for status, told in (
            ("400", "the body or a header does not fit; `appended` of the records are in"),
            ("403", "ProducerFenced: `epoch` is the current one"),
            ("409", "ProducerGap: `expected` is the next batch; BatchForgotten"),
            ("412", "HeadMoved: the topic ends with `head_seq`"),
            ("413", "too large for a body that is all or none, or a record is"),
            ("415", "another Content-Type or Content-Encoding"),
            ("422", "KeyReused, or the topic is full"),
            ("429", "too much is under way: try again after Retry-After seconds"),
        )
    },
}
_APPEND_HEADERS = [
    {"name": name, "in": "header", "schema": schema}
    for name, schema in (
        ("Producer-Id", {"type": "string", "minLength": 1, "maxLength": 256}),
        ("Producer-Epoch", {"type": "integer", "minimum": 0}),
        ("Producer-Seq", {"type": "integer", "minimum": 0}),
        ("Idempotency-Key", {"type": "string", "minLength": 1, "maxLength": 256}),
        ("seglog-if-head", {"type": "integer", "minimum": 0}),
        ("Content-Encoding", {"type": "string", "enum": ["zstd", "gzip", "identity"]}),
    )
]
_LINES = "one JSON object a line"
_BYTES = {"schema": {"type": "string", "format": "binary"}}


def openapi(commands: Mapping[str, Command]) -> dict[str, Any]:
    paths = _records()
    for command in commands.values():
        paths[f"/rpc/{command.path}"] = {"post": _command(command, by_topic=False)}
        if "topic" in command.parameters:
            paths[f"/topics/{{topic}}/rpc/{command.path}"] = {"post": _command(command, by_topic=True)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "seglog", "version": version("seglog"), "description": "A log, and its archive."},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": schemas()},
        "security": [{}, {"token": []}],
    }


def _records() -> dict[str, Any]:
    append_query = [_query(name, "string") for name in ("tag", "node", "durability")]
    append_query += [_query(name, "boolean") for name in ("unterminated", "whole")]
    read_query = [_query(name, "integer") for name in ("from", "to", "since_ms", "until_ms", "limit")]
    read_query += [_query("tag", "string"), _query("gaps", "boolean"), _query("follow", "boolean")]
    types = ("application/octet-stream", "application/x-ndjson", VALUES_TYPE, LINES_TYPE)
    body = {"required": True, "content": dict.fromkeys(types, _BYTES)}
    seq = {"name": "seq", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}
    value = {"description": "the value", "content": {"application/octet-stream": _BYTES}}
    truncate = {"type": "object", "required": ["seq"], "properties": {"seq": {"type": "integer"}}}
    return {
        "/healthz": {"get": _operation("Whether what was acked is safe.", {"200": _JSON_ANSWER, "503": _JSON_ANSWER})},
        "/readyz": {"get": _operation("Whether appends are taken.", {"200": _JSON_ANSWER, "503": _JSON_ANSWER})},
        "/metrics": {"get": _operation("For Prometheus.", {"200": {"description": "its text format"}})},
        "/topics": {"get": _operation("Names of the topics.", {"200": _JSON_ANSWER})},
        "/topics/{topic}/index_bounds": {
            "get": _operation("Where a topic begins and ends.", {"200": _JSON_ANSWER}, [_TOPIC])
        },
        "/topics/{topic}/records": {
            "get": _operation("Live records.", {"200": _lines_answer(["record", "gap"])}, [_TOPIC, *read_query]),
            "post": _operation("Append.", _APPEND_ANSWERS, [_TOPIC, *append_query, *_APPEND_HEADERS], body),
        },
        "/topics/{topic}/records/{seq}": {"get": _operation("One value.", {"200": value}, [_TOPIC, seq])},
        "/topics/{topic}/rpc/truncate": {
            "post": _operation(
                "Remove the records from a seq on.", {"200": _JSON_ANSWER}, [_TOPIC], _json_body(truncate)
            )
        },
    }


def _command(command: Command, *, by_topic: bool) -> dict[str, Any]:
    own = [each for each in command.parameters.values() if not (by_topic and each.name == "topic")]
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {each.name: _schema(each) for each in own},
        "required": [each.name for each in own if each.default is ...],
    }
    answers = {"200": _lines_answer(schemas_of(command.function))}
    return _operation(command.summary, answers, [_TOPIC] if by_topic else [], _json_body(schema))


def _lines_answer(kinds: Iterable[str]) -> dict[str, Any]:
    """Return the answer of a command with results of these kinds."""
    schema = {"anyOf": [{"$ref": f"#/components/schemas/{kind}"} for kind in kinds]}
    return {"description": _LINES, "content": {"application/x-ndjson": {"schema": schema}}}


def _operation(
    summary: str, answers: dict[str, Any], parameters: list[Any] | None = None, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    operation = {"summary": summary, "parameters": parameters or [], "responses": {**answers, "default": _PROBLEM}}
    return {**operation, "requestBody": body} if body else operation


def _json_body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": bool(schema.get("required")), "content": {"application/json": {"schema": schema}}}


def _query(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": kind}}


def _schema(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": parameter.about.help}
    if issubclass(parameter.kind, enum.Enum):
        schema |= {"type": "string", "enum": [each.value for each in parameter.kind]}
    else:
        schema["type"] = _TYPES[parameter.kind]
    if parameter.about.least is not None:
        schema["minimum"] = parameter.about.least
    return schema
