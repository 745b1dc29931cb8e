"""What an operation of the API declares once, beside its handler: its route, its role, and its entry in OpenAPI.

    NAMES = Operation("GET", "/topics", "listTopics", Role.READ, "topics", "The names of the topics.", {200: ...})
    NAMES.route(handler)

The list of them, in the order of the document, is in `offload.daemon.http.openapi`. A command needs none of this: its
function says all (offload.operations.command).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from starlette.routing import Route

from offload.token_rights import Role
from seglog.base.dataclasses import dataclass

NDJSON: Final = "application/x-ndjson"
BYTES: Final = {"type": "string", "format": "binary"}
TEXT: Final = {"type": "string"}
TYPES: Final[Mapping[Any, str]] = {str: "string", int: "integer", float: "number", bool: "boolean", None: "null"}

ERRORS: Final[Mapping[int, str]] = {
    400: "The request is malformed, or a value does not fit: `detail` names it.",
    401: "The token is missing, wrong or revoked.",
    403: "The token lacks the role for this, or `serve.allowed_origins` lacks the web page.",
    404: "The topic, the record or the name does not exist.",
    405: "The path does not take this method.",
    406: "The daemon has no answer of the type that `Accept` asks for.",
    408: "No byte of the body came in time. Send the request again.",
    409: "The request conflicts with the present state: the name is taken, or the topic diverged.",
    410: "Retention removed the records.",
    412: "A condition of the append does not hold: the topic has another head or incarnation. `title` says which.",
    413: "The body or a record is too large. Send fewer records at once.",
    415: "The content type is none that carries records.",
    416: "The range begins beyond the end of the object.",
    421: "The daemon does not answer for this host name.",
    422: "The topic is at its cap, or a key or a batch comes again with other records.",
    426: "The path is a WebSocket: connect with a client of WebSockets.",
    429: "Too many requests, records of a tenant, or keys of a topic. Retry after `Retry-After` seconds.",
    431: "The head of the request is larger than 64 KiB.",
    500: "Internal error: the daemon, its data or its remote is at fault.",
    501: "The daemon lacks what this needs: a remote for a fork, or a package for a WebSocket.",
    503: "Temporarily unavailable: the bucket or the disk does not answer, or the daemon is stopping.",
    507: "The disk is full, or a tenant is over its quota.",
}
"""The statuses of errors."""

_ALWAYS = (400, 401, 403, 405, 408, 413, 421, 429, 431, 500, 503)


class RoledRoute(Route):
    """A route with the role that each method needs (offload.daemon.http.roles). None: any client, without a token."""

    def __init__(self, path: str, endpoint: Any, roles: Mapping[str, Role | None]) -> None:
        super().__init__(path, endpoint, methods=[*roles])
        self.roles = roles


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `answers` are its successes by status: the description, and the content by type.

    `schemas` are those that it refers to by name.
    """

    method: str
    path: str
    id: str
    role: Role | None
    tag: str
    summary: str
    answers: Mapping[int, tuple[str, Mapping[str, Any]]]
    errors: tuple[int, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    schemas: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def route(self, endpoint: Any) -> RoledRoute:
        """Return the route that `endpoint` answers."""
        return RoledRoute(self.path, endpoint, {self.method: self.role})

    def json(self) -> dict[str, Any]:
        """Return the operation as the document has it."""
        headers = {name: {"description": about, "schema": {"type": "string"}} for name, about in self.headers.items()}
        responses: dict[str, Any] = {}
        for status, (about, content) in self.answers.items():
            responses[str(status)] = {"description": about, "content": dict(content), "headers": headers}
        for status in sorted({*_ALWAYS, *self.errors}):
            responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
        found: dict[str, Any] = {
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "parameters": list(self.parameters),
            "responses": responses,
        }
        if self.body is not None:
            found["requestBody"] = dict(self.body)
        if self.role is None:
            found["security"] = [{}]
        return found


def ref(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def lines_of(schema: Mapping[str, Any], example: str) -> dict[str, Any]:
    """Return the content of an answer with one JSON object a line. `schema` describes a line."""
    return {NDJSON: {"schema": schema, "example": example}}


def json_answer(schema: str, example: Any) -> dict[str, Any]:
    return {"application/json": {"schema": ref(schema), "example": example}}


def object_of(*optional: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object. A property is a type, several types, or a schema."""
    required = [name for name in properties if name not in optional]
    found = {name: _property(each) for name, each in properties.items()}
    return {"type": "object", "properties": found, "required": required}


def _property(kind: Any) -> Any:
    if isinstance(kind, tuple):
        return {"type": [TYPES[each] for each in kind]}
    return {"type": TYPES[kind]} if isinstance(kind, type) else kind


def in_query(name: str, kind: str, about: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": about, "schema": {"type": kind, **more}}


def in_header(name: str, kind: str, about: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": about, "schema": {"type": kind, **more}}


def names_of(parameters: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(each["name"] for each in parameters)


TOPIC: Final = {
    "name": "topic",
    "in": "path",
    "required": True,
    "description": "TOPIC or TOPIC@BRANCH.",
    "schema": {
        "type": "string",
        "pattern": r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}(@[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$",
    },
    "example": "orders",
}
