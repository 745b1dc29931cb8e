"""The answers of errors: application/problem+json (RFC 9457).

    member                              of
    title, status, detail               every error: the name of its class, the status, its message
    hint                                an error that knows the next step
    reason                              Refused, NotAllowed: a word that stays the same, such as `token`
    request_id                          a request: its id, as in the access log
    epoch                               ProducerFenced: the current epoch
    expected, received                  ProducerGap: the next number, and that of the request
    newest                              BatchForgotten: the number of the newest batch
    records                             BatchReused: the number of records that the batch had
    head_seq                            HeadMoved: the last seq
    first_seq, records                  KeyReused: the records that the key has
    seq, first, last                    SeqOutOfRange: the seq, and the bounds of the topic
    seq, epoch                          Truncated: the first seq that is gone, and the epoch after that
    gap_from, gap_to                    Evicted: the first and the last record that retention took
    incarnation                         OtherIncarnation: that of the topic, null without a topic
    class, fields                       an error that a log or an archive raises: the full name of its class, and all
                                        its fields, such as topic, seq and floor
    appended, first_seq, last_seq       an append of many parts: the records that are in

PROBLEM-1  A status 429, 503 or 507 comes with `Retry-After`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from starlette.responses import Response

from offload.daemon.asgi import Send, request_id
from offload.errors import BodyBroken, Busy, Refused, Stopping
from offload.operations.result_json import problem
from seglog import (
    BatchForgotten,
    BatchReused,
    Evicted,
    HeadMoved,
    KeyReused,
    OtherIncarnation,
    ProducerFenced,
    ProducerGap,
    SeglogError,
    SeqOutOfRange,
    TooManyKeys,
    Truncated,
)
from seglog.base.errors import ERROR_MODULES

RETRY_AFTER_S = 1
"""The time to wait where the daemon does not know better."""

ErrorAnswer: TypeAlias = tuple[int, list[tuple[bytes, bytes]], bytes]
"""The status, the headers and the body."""

# A client gets these, and the errors of this room, as a `DaemonError`, because no log and no archive raises them.
_OF_A_DAEMON = (BodyBroken, Busy, Refused, Stopping)
_NO_MEMBERS: Final[Mapping[str, Any]] = MappingProxyType({})
_BY_NAME = {
    "AppendsHeld": 507,
    "BatchReused": 422,
    "DiskFull": 507,
    "Evicted": 410,
    "HeadMoved": 412,
    "KeyReused": 422,
    "OtherIncarnation": 412,
    "OverQuota": 507,
    "ProducerFenced": 403,
    "RecordTooLarge": 413,
    "TooManyKeys": 429,
    "TopicFull": 422,
}
_BY_EXIT_CODE = {2: 400, 3: 404, 4: 409}
_BY_GROUP = {"Misuse": 400, "Missing": 404, "Conflict": 409, "Unavailable": 503}

# Members of the body, by error, each with the header that tells the same, and the field of the error that it has.
_MEMBERS: dict[type[BaseException], tuple[tuple[str, str | None, str], ...]] = {
    ProducerFenced: (("epoch", "producer-epoch", "current"),),
    ProducerGap: (("expected", "producer-expected-seq", "expected"), ("received", "producer-received-seq", "number")),
    BatchReused: (("records", None, "records"),),
    BatchForgotten: (("newest", None, "newest"),),
    HeadMoved: (("head_seq", "seglog-head", "head"),),
    KeyReused: (("first_seq", None, "first_seq"), ("records", None, "records")),
    SeqOutOfRange: (("seq", None, "seq"), ("first", None, "first"), ("last", "seglog-head", "last")),
    Truncated: (("seq", None, "seq"), ("epoch", "seglog-epoch", "epoch")),
    Evicted: (("gap_from", None, "gap_from"), ("gap_to", None, "gap_to")),
    OtherIncarnation: (("incarnation", None, "found"),),
}


def error_answer(error: Exception, members: Mapping[str, Any] = _NO_MEMBERS) -> ErrorAnswer:
    """Return the answer of an error, with further `members` of its body."""
    status = _status(error)
    report: dict[str, Any] = {"title": type(error).__name__, "status": status, "detail": str(error)}
    hint = getattr(error, "hint", None)
    if hint:
        report["hint"] = hint
    if isinstance(error, Refused):
        report["reason"] = error.reason
    if request_id.get():
        report["request_id"] = request_id.get()
    headers = [(b"content-type", b"application/problem+json")]
    report |= _members_of(error)
    for member, header, _ in _MEMBERS.get(type(error), ()):
        if header is not None:
            headers.append((header.encode(), str(report[member]).encode()))
    body = json.dumps({**report, **members}).encode()
    headers.append((b"content-length", str(len(body)).encode()))
    if status in (429, 503, 507):
        headers.append((b"retry-after", str(_retry_after_s(error)).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, Refused) and error.reason == "encoding":
        headers.append((b"accept-encoding", b"zstd, gzip"))
    return status, headers, body


def line_of(error: BaseException) -> dict[str, Any]:
    """Return the report of an error that comes after the first bytes of an answer, with the same members."""
    return {**problem(error), **_members_of(error)}


def _members_of(error: BaseException) -> dict[str, Any]:
    """Return the members of an error beside its text, from which a client makes the same error."""
    members = {member: getattr(error, field) for member, _, field in _MEMBERS.get(type(error), ())}
    is_of_daemon = isinstance(error, _OF_A_DAEMON) or type(error).__module__.startswith("offload.daemon")
    if is_of_daemon or not isinstance(error, SeglogError):
        return members
    kind = next(base for base in type(error).__mro__ if base.__module__ in ERROR_MODULES)
    return members | {"class": f"{kind.__module__}.{kind.__name__}", "fields": error.fields()}


def answer_of(error: Exception, members: Mapping[str, Any] = _NO_MEMBERS) -> Response:
    """Return the answer of an error (RFC 9457), with further members of its body."""
    status, headers, body = error_answer(error, members)
    response = Response(body, status)
    response.raw_headers = headers
    return response


async def refuse(refusal: Exception, send: Send) -> None:
    """Answer with an error, and close the connection, because nothing reads the rest of the body."""
    status, headers, body = error_answer(refusal)
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def _retry_after_s(error: Exception) -> int:
    if isinstance(error, Busy):
        return error.retry_after_s
    if isinstance(error, TooManyKeys):
        return max(RETRY_AFTER_S, math.ceil(error.free_ms / 1000))
    return RETRY_AFTER_S


def _status(error: Exception) -> int:
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, Busy):
        return 429
    for kind in type(error).__mro__:
        status = _BY_NAME.get(kind.__name__) or _BY_GROUP.get(kind.__name__)
        if status:
            return status
    return _BY_EXIT_CODE.get(getattr(error, "exit_code", 1), 500)
