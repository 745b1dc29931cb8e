"""The route of several topics as one stream of server-sent events, over one connection.

    GET /events?topic=orders:800&topic=web

    retry: 1000
    id: orders:3-799,web:1-77

    id: orders:3-800,web:1-77
    event: record
    data: {"topic": "orders", "schema": 1, "kind": "record", "seq": 800, …}

    event      data                                              id
    record     the JSON line of a record, with its `topic`       the position of all topics behind it
    records    an array of such objects, and of gaps: what the   the same, behind the last one
               daemon collected under pressure
    gap        the JSON line of a gap, with its `topic`          the same, behind the last seq that is lost
    truncated  {"topic": name, "from": seq}                      the same, with the seq before it
    end        {"reason": "stopping"}, "revoked", or "error"     none
               with the `topic` and the problem in "error"

What a position is, and the order between topics: offload.daemon.merged_news.

MANY-1  The first lines have the position at which the stream begins. A client that is cut off before its first
    event, which comes again with that id, misses nothing.
MANY-2  A stream in which nothing was sent for 15 s gets a comment. If the position has moved over records that
    the client does not see, the comment brings it, so that a later stream need not read them again.
MANY-3  The rights of all topics are checked before the daemon looks for any of them. So no refusal says whether
    a topic exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from offload.daemon.http import operations as api
from offload.daemon.http.events import KEEP_ALIVE
from offload.daemon.http.followers import (
    KEEP_ALIVE_S,
    Around,
    chosen,
    collected_event,
    end_event,
    events_of,
    pieces_of,
    truncated_event,
    unhidden,
)
from offload.daemon.http.parameters import query_of, yes
from offload.daemon.http.read_request import Choice, Form
from offload.daemon.http.topics import readable
from offload.daemon.merged_news import Arrival, FollowedTopic, MergedNews, Position, Syncs
from offload.daemon.problems import line_of
from offload.daemon.request_places import become_follower
from offload.daemon.service import Service
from offload.daemon.topic_news import Acked, Begin, News, Truncation
from offload.daemon.waits import CLIENT_GONE, unless_gone
from offload.errors import InvalidOption, Stopping
from offload.replica_topic import ReplicaTopic
from offload.token_rights import Role, rights_of
from seglog import LogClosed, Topic
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass

MOST_TOPICS: Final = 32
RETRY_MS: Final = 1000
_CONSISTENCIES = ("eventual", "strong")

_EXAMPLE = (
    'retry: 1000\nid: orders:1-0,web:1-77\n\nid: orders:1-1,web:1-77\nevent: record\ndata: {"topic": "orders", '
    '"schema": 1, "kind": "record", "seq": 1, "ts_ms": 1785000000000, "value": "one"}\n\n'
)
_PARAMETERS = (
    api.in_query("topic", "string", "TOPIC, which begins at its head, or TOPIC:SEQ. Up to 32 times."),
    api.in_query("tag", "string", "Only records with this tag. A trailing * makes it a prefix."),
    api.in_query("exclude_node", "string", "No records of this node. May be given several times."),
    api.in_query("gaps", "boolean", "Also tell the ranges that retention removed."),
    api.in_query("cursor", "string", "Begin each topic behind its cursor of this name, without what it acked."),
    api.in_query("last_event_id", "string", "Resume behind this id. The header Last-Event-ID counts more."),
    api.in_query("consistency", "string", "With strong, only records that a sync covers.", enum=list(_CONSISTENCIES)),
    api.in_query("ticket", "string", "A ticket of POST /tickets, in the place of a token."),
)
_SEVERAL = frozenset({"topic", "exclude_node"})
_NAMES = api.names_of(_PARAMETERS)

EVENTS = api.Operation(
    "GET", "/events", "followTopics", Role.READ, "records", "New records of several topics, as server-sent events.",
    {200: ("The events, as they come.", {Form.EVENTS.value: {"schema": api.TEXT, "example": _EXAMPLE}})},
    errors=(404, 409, 410), parameters=_PARAMETERS,
)  # fmt: skip


def topic_event_routes(service: Service) -> list[api.RoledRoute]:
    return [EVENTS.route(_TopicEvents(service).events)]


@dataclass(frozen=True, slots=True)
class EventsQuery:
    """What a client asks for. `starts` has the seq of each topic that does not begin at its head."""

    topics: tuple[str, ...]
    starts: Mapping[str, int]
    choice: Choice
    gaps: bool
    is_strong: bool
    cursor: str | None
    last_event_id: str | None

    @classmethod
    def of(cls, request: Request) -> EventsQuery:
        """Return the query. Raises `InvalidOption`."""
        query = query_of(request, _NAMES, _SEVERAL)
        starts = dict(map(_topic_and_seq, request.query_params.getlist("topic")))
        given = len(request.query_params.getlist("topic"))
        if not 1 <= given <= MOST_TOPICS:
            hint = "name each topic with topic=NAME"
            raise InvalidOption("topic", f"is given {given} times, and a stream has 1 to {MOST_TOPICS}", hint=hint)
        if len(starts) < given:
            raise InvalidOption("topic", "names a topic twice", hint="name each topic once")
        cursor, consistency = query.get("cursor"), query.get("consistency", "eventual")
        if consistency not in _CONSISTENCIES:
            raise InvalidOption("consistency", f"{consistency[:40]!r} is none of {', '.join(_CONSISTENCIES)}")
        known = {topic: seq for topic, seq in starts.items() if seq is not None}
        if cursor is not None and known:
            raise InvalidOption("cursor", "says where each topic begins: leave out the seqs of the topics")
        return cls(
            topics=tuple(starts),
            starts=known,
            choice=Choice(query.get("tag"), None, frozenset(request.query_params.getlist("exclude_node"))),
            gaps=yes(query, "gaps") or cursor is not None,
            is_strong=consistency == "strong",
            cursor=cursor,
            last_event_id=request.headers.get("last-event-id") or query.get("last_event_id"),
        )

    def begin(self, topic: str) -> Begin:
        """Return where a topic begins whose place the client does not know."""
        start = self.starts.get(topic)
        return Begin(start, None if start is not None else 0, self.gaps)


def _topic_and_seq(text: str) -> tuple[str, int | None]:
    topic, colon, seq = text.partition(":")
    if not colon:
        return topic, None
    if not (seq.isascii() and seq.isdigit() and len(seq) < 20 and int(seq) <= WHOLE_MAX):
        raise InvalidOption("topic", f"{text[:170]!r} is neither NAME nor NAME:SEQ, with a whole number as seq")
    return topic, int(seq)


class _TopicEvents:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._syncs = Syncs(service)

    async def events(self, request: Request) -> Response:
        query, rights = EventsQuery.of(request), rights_of(request.scope)
        for name in query.topics:
            rights.check(Role.READ, name)
        last = Position.of(query.last_event_id, query.topics)
        topics = {name: await readable(self._service, name) for name in query.topics}
        if query.is_strong:
            _check_strong(topics)
        acked = await self._acked(query, topics, last)
        followed = {
            name: FollowedTopic(topic, query.begin(name), last.places[name], acked.get(name))
            for name, topic in topics.items()
        }
        # Proxies would hold events back. A page that shows the answer would name its own address, with the ticket.
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no", "referrer-policy": "no-referrer"}
        if request.method == "HEAD":
            return Response(headers=headers, media_type=Form.EVENTS.value)
        become_follower(request.scope)
        news = MergedNews(self._service, followed, self._syncs if query.is_strong else None)
        try:
            begun = await unless_gone(request, news.__aenter__)
        except BaseException:
            await news.__aexit__(None, None, None)  # a reload of the tokens may cancel the request just after it began
            raise
        return Response(status_code=CLIENT_GONE) if begun is None else _Stream(request, news, query.choice, headers)

    async def _acked(
        self, query: EventsQuery, topics: Mapping[str, Topic | ReplicaTopic], last: Position
    ) -> dict[str, Acked | None]:
        """Move the topics without a place to the cursor. Return what it has acked behind its floor."""
        if query.cursor is None:
            return {}
        cursors = self._service.cursors
        acked: dict[str, Acked | None] = {}
        for name, topic in topics.items():
            floor, acked[name] = await cursors.begin(topic, query.cursor)
            last.places[name] = last.places[name] or floor
        return acked


class _Stream(Response):
    """The answer once each topic has begun. The tasks of the topics send its events (offload.daemon.merged_news)."""

    def __init__(self, request: Request, news: MergedNews, choice: Choice, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers, media_type=Form.EVENTS.value)
        del self.headers["content-length"]
        self._request = request
        self._news = news
        self._choice = choice
        self._shown = str(news.position)

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        try:
            await unless_gone(self._request, lambda: self._send_all(send))
        finally:
            await self._news.__aexit__(None, None, None)

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await _send(send, f"retry: {RETRY_MS}\nid: {self._shown}\n\n".encode())

        async def deliver(arrival: Arrival | None) -> bool:
            body = self._alive() if arrival is None else _encoded(arrival, self._choice, self._news.position)
            for piece in pieces_of(body) if body else ():
                await _send(send, piece)
            return bool(body)

        topic, error, _ = await self._news.run(deliver, KEEP_ALIVE_S)
        assert isinstance(error, Exception)  # noqa: S101 - nothing else ends the stream
        await _send(send, _end(topic, error), more_body=False)

    def _alive(self) -> bytes:
        """Return a comment, with the position if it has moved since the last one (MANY-2)."""
        before, self._shown = self._shown, str(self._news.position)
        return KEEP_ALIVE if self._shown == before else f":\nid: {self._shown}\n\n".encode()


async def _send(send: Send, body: bytes, *, more_body: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more_body})


def _end(topic: str, error: Exception) -> bytes:
    if isinstance(error, (Stopping, LogClosed)):
        return end_event("stopping")
    return end_event("error", line_of(error), topic)


def _encoded(arrival: Arrival, choice: Choice, position: Position) -> bytes:
    """Return the events of an arrival; nothing if the client sees none of its records."""
    name, found, hidden = arrival
    around = Around(name.encode(), *position.around(name))
    if isinstance(found, Truncation):
        return truncated_event(found, around)
    assert isinstance(found, News)  # noqa: S101 - an error ends the stream
    page, first = found.page, found.first_seq

    def encode() -> bytes:
        places = chosen(page, choice, first, None)
        if hidden is not None:
            places = unhidden(page, places, hidden)
        if len(places) > 1 and page.is_collected:
            return collected_event(page, places, around)
        return events_of(page, places, around)

    if hidden is not None or first > page.first_seq:
        return encode()
    return page.cached((choice, around), encode)


def _check_strong(topics: Mapping[str, Topic | ReplicaTopic]) -> None:
    """Raise `InvalidOption` if no sync ever covers the records of a topic. Those of a replica are in the bucket."""
    for name, topic in topics.items():
        if isinstance(topic, Topic) and topic.config.durability == "ephemeral":
            hint = f"leave out consistency, or configure {name} with another durability"
            raise InvalidOption("consistency", f"no sync covers {name}, whose durability is ephemeral", hint=hint)
