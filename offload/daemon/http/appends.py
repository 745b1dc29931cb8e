"""The routes that append records: a POST of any form, and a PUT of one record, however large.

    1  The route reads the headers and the query. It refuses what it can before the body.
    2  The daemon takes a body that is all or none as a whole. The log gets it as one append.
    3  Another body: while the log writes one part (offload.daemon.http.bodies), the next one comes and is checked.
    4  If the body breaks off, or an append fails, the answer says which records are in.

The conditions of an append are headers of its request:

    Producer-Id, Producer-Epoch, Producer-Seq    the batch of a producer (seglog.values.producer); all three or none
    Idempotency-Key                              a key of the append (seglog.values.append_key), without a producer
    seglog-if-head                               the last seq of the topic, 0 for an empty one
    seglog-if-incarnation                        the incarnation of the topic (`Topic.incarnation`)

APPEND-1  The records of a body keep their order. If a part fails, no later part of its body is in.
APPEND-2  An append with a condition, or with `whole=1`, is all or none. So is a body of at most 1 MiB and 65,536
    records whose lines have equal labels. Each is one unit of the WAL (BATCHFRAME-2), so that holds over a crash too.
APPEND-3  A body that is taken by parts holds three parts at most, whatever its length.
APPEND-4  No client appends to a topic of the daemon, such as `_streams` (RESERVED-1), or to the destination of a router
    (WORKER-5).
APPEND-5  At pressure 1, while appends of `log.queue_max_bytes` wait, an append gets 429 before its first part. With
    `disable_backpressure=1` it waits for room. Its later parts wait in any case.
APPEND-6  An answer says in `Server-Timing` how long the append took: `sync` for the write and the sync of its group,
    and `throttle` for what its group waited under pressure.
CONDITION-1  An append with a condition is all or none.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from offload.daemon.asgi import headers_of
from offload.daemon.http import operations as api
from offload.daemon.http.answers import ShortAnswer
from offload.daemon.http.bodies import (
    BYTES_TYPE,
    PART_BYTES,
    BodyForm,
    Part,
    PartReader,
    batches_of,
    form_of,
    joined,
    whole_part,
)
from offload.daemon.http.parameters import query_of, whole, yes
from offload.daemon.http.request_body import RequestBody
from offload.daemon.problems import answer_of
from offload.daemon.quota import OverQuota, OverRate, frame_bytes
from offload.daemon.request_places import Place
from offload.daemon.reserved import check_open
from offload.daemon.service import Service
from offload.daemon.threads import SHORT_BYTES, in_threads
from offload.errors import BodyBroken, InvalidOption
from offload.operations.record_text import Batch
from offload.token_rights import Role
from seglog import DURABILITIES, AppendsHeld, HeadMoved, ProducerBatch, RecordTooLarge, SeglogError
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.client.bodies import LINES_TYPE, VALUES_TYPE
from seglog.format.lines import total_bytes
from seglog.values.producer import ID_MAX_BYTES

# A body of this size has come before the log could refuse it.
_SMALL_BYTES = 256 * 1024
_T = TypeVar("_T")
_NO_HEAD = 2**63 - 1  # no topic has it, so the log appends nothing (APPENDIF-1)
_APPEND_QUERY = (
    api.in_query("tag", "string", "The tag of each record without its own."),
    api.in_query("node", "string", "The node of each record without its own."),
    api.in_query("durability", "string", "When the answer comes.", enum=[*DURABILITIES]),
    api.in_query("unterminated", "boolean", "The last line of the source has no line feed."),
    api.in_query("disable_backpressure", "boolean", "Wait for room, and get no 429 under pressure."),
    api.in_query("whole", "boolean", "The append is all or none. The daemon then holds the whole body."),
)
APPEND_QUERY = api.names_of(_APPEND_QUERY)
"""The names of the query."""
_CONDITIONS = (
    api.in_header("Producer-Id", "string", "The producer, with Producer-Epoch and Producer-Seq."),
    api.in_header("Producer-Epoch", "integer", "A lower one than the newest is refused.", minimum=0, maximum=WHOLE_MAX),
    api.in_header("Producer-Seq", "integer", "The number of the batch.", minimum=0, maximum=WHOLE_MAX),
    api.in_header("Idempotency-Key", "string", "For a caller without a producer.", minLength=1, maxLength=256),
    api.in_header("seglog-if-head", "integer", "Append only if the head is this seq.", minimum=0, maximum=WHOLE_MAX),
    api.in_header("seglog-if-incarnation", "string", "Append only if the topic has this seglog-incarnation."),
)
CONDITION_HEADERS = tuple(str(each["name"]) for each in _CONDITIONS)
"""The headers of an append that name a condition."""

_PRODUCER = CONDITION_HEADERS[:3]
_IDEMPOTENCY_KEY, _IF_HEAD, _IF_INCARNATION = CONDITION_HEADERS[3:]
_CONDITION_NAMES = {name.lower().encode(): name for name in CONDITION_HEADERS}
_ENCODING = api.in_header("Content-Encoding", "string", "The coding of the body.", enum=["identity", "gzip", "zstd"])
_APPEND_BODY = {
    "required": True,
    "content": {
        "application/octet-stream": {"schema": api.BYTES, "example": "one record"},
        api.NDJSON: {"schema": api.ref("line"), "example": '{"value": "one", "tag": "eu"}\n{"value_base64": "/w=="}\n'},
        VALUES_TYPE: {"schema": api.BYTES},
        LINES_TYPE: {"schema": api.BYTES, "example": "one\ntwo\n"},
    },
}
_TIMING = "The ms of the append, sync;dur=N, and of its wait under pressure, throttle;dur=N."
_APPENDED = {"first_seq": 813, "last_seq": 813, "appended": 1, "next_seq": 814, "incarnation": "8f3a"}
APPEND = api.Operation(
    "POST", "/topics/{topic}/records", "appendRecords", Role.APPEND, "records",
    "Append records. The content type says their form.",
    {
        201: ("The records are as safe as their durability says.", api.json_answer("records_appended", _APPENDED)),
        200: ("The records are in already.", api.json_answer("records_appended", {**_APPENDED, "duplicate": True})),
    },
    errors=(404, 409, 412, 415, 422, 507), parameters=(api.TOPIC, *_APPEND_QUERY, *_CONDITIONS, _ENCODING),
    body=_APPEND_BODY,
    headers={"seglog-incarnation": "The identity of the topic in this directory.", "Server-Timing": _TIMING},
    schemas={
        "records_appended": api.object_of(
            "duplicate", first_seq=(int, None), last_seq=(int, None), appended=int, next_seq=int, incarnation=str,
            duplicate=bool,
        )
    },
)  # fmt: skip


_ONE_QUERY = APPEND_QUERY - {"whole"}
APPEND_ONE = api.Operation(
    "PUT", "/topics/{topic}/records", "appendRecord", Role.APPEND, "records",
    "Append the body as one record, of up to log.max_record_bytes. The daemon holds none of it in memory.",
    {
        201: ("The record is as safe as its durability says.", api.json_answer("records_appended", _APPENDED)),
        200: ("The record is in already.", api.json_answer("records_appended", {**_APPENDED, "duplicate": True})),
    },
    errors=(404, 409, 412, 415, 422, 507), parameters=(api.TOPIC, *_APPEND_QUERY[:-1], *_CONDITIONS, _ENCODING),
    body={"required": True, "content": {"application/octet-stream": {"schema": api.BYTES, "example": "one record"}}},
    headers={"seglog-incarnation": "The identity of the topic in this directory.", "Server-Timing": _TIMING},
)  # fmt: skip


def append_routes(service: Service) -> list[api.RoledRoute]:
    appends = _Appends(service)
    return [APPEND.route(appends.append), APPEND_ONE.route(appends.put)]


def append_endpoint(service: Service) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler of a POST of records, for appends that come in another way."""
    return _Appends(service).append


@dataclass(slots=True)
class _Append:
    """One request: what its head asks for, and the records that are in."""

    topic: str
    form: BodyForm
    conditions: _Conditions
    durability: str | None
    is_whole: bool
    waits: bool
    count: int = 0
    sync_s: float = 0.0
    throttle_s: float = 0.0
    first_seq: int | None = None
    last_seq: int | None = None
    is_duplicate: bool = False

    def add(self, seqs: range) -> None:
        if seqs:
            self.count += len(seqs)
            self.first_seq = self.first_seq or seqs.start
            self.last_seq = seqs.stop - 1

    def took(self, elapsed_s: float, waited_s: float) -> None:
        """Take note of how long an append took, and for how long of that its group waited under pressure."""
        waited_s = min(waited_s, elapsed_s)
        self.throttle_s += waited_s
        self.sync_s += elapsed_s - waited_s

    def timing(self) -> bytes:
        """Return the value of `Server-Timing` (APPEND-6)."""
        sync = b"sync;dur=%.3f" % (self.sync_s * 1000)
        return b"%b, throttle;dur=%.3f" % (sync, self.throttle_s * 1000) if self.throttle_s else sync

    def told(self) -> dict[str, Any]:
        return {"first_seq": self.first_seq, "last_seq": self.last_seq, "appended": self.count}


class _Appends:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def append(self, request: Request) -> Response:
        check_open(request.path_params["topic"])  # as every append is (APPEND-4)
        await self._service.routers.check_appends(request.path_params["topic"])
        query = query_of(request, APPEND_QUERY)
        form = form_of(headers_of(request.scope).get(b"content-type", b"").decode("latin-1"), query)
        durability, conditions = _durability_of(query), _conditions_of(request.headers)
        is_whole = conditions.is_any or yes(query, "whole") or not form.has_parts
        asked = _Append(request.path_params["topic"], form, conditions, durability, is_whole, _waits(query))
        body = RequestBody(self._service, request, is_whole=is_whole)
        return await self._answer(asked, body, self._take_whole if is_whole else self._take_parts)

    async def put(self, request: Request) -> Response:
        check_open(request.path_params["topic"])
        await self._service.routers.check_appends(request.path_params["topic"])
        query = query_of(request, _ONE_QUERY)
        form = form_of(BYTES_TYPE, query)
        asked = _Append(
            request.path_params["topic"],
            form,
            _conditions_of(request.headers),
            _durability_of(query),
            True,
            _waits(query),
        )
        body = RequestBody(self._service, request, is_whole=False)
        return await self._answer(asked, body, self._take_stream)

    async def _answer(
        self, asked: _Append, body: RequestBody, take: Callable[[_Append, RequestBody], Awaitable[None]]
    ) -> Response:
        conditions, is_whole = asked.conditions, asked.is_whole
        if conditions.if_incarnation is not None:
            await self._service.incarnation(asked.topic)  # a thread reads the log's id, which `_check_log` needs
        self._check_log(asked, body)
        try:
            await take(asked, body)
        except SeglogError as error:
            answer = answer_of(error, {} if is_whole else {**asked.told(), **_hint_of(asked, error)})
            incarnation = await self._service.incarnation(asked.topic)
        else:
            incarnation = conditions.if_incarnation or await self._service.incarnation(asked.topic)
            answer = ShortAnswer(self._told(asked, incarnation), 200 if asked.is_duplicate else 201)
            answer.raw_headers.append((b"server-timing", asked.timing()))
        if incarnation is not None:
            answer.raw_headers.append((b"seglog-incarnation", incarnation.encode()))
        return answer

    def _told(self, asked: _Append, incarnation: str | None) -> dict[str, Any]:
        told = asked.told()
        told["next_seq"] = self._service.sync.topic(asked.topic).head_seq + 1
        told["incarnation"] = incarnation
        if asked.conditions.is_repeatable:
            told["duplicate"] = asked.is_duplicate
        return told

    def _check_log(self, asked: _Append, body: RequestBody) -> None:
        """Refuse before a long body what the log would refuse after it. An append without values changes nothing.

        Another incarnation is refused before `prepare_append`, which may take the topic over.
        """
        topic, form, conditions = self._service.sync.topic(asked.topic), asked.form, asked.conditions
        is_repeatable = conditions.is_repeatable
        # A repetition passes while appends are held. Only the log knows whether this is one.
        with suppress(AppendsHeld) if is_repeatable else nullcontext():
            if conditions.if_incarnation is not None:
                topic.append([], if_incarnation=conditions.if_incarnation)
            if body.declared_bytes is not None and body.declared_bytes <= _SMALL_BYTES:
                return
            is_here = self._service.sync.has_topic(asked.topic)
            if_head = conditions.if_head if is_here and not is_repeatable else None
            topic.append([], tag=form.tag, node=form.node, durability=asked.durability, if_head=if_head)

    async def _take_whole(self, asked: _Append, body: RequestBody) -> None:
        text = await body.at_once(PART_BYTES)
        if text is None:
            text = await body.whole()
        longest = self._service.sync.settings.max_record_bytes
        decode = functools.partial(batches_of, asked.form, text, longest, most=body.most_records)
        batch = joined(await self._decoded(asked.form, len(text), decode))
        if not batch.values and asked.conditions.is_repeatable:
            name = "Idempotency-Key" if asked.conditions.producer is None else "Producer-Seq"
            raise InvalidOption(name, "is for at least one record, and the body has none")
        await self._give(asked, Part([batch], len(text)), body.place)

    async def _take_stream(self, asked: _Append, body: RequestBody) -> None:
        """Append the body as one record. The log spools it, so it takes no room once it is there."""
        longest, declared_bytes = self._service.sync.settings.max_record_bytes, body.declared_bytes or 0
        if declared_bytes > longest and not body.is_encoded:
            raise RecordTooLarge(declared_bytes, longest)
        if not asked.waits:
            self._service.check_pressure()
        form, conditions, size_bytes = asked.form, asked.conditions, 0
        begin = 0.0
        with ExitStack() as holds:

            async def chunks() -> AsyncIterator[bytes]:
                """Yield the body. After it, take a place and the quota for the append that then begins."""
                nonlocal size_bytes, begin
                async for piece in body.pieces():
                    size_bytes += len(piece)
                    yield piece
                    body.place.let_go(len(piece))
                size_bytes += frame_bytes([b""], form.tag, form.node)
                hold = holds.enter_context(await self._service.quota.take_append(size_bytes))
                if self._service.archive is not None:
                    await prepare_append(self._service, asked.topic)
                await body.place.begin_part()
                holds.callback(body.place.end_part, 0)
                holds.callback(lambda: None if asked.is_duplicate or not asked.count else hold.appended(size_bytes))
                self._service.routers.check_now(asked.topic)
                begin = time.perf_counter()

            done = await self._service.log.topic(asked.topic).append_stream(
                chunks(),
                tag=form.tag,
                node=form.node,
                unterminated=form.unterminated,
                durability=asked.durability,
                producer=conditions.producer,
                key=conditions.key,
                if_head=conditions.if_head,
                if_incarnation=conditions.if_incarnation,
            )
            asked.took(time.perf_counter() - begin, 0.0)  # threads of its own append it, and no group waits for it
            asked.is_duplicate = done.duplicate
            asked.add(done.seqs)
        if not asked.is_duplicate:
            self._service.metrics.appended_records.inc()
            self._service.metrics.appended_bytes.inc(size_bytes)

    async def _take_parts(self, asked: _Append, body: RequestBody) -> None:
        longest = self._service.sync.settings.max_record_bytes
        if (text := await body.at_once(PART_BYTES)) is not None:
            decode = functools.partial(whole_part, asked.form, text, longest)
            await self._give(asked, await self._decoded(asked.form, len(text), decode), body.place)
            return
        reader = PartReader(asked.form, longest, body.most_records)
        giving: asyncio.Task[None] | None = None
        try:
            async for piece in body.pieces():
                reader.feed(piece)
                while reader.is_full:
                    part = await in_threads(self._service.local, reader.take)
                    if giving is not None:
                        await giving
                    giving = asyncio.create_task(self._give(asked, part, body.place))
            last = await self._decoded(asked.form, reader.held_bytes, reader.end)
        finally:
            # If the body breaks off, the part under way is in, or its error is the answer.
            if giving is not None:
                await giving
        await self._give(asked, last, body.place)

    async def _decoded(self, form: BodyForm, size_bytes: int, decode: Callable[[], _T]) -> _T:
        """Return what `decode` returns, in a thread unless it is short. In the loop it would delay every other answer.

        A MiB of short values takes a quarter of a second.
        """
        is_short = size_bytes <= SHORT_BYTES or not form.has_parts
        return decode() if is_short else await in_threads(self._service.local, decode)

    async def _give(self, asked: _Append, part: Part, place: Place) -> None:
        """Append the batches of a part in order."""
        if not asked.waits and asked.first_seq is None:
            self._service.check_pressure()
        sizes = [frame_bytes(batch.values, batch.tag, batch.node) for batch in part.batches]
        try:
            hold = await self._service.quota.take_append(sum(sizes), is_first=asked.first_seq is None)
        except (OverQuota, OverRate):
            if not await self._is_repetition(asked, part):
                raise
            return
        room_bytes = part.record_room_bytes
        with hold:
            await place.came(room_bytes, is_whole=False)
            await place.begin_part()
            try:
                if part.batches and self._service.archive is not None:
                    await prepare_append(self._service, asked.topic)
                for batch, size_bytes in zip(part.batches, sizes, strict=True):
                    begin = time.perf_counter()
                    try:
                        await self._append_batch(asked, batch)
                        # Before any other task runs. Without a record, the append was in no group.
                        waited_s = self._service.log.queue.waited_s if batch.values else 0.0
                    finally:
                        elapsed_s = time.perf_counter() - begin
                        self._service.metrics.append_s.observe(elapsed_s)
                    asked.took(elapsed_s, waited_s)
                    if not asked.is_duplicate:
                        hold.appended(size_bytes)
            finally:
                place.end_part(part.size_bytes + room_bytes)

    async def _is_repetition(self, asked: _Append, part: Part) -> bool:
        """Return whether the topic has the records already, and take note of their seqs. Append nothing."""
        if not asked.conditions.is_repeatable:
            return False
        given, asked.conditions = asked.conditions, replace(asked.conditions, if_head=_NO_HEAD)
        with suppress(HeadMoved):
            await self._append_batch(asked, part.batches[0])
        asked.conditions = given
        return asked.is_duplicate

    async def _append_batch(self, asked: _Append, batch: Batch) -> None:
        topic, conditions = self._service.log.topic(asked.topic), asked.conditions
        self._service.routers.check_now(asked.topic)
        labels: dict[str, Any] = {
            "tag": batch.tag,
            "node": batch.node,
            "unterminated": batch.unterminated,
            "durability": asked.durability,
        }
        if conditions.is_any:
            done = await topic.append_once(
                batch.values,
                **labels,
                producer=conditions.producer,
                key=conditions.key,
                if_head=conditions.if_head,
                if_incarnation=conditions.if_incarnation,
            )
            seqs, asked.is_duplicate = done.seqs, done.duplicate
        else:
            seqs = await topic.append(batch.values, **labels)
        asked.add(seqs)
        if not asked.is_duplicate:
            self._service.metrics.appended_records.inc(len(seqs))
            self._service.metrics.appended_bytes.inc(total_bytes(batch.values))


def _waits(query: Mapping[str, str]) -> bool:
    """Return whether the append waits for room where it would get 429 under pressure (APPEND-5)."""
    return yes(query, "disable_backpressure")


def _durability_of(query: Mapping[str, str]) -> str | None:
    durability = query.get("durability")
    if durability is not None and durability not in DURABILITIES:
        raise InvalidOption("durability", f"{durability[:40]!r} is none of {', '.join(DURABILITIES)}")
    return durability


def _hint_of(asked: _Append, error: Exception) -> dict[str, str]:
    """Return the hint if records are in: the whole body, sent again, would append them twice."""
    if not asked.count:
        return {}
    rest = f"send the rest of the body, from record {asked.count + 1} on: the records before it are in"
    hint = None if isinstance(error, BodyBroken) else getattr(error, "hint", None)
    return {"hint": f"{hint}; then {rest}" if hint else rest}


async def prepare_append(service: Service, topic: str) -> None:
    """Prepare the first append to a topic: take over a branch or replica, or check the name of a new topic.

    Only a branch or a replica asks the remote.
    """
    archive = service.archive
    if archive is None or service.sync.has_topic(topic):
        return
    if "@" in topic or archive.replication.is_replica(topic):
        await in_threads(service.cold_reads, archive.open_for_append, topic)
    else:
        archive.open_for_append(topic)


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The conditions that the request names. None stands for each one that it does not name."""

    producer: ProducerBatch | None = None
    key: str | None = None
    if_head: int | None = None
    if_incarnation: str | None = None

    @property
    def is_any(self) -> bool:
        return self.is_repeatable or self.if_head is not None or self.if_incarnation is not None

    @property
    def is_repeatable(self) -> bool:
        """Return whether the client may repeat the request, so that its records are there once."""
        return self.producer is not None or self.key is not None


_NO_CONDITIONS = _Conditions()


def _conditions_of(headers: Headers) -> _Conditions:
    """Return the conditions. Raises `InvalidOption` with the name of a header."""
    given: dict[str, str] = {}
    for raw, value in headers.raw:
        name = _CONDITION_NAMES.get(raw)
        if name in given:
            raise InvalidOption(name, "the request has it more than once")
        if name is not None:
            given[name] = value.decode("latin-1")
    if not given:
        return _NO_CONDITIONS
    producer, key = _producer(given), _key(given)
    if producer is not None and key is not None:
        raise InvalidOption(_IDEMPOTENCY_KEY, "a batch of a producer has an identity already; send one of the two")
    return _Conditions(producer, key, whole(given, _IF_HEAD), given.get(_IF_INCARNATION))


def _producer(headers: Mapping[str, str]) -> ProducerBatch | None:
    absent = [name for name in _PRODUCER if name not in headers]
    if len(absent) == len(_PRODUCER):
        return None
    if absent:
        raise InvalidOption(absent[0], f"the request lacks it; {', '.join(_PRODUCER)} come together")
    epoch, number = whole(headers, "Producer-Epoch"), whole(headers, "Producer-Seq")
    assert epoch is not None  # noqa: S101 - the header is there
    assert number is not None  # noqa: S101
    return ProducerBatch(_text(headers, "Producer-Id"), epoch, number)


def _key(headers: Mapping[str, str]) -> str | None:
    return _text(headers, _IDEMPOTENCY_KEY) if _IDEMPOTENCY_KEY in headers else None


def _text(headers: Mapping[str, str], name: str) -> str:
    """Return the text of a header. Raises `InvalidOption` unless it has 1 to 256 bytes of UTF-8."""
    raw = headers[name].encode("latin-1")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or len(raw) > ID_MAX_BYTES:
        raise InvalidOption(name, f"it has 1 to {ID_MAX_BYTES} bytes of UTF-8")
    return text
