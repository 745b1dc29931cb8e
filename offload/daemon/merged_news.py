"""The news of several topics as one stream, for one client.

The readers R and S of two topics, each a task, and the client C:

    1  R and S read their topics (offload.daemon.topic_news). C waits until both know where they begin.
    2  R has a page, and takes the turn. It sends the page to C itself, and waits for more at once: whoever is not back
       at the feed for its next page has to read that one alone.
    3  S has a page meanwhile, and waits for its turn. Turns go in the order in which pages came.
    4  C takes nothing. R waits with its page and S with its own, and neither reads on.

    consistency   a follower sees
    eventual      each record as soon as other readers do
    strong        a record only after a sync covers it; a record that is ephemeral, never

A position says how far a client is in each topic: `orders:3-812,web:1-77`, the name, the epoch and the seq.

MERGED-1  A client holds one page of each topic at most, also while it takes nothing.
MERGED-2  The position after an item, and the same topics, give each later item once and in order. The place of a topic
    moves also over records that the client does not see, because another event may carry the position.
MERGED-3  A strong follower asks the log for a sync, which costs nothing if one has covered the records. It does so
    before it begins, too: else its first id may name a seq that a power cut gives to another record. All strong
    followers that ask while a sync runs share the next one. So nobody looks at anything in intervals.
MERGED-4  If one topic fails, the whole stream ends with its error. A client would not miss a topic that fell silent.
MERGED-6  Nothing follows a page that the client took only in part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.daemon.topic_news import Acked, Begin, EventId, News, Seqs, Truncation, begin_news, topic_news
from offload.errors import InvalidOption
from offload.replica_topic import ReplicaTopic
from seglog import Topic
from seglog.base.dataclasses import dataclass


class Position:
    """How far a client is in each of its topics, in the order of the topics. `str` and `of` are inverse."""

    def __init__(self, topics: Iterable[str], places: Mapping[str, EventId]) -> None:
        self.places = {topic: places.get(topic) for topic in topics}

    def __str__(self) -> str:
        return ",".join(f"{topic}:{place}" for topic, place in self.places.items() if place is not None)

    def around(self, topic: str) -> tuple[bytes, bytes]:
        """Return what stands before and behind the place of a topic, which events of this topic change alone."""
        if len(self.places) == 1:
            return f"{topic}:".encode(), b""
        names = list(self.places)
        at = names.index(topic)
        before = [f"{name}:{self.places[name]}," for name in names[:at] if self.places[name] is not None]
        behind = [f",{name}:{self.places[name]}" for name in names[at + 1 :] if self.places[name] is not None]
        return f"{''.join(before)}{topic}:".encode(), "".join(behind).encode()

    @classmethod
    def of(cls, text: str | None, topics: Iterable[str]) -> Position:
        """Return the position in a `Last-Event-ID`; an empty one without it. Raises `InvalidOption`.

        A topic that it does not have begins where the request says.
        """
        asked, places = list(topics), dict[str, EventId]()
        for part in text.split(",") if text else ():
            topic, _, place = part.rpartition(":")
            if not topic or not place or topic in places:
                raise InvalidOption("Last-Event-ID", f"{part[:60]!r} is not topic:epoch-seq, as in the ids of events")
            if topic not in asked:
                raise InvalidOption("Last-Event-ID", f"{topic[:60]!r} is none of the topics that the query names")
            found = EventId.of(place)
            assert found is not None  # noqa: S101 - the place is not empty
            places[topic] = found
        return cls(asked, places)


def place_behind(found: News | Truncation) -> EventId:
    """Return the id of the last seq of what a client got, which need not have a record."""
    if isinstance(found, Truncation):
        return EventId(found.epoch, found.seq - 1)
    return EventId(found.page.epoch, found.page.next_seq - 1)


@dataclass(frozen=True, slots=True)
class FollowedTopic:
    """One topic of a stream. `last` says what the client has, and counts more than `begin`.

    The client does not see the records in `acked`.
    """

    topic: Topic | ReplicaTopic
    begin: Begin
    last: EventId | None = None
    acked: Acked | None = None


class Arrival(NamedTuple):
    """What came of a topic: also the error that ends the stream. The client does not see the records in `hidden`."""

    topic: str
    found: News | Truncation | Exception
    hidden: Seqs | None = None


Deliver: TypeAlias = Callable[[Arrival | None], Awaitable[bool]]


class Syncs:
    """The syncs that strong followers wait for, one at a time (MERGED-3)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def cover(self, topic: Topic) -> None:
        """Return when a sync covers all records that readers see now. Raises `WriterPoisoned`, `LogClosed`."""
        if self._next is None:
            self._next = asyncio.create_task(self._run(self._running, topic))
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())  # if all have left
        await asyncio.shield(self._next)

    async def _run(self, before: asyncio.Task[None] | None, topic: Topic) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._running, self._next = self._next, None
        await in_threads(self._service.hot_reads, topic.inner.sync)


class MergedNews:
    """The news of several topics, as a context manager that ends the task of each topic.

    Without `syncs`, the follower is an eventual one.
    """

    def __init__(self, service: Service, followed: Mapping[str, FollowedTopic], syncs: Syncs | None = None) -> None:
        places = {name: each.last for name, each in followed.items() if each.last is not None}
        self.position = Position(followed, places)
        self._service = service
        self._followed = followed
        self._syncs = syncs
        self._loop = asyncio.get_running_loop()
        self._tasks: list[asyncio.Task[None]] = []
        self._beginning = len(followed)
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[Arrival] = self._loop.create_future()
        self._deliver: asyncio.Future[Deliver] = self._loop.create_future()
        self._turn = asyncio.Lock()  # who waits gets it in order
        self._said_s = 0.0
        self._failure: Exception | None = None  # of the client

    async def __aenter__(self) -> MergedNews:
        """Return when each topic knows where it begins. Raises the first error of a topic."""
        self._tasks = [asyncio.create_task(self._follow(name, each)) for name, each in self._followed.items()]
        try:
            first: list[asyncio.Future[Any]] = [self._begun, self._ended]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self._end()
            raise
        if self._ended.done() and isinstance(error := self._ended.result().found, Exception):
            await self._end()
            raise error
        return self

    async def __aexit__(self, _kind: object, _error: object, _trace: TracebackType | None) -> None:
        await self._end()

    async def run(self, deliver: Deliver, alive_s: float) -> Arrival:
        """Let the tasks deliver what comes, one at a time, until a topic fails. Return the arrival with its error.

        `deliver` gets None after `alive_s` in which it said nothing. It returns whether it said something. Its own
        errors are raised here.
        """
        self._said_s = self._loop.time()
        self._deliver.set_result(deliver)
        while not self._ended.done():
            left_s = self._said_s + alive_s - self._loop.time()
            if left_s > 0:
                await asyncio.wait({self._ended}, timeout=left_s)
                continue
            async with self._turn:
                if self._said_s + alive_s <= self._loop.time():
                    await deliver(None)
                    self._said_s = self._loop.time()
        await self._turn.acquire()  # so that nothing follows the end
        if self._failure is not None:
            raise self._failure
        return self._ended.result()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _follow(self, name: str, followed: FollowedTopic) -> None:
        try:
            start = await begin_news(self._service, followed.topic, followed.begin, followed.last)
            async with aclosing(topic_news(self._service, followed.topic, followed.begin, start)) as news:
                async for found in news:
                    assert found is not None  # noqa: S101 - only a follower with a time gets None
                    hidden = None
                    if isinstance(found, News):
                        acked = followed.acked
                        hidden = None if acked is None else acked.in_epoch(found.page.epoch)
                        if self._syncs is not None and isinstance(followed.topic, Topic):
                            hidden = await self._synced(followed.topic, found, hidden)
                    if not self._deliver.done():
                        await self._begin(name, found)
                    await self._hand_over(Arrival(name, found, hidden))
        except Exception as error:
            if not self._ended.done():
                self._ended.set_result(Arrival(name, error))

    async def _begin(self, name: str, found: News | Truncation) -> None:
        """Note where a topic begins, and return when the others have begun, too."""
        if self.position.places[name] is None:
            # A truncation may take the place at which the topic is about to begin.
            begun = EventId(found.page.epoch, found.first_seq - 1) if isinstance(found, News) else place_behind(found)
            self.position.places[name] = begun
        self._beginning -= 1
        if not self._beginning:
            self._begun.set_result(None)
        await asyncio.wait({self._deliver})

    async def _hand_over(self, arrival: Arrival) -> None:
        """Deliver an arrival when it is the topic's turn, and return when the client has taken it (MERGED-1)."""
        assert not isinstance(arrival.found, Exception)  # noqa: S101 - that ends the stream
        async with self._turn:
            if self._failure is not None:  # nothing follows half of a page (MERGED-6)
                raise self._failure
            try:
                if await self._deliver.result()(arrival):
                    self._said_s = self._loop.time()
            except Exception as error:
                self._failure = error
                raise
            self.position.places[arrival.topic] = place_behind(arrival.found)

    async def _synced(self, topic: Topic, news: News, hidden: Seqs | None) -> Seqs | None:
        """Let a strong follower wait for a sync. Return the records that it does not see."""
        if self._syncs is None or (news.page.is_empty and self._deliver.done()):
            return hidden
        ephemeral = topic.inner.ephemeral_seqs(news.page.first_seq, news.page.next_seq - 1)
        await self._syncs.cover(topic)
        if not ephemeral:
            return hidden
        return ephemeral if hidden is None else _Either(ephemeral, hidden)


class _Either:
    """The seqs in one of two containers."""

    def __init__(self, one: Seqs, other: Seqs) -> None:
        self._both = one, other

    def __contains__(self, seq: int, /) -> bool:
        return any(seq in each for each in self._both)
