"""Followers of several topics: the state between their tries, as values. No I/O.

1  The follower asks for orders and web. The first lines of the answer have the position at which it begins.
2  Each record comes with the position of all topics behind it. The caller may keep it with the record's results.
3  The connection breaks. The follower asks again with its last position, so each record comes once, in order.
4  A truncation of orders comes. The caller gets `Truncated`, drops its records from that seq on, and goes on.

item of the caller     what it means
a `Followed`           a record of a topic, or a gap with `gaps=True`
the error `Truncated`  the records of its `topic` from `seq` on are void; the next item continues there
another error          the follower has ended
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from seglog.base.dataclasses import dataclass
from seglog.client.answers import error_of_line, fit
from seglog.client.bodies import item_of, object_of
from seglog.client.connections import Answer, Request
from seglog.client.requests import ack_request, events_request
from seglog.client.sse import Event, EventParser
from seglog.errors import DaemonError, InvalidArgument, Misuse, SeglogError, Truncated
from seglog.values.names import check_topic_name
from seglog.values.protocols import FollowTopicsArguments
from seglog.values.record import Gap, Record

MOST_TOPICS = 32
_POSITION = re.compile(r"[A-Za-z0-9._@:,-]+")


@dataclass(frozen=True, slots=True)
class Followed:
    """A record of a followed topic, or a gap in it: `for topic, record in client.follow([...])`.

    `position` is that of all topics behind it. A follower with it continues there.
    """

    topic: str
    record: Record | Gap
    position: str

    def __iter__(self) -> Iterator[Any]:
        return iter((self.topic, self.record))

    @property
    def epoch(self) -> int:
        """Return the epoch of the topic in which the record is."""
        return _epoch_in(self.position, self.topic)


class _Cut(NamedTuple):
    """A truncation, for the caller that takes the items."""

    error: Truncated
    position: str


class _Fed(NamedTuple):
    """As that of `seglog.client.reading`."""

    source: FollowingTopics
    items: list[Any]
    error: SeglogError | None
    is_progress: bool


@dataclass(frozen=True, slots=True)
class FollowingTopics:
    """A follower of several topics. `position` is the id of the last event that came."""

    topics: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    position: str | None = None
    parser: EventParser = EventParser()
    ends_with_answer = False
    is_done = False

    @property
    def request(self) -> Request:
        return events_request(self.topics, self.query, self.position)

    def begun(self, answer: Answer) -> FollowingTopics:
        """Return the follower after the head of an answer."""
        fit(self.request, answer)
        return replace(self, parser=EventParser())

    def fed(self, piece: bytes) -> _Fed:
        """Take a piece of the answer. The items are `Followed`, and truncations."""
        try:
            parser, events, _ = self.parser.fed(piece)
        except UnicodeDecodeError as broken:
            return _Fed(self, [], DaemonError(f"the answer is no text: {broken}", 1), is_progress=False)
        position, items = self.position, list[Any]()
        error: SeglogError | None = None
        for event in events:
            position = position if event.id is None else event.id
            try:
                found = _items_of(event, position or "")
            except (ValueError, KeyError, TypeError) as broken:
                error = DaemonError(f"an event of the answer is no record: {broken}", 1)
                break
            if isinstance(found, SeglogError):
                error = found
                break
            items += found
        # Each answer begins with a position. So it is progress only if it is another one, and so is a comment.
        is_progress = position != self.position or any(event.id is None for event in events)
        return _Fed(replace(self, parser=parser, position=position), items, error, is_progress)


def following_topics(topics: Sequence[str], options: FollowTopicsArguments) -> FollowingTopics:
    """Return a follower that begins. Raise `InvalidArgument` and `InvalidName`."""
    if not 1 <= len(topics) <= MOST_TOPICS:
        raise InvalidArgument("topics", topics, f"1 to {MOST_TOPICS} names, each NAME or NAME:SEQ")
    for text in topics:
        name, colon, seq = text.partition(":")
        check_topic_name(name)
        if colon and not (seq.isascii() and seq.isdigit()):
            raise InvalidArgument("topics", text, "NAME or NAME:SEQ")
    if len({text.partition(":")[0] for text in topics}) < len(topics):
        raise InvalidArgument("topics", topics, "each topic once")
    position = options.get("position")
    if position is not None and not _POSITION.fullmatch(position):
        raise InvalidArgument("position", position, "the position of a record that was followed")
    given = (("cursor", options.get("cursor")), ("tag", options.get("tag")))
    query = [(name, text) for name, text in given if text is not None]
    query += [("gaps", "1")] if options.get("gaps") else []
    query += [("consistency", "strong")] if options.get("strong") else []
    return FollowingTopics(tuple(topics), tuple(query), position)


class Taking:
    """What the followers of both clients share: the place behind the last item, and the cursor.

    `position` is None before the first item, unless the caller gave one.
    """

    def __init__(self, source: FollowingTopics, cursor: str | None) -> None:
        self.position = source.position
        self._source = source
        self._cursor = cursor

    def _taken(self, item: Followed | _Cut) -> Followed:
        """Return an item, and move behind it. Raise `Truncated`."""
        self.position = item.position
        if isinstance(item, _Cut):
            raise item.error
        return item

    def _acks(self, records: Sequence[Followed]) -> list[Request]:
        """Return the requests that ack these records. Raise `Misuse` without a cursor."""
        if self._cursor is None:
            raise Misuse("this follower has no cursor", hint='name one: client.follow([...], cursor="NAME")')
        seqs: dict[tuple[str, int], list[int]] = {}
        for each in records:
            if not isinstance(each, Followed):
                raise InvalidArgument("records", each, "what a follower gave")
            if isinstance(each.record, Record):
                seqs.setdefault((each.topic, each.epoch), []).append(each.record.seq)
        return [ack_request(topic, self._cursor, epoch, found) for (topic, epoch), found in seqs.items()]


def _items_of(event: Event, position: str) -> list[Followed | _Cut] | SeglogError:
    """Return what an event means, or the error that ends the follower."""
    if event.kind in ("record", "gap"):
        fields = object_of(event.data.encode())
        return [Followed(fields["topic"], item_of(fields), position)]
    if event.kind == "records":
        return [_within(fields, position) for fields in json.loads(event.data)]
    if event.kind == "truncated":
        told = object_of(event.data.encode())
        topic = str(told["topic"])
        return [_Cut(Truncated(topic, int(told["from"]), _epoch_in(position, topic)), position)]
    report = object_of(event.data.encode()) if event.kind == "end" else {}
    return error_of_line(report["error"]) if "error" in report else []


def _within(fields: dict[str, Any], position: str) -> Followed:
    """Return one of several records of an event, with the position behind itself. All are of one topic and epoch."""
    topic, item = str(fields["topic"]), item_of(fields)
    seq = item.gap_to if isinstance(item, Gap) else item.seq
    parts = [each.rpartition(":") for each in position.split(",")]
    own = f"{_epoch_in(position, topic)}-{seq}"
    return Followed(topic, item, ",".join(f"{name}:{own if name == topic else place}" for name, _, place in parts))


def _epoch_in(position: str, topic: str) -> int:
    """Return the epoch of a topic in a position. Raise `KeyError` if it has no such topic."""
    places = {name: place for name, _, place in (each.rpartition(":") for each in position.split(","))}
    return int(places[topic].partition("-")[0])
