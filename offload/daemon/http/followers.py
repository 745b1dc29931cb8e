"""The answer to `follow=1`: the records of a topic, and new ones as they come, as JSON lines or as events.

    event      data                                             id
    record     the JSON line of a record                        epoch-seq
    gap        the JSON line of a gap                           epoch-seq, with the last seq that is lost
    truncated  {"from": seq}: all records from there on are     epoch-seq, with the seq before it
               void, and the stream continues with that seq
    end        {"reason": "stopping"}, or "limit", or "error"   none
               with the problem in "error"; "revoked" comes
               from offload.daemon.revocation

What an id means, and what a truncation is: offload.daemon.topic_news.

FOLLOWS-1  If a truncation removes a record that a follower of JSON lines has, its last line is the error `Truncated`,
    with the seq and the epoch. If that came before its request, which names its last id, the answer is 409.
FOLLOWS-2  If the daemon stops, the last line is {"end": "stopping"}, and the last event is `end`.
FOLLOWS-3  An event stream gets a comment after 15 s without an event. Nothing else wakes an idle follower.
FOLLOWS-4  A follower holds one page of up to 256 KiB, or one larger record. It takes the next one when its client has
    taken the last 64 KiB.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from offload.daemon.feeds import Page
from offload.daemon.http.events import KEEP_ALIVE, encode_event
from offload.daemon.http.read_request import Choice, Form, RangeQuery
from offload.daemon.problems import line_of
from offload.daemon.service import Service
from offload.daemon.topic_news import Begin, EventId, News, Seqs, Truncation, begin_news, topic_news
from offload.errors import Stopping
from offload.replica_topic import ReplicaTopic
from seglog import LogClosed, Record, Topic, Truncated

KEEP_ALIVE_S = 15.0
_PIECE_BYTES = 64 * 1024


async def follow(
    service: Service, topic: Topic | ReplicaTopic, query: RangeQuery, form: Form, last: EventId | None
) -> AsyncGenerator[bytes]:
    """Yield the answer. An error before the first bytes is raised, and decides the status of the answer."""
    is_events = form is Form.EVENTS
    end = end_event if is_events else _end_line
    begin = Begin(query.start, query.tail, query.gaps)
    alive_s = KEEP_ALIVE_S if is_events else None
    has_begun, count_left = False, query.limit
    try:
        start = await begin_news(service, topic, begin, last)
        async with aclosing(topic_news(service, topic, begin, start, lambda: alive_s)) as news:
            async for found in news:
                if isinstance(found, News):
                    body, count = _body(found, query, form, count_left)
                    count_left = None if count_left is None else count_left - count
                elif found is None:
                    body = KEEP_ALIVE
                else:
                    body = _truncated(topic, found, form)
                for piece in pieces_of(body):
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


def _truncated(topic: Topic | ReplicaTopic, cut: Truncation, form: Form) -> bytes:
    if form is Form.EVENTS:
        return truncated_event(cut)
    raise Truncated(topic.name, cut.seq, cut.epoch)


def _body(news: News, query: RangeQuery, form: Form, count_left: int | None) -> tuple[bytes, int]:
    """Return the bytes of news, and the number of records in them, or 0 without a limit."""
    page = news.page
    encode = events_of if form is Form.EVENTS else _lines
    if news.first_seq <= page.first_seq and count_left is None:  # as most followers want it: made once
        key = form, query.choice
        return page.cached(key, lambda: encode(page, chosen(page, query.choice, page.first_seq, None))), 0
    places = chosen(page, query.choice, news.first_seq, count_left)
    return encode(page, places), page.count_records(places)


def pieces_of(body: bytes) -> Iterator[bytes]:
    """Yield the body in pieces, at least one. The server holds a copy of a piece until the client has taken it."""
    for at in range(0, max(1, len(body)), _PIECE_BYTES):
        yield body[at : at + _PIECE_BYTES]


def chosen(page: Page, choice: Choice, first: int, count: int | None) -> list[int]:
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


def unhidden(page: Page, places: Iterable[int], hidden: Seqs) -> list[int]:
    """Return the places but for those of records with a hidden seq."""
    return [place for place in places if not (isinstance(item := page.items[place], Record) and item.seq in hidden)]


def _lines(page: Page, places: Iterable[int]) -> bytes:
    return b"".join(page.lines[place] for place in places)


def _end_line(reason: str, error: dict[str, Any] | None = None) -> bytes:
    """Return the last line of a follower. After `limit` records there is none, as in a read that does not follow."""
    if reason == "limit":
        return b""
    return json.dumps({"end": reason} if error is None else {"error": error}).encode() + b"\n"


class Around(NamedTuple):
    """What the events of a stream of several topics have beside their own topic's records (topic_events)."""

    topic: bytes
    before_id: bytes
    behind_id: bytes

    def labelled(self, line: bytes) -> bytes:
        """Return the JSON object of a line, with the topic."""
        return b'{"topic": "%b", %b' % (self.topic, line[1:])


def events_of(page: Page, places: Iterable[int], around: Around | None = None) -> bytes:
    found: list[bytes] = []
    before, behind = (b"", b"") if around is None else (around.before_id, around.behind_id)
    for place in places:
        item, line = page.items[place], page.lines[place]
        name, seq = (b"record", item.seq) if isinstance(item, Record) else (b"gap", item.gap_to)
        data = line if around is None else around.labelled(line)
        # As `encode_event` does. The JSON of a record is one line, which ends with a line feed.
        found.append(b"id: %b%d-%d%b\nevent: %b\ndata: %b\n" % (before, page.epoch, seq, behind, name, data))
    return b"".join(found)


def collected_event(page: Page, places: Sequence[int], around: Around) -> bytes:
    """Return several items as one event `records`, with the id of the last one."""
    last = page.items[places[-1]]
    seq = last.seq if isinstance(last, Record) else last.gap_to
    data = b", ".join(around.labelled(page.lines[place]).rstrip(b"\n") for place in places)
    event_id = b"%b%d-%d%b" % (around.before_id, page.epoch, seq, around.behind_id)
    return b"id: %b\nevent: records\ndata: [%b]\n\n" % (event_id, data)


def truncated_event(cut: Truncation, around: Around | None = None) -> bytes:
    told, place = {"from": cut.seq}, str(EventId(cut.epoch, cut.seq - 1))
    if around is None:
        return encode_event("truncated", json.dumps(told), place)
    event_id = f"{around.before_id.decode()}{place}{around.behind_id.decode()}"
    return encode_event("truncated", json.dumps({"topic": around.topic.decode(), **told}), event_id)


def end_event(reason: str, error: dict[str, Any] | None = None, topic: str = "") -> bytes:
    told = {"reason": reason, **({"topic": topic} if topic else {}), **({} if error is None else {"error": error})}
    return encode_event("end", json.dumps(told))
