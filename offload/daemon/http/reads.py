"""The routes that read records: one, a range, the bounds of a topic, and new records as they come.

    header of an answer    what it says
    seglog-next-seq        `from` of the next read, exact also if a filter, `limit` or `max_bytes` left records out. If
                           an answer with a limit passes a MiB, the header is missing: continue after the last record
    seglog-head            the last seq of the topic when the read began
    seglog-epoch           rises with each truncation; then seqs may mean other records. For a replica, only an answer
                           to `follow` or `wait_s` has it: its number is another one at another proxy (EPOCH-1)
    seglog-incarnation     the identity of the topic in this directory (`Topic.incarnation`)
    seglog-at              of a past state: a target that means it after later commits, too. The head of a topic that is
                           written here has none, so it is refused
    etag                   of a range whose `to` is sealed: a strong validator (RFC 9110, sections 8.8 and 13.1)

    part of an ETag                       changes with
    incarnation of the topic              a deletion of the topic, another directory
    version of the sealed records         each truncation, delete, eviction (Topic.inner.sealed_version)
    the query                             the range, the filters, the limits
    the media type                        the representation
    the version of seglog                 the encoding

GET-1  A condition is decided from the topic's state alone, so a 304 reads no record.
GET-2  If a read fails after its first bytes, JSON lines end with a line that has the key `error`. An answer in another
    form, or with an ETag, breaks off: it has no regular end, so no cache keeps it.
ETAG-1  Of two answers with the same ETag, both have the same bytes, unless records were deleted while one of them was
    sent. In that case, the topic has the ETag never again. So no 304 confirms an outdated answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import field, replace
from importlib.metadata import version
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from offload.daemon.http import operations as api
from offload.daemon.http.answers import BrokenOff, answer_error, begun
from offload.daemon.http.followers import follow
from offload.daemon.http.parameters import query_of, whole
from offload.daemon.http.ranges import STEP_BYTES, open_range
from offload.daemon.http.read_request import READ_PARAMETERS, Form, RangeQuery, form_of
from offload.daemon.http.topics import readable
from offload.daemon.past_topic import PastTopic
from offload.daemon.problems import line_of
from offload.daemon.request_places import become_follower
from offload.daemon.revocation import keep_open
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.daemon.topic_news import EventId
from offload.errors import InvalidOption, NoRemote, Stopping
from offload.replica_topic import ReplicaTopic
from offload.token_rights import Role
from seglog import Gap, NoSuchTopic, Record, SeglogError, SeqOutOfRange, Topic, Truncated
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass

_BYTES_TYPE = "application/octet-stream"
_log = logging.getLogger("seglog.daemon")
_ETAG_BYTES = 16
_HEAD = "head"

_RECORD = '{"schema": 1, "kind": "record", "seq": 1, "ts_ms": 1785000000000, "value": "one"}\n'
_READ_HEADERS = {
    "seglog-next-seq": "`from` of the next read.",
    "seglog-head": "The last seq of the topic when the read began.",
    "seglog-incarnation": "The identity of the topic in this directory.",
    "seglog-at": "Of a past state: a target that means it after later commits, too.",
    "etag": "Of a range that cannot change any more.",
}
_SEQ = {
    "name": "seq",
    "in": "path",
    "required": True,
    "description": "The number of the record.",
    "schema": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    "example": 1,
}
READ = api.Operation(
    "GET", "/topics/{topic}/records", "readRecords", Role.READ, "records",
    "Live records, in the form that `Accept` names.",
    {
        200: (
            "The records.",
            {
                **api.lines_of({"anyOf": [api.ref("record"), api.ref("gap")]}, _RECORD),
                "application/vnd.seglog.values.seqs": {"schema": api.BYTES},
                "application/vnd.apache.arrow.stream": {"schema": api.BYTES},
                "text/event-stream": {"schema": api.TEXT},
            },
        ),
        304: ("The range has not changed.", {}),
    },
    errors=(404, 406, 409, 410), parameters=(api.TOPIC, *READ_PARAMETERS), headers=_READ_HEADERS,
)  # fmt: skip
HEAD = api.Operation(
    "HEAD", "/topics/{topic}/records", "headRecords", Role.READ, "records", "The bounds of a topic, in headers.",
    {200: ("The bounds.", {})}, errors=(404, 406, 409, 410), parameters=(api.TOPIC, *READ_PARAMETERS),
    headers={
        "seglog-earliest": "The first seq that exists.", "seglog-head": "The last seq.",
        "seglog-sealed": "The last seq of a sealed segment.", "seglog-epoch": "Rises with each truncation.",
        "seglog-incarnation": "The identity of the topic in this directory.",
    },
)  # fmt: skip
RECORD = api.Operation(
    "GET", "/topics/{topic}/records/{seq}", "readRecord", Role.READ, "records", "The value of one record, unchanged.",
    {200: ("The value.", {"application/octet-stream": {"schema": api.BYTES}})},
    errors=(404, 409, 410), parameters=(api.TOPIC, _SEQ),
    headers={
        "seglog-seq": "The number of the record.", "seglog-ts-ms": "Its time, in ms since 1970.",
        "seglog-tag": "Its tag, with percent signs.", "seglog-node": "Its node, with percent signs.",
    },
)  # fmt: skip


def read_routes(service: Service) -> list[api.RoledRoute]:
    reads = _Reads(service)
    return [READ.route(reads.read), RECORD.route(reads.record)]


class _Reads:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def record(self, request: Request) -> Response:
        query_of(request)
        topic, seq = await readable(self._service, request.path_params["topic"]), whole(request.path_params, "seq")
        assert seq is not None  # noqa: S101 - the route has it
        found = await in_threads(self._service.read_threads(topic, seq), _record, topic, seq)
        if found is None:
            return await answer_error(request, RecordDeleted(topic.name, seq))
        headers = {"seglog-seq": str(found.seq), "seglog-ts-ms": str(found.ts_ms)}
        for name, label in (("seglog-tag", found.tag), ("seglog-node", found.node)):
            if label is not None:
                headers[name] = quote(label, safe="")
        return Response(found.value, media_type=_BYTES_TYPE, headers=headers)

    async def read(self, request: Request) -> Response:
        query = RangeQuery.of(request)
        form = form_of(request.headers.get("accept"), query)
        topic: Topic | ReplicaTopic | PastTopic = await readable(self._service, request.path_params["topic"])
        if query.at is not None:
            past = await self._past(topic.name, query.at, query.choice.tag)
            if isinstance(topic, Topic) and past.at == _HEAD:
                raise InvalidOption("at", f"{topic.name} is written here, so its head is no past state: leave out at")
            topic = past
        headers = await in_threads(self._service.local, _headers, topic, query)
        if request.method == "HEAD":
            return _bounds(topic, headers, form)
        if query.follow:
            assert not isinstance(topic, PastTopic)  # noqa: S101 - the query was checked
            last = EventId.of(request.headers.get("last-event-id"))
            become_follower(request.scope)
            # Proxies would hold events back.
            headers |= {"cache-control": "no-cache", "x-accel-buffering": "no"}
            return await begun(request, follow(self._service, topic, query, form, last), form.value, lambda: headers)
        answer = _Answer(self._service, topic, query, form, headers)
        etag = await in_threads(self._service.local, answer.etag, request)
        if etag is not None and _is_match(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        return await begun(request, answer.pieces(request), form.value, lambda: headers)

    async def _past(self, name: str, at: str, tag: str | None) -> PastTopic:
        """Return the state of a topic at a target. Raises `NoRemote`, and what the archive raises."""
        if self._service.archive is None:
            raise NoRemote(self._service.sync.path)
        return await in_threads(self._service.cold_reads, PastTopic, self._service.archive, name, at, tag)  # type: ignore[no-any-return]


def _record(topic: Topic | ReplicaTopic, seq: int) -> Record | Gap | None:
    """Return one record, or None if it was deleted. If a truncation comes meanwhile, look again.

    Raises `SeqOutOfRange`, `Evicted`, and what a read raises.
    """
    while True:
        epoch = topic.epoch if isinstance(topic, Topic) else 0
        head_seq = topic.head_seq  # before the read: an append may come meanwhile
        try:
            found = next(topic.read(seq, seq), None)
        except Truncated:
            continue
        if found is None and isinstance(topic, Topic) and topic.inner.changed_since(epoch)[0] != epoch:
            continue
        if found is None and seq > head_seq:
            raise SeqOutOfRange(topic.name, seq, topic.earliest_seq, head_seq)
        return found


@dataclass(slots=True)
class _Answer:
    """The answer to one read of a range. It completes `headers` before its first bytes."""

    service: Service
    topic: Topic | ReplicaTopic | PastTopic
    query: RangeQuery
    form: Form
    headers: dict[str, str]
    has_etag: bool = field(default=False, init=False)

    def etag(self, request: Request) -> str | None:
        """Return the ETag of the answer, or None if none identifies its records. No I/O. Adds the headers of it."""
        topic, end = self.topic, self.query.end
        incarnation = self.headers.get("seglog-incarnation")
        if not isinstance(topic, Topic) or end is None or incarnation is None:
            return None
        archive = self.service.archive
        if archive is not None and archive.status.is_diverged(topic.name):
            return None  # another directory writes what the cold tier shows
        version = topic.inner.sealed_version(end)
        if version is None:
            return None
        self.has_etag = True
        found = _etag_of(incarnation, version, request.query_params.multi_items(), self.form.value)
        self.headers |= {"etag": found, "cache-control": "no-cache", "vary": "Accept"}
        return found

    async def pieces(self, request: Request) -> AsyncGenerator[bytes]:
        """Yield the body. An error before the first bytes is raised, and decides the status of the answer."""
        query = self.query
        if query.wait_s:
            query = await self._waited(request)
        first = query.begin(self.topic.earliest_seq, self.topic.head_seq)
        pool = self.service.read_threads(self.topic, first)
        read = await in_threads(pool, open_range, self.topic, query, self.form)
        self.headers["seglog-head"] = str(read.head)
        body, is_end = await in_threads(pool, read.step)
        while query.is_cut and not is_end and len(body) < STEP_BYTES:  # the answer may soon know its next seq
            more, is_end = await in_threads(pool, read.step)
            body += more
        if read.next_seq is not None:
            self.headers["seglog-next-seq"] = str(read.next_seq)
        yield body
        while not is_end:
            try:
                body, is_end = await in_threads(pool, read.step)
            except Exception as error:
                if self.form is not Form.LINES or self.has_etag:
                    raise BrokenOff from error
                yield json.dumps({"error": line_of(error)}).encode() + b"\n"
                return
            yield body

    async def _waited(self, request: Request) -> RangeQuery:
        """Wait for a record of the range, if the range begins after the head. Return the range that is left to read.

        Raises `Truncated`, `NoSuchTopic`, `Busy`, and `Refused` (401) if the token lost a right meanwhile.
        """
        keep_open(request.scope)  # before the look at the head: what a revoked client waited for may be there by now
        topic, query = self.topic, self.query
        assert not isinstance(topic, PastTopic)  # noqa: S101 - the query was checked
        seq = query.begin(topic.earliest_seq, topic.head_seq)
        if seq != topic.head_seq + 1 or (query.end is not None and query.end < seq):
            return query
        become_follower(request.scope)
        looks = self.service.read_threads(topic, WHOLE_MAX)
        epoch = (await in_threads(looks, topic.inner.follower, seq)).epoch
        try:
            async with asyncio.timeout(query.wait_s):
                while True:
                    page = await self.service.feeds.wait(topic, epoch, seq)
                    if page is None or any(isinstance(item, Gap) or query.choice.takes(item) for item in page.items):
                        break
                    seq = max(seq, page.next_seq)
        except (TimeoutError, Stopping):
            pass
        if isinstance(topic, ReplicaTopic):
            now, changed = await in_threads(looks, topic.changed_since, epoch)
            self.topic = topic = await in_threads(looks, topic.renewed)
        else:
            now, changed = topic.inner.changed_since(epoch)
        if changed is not None and changed < seq:
            raise Truncated(topic.name, changed, now)
        self.headers |= _place(topic)
        return replace(query, start=seq, tail=None)


def _headers(topic: Topic | ReplicaTopic | PastTopic, query: RangeQuery) -> dict[str, str]:
    """Return the headers of every answer about a topic. The first call in a directory writes its log's id."""
    if isinstance(topic, PastTopic):
        return {"seglog-head": str(topic.head_seq), "seglog-at": topic.at}
    if isinstance(topic, ReplicaTopic):
        is_follower = query.follow or query.wait_s
        return _place(topic) if is_follower else {"seglog-head": str(topic.head_seq)}
    try:
        return {**_place(topic), "seglog-incarnation": topic.incarnation()}
    except NoSuchTopic:
        raise
    except (OSError, SeglogError) as error:
        _log.warning("%s: a read has no seglog-incarnation: %s", topic.name, error)
        return _place(topic)


def _place(topic: Topic | ReplicaTopic) -> dict[str, str]:
    return {"seglog-head": str(topic.head_seq), "seglog-epoch": str(topic.epoch)}


def _bounds(topic: Topic | ReplicaTopic | PastTopic, headers: dict[str, str], form: Form) -> Response:
    sealed_seq = topic.inner.sealed_seq if isinstance(topic, Topic) else topic.head_seq
    bounds = {"seglog-earliest": str(topic.earliest_seq), "seglog-sealed": str(sealed_seq)}
    answer = Response(headers={**headers, **bounds}, media_type=form.value)
    del answer.headers["content-length"]  # a GET has more
    return answer


class RecordDeleted(LookupError):
    """The error for a seq whose record was deleted: 404, as for a seq that never had a record."""

    exit_code = 3

    def __init__(self, topic: str, seq: int) -> None:
        super().__init__(f"record {seq} of {topic} was deleted")


def _etag_of(incarnation: str, sealed_version: Sequence[int], query: Sequence[tuple[str, str]], media_type: str) -> str:
    """Return a strong ETag, with its quotes. The order of the query is of no meaning."""
    parts = [version("seglog"), incarnation, list(sealed_version), sorted(query), media_type]
    return f'"{hashlib.blake2b(json.dumps(parts).encode(), digest_size=_ETAG_BYTES).hexdigest()}"'


def _is_match(condition: str | None, etag: str) -> bool:
    """Return whether the value of `If-None-Match` has the ETag, by the weak comparison."""
    if condition is None:
        return False
    given = [each.strip().removeprefix("W/") for each in condition.split(",")]
    return etag in given or given == ["*"]
