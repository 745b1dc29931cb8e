"""The news of topics, for followers. One thread reads an append for all followers of a topic.

A feed is the news of one topic in one epoch. It lives while a follower waits.

    1  A follower has shown all records up to the head. It waits for a seq.
    2  The feed polls the topic in a thread. Without news, the topic keeps one waiter of the feed.
    3  An append calls the waiter under the log's lock: one call, whatever the number of followers. That of a replica
       is called by a sync, under the lock of the local catalog.
    4  The feed asks for a slot (offload.daemon.scheduler.slots). Under pressure it first collects news for some ms.
    5  A thread reads the new records and their JSON lines once, as a page, and polls the topic again.
    6  The feed hands the page to its followers, 64 at a time. In between, the event loop does other work.
    7  The feed gives its slot back. If there is more news, it goes on with step 4.

FEED-1  A follower that waits holds no thread and no timer, and nothing looks for it in intervals.
FEED-2  If a follower waits for a seq that the feed has passed, it looks for itself at once. So no record falls between.
FEED-3  Only followers that wait get a page. A slow follower reads for itself later, so it holds one page at most.
FEED-4  After an error, each follower of the feed looks for itself, and gets the error that fits its own position.
FEED-5  All records of a page are of its epoch. A truncation makes the epoch higher, and then the page is dropped.
FEED-6  A feed reads a page only in a slot, and one page in each. So a topic with much news leaves room for the others.
FEED-7  Nobody waits behind a feed without followers: if the last one leaves while the feed waits for a slot, the feed
    ends.

The event loop owns all feeds. `wake` alone runs in other threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from offload.daemon.scheduler.slots import ReadySet, Slots
from offload.daemon.stopping import StopEvent
from offload.errors import Stopping
from offload.operations.record_text import to_json
from offload.replica_topic import ReplicaTopic
from offload.replication.replica_follower import ReplicaFollower
from seglog import Gap, Record, Topic, TopicConfig
from seglog.base.dataclasses import dataclass
from seglog.reading.follow import Follower

_PAGE_RECORDS = 512
_PAGE_BYTES = 256 * 1024
_WOKEN_AT_ONCE = 64
_SLOTS = 4
# A follower of events waits again so many turns of the loop after it got a page, if its client takes the page at once.
_TURNS = 8
_MOST_CACHED = 16  # followers that are at different places in their other topics want other bytes
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """The records and gaps from `first_seq` up to `next_seq`, deleted ones left out, and the JSON line of each.

    `epoch` is the one for the ids of the records. `cache` has what is made of the page once, for all followers that
    want the same. `is_collected` says that the feed collected news for it under pressure, so that one event should
    carry them.
    """

    epoch: int
    first_seq: int
    next_seq: int
    items: tuple[Record | Gap, ...]
    lines: tuple[bytes, ...]
    is_collected: bool = False
    has_gaps: bool = False
    cache: dict[object, Any] = field(default_factory=dict["object", "Any"], compare=False)

    @property
    def is_empty(self) -> bool:
        """Return whether the reader was at the head."""
        return self.next_seq == self.first_seq

    def count_records(self, indexes: Iterable[int]) -> int:
        return sum(isinstance(self.items[index], Record) for index in indexes)

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """Return what `make` makes of the page: once for all followers with the same key, of 16 keys at most."""
        if key in self.cache:
            return self.cache[key]  # type: ignore[no-any-return]
        made = make()
        if len(self.cache) < _MOST_CACHED:
            self.cache[key] = made
        return made


def read_page(
    topic: Topic | ReplicaTopic, follower: Follower | ReplicaFollower, *, is_collected: bool = False
) -> Page | None:
    """Return the next records of a follower, or None if the topic is in another epoch by now. Blocks.

    After None, the follower is of no more use: `Topic.inner.changed_since` tells where to continue. Raises the errors
    of a read.
    """
    first, items, size_bytes = follower.seq, list[Record | Gap](), 0
    for item in follower.new_items():
        items.append(item)
        size_bytes += len(item.value) if isinstance(item, Record) else 0
        if len(items) == _PAGE_RECORDS or size_bytes >= _PAGE_BYTES:
            break
    if topic.inner.position[0] != follower.epoch:
        return None
    lines = tuple(f"{to_json(item)}\n".encode() for item in items)
    epoch = follower.read_epoch if isinstance(follower, ReplicaFollower) else follower.epoch
    has_gaps = any(isinstance(item, Gap) for item in items)  # each follower asks
    return Page(epoch, first, follower.seq, tuple(items), lines, is_collected, has_gaps)


_News: TypeAlias = "asyncio.Future[Page | None]"


class Feeds:
    """The feeds of one directory, by topic and epoch. The threads of `pool` read; those of `cold_pool` read replicas.

    The feeds get slots in `ready`, those of replicas in `cold_ready` (SLOT-6). `on_late` is called for each follower
    that is late: while it took one page, its feed went on to the next.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        stopping: StopEvent,
        cold_pool: ThreadPoolExecutor | None = None,
        ready: ReadySet | None = None,
        on_late: Callable[[], None] = lambda: None,
        cold_ready: ReadySet | None = None,
    ) -> None:
        self._pool = pool
        self._cold_pool = cold_pool or pool
        self._stopping = stopping
        self.ready = ready or Slots(lambda: _SLOTS).ready_set()
        self.cold_ready = cold_ready or self.ready
        self._on_late = on_late
        self._feeds: dict[tuple[str, int], _Feed] = {}
        self._is_listening = False

    async def wait(self, topic: Topic | ReplicaTopic, epoch: int, seq: int) -> Page | None:
        """Wait until the topic has news for a follower that has seen all records below `seq` in that epoch.

        Return the news, which may begin below `seq`. If the follower should look for itself, return None. Raises
        `Stopping` when the daemon stops.
        """
        self._listen()
        if self._stopping.is_set():
            raise Stopping
        feed = self._feeds.get((topic.name, epoch))
        if feed is None:
            is_cold = isinstance(topic, ReplicaTopic)
            pool, ready = (self._cold_pool, self.cold_ready) if is_cold else (self._pool, self.ready)
            feed = self._feeds[topic.name, epoch] = _Feed(topic, epoch, seq, pool, ready)
            feed.task.add_done_callback(lambda _: self._drop(feed))
        elif seq < feed.seq:
            self._on_late()
            return None
        return await feed.wait()

    def _drop(self, feed: _Feed) -> None:
        if not feed.task.cancelled():
            feed.task.exception()  # FEED-4: each follower gets its own
        if self._feeds.get(feed.key) is feed:
            del self._feeds[feed.key]
        feed.give_up()

    def _listen(self) -> None:
        """Let the followers learn that the daemon stops. The first call has the running event loop."""
        if self._is_listening:
            return
        self._is_listening = True
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._stop)

        self._stopping.listen(tell)

    def _stop(self) -> None:
        for feed in tuple(self._feeds.values()):
            feed.stop()


class _Feed:
    """A feed. `seq` is the next seq that it wants. Its task runs as long as a follower waits."""

    def __init__(
        self, topic: Topic | ReplicaTopic, epoch: int, seq: int, pool: ThreadPoolExecutor, ready: ReadySet
    ) -> None:
        self.key = topic.name, epoch
        self.seq = seq
        self._topic = topic
        self._pool = pool
        self._ready = ready
        self._replica_config = TopicConfig()  # until a thread has read that of the last sync
        self._follower: Follower | ReplicaFollower | None = None
        self._waiting: set[_News] = set()
        self._rung = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.task = asyncio.create_task(self._run())

    async def wait(self) -> Page | None:
        news: _News = self._loop.create_future()
        self._waiting.add(news)
        try:
            return await news
        except asyncio.CancelledError:
            self._waiting.discard(news)
            if not self._waiting:
                self._rung.set()  # the task ends
                self._ready.leave(self.key)  # a feed without followers waits for no slot (FEED-7)
            raise

    def stop(self) -> None:
        """End the feed, because the daemon stops."""
        for news in self._taken():
            if not news.done():
                news.set_exception(Stopping())
        self.task.cancel()

    def give_up(self) -> None:
        """Let the followers look for themselves, after the task has ended."""
        _give(self._taken(), None)

    def wake(self) -> None:
        """Let the task look again. The log, or the local catalog, calls this under its lock."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._rung.set)

    async def _run(self) -> None:
        try:
            while self._waiting:
                has_more = await self._next_page()
                await self._let_followers_return()
                if not has_more and self._waiting:
                    await self._rung.wait()
                    self._rung.clear()
        finally:
            if self._follower is not None:
                self._follower.forget(self.wake)

    async def _next_page(self) -> bool:
        """Read a page in a slot (FEED-6), and hand it out. Return whether there is more news."""
        collect_s = self._ready.collect_s
        if collect_s:
            await asyncio.sleep(collect_s)
            if not self._waiting:
                return False
        name, config = self.key[0], self._config()
        boost = self._ready.boost(name) if config.auto_priority else 0
        await self._ready.take(self.key, config.priority, boost, lambda: self._config().priority)
        try:
            page, has_more = await self._loop.run_in_executor(self._pool, self._look, collect_s > 0)
            if page is not None:
                if config.auto_priority:
                    self._ready.note_taken(name, len(self._waiting))
                await self._hand_out(page)
        finally:
            self._ready.give_back()
        return has_more

    def _config(self) -> TopicConfig:
        return self._topic.config if isinstance(self._topic, Topic) else self._replica_config

    async def _let_followers_return(self) -> None:
        """Let the followers that have a page wait for the next one. A feed that nobody waits for ends."""
        for _ in range(_TURNS):
            if self._waiting:
                return
            await asyncio.sleep(0)

    async def _hand_out(self, page: Page) -> None:
        self.seq = page.next_seq
        waiting = iter(self._taken())
        try:
            while group := list(islice(waiting, _WOKEN_AT_ONCE)):
                _give(group, page)
                await asyncio.sleep(0)
        finally:
            _give(waiting, page)

    def _taken(self) -> tuple[_News, ...]:
        """Return the followers that wait, and let the next ones wait for later news."""
        followers = tuple(self._waiting)
        self._waiting.clear()
        return followers

    def _look(self, is_collected: bool) -> tuple[Page | None, bool]:
        """Return the next page, if there is one, and whether there is more. If not, the topic has the feed's waiter.

        Blocks. Any error ends the feed (FEED-4).
        """
        if self._follower is None:
            follower: Follower | ReplicaFollower = self._topic.inner.follower(self.seq, gaps=True)
            if follower.epoch != self.key[1]:
                raise _FeedEnded
            self._follower = follower
        if not self._follower.poll(self.wake):
            return None, False
        if isinstance(self._topic, ReplicaTopic):
            self._replica_config = self._topic.config
        # Records below the hot floor are for the threads of cold reads (HTTP-2).
        is_cold = isinstance(self._topic, Topic) and self._follower.seq < self._topic.inner.hot_floor
        page = None if is_cold else read_page(self._topic, self._follower, is_collected=is_collected)
        if page is None:
            raise _FeedEnded
        return page, self._follower.poll(self.wake)


class _FeedEnded(Exception):
    """The feed ends: the followers look for themselves."""


def _give(waiting: Iterable[_News], page: Page | None) -> None:
    for news in waiting:
        if not news.done():
            news.set_result(page)
