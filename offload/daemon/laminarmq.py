"""The routes of laminarmq's commit log server, for one topic on a port of its own.

    GET  /index_bounds       {"highest_index": H, "lowest_index": L}; H is exclusive
    GET  /records/{index}    the bytes of a record
    POST /records            {"write_index": I}; the body is the record, whatever its content type
    POST /rpc/truncate       {"truncate_index": I}; removes the records from I on; the answer has no body

An index is the seq less 1. A topic that does not exist yet is an empty log. Errors are plain text. An index out of
bounds gets 500, as from laminarmq. docs/daemon.md lists the differences.

LAMINARMQ-1  A read answers the record of its index or an error. A pruned or deleted record is an error, and its index
    never shows another record.
LAMINARMQ-2  At most 512 requests run at once. The others wait, and the daemon does not read their bodies.
LAMINARMQ-3  A request without an answer after 10 s gets 408. Its record may be in the log or not.

Source: arindas/laminarmq, examples/laminarmq-tokio-commit-log-server.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from offload.daemon.http.answers import OURS, answer_error
from offload.daemon.http.appends import prepare_append
from offload.daemon.http.topics import readable, truncated
from offload.daemon.metrics import timed
from offload.daemon.problems import error_answer
from offload.daemon.quota import frame_bytes
from offload.daemon.reserved import check_open
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.daemon.waits import CLIENT_GONE
from offload.errors import Busy, Refused
from offload.replica_topic import ReplicaTopic
from offload.token_rights import Role, rights_of
from seglog import NoSuchTopic, SeqOutOfRange, Topic
from seglog.base.dataclasses import dataclass

_AT_ONCE = 512
_LIMIT_S = 10.0
_INDEX_END = 2**64
_WHOLE = re.compile(r"\+?[0-9]+", re.ASCII)
_JSON_TYPE = re.compile(r"application/([^;]+\+)?json *(;.*)?", re.IGNORECASE)
_OUT_OF_BOUNDS = "IndexOutOfBounds"
_GAP = "IndexGapEncountered"

_Handler = Callable[[Request], Awaitable[Response]]


def make_laminarmq_app(service: Service, topic: str) -> Starlette:
    """Return the ASGI application of one topic. The caller puts the guard in front of it."""
    routes, places = _Routes(service, topic), asyncio.Semaphore(_AT_ONCE)

    def bounded(handler: _Handler) -> _Handler:
        async def answer(request: Request) -> Response:
            try:
                async with asyncio.timeout(_LIMIT_S), places:
                    return await handler(request)
            except TimeoutError:
                return Response(status_code=408)
            except ClientDisconnect:
                return Response(status_code=CLIENT_GONE)

        return answer

    app = Starlette(
        routes=[
            Route("/index_bounds", bounded(routes.index_bounds), methods=["GET"]),
            Route("/records/{index}", bounded(routes.read), methods=["GET"]),
            Route("/records", bounded(routes.append), methods=["POST"]),
            Route("/rpc/truncate", bounded(routes.truncate), methods=["POST"]),
        ],
        exception_handlers={HTTPException: _no_route, Exception: _failed, **dict.fromkeys(OURS, _failed)},
    )
    app.router.redirect_slashes = False
    return app


class _Routes:
    def __init__(self, service: Service, topic: str) -> None:
        self._service = service
        self._name = topic

    async def index_bounds(self, request: Request) -> Response:
        self._check(request, Role.READ)
        lowest, highest = _bounds(await self._topic())
        return _json({"highest_index": highest, "lowest_index": lowest})

    async def read(self, request: Request) -> Response:
        self._check(request, Role.READ)
        text = request.path_params["index"]
        if not (_WHOLE.fullmatch(text) and len(text) < 100 and int(text) < _INDEX_END):
            return _text(400, f"Invalid URL: Cannot parse `{json.dumps(text, ensure_ascii=False)}` to a `u64`")
        topic, seq = await self._topic(), int(text) + 1
        lowest, highest = _bounds(topic)
        if topic is None or not lowest < seq <= highest:
            return _refusal(_OUT_OF_BOUNDS)
        record = await in_threads(self._service.read_threads(topic, seq), lambda: next(topic.read(seq, seq), None))
        if record is None or record.seq != seq:
            return _refusal(_GAP)
        return Response(record.value, media_type="application/octet-stream")

    async def append(self, request: Request) -> Response:
        self._check(request, Role.APPEND)
        check_open(self._name)
        await self._service.routers.check_appends(self._name)
        value, metrics = await request.body(), self._service.metrics
        size_bytes = frame_bytes([value])
        with await self._service.quota.take_append(size_bytes) as hold:
            await prepare_append(self._service, self._name)
            self._service.routers.check_now(self._name)
            with timed(metrics.append_s):
                seqs = await self._service.log.topic(self._name).append([value])
            hold.appended(size_bytes)
        metrics.appended_records.inc()
        metrics.appended_bytes.inc(len(value))
        return _json({"write_index": seqs.start - 1})

    async def truncate(self, request: Request) -> Response:
        self._check(request, Role.ADMIN)
        check_open(self._name)
        if not _JSON_TYPE.fullmatch(request.headers.get("content-type", "")):
            return _text(415, "Expected request with `Content-Type: application/json`")
        try:
            body = json.loads(await request.body(), object_pairs_hook=_members)
        except (ValueError, RecursionError) as error:
            return _text(400, f"Failed to parse the request body as JSON: {error}")
        index = _truncate_index(body)
        if isinstance(index, str):
            return _text(422, f"Failed to deserialize the JSON body into the target type: {index}")
        topic = await self._topic()
        lowest, highest = _bounds(topic)
        if topic is None or not lowest <= index < highest:
            return _refusal(_OUT_OF_BOUNDS)
        try:
            await truncated(self._service, rights_of(request.scope), self._name, index + 1)
        except SeqOutOfRange:  # another truncation came first
            return _refusal(_OUT_OF_BOUNDS)
        return Response()

    def _check(self, request: Request, role: Role) -> None:
        rights_of(request.scope).check(role, self._name)

    async def _topic(self) -> Topic | ReplicaTopic | None:
        try:
            return await readable(self._service, self._name)
        except NoSuchTopic:
            return None


def _bounds(topic: Topic | ReplicaTopic | None) -> tuple[int, int]:
    """Return the lowest index, and the one after the highest."""
    return (0, 0) if topic is None else (topic.earliest_seq - 1, topic.head_seq)


def _truncate_index(body: Any) -> int | str:
    """Return the index of a request to truncate, or the reason why it has none. A list of one index is one, too."""
    if isinstance(body, list) and len(body) == 1:
        body = _Members({"truncate_index": body})
    if not isinstance(body, _Members):
        return f"it is a JSON {type(body).__name__}, expected struct TruncateRequest"
    indexes = body.values.get("truncate_index", [])
    if len(indexes) != 1:
        return f"{'duplicate' if indexes else 'missing'} field `truncate_index`"
    index = indexes[0]
    if type(index) is not int or not 0 <= index < _INDEX_END:
        return f"truncate_index: {type(index).__name__} {str(index)[:80]!r}, expected u64"
    return index


@dataclass(frozen=True, slots=True)
class _Members:
    """A JSON object: the values of each key, in order."""

    values: dict[str, list[Any]]


def _members(pairs: list[tuple[str, Any]]) -> _Members:
    values: dict[str, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return _Members(values)


def _json(values: dict[str, int]) -> Response:
    return Response(json.dumps(values, separators=(",", ":")), media_type="application/json")


def _text(status: int, text: str) -> Response:
    return Response(text, status, media_type="text/plain")


def _refusal(name: str) -> Response:
    return _text(500, f"CommitLogError({name})")


async def _no_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    allowed = (error.headers or {}).get("Allow", "")
    headers = {"allow": ",".join(sorted(allowed.replace(" ", "").split(",")))} if allowed else None
    return Response(status_code=error.status_code, headers=headers)


async def _failed(request: Request, error: Exception) -> Response:
    """Return the answer of another error, with the status of the API. A refusal of the guard looks as it does there."""
    if isinstance(error, (Busy, Refused)):
        return await answer_error(request, error)
    return _text(error_answer(error)[0], f"CommitLogError({type(error).__name__}): {error}")
