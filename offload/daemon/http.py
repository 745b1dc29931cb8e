"""The HTTP API: records of a topic, and the commands.

    GET  /topics/{topic}/index_bounds          earliest_seq, head_seq, hot_first_seq
    GET  /topics/{topic}/records/{seq}         one value, unchanged; seq, time, tag and node in headers
    GET  /topics/{topic}/records               live records as JSON lines: from, to, since_ms, until_ms, tag, limit,
                                               gaps, follow (the answer then continues with new records)
    POST /topics/{topic}/records               append, by content type: application/octet-stream is one value,
                                               application/x-ndjson is `append --format jsonl`,
                                               application/vnd.seglog.values is values, each after its length (u32,
                                               little-endian), and application/vnd.seglog.lines is lines, each with a
                                               line feed; tag, node, durability, unterminated as query.
                                               The answer 201 comes when the records are as safe as the durability says
    POST /topics/{topic}/rpc/truncate          {"seq": N}
    POST /topics/{topic}/rpc/{command}         the other commands (offload.daemon.jobs)
    POST /rpc/{command}                        the same, with the topic in the body, or without a topic
    GET  /topics, /healthz, /readyz, /metrics, /openapi.json

Errors are application/problem+json with title (the error's class), detail and hint. If an error comes after the first
JSON lines, the answer ends with a line that has the key `error`.

HTTP-1  At most one thread works for a connection, and only while the connection asks for more.
HTTP-2  Reads that begin below the hot floor use the threads of `cold_reads`, other reads those of `hot_reads`. So a
    store that hangs takes no thread from hot reads or appends.

Source: the commit log server of "Building segmented logs in Rust" (index_bounds, records, rpc/truncate); PIP-17.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from offload.commands.lines import Batch, json_batches, to_json
from offload.commands.registry import COMMANDS, Command
from offload.commands.results import problem
from offload.daemon.guard import error_answer
from offload.daemon.jobs import Stream, encode_end, start
from offload.daemon.metrics import timed
from offload.daemon.openapi import openapi
from offload.daemon.service import Service
from offload.errors import InvalidBody, InvalidOption, Refused, Stopping, UnsupportedOption
from offload.replica_topic import ReplicaTopic
from offload.wire import (
    LINES_HEADER,
    LINES_TYPE,
    STREAM_TYPE,
    VALUES_TYPE,
    decode_lines,
    decode_values,
    encode_message,
)
from seglog import Gap, LogClosed, Record, RecordTooLarge, Topic
from seglog.arguments import WHOLE_MAX
from seglog.format.lines import longest_bytes, total_bytes
from seglog.reading.follow import Follower
from seglog.values.config import check_durability

__all__ = ["make_app"]

_JSON_LINES_TYPE = "application/x-ndjson"
_BYTES_TYPE = "application/octet-stream"
_READ_RECORDS = 512
_READ_BYTES = 1024 * 1024
_LOOK_AGAIN_S = 1.0
_CLIENT_GONE = 499  # a status for the metrics only: the client is gone


def make_app(service: Service) -> Starlette:
    """Return the ASGI application of the API. The caller puts the guard in front of it (offload.daemon.guard)."""
    api = _Api(service)
    routes = [
        Route("/healthz", api.health),
        Route("/readyz", api.ready),
        Route("/metrics", api.metrics),
        Route("/openapi.json", api.openapi),
        Route("/topics", api.topics),
        Route("/topics/{topic}/index_bounds", api.index_bounds),
        Route("/topics/{topic}/records", api.read),
        Route("/topics/{topic}/records", api.append, methods=["POST"]),
        Route("/topics/{topic}/records/{seq}", api.record),
        Route("/topics/{topic}/rpc/truncate", api.truncate, methods=["POST"]),
        Route("/topics/{topic}/rpc/{command:path}", api.command, methods=["POST"]),
        Route("/rpc/{command:path}", api.command, methods=["POST"]),
    ]
    return Starlette(
        routes=routes, exception_handlers={HTTPException: _answer_no_route, Exception: _answer_error, **_OURS}
    )


async def _answer_error(_request: Request, error: Exception) -> Response:
    status, headers, body = error_answer(error)
    response = Response(body, status)
    response.raw_headers = headers
    return response


async def _answer_no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    told = f"{request.method} {request.url.path}: {error.detail}"
    return await _answer_error(request, Refused(error.status_code, "route", told, hint="see GET /openapi.json"))


def _our_errors() -> dict[Any, Any]:
    from catalog.errors import CatalogError
    from offload.errors import OffloadError
    from seglog import SeglogError

    return dict.fromkeys((SeglogError, CatalogError, OffloadError), _answer_error)


_OURS = _our_errors()


class _Api:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._openapi = openapi(COMMANDS)

    # ------------------------------------------------------------ probes

    async def health(self, _request: Request) -> Response:
        """Answer 200 while acked records are safe and the log is readable, else 503."""
        is_poisoned = self._service.sync.is_poisoned
        return JSONResponse({"status": "poisoned" if is_poisoned else "ok"}, 503 if is_poisoned else 200)

    async def ready(self, _request: Request) -> Response:
        """Answer 200 while the daemon takes appends, else 503."""
        service = self._service
        body = {"ready": service.is_ready, "disk": service.disk.name.lower(), "stopping": service.stopping.is_set()}
        return JSONResponse(body, 200 if service.is_ready else 503)

    async def metrics(self, _request: Request) -> Response:
        body = await self._in(self._service.local, self._service.metrics.text)
        return Response(body, media_type="text/plain; version=0.0.4")

    async def openapi(self, _request: Request) -> Response:
        return JSONResponse(self._openapi)

    # ------------------------------------------------------------ records

    async def topics(self, _request: Request) -> Response:
        archive = self._service.archive
        replicas = [] if archive is None else await self._in(self._service.local, archive.replication.replicas)
        return JSONResponse({"topics": sorted({*self._service.sync.topics(), *replicas})})

    async def index_bounds(self, request: Request) -> Response:
        topic = await self._readable(request)
        return JSONResponse(
            {"earliest_seq": topic.earliest_seq, "head_seq": topic.head_seq, "hot_first_seq": topic.hot_floor}
        )

    async def append(self, request: Request) -> Response:
        query = _query(request, {"tag", "node", "durability", "unterminated"})
        topic = request.path_params["topic"]
        kind, body = request.headers.get("content-type", ""), await request.body()
        # Decoding a large body takes long. In the event loop it would delay every other answer.
        is_short = len(body) <= _READ_BYTES
        batches = (
            _batches(kind, body, query)
            if is_short
            else await self._in(self._service.local, _batches, kind, body, query)
        )
        self._check_batches(batches, query.get("durability"))
        await self._check_takes_records(topic)
        target = self._service.log.topic(topic)
        first = last = count = 0
        with timed(self._service.metrics.append_s):
            for batch in batches:
                seqs = await target.append(
                    batch.values,
                    tag=batch.tag,
                    node=batch.node,
                    unterminated=batch.unterminated,
                    durability=query.get("durability"),
                )
                first, last, count = first or seqs.start, seqs.stop - 1, count + len(seqs)
        self._service.metrics.appended_records.inc(count)
        self._service.metrics.appended_bytes.inc(sum(total_bytes(batch.values) for batch in batches))
        return JSONResponse({"first_seq": first or None, "last_seq": last or None, "appended": count}, 201)

    def _check_batches(self, batches: list[Batch], durability: str | None) -> None:
        """Check all batches before the first one is appended. Raises `RecordTooLarge`, `InvalidSetting`."""
        limit = self._service.sync.settings.max_record_bytes
        longest = max((longest_bytes(batch.values) for batch in batches), default=0)
        if longest > limit:
            raise RecordTooLarge(longest, limit)
        if durability is not None:
            check_durability(durability)

    async def _check_takes_records(self, topic: str) -> None:
        """Prepare the first append to a topic: take over a branch or replica, or check the name of a new topic.

        Only a branch or a replica asks the remote.
        """
        archive = self._service.archive
        if archive is None or self._service.sync.has_topic(topic):
            return
        if "@" in topic or archive.replication.is_replica(topic):
            await self._in(self._service.cold_reads, archive.open_for_append, topic)
        else:
            archive.open_for_append(topic)

    async def record(self, request: Request) -> Response:
        topic, seq = await self._readable(request), _whole(request.path_params, "seq")
        assert seq is not None  # noqa: S101 - the route has it
        found = await self._in(self._pool(topic, seq), lambda: next(topic.read(seq, seq), None))
        if found is None:
            return await _answer_error(request, RecordDeleted(topic.name, seq))
        headers = {"seglog-seq": str(found.seq), "seglog-ts-ms": str(found.ts_ms)}
        for name, label in (("seglog-tag", found.tag), ("seglog-node", found.node)):
            if label is not None:
                headers[name] = quote(label, safe="")
        return Response(found.value, media_type=_BYTES_TYPE, headers=headers)

    async def read(self, request: Request) -> Response:
        names = {"from", "to", "since_ms", "until_ms", "tag", "limit", "gaps", "follow"}
        query = _query(request, names)
        topic = await self._readable(request)
        start, end, limit = (_whole(query, name) for name in ("from", "to", "limit"))
        if limit == 0:
            raise InvalidOption("limit", "must be at least 1")
        since_ms, until_ms = _whole(query, "since_ms"), _whole(query, "until_ms")
        tag, gaps, follow = query.get("tag"), _yes(query, "gaps"), _yes(query, "follow")
        if follow and (end is not None or until_ms is not None):
            raise InvalidOption("follow", "has no end: leave out to and until_ms")
        pool = self._pool(topic, topic.earliest_seq if start is None else start)
        if follow and isinstance(topic, ReplicaTopic):
            raise InvalidOption("follow", f"{topic.name} is a replica: its records come with each sync")
        if follow:
            assert isinstance(topic, Topic)  # noqa: S101 - it is no replica
            follower = await self._in(pool, lambda: topic.follower(start, gaps=gaps))
            wanted = _wanted(_news(follower), tag=tag, since_ms=since_ms, limit=limit)
            return await _begun(request, self._followed(topic, follower, wanted), _JSON_LINES_TYPE)
        items = await self._in(pool, lambda: topic.read(start, end, since_ms=since_ms, until_ms=until_ms, gaps=gaps))
        wanted = _wanted(items, tag=tag, since_ms=since_ms, limit=limit)
        return await _begun(request, self._lines(lambda: pool, wanted), _JSON_LINES_TYPE)

    async def _lines(
        self, pool: Callable[[], ThreadPoolExecutor], items: Iterator[Record | Gap | None]
    ) -> AsyncGenerator[bytes]:
        """Yield JSON lines, one batch at a time. A None in `items` ends a batch, which may be empty.

        An error before the first batch is raised, and decides the answer's status. A later one becomes the last line.
        """
        is_begun = False
        while True:
            try:
                batch, is_end = await self._in(pool(), _take, items)
            except Exception as error:
                if not is_begun:
                    raise
                yield json.dumps({"error": problem(error)}).encode() + b"\n"
                return
            is_begun = True
            yield "".join(to_json(item) + "\n" for item in batch).encode()
            if is_end:
                return

    async def _followed(
        self, topic: Topic, follower: Follower, items: Iterator[Record | Gap | None]
    ) -> AsyncGenerator[bytes]:
        """Yield JSON lines until the daemon stops. No thread waits for new records (HTTP-1)."""
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(news.set)

        try:
            async for lines in self._lines(lambda: self._pool(topic, follower.seq), items):
                yield lines
                news.clear()
                if lines or await self._in(self._service.hot_reads, follower.poll, wake):
                    continue
                while not news.is_set():
                    if self._service.stopping.is_set():
                        return
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), _LOOK_AGAIN_S)
        except LogClosed:
            return
        finally:
            follower.forget(wake)

    async def truncate(self, request: Request) -> Response:
        seq = (await _json(request)).get("seq")
        if type(seq) is not int:
            raise InvalidOption("seq", "must be a whole number: the first seq to remove")
        archive, name = self._service.archive, request.path_params["topic"]
        if archive is None:
            await self._in(self._service.local, self._topic(request).truncate, seq)
            result = None
        else:
            result = await self._in(self._service.cold_reads, archive.truncate, name, seq)
        told = {"lsn": result and result.lsn, "waits_for": result and result.waits_for}
        return JSONResponse({"topic": name, "head_seq": self._topic(request).head_seq, **told})

    # ------------------------------------------------------------ commands

    async def command(self, request: Request) -> Response:
        path = request.path_params["command"]
        command = COMMANDS.get(path)
        if command is None:
            raise UnsupportedOption(f"rpc/{path}", [f"rpc/{each}" for each in COMMANDS])
        given = await _json(request)
        if "topic" in request.path_params:
            given = {**given, "topic": request.path_params["topic"]}
        is_stream = request.headers.get("accept") == STREAM_TYPE
        return await self._run(command, given, request, is_stream=is_stream)

    async def _run(self, command: Command, given: dict[str, Any], request: Request, *, is_stream: bool) -> Response:
        if self._service.stopping.is_set():
            raise Stopping
        remote = request.headers.get("seglog-remote")
        takes_lines = is_stream and LINES_HEADER in request.headers
        stream = start(self._service, command, given, is_stream=is_stream, remote=remote, takes_lines=takes_lines)
        if is_stream:
            return await _begun(request, self._messages(stream), STREAM_TYPE)
        return await _begun(request, self._results(stream), _JSON_LINES_TYPE)

    async def _messages(self, stream: Stream) -> AsyncGenerator[bytes]:
        try:
            while True:
                kind, body = await stream.take()
                if kind == b"x":
                    yield encode_end(stream.error)
                    return
                yield encode_message(kind, body)
        finally:
            stream.abandon()

    async def _results(self, stream: Stream) -> AsyncGenerator[bytes]:
        is_begun = False
        try:
            while True:
                kind, body = await stream.take()
                if kind == b"o" and body:
                    is_begun = True
                    yield body
                if kind == b"x":
                    if stream.error is not None and not is_begun and isinstance(stream.error, Exception):
                        raise stream.error
                    if stream.error is not None:
                        yield json.dumps({"error": problem(stream.error)}).encode() + b"\n"
                    return
        finally:
            stream.abandon()

    # ------------------------------------------------------------ inside

    def _topic(self, request: Request) -> Topic:
        return self._service.sync.get_topic(request.path_params["topic"])

    async def _readable(self, request: Request) -> Topic | ReplicaTopic:
        name, archive = request.path_params["topic"], self._service.archive
        if archive is None or self._service.sync.has_topic(name):
            return self._topic(request)
        if not await self._in(self._service.local, archive.replication.is_replica, name):
            return self._topic(request)
        return await self._in(self._service.cold_reads, ReplicaTopic, archive, name)  # type: ignore[no-any-return]

    def _pool(self, topic: Topic | ReplicaTopic, first: int) -> ThreadPoolExecutor:
        """Return the threads for a read from seq `first` on: cold ones below the hot floor, else hot ones (HTTP-2)."""
        return self._service.cold_reads if first < topic.hot_floor else self._service.hot_reads

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)


class RecordDeleted(LookupError):
    """The error for a seq whose record was deleted: 404, as for a seq that never had a record."""

    exit_code = 3

    def __init__(self, topic: str, seq: int) -> None:
        super().__init__(f"record {seq} of {topic} was deleted")


async def _begun(request: Request, body: AsyncGenerator[bytes], media_type: str) -> Response:
    """Return the answer once `body` has yielded its first bytes. An error before them becomes the answer's status.

    The first bytes may take long or never come, for example if a command follows a topic without new records. So the
    wait also ends when the client disconnects.
    """

    async def begin() -> bytes:
        return await anext(body, b"")

    first, gone = asyncio.ensure_future(begin()), asyncio.ensure_future(_is_gone(request))
    try:
        await asyncio.wait({first, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            return Response(status_code=_CLIENT_GONE)
        begun = first.result()
    finally:
        first.cancel()  # ends `body` if it has not yielded yet
        gone.cancel()
        await asyncio.wait({first, gone})

    async def whole() -> AsyncIterator[bytes]:
        try:
            yield begun
            async for piece in body:
                yield piece
        finally:
            await body.aclose()

    return StreamingResponse(whole(), media_type=media_type)


async def _is_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _batches(content_type: str, body: bytes, query: Mapping[str, str]) -> list[Batch]:
    tag, node, kind = query.get("tag"), query.get("node"), content_type.partition(";")[0].strip()
    if kind == _JSON_LINES_TYPE:
        return list(json_batches(io.BytesIO(body), tag, node))
    values: Sequence[bytes]
    if kind == VALUES_TYPE:
        values = decode_values(body)
    elif kind == LINES_TYPE:
        values = decode_lines(body)
    elif kind == _BYTES_TYPE:
        values = [body]
    else:
        hint = f"send Content-Type: {_BYTES_TYPE} for one value, {_JSON_LINES_TYPE} for JSON lines"
        told = f"{kind} is not a content type of records" if kind else "the request has no Content-Type"
        raise Refused(415, "type", told, hint=hint)
    return [Batch(values, len(body), len(values), tag, node, unterminated=_yes(query, "unterminated"))]


def _news(follower: Follower) -> Iterator[Record | Gap | None]:
    """Yield the existing records, a None, the records that came since, a None, and so on, until the log closes."""
    try:
        while True:
            yield from follower.new_items()
            yield None
    except LogClosed:
        return


def _wanted(
    items: Iterator[Record | Gap | None], *, tag: str | None, since_ms: int | None, limit: int | None
) -> Iterator[Record | Gap | None]:
    for item in items:
        if isinstance(item, Record):
            if (tag is not None and item.tag != tag) or (since_ms is not None and item.ts_ms < since_ms):
                continue
            yield item
            if limit is not None:
                limit -= 1
                if limit <= 0:
                    return
        else:
            yield item


def _take(items: Iterator[Record | Gap | None]) -> tuple[list[Record | Gap], bool]:
    """Return the next batch of items, and whether `items` has ended.

    A batch ends at a None, at `_READ_RECORDS` items or at `_READ_BYTES` bytes of values.
    """
    taken: list[Record | Gap] = []
    size_bytes = 0
    for item in items:
        if item is None:
            return taken, False
        taken.append(item)
        size_bytes += len(item.value) if isinstance(item, Record) else 0
        if len(taken) == _READ_RECORDS or size_bytes >= _READ_BYTES:
            return taken, False
    return taken, True


def _query(request: Request, known: set[str]) -> Mapping[str, str]:
    for name in request.query_params:
        if name not in known:
            raise UnsupportedOption(name, known)
    return request.query_params


def _whole(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= WHOLE_MAX):
        raise InvalidOption(name, f"{text[:40]!r} is not a whole number from 0 to {WHOLE_MAX}")
    return int(text)


def _yes(query: Mapping[str, str], name: str) -> bool:
    text = query.get(name, "0")
    if text not in {"0", "1", "true", "false"}:
        raise InvalidOption(name, f"{text!r} is not true or false")
    return text in {"1", "true"}


async def _json(request: Request) -> dict[str, Any]:
    body = await request.body()
    try:
        value = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise InvalidBody(str(error)) from error
    if not isinstance(value, dict):
        raise InvalidBody(f"it is a JSON {type(value).__name__}")
    return value
