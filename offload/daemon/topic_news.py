"""What happens in one topic, for one follower: new records, truncations, and silence.

    1  The follower reads for itself, page by page, up to the head.
    2  It waits at the feed of the topic, which reads each append once for all that wait (offload.daemon.feeds).
    3  After a truncation it learns from which seq on its records are void, and continues there.

NEWS-1  An id of an event names one record for ever, because a truncation makes the epoch higher. If a client
    resumes in a former epoch and may have a record that was removed, it first gets a `Truncation`.
NEWS-2  The daemon knows the seq of each truncation since its log was opened. For an earlier one, the truncation
    begins at 1: the client gets all records again. For a replica, the commits tell (EPOCH-2).
NEWS-3  A follower of a replica is quiet while the syncs fail, and goes on with the next one that works. It ends
    with an error once the name is gone, and as at a stop once this daemon writes the topic.
NEWS-4  A client whose last seq is 0, because the topic was empty when it began, learns what retention took since then.
NEWS-5  After a truncation, the seqs from the cut on are other records. So the client sees them, whatever it acked
    before. That goes by the epoch of a page: a client that was not so far yet hears nothing of the cut.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Protocol, TypeAlias

from offload.daemon.feeds import Page, read_page
from offload.daemon.service import Service
from offload.daemon.threads import in_threads
from offload.errors import InvalidOption, Stopping
from offload.replica_topic import ReplicaTopic
from offload.replication.replica_follower import ReplicaFollower
from seglog import Topic, Truncated
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.reading.follow import Follower

_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,19})", re.ASCII)


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
class Begin:
    """Where a follower without an id begins: at seq `start`, or `tail` seqs before the head; else at the first one."""

    start: int | None = None
    tail: int | None = None
    gaps: bool = False


@dataclass(frozen=True, slots=True)
class Truncation:
    """All records that the client has from `seq` on are void. Records of `epoch` follow."""

    epoch: int
    seq: int


class Seqs(Protocol):
    """A set of seqs, such as those that a cursor has acked."""

    def __contains__(self, seq: int, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Acked:
    """The seqs of a topic that a client has acked in `epoch`, so that it does not see their records."""

    topic: Topic | ReplicaTopic
    seqs: Seqs
    epoch: int

    def in_epoch(self, epoch: int) -> Seqs:
        """Return the acked seqs whose records are the same in a page of this epoch (NEWS-5). Raises `NoSuchTopic`."""
        if epoch == self.epoch or not isinstance(self.topic, Topic):
            return self.seqs
        _, cut = self.topic.inner.changed_since(self.epoch)
        return self.seqs if cut is None else _Below(cut, self.seqs)


class _Below:
    """The seqs of a container that are below `end`."""

    def __init__(self, end: int, seqs: Seqs) -> None:
        self._end = end
        self._seqs = seqs

    def __contains__(self, seq: int, /) -> bool:
        return seq < self._end and seq in self._seqs


@dataclass(frozen=True, slots=True)
class News:
    """The records of a page from `first_seq` on."""

    page: Page
    first_seq: int


Start: TypeAlias = tuple[Follower | ReplicaFollower, Truncation | None]


async def begin_news(service: Service, topic: Topic | ReplicaTopic, begin: Begin, last: EventId | None) -> Start:
    """Return where a follower begins, and what its client has that is void. All that comes from now on is news.

    `last` says what the client has, and counts more than `begin`.
    """
    start: Start = await in_threads(service.read_threads(topic, WHOLE_MAX), _begun, topic, begin, last)
    return start


async def topic_news(
    service: Service,
    topic: Topic | ReplicaTopic,
    begin: Begin,
    start: Start,
    alive_s: Callable[[], float | None] = lambda: None,
) -> AsyncGenerator[News | Truncation | None]:
    """Yield news and truncations without end, and None after a silence. Raises `Stopping`.

    `alive_s` is asked before each wait: how long a silence may be, or None without a bound. The first page comes
    without records, too.
    """
    looks = service.read_threads(topic, WHOLE_MAX)
    follower, cut = start
    if cut is not None:
        yield cut
    while True:
        if service.stopping.is_set():
            raise Stopping
        seq = follower.seq
        page = await in_threads(service.read_threads(topic, seq), _own_page, topic, follower)
        if page is None:
            follower, cut = await in_threads(looks, _continued, topic, follower.epoch, seq, begin)
            if cut is not None:
                yield cut
            continue
        yield News(page, seq)
        if page.is_empty:
            async with aclosing(_fed(service, topic, follower, alive_s, gaps=begin.gaps)) as fed:
                async for found in fed:
                    yield found


async def _fed(
    service: Service,
    topic: Topic | ReplicaTopic,
    follower: Follower | ReplicaFollower,
    alive_s: Callable[[], float | None],
    *,
    gaps: bool,
) -> AsyncGenerator[News | None]:
    """Yield the news that the feed of the topic brings, until the follower has to look for itself."""
    while True:
        if alive_s() is not None:
            waiting = asyncio.ensure_future(service.feeds.wait(topic, follower.epoch, follower.seq))
            try:
                while not (await asyncio.wait({waiting}, timeout=alive_s()))[0]:
                    yield None
                page = waiting.result()
            finally:
                waiting.cancel()
        else:
            page = await service.feeds.wait(topic, follower.epoch, follower.seq)
        if page is None or (page.has_gaps and not gaps):
            return
        if page.next_seq > follower.seq:
            seq, follower.seq = follower.seq, page.next_seq
            yield News(page, seq)


def _begun(topic: Topic | ReplicaTopic, begin: Begin, last: EventId | None) -> Start:
    if last is not None:
        return _continued(topic, last.epoch, last.seq + 1, begin)
    follower: Follower | ReplicaFollower = topic.inner.follower(begin.start, gaps=begin.gaps)
    if begin.tail is not None:
        head_seq = follower.head_seq if isinstance(follower, ReplicaFollower) else topic.head_seq
        follower.seq = max(follower.seq, head_seq - begin.tail + 1)
    return follower, None


def _continued(topic: Topic | ReplicaTopic, epoch: int, seq: int, begin: Begin) -> Start:
    """Return a follower for a client that has the records below `seq` of `epoch`, and what it has that is void."""
    cut = None
    while True:
        try:
            # If all records are void, the client misses none of those that retention took.
            start = None if cut is not None and seq == 1 else seq
            return topic.inner.follower(start, gaps=begin.gaps, epoch=epoch), cut
        except Truncated as error:
            epoch, seq = error.epoch, error.seq
            cut = Truncation(epoch, seq)


def _own_page(topic: Topic | ReplicaTopic, follower: Follower | ReplicaFollower) -> Page | None:
    try:
        return read_page(topic, follower)
    except Truncated:
        return None
