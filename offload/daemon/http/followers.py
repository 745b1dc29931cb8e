"""The answer to `follow=1`: the records of a topic, and new ones as they come, as JSON lines or as events.

    event      data                                             id
    record     the JSON line of a record                        epoch-seq
    gap        the JSON line of a gap                           epoch-seq, with the last seq that is lost
    truncated  {"from": seq}: all records from there on are     epoch-seq, with the seq before it
               void, and the stream continues with that seq
    end        {"reason": "stopping"}, or "limit", or "error"   none
               with the problem in "error"; "revoked" comes
               from offload.daemon.revocation

FOLLOWER-1  An id of an event names one record for ever, because a truncation makes the epoch higher. If a client
    resumes in a former epoch and may have a record that was removed, it first gets a `truncated` event.
FOLLOWER-2  The daemon knows the seq of each truncation since its log was opened. For an earlier one, `from` is 1: the
    client gets all records again. For a replica, the commits tell (EPOCH-2).
FOLLOWER-3  If a truncation removes a record that a follower of JSON lines has, its last line is the error `Truncated`,
    with the seq and the epoch. If that came before its request, which names its last id, the answer is 409.
FOLLOWER-4  If the daemon stops, the last line is {"end": "stopping"}, and the last event is `end`.
FOLLOWER-5  An event stream gets a comment after 15 s without an event. Nothing else wakes an idle follower.
FOLLOWER-6  A follower of a replica is quiet while the syncs fail, and goes on with the next one that works. It ends
    with an error once the name is gone, and as at a stop once this daemon writes the topic.
FOLLOWER-7  A follower holds one page of up to 256 KiB, or one larger record. It takes the next one when its client has
    taken the last 64 KiB.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from offload.daemon.feeds import Page, read_page
from offload.daemon.http.events import KEEP_ALIVE, encode_event
from offload.daemon.http.read_request import Choice, Form, RangeQuery
from offload.daemon.problems import line_of
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.errors import InvalidOption, Stopping
from offload.replica_topic import ReplicaTopic
from offload.replication.replica_follower import ReplicaFollower
from seglog import LogClosed, Record, Topic, Truncated
from seglog.base.arguments import WHOLE_MAX
from seglog.base.values import dataclass
from seglog.reading.follow import Follower

_KEEP_ALIVE_S = 15.0
_PIECE_BYTES = 64 * 1024
_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class _News:
    """The records of a page from `first_seq` on."""

    page: Page
    first_seq: int


async def follow(
    service: Service, topic: Topic | ReplicaTopic, query: RangeQuery, form: Form, last: EventId | None
) -> AsyncGenerator[bytes]:
    """Yield the answer. An error before the first bytes is raised, and decides the status of the answer."""
    is_events = form is Form.EVENTS
    end = _end_event if is_events else _end_line
    has_begun, count_left = False, query.limit
    try:
        async with aclosing(_found(service, topic, query, last, keeps_alive=is_events)) as news:
            async for found in news:
                if isinstance(found, _News):
                    body, count = _body(found, query, form, count_left)
                    count_left = None if count_left is None else count_left - count
                elif found is None:
                    body = KEEP_ALIVE
                else:
                    body = _truncated(topic, found, form)
                for piece in _pieces(body):
                    has_begun = True
                    yield piece
                if count_left == 0:
                    yield end("limit")
                    return
    except (Stopping, LogClosed):
        yield end("stopping")
    except Exception as error:
        if not has_begun:
            raise
        yield end("error", line_of(error))


def _truncated(topic: Topic | ReplicaTopic, cut: _Truncation, form: Form) -> bytes:
    if form is Form.EVENTS:
        return _truncated_event(cut)
    raise Truncated(topic.name, cut.seq, cut.epoch)


def _body(news: _News, query: RangeQuery, form: Form, count_left: int | None) -> tuple[bytes, int]:
    """Return the bytes of news, and the number of records in them, or 0 without a limit."""
    page = news.page
    encode = _events if form is Form.EVENTS else _lines
    if news.first_seq <= page.first_seq and count_left is None:  # as most followers want it: made once
        key = form, query.choice
        return page.cached(key, lambda: encode(page, _chosen(page, query.choice, page.first_seq, None))), 0
    places = _chosen(page, query.choice, news.first_seq, count_left)
    return encode(page, places), page.count_records(places)


def _pieces(body: bytes) -> Iterator[bytes]:
    """Yield the body in pieces, at least one. The server holds a copy of a piece until the client has taken it."""
    for at in range(0, max(1, len(body)), _PIECE_BYTES):
        yield body[at : at + _PIECE_BYTES]


async def _found(
    service: Service, topic: Topic | ReplicaTopic, query: RangeQuery, last: EventId | None, *, keeps_alive: bool
) -> AsyncGenerator[_News | _Truncation | None]:
    """Yield news and truncations without end, and None where an event stream needs a comment. Raises `Stopping`."""
    looks = service.read_threads(topic, WHOLE_MAX)
    follower, cut = await in_threads(looks, _begun, topic, query, last)
    if cut is not None:
        yield cut
    while True:
        if service.stopping.is_set():
            raise Stopping
        seq = follower.seq
        page = await in_threads(service.read_threads(topic, seq), _own_page, topic, follower)
        if page is None:
            follower, cut = await in_threads(looks, _continued, topic, follower.epoch, seq, query)
            if cut is not None:
                yield cut
            continue
        yield _News(page, seq)  # without a record too, so that the answer begins
        if page.is_empty:
            async with aclosing(_fed(service, topic, follower, query, keeps_alive=keeps_alive)) as fed:
                async for found in fed:
                    yield found


async def _fed(
    service: Service,
    topic: Topic | ReplicaTopic,
    follower: Follower | ReplicaFollower,
    query: RangeQuery,
    *,
    keeps_alive: bool,
) -> AsyncGenerator[_News | None]:
    """Yield the news that the feed of the topic brings, until the follower has to look for itself."""
    while True:
        if keeps_alive:
            waiting = asyncio.ensure_future(service.feeds.wait(topic, follower.epoch, follower.seq))
            try:
                while not (await asyncio.wait({waiting}, timeout=_KEEP_ALIVE_S))[0]:
                    yield None
                page = waiting.result()
            finally:
                waiting.cancel()
        else:
            page = await service.feeds.wait(topic, follower.epoch, follower.seq)
        if page is None or (page.has_gaps and not query.gaps):
            return
        if page.next_seq > follower.seq:
            seq, follower.seq = follower.seq, page.next_seq
            yield _News(page, seq)


def _begun(
    topic: Topic | ReplicaTopic, query: RangeQuery, last: EventId | None
) -> tuple[Follower | ReplicaFollower, _Truncation | None]:
    if last is not None:
        return _continued(topic, last.epoch, last.seq + 1, query)
    follower: Follower | ReplicaFollower = topic.inner.follower(query.start, gaps=query.gaps)
    if query.tail is not None:
        head_seq = follower.head_seq if isinstance(follower, ReplicaFollower) else topic.head_seq
        follower.seq = max(follower.seq, head_seq - query.tail + 1)
    return follower, None


def _continued(
    topic: Topic | ReplicaTopic, epoch: int, seq: int, query: RangeQuery
) -> tuple[Follower | ReplicaFollower, _Truncation | None]:
    """Return a follower for a client that has the records below `seq` of `epoch`, and what it has that is void."""
    cut = None
    while True:
        try:
            return topic.inner.follower(seq if seq > 1 else None, gaps=query.gaps, epoch=epoch), cut
        except Truncated as error:
            epoch, seq = error.epoch, error.seq
            cut = _Truncation(epoch, seq)


def _own_page(topic: Topic | ReplicaTopic, follower: Follower | ReplicaFollower) -> Page | None:
    try:
        return read_page(topic, follower)
    except Truncated:
        return None


@dataclass(frozen=True, slots=True)
class EventId:
    """The id of an event. Its client has the records up to `seq`, as they were in `epoch`."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"

    @classmethod
    def of(cls, text: str | None) -> EventId | None:
        """Return the id in a `Last-Event-ID` header, or None without one. Raises `InvalidOption`."""
        if not text:
            return None
        found = _ID.fullmatch(text)
        if found is None or max(int(part) for part in found.groups()) >= WHOLE_MAX:
            raise InvalidOption("Last-Event-ID", f"{text[:60]!r} is not epoch-seq, as in the ids of this stream")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class _Truncation:
    """All records that the client has from `seq` on are void. Records of `epoch` follow."""

    epoch: int
    seq: int


def _chosen(page: Page, choice: Choice, first: int, count: int | None) -> list[int]:
    """Return the places of items in a page: from seq `first` on, and at most `count` records."""
    places: list[int] = []
    for place, item in enumerate(page.items):
        if isinstance(item, Record):
            if item.seq < first or not choice.takes(item):
                continue
            if count is not None:
                count -= 1
        elif item.gap_to < first:
            continue
        places.append(place)
        if count == 0:
            break
    return places


def _lines(page: Page, places: Iterable[int]) -> bytes:
    return b"".join(page.lines[place] for place in places)


def _end_line(reason: str, error: dict[str, Any] | None = None) -> bytes:
    """Return the last line of a follower. After `limit` records there is none, as in a read that does not follow."""
    if reason == "limit":
        return b""
    return json.dumps({"end": reason} if error is None else {"error": error}).encode() + b"\n"


def _events(page: Page, places: Iterable[int]) -> bytes:
    found: list[bytes] = []
    for place in places:
        item, line = page.items[place], page.lines[place]
        name, seq = (b"record", item.seq) if isinstance(item, Record) else (b"gap", item.gap_to)
        # As `encode_event` does. The JSON of a record is one line, which ends with a line feed.
        found.append(b"id: %d-%d\nevent: %s\ndata: %s\n" % (page.epoch, seq, name, line))
    return b"".join(found)


def _truncated_event(cut: _Truncation) -> bytes:
    return encode_event("truncated", json.dumps({"from": cut.seq}), str(EventId(cut.epoch, cut.seq - 1)))


def _end_event(reason: str, error: dict[str, Any] | None = None) -> bytes:
    return encode_event("end", json.dumps({"reason": reason} if error is None else {"reason": reason, "error": error}))
