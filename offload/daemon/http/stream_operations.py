"""The operations of Durable Streams, as the OpenAPI document describes them.

A path may have slashes, which OpenAPI cannot say of a parameter.
"""

from __future__ import annotations

from typing import Any, Final

from offload.daemon.http import operations as api
from offload.token_rights import Role

_PATH = "/streams/{path:path}"
_WHOLE_MAX = 2**53 - 1


def _parameter(name: str, place: str, about: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "description": about, "schema": {"type": "string", **schema}}


def _whole(name: str, about: str) -> dict[str, Any]:
    return _parameter(name, "header", about, type="integer", minimum=0, maximum=_WHOLE_MAX)


_STREAM = {
    **_parameter("path", "path", "The path of the stream. Slashes in it stay as they are."),
    "required": True,
    "example": "orders/eu",
}
_TYPE = _parameter("Content-Type", "header", "The type of the stream. With application/json, a message is a record.")
_CLOSED = _parameter("Stream-Closed", "header", "Close the stream, after the body.", enum=["true"])
_CREATE = (
    _whole("Stream-TTL", "Seconds from the last read or append until the stream expires."),
    _parameter("Stream-Expires-At", "header", "The time at which it expires.", format="date-time"),
    _CLOSED,
    _parameter("Stream-Forked-From", "header", "The path of the source, with /streams/. The stream is then a fork."),
    _parameter("Stream-Fork-Offset", "header", "Where the fork begins. Without it, at the tail of the source."),
    _whole("Stream-Fork-Sub-Offset", "Messages or bytes behind Stream-Fork-Offset."),
)
_APPEND = (
    _parameter("Stream-Seq", "header", "A text that grows with each append.", maxLength=1024),
    _CLOSED,
    _parameter("Producer-Id", "header", "The producer, with Producer-Epoch and Producer-Seq."),
    _whole("Producer-Epoch", "A lower one than the newest is refused."),
    _whole("Producer-Seq", "The number of the batch."),
)
_READ = (
    _parameter("offset", "query", "Where to begin: an offset, -1 for the beginning, now for the tail."),
    _parameter("live", "query", "Wait at the tail, for up to 20 s or 60 s.", enum=["long-poll", "sse"]),
    _parameter("cursor", "query", "The Stream-Cursor of the answer before."),
    _parameter("If-None-Match", "header", "The ETag of an earlier answer."),
)
_NEXT = {
    "stream-next-offset": "The offset behind the last record.",
    "stream-closed": "`true` if the stream ends there.",
}
_EXPIRY = {"stream-ttl": "Its time to live, in seconds.", "stream-expires-at": "The time at which it expires."}
_CONTENT = {
    "application/octet-stream": {"schema": api.BYTES},
    "application/json": {"schema": {}, "example": [{"n": 1}]},
}
_MESSAGES = {
    "application/octet-stream": {"schema": api.BYTES},
    "application/json": {"schema": {"type": "array"}, "example": [{"n": 1}, {"n": 2}]},
}
_EVENTS = (
    'event: data\ndata:[{"n": 1}]\n\nevent: control\n'
    'data:{"streamNextOffset":"0000000000000001_0000000000000001","upToDate":true}\n\n'
)

STREAM_OPERATIONS: Final[tuple[api.Operation, ...]] = (
    api.Operation(
        "PUT", _PATH, "createStream", Role.APPEND, "streams",
        "Make a stream, or a fork of one. The body is its first data.",
        {201: ("The stream is new.", {}), 200: ("It exists with the same configuration.", {})},
        errors=(409, 415, 501, 507), parameters=(_STREAM, _TYPE, *_CREATE), body={"content": _CONTENT},
        headers={
            **_NEXT, **_EXPIRY, "location": "The URL of a new stream.", "content-type": "The type of the stream.",
        },
    ),
    api.Operation(
        "POST", _PATH, "appendToStream", Role.APPEND, "streams",
        "Append the body, close the stream, or both in one write.",
        {
            204: ("The data are in. With a producer, they were in already.", {}),
            200: ("The data of a producer are in.", {}),
        },
        errors=(404, 409, 410, 415, 507), parameters=(_STREAM, _TYPE, *_APPEND), body={"content": _CONTENT},
        headers={
            **_NEXT, "producer-epoch": "The epoch of the producer.", "producer-seq": "The last number of the producer.",
        },
    ),
    api.Operation(
        "GET", _PATH, "readStream", Role.READ, "streams", "Read from an offset, and wait for more.",
        {
            200: ("The data.", {**_MESSAGES, "text/event-stream": {"schema": api.TEXT, "example": _EVENTS}}),
            204: ("Nothing came in time.", {}),
            304: ("The data have not changed.", {}),
        },
        errors=(404, 410), parameters=(_STREAM, *_READ),
        headers={
            **_NEXT, "stream-up-to-date": "`true` at the tail.", "stream-cursor": "`cursor` of the next request.",
            "etag": "Of the data.",
        },
    ),
    api.Operation(
        "HEAD", _PATH, "headStream", Role.READ, "streams", "The configuration of a stream, and its tail.",
        {200: ("The headers describe the stream.", {})}, errors=(404, 410), parameters=(_STREAM,),
        headers={**_NEXT, **_EXPIRY, "content-type": "The type of the stream."},
    ),
    api.Operation(
        "DELETE", _PATH, "deleteStream", Role.ADMIN, "streams", "Delete a stream. Records that forks need stay.",
        {204: ("The stream is deleted.", {})}, errors=(404, 410), parameters=(_STREAM,),
    ),
)  # fmt: skip
"""The operations, in the order of the document."""
