"""The operations of the API that are no commands, as the OpenAPI document describes them.

Each one has a line in `offload.daemon.http.roles`, too. A test compares both with the routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seglog.client.bodies import LINES_TYPE, VALUES_TYPE

__all__ = ["ERRORS", "OPERATIONS", "TOPIC", "Operation", "lines_of", "ref"]

_NDJSON = "application/x-ndjson"
_BYTES = {"type": "string", "format": "binary"}

ERRORS: Final[Mapping[int, str]] = {
    400: "The request does not fit.",
    401: "The token is missing or wrong.",
    403: "The token lacks the role, or the web page is not on the list.",
    404: "The topic, the record or the name does not exist.",
    405: "The path has no such method.",
    406: "The daemon has no such form of an answer.",
    408: "No byte of the body came in time.",
    409: "The state is in the way: the name is taken, or the topic diverged.",
    410: "Retention removed the records.",
    412: "The head of the topic is another one.",
    413: "The body or a record is too large.",
    415: "The content type says nothing about records.",
    421: "The daemon does not answer for this host name.",
    422: "The topic is at its cap.",
    429: "The daemon has as many requests as it takes. Send it again after `Retry-After` seconds.",
    431: "The head is larger than 64 KiB.",
    500: "The daemon, its data or its remote is at fault.",
    501: "A fork needs a remote, and the daemon has none.",
    503: "The remote, or this log, cannot now.",
    507: "The disk has no room.",
}
"""The statuses of errors."""

_ALWAYS = (400, 401, 403, 405, 408, 413, 421, 429, 431, 500, 503)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `answers` are its successes by status: the description, and the content by type."""

    method: str
    path: str
    id: str
    tag: str
    summary: str
    answers: Mapping[int, tuple[str, Mapping[str, Any]]]
    errors: tuple[int, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    body: Mapping[str, Any] | None = None
    needs_token: bool = True
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

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
        if not self.needs_token:
            found["security"] = [{}]
        return found


def ref(schema: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{schema}"}


def lines_of(schema: Mapping[str, Any], example: str) -> dict[str, Any]:
    """Return the content of an answer with one JSON object a line. `schema` describes a line."""
    return {_NDJSON: {"schema": schema, "example": example}}


def _json(schema: str, example: Any) -> dict[str, Any]:
    return {"application/json": {"schema": ref(schema), "example": example}}


def _query(name: str, kind: str, about: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": about, "schema": {"type": kind, **more}}


def _seq(name: str, about: str) -> dict[str, Any]:
    return _query(name, "integer", about, minimum=0, maximum=2**63 - 1)


_NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
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
_SEQ = {
    "name": "seq",
    "in": "path",
    "required": True,
    "description": "The number of the record.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "example": 1,
}
_RECORD = '{"schema": 1, "kind": "record", "seq": 1, "ts_ms": 1785000000000, "value": "one"}\n'
_READ_QUERY = (
    _seq("from", "The first seq. Without it, the first one that exists."),
    _seq("to", "The last seq."),
    _seq("tail", "Begin so many seqs before the head, in the place of from and to."),
    _seq("since_ms", "Only records of this time or later, in ms since 1970."),
    _seq("until_ms", "Only records of this time or earlier, in ms since 1970."),
    _query("tag", "string", "Only records with this tag. A trailing * makes it a prefix."),
    _query("exclude_node", "string", "No records of this node. May be given several times."),
    _query("limit", "integer", "At most so many records.", minimum=1, maximum=2**63 - 1),
    _query(
        "max_bytes", "integer", "At most so many bytes of values. One record always fits.", minimum=1, maximum=2**63 - 1
    ),
    _query("gaps", "boolean", "Also tell the ranges that retention removed."),
    _query("follow", "boolean", "Continue with new records."),
    _query("wait_s", "integer", "Without records, wait so long for the first one.", minimum=0, maximum=60),
)
_READ_HEADERS = {
    "seglog-next-seq": "`from` of the next read.",
    "seglog-head": "The last seq of the topic when the read began.",
    "seglog-incarnation": "The identity of the topic in this directory.",
    "etag": "Of a range that cannot change any more.",
}
_APPEND_BODY = {
    "required": True,
    "content": {
        "application/octet-stream": {"schema": _BYTES, "example": "one record"},
        _NDJSON: {"schema": ref("line"), "example": '{"value": "one", "tag": "eu"}\n{"value_base64": "/w=="}\n'},
        VALUES_TYPE: {"schema": _BYTES},
        LINES_TYPE: {"schema": _BYTES, "example": "one\ntwo\n"},
    },
}
_APPEND_QUERY = (
    _query("tag", "string", "The tag of each record without its own."),
    _query("node", "string", "The node of each record without its own."),
    _query("durability", "string", "When the answer comes.", enum=["fsync", "disk", "memory", "ephemeral"]),
    _query("unterminated", "boolean", "The last line of the source has no line feed."),
    _query("whole", "boolean", "The append is all or none. The daemon then holds the whole body."),
)
_APPENDED = {"first_seq": 813, "last_seq": 813, "appended": 1, "next_seq": 814, "incarnation": "8f3a"}


def _header(name: str, kind: str, about: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": about, "schema": {"type": kind, **more}}


_APPEND_HEADERS = (
    _header("Producer-Id", "string", "The producer, with Producer-Epoch and Producer-Seq."),
    _header("Producer-Epoch", "integer", "A lower one than the newest is refused.", minimum=0, maximum=2**63 - 1),
    _header("Producer-Seq", "integer", "The number of the batch.", minimum=0, maximum=2**63 - 1),
    _header("Idempotency-Key", "string", "For a caller without a producer.", minLength=1, maxLength=256),
    _header("seglog-if-head", "integer", "Append only if the head is this seq.", minimum=0, maximum=2**63 - 1),
    _header("seglog-if-incarnation", "string", "Append only if the topic has this seglog-incarnation."),
    _header("Content-Encoding", "string", "The coding of the body.", enum=["identity", "gzip", "zstd"]),
)
_TRUNCATE_BODY = {
    "required": True,
    "content": {"application/json": {"schema": ref("truncate"), "example": {"seq": 1000}}},
}
_EVENT = 'event: offloaded\ndata: {"at": "2026-11-23T10:00:00.000Z", "topic": "orders", "offloaded_seq": 812}\n\n'

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET", "/healthz", "health", "probes", "Whether acked records are safe and the log is readable.",
        {
            200: ("They are.", _json("health", {"status": "ok"})),
            503: ("They are not.", _json("health", {"status": "poisoned"})),
        },
        needs_token=False,
    ),
    Operation(
        "GET", "/readyz", "ready", "probes", "Whether the daemon takes appends.",
        {
            200: ("It does.", _json("ready", {"ready": True, "disk": "fine", "stopping": False})),
            503: ("It does not.", _json("ready", {"ready": False, "disk": "full", "stopping": False})),
        },
    ),
    Operation(
        "GET", "/metrics", "metrics", "probes", "Figures for Prometheus, in its text format.",
        {200: ("The figures.", {"text/plain": {"schema": {"type": "string"}}})},
    ),
    Operation(
        "GET", "/openapi.json", "openapi", "probes", "This document.",
        {200: ("The document.", {"application/json": {"schema": {"type": "object"}}})},
    ),
    Operation(
        "GET", "/daemon/events", "events", "daemon", "State changes of the daemon, as server-sent events.",
        {200: ("The events, as they come.", {"text/event-stream": {"schema": {"type": "string"}, "example": _EVENT}})},
    ),
    Operation(
        "GET", "/tenants", "listTenants", "daemon", "The tenants of a daemon of many, for an unbound admin.",
        {200: ("The tenants.", _json("tenants", {"tenants": [{"name": "acme", "state": "open"}]}))}, errors=(404,),
    ),
    Operation(
        "GET", "/topics", "listTopics", "topics", "The names of the topics that the token may read, replicas too.",
        {200: ("The names.", _json("topics", {"topics": ["orders"]}))},
    ),
    Operation(
        "GET", "/topics/{topic}/index_bounds", "indexBounds", "topics", "Where a topic begins and ends.",
        {200: ("The bounds.", _json("index_bounds", {"earliest_seq": 1, "head_seq": 812, "hot_first_seq": 400}))},
        errors=(404, 409), parameters=(TOPIC,),
    ),
    Operation(
        "GET", "/topics/{topic}/records", "readRecords", "records", "Live records, in the form that `Accept` names.",
        {
            200: (
                "The records.",
                {
                    **lines_of({"anyOf": [ref("record"), ref("gap")]}, _RECORD),
                    "application/vnd.seglog.values.seqs": {"schema": _BYTES},
                    "application/vnd.apache.arrow.stream": {"schema": _BYTES},
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            ),
            304: ("The range has not changed.", {}),
        },
        errors=(404, 406, 409, 410), parameters=(TOPIC, *_READ_QUERY), headers=_READ_HEADERS,
    ),
    Operation(
        "HEAD", "/topics/{topic}/records", "headRecords", "records", "The bounds of a topic, in headers.",
        {200: ("The bounds.", {})}, errors=(404, 406, 409, 410), parameters=(TOPIC, *_READ_QUERY),
        headers={
            "seglog-earliest": "The first seq that exists.", "seglog-head": "The last seq.",
            "seglog-sealed": "The last seq of a sealed segment.", "seglog-epoch": "Rises with each truncation.",
            "seglog-incarnation": "The identity of the topic in this directory.",
        },
    ),
    Operation(
        "POST", "/topics/{topic}/records", "appendRecords", "records",
        "Append records. The content type says their form.",
        {
            201: ("The records are as safe as their durability says.", _json("records_appended", _APPENDED)),
            200: ("The records are in already.", _json("records_appended", {**_APPENDED, "duplicate": True})),
        },
        errors=(404, 409, 412, 415, 422, 507), parameters=(TOPIC, *_APPEND_QUERY, *_APPEND_HEADERS), body=_APPEND_BODY,
        headers={"seglog-incarnation": "The identity of the topic in this directory."},
    ),
    Operation(
        "GET", "/topics/{topic}/records/{seq}", "readRecord", "records", "The value of one record, unchanged.",
        {200: ("The value.", {"application/octet-stream": {"schema": _BYTES}})},
        errors=(404, 409, 410), parameters=(TOPIC, _SEQ),
        headers={
            "seglog-seq": "The number of the record.", "seglog-ts-ms": "Its time, in ms since 1970.",
            "seglog-tag": "Its tag, with percent signs.", "seglog-node": "Its node, with percent signs.",
        },
    ),
    Operation(
        "POST", "/topics/{topic}/rpc/truncate", "truncateTopic", "topics", "Remove the records from a seq on.",
        {200: ("The records are gone.", _json(
            "truncated", {"topic": "orders", "head_seq": 999, "lsn": 12, "waits_for": None}))},
        errors=(404, 409, 415), parameters=(TOPIC,), body=_TRUNCATE_BODY,
    ),
)  # fmt: skip
"""The operations, in the order of the document."""
