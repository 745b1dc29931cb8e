"""The entries of all streams, in memory and in the topic `_streams`, and the times at which streams expire.

REGISTRY-1  `put` returns when the entry is durable, and only then does a request see it. An entry of a deletion goes in
    while appends are held, because a deletion frees space.
REGISTRY-2  The registry replays `_streams` once, at the first request about a stream. If most of its records are
    outdated, it compacts the topic (seglog.delivery.keyed_topic). Without room, a later start does so.
REGISTRY-3  A record that is no entry is an error in the log of the daemon, with its seq (KEYED-1). A stream that it
    names is refused, and is not swept. `_streams` is then not compacted, so that the version that wrote it finds its
    entry. A fork that only that version can read does not keep the records of its source.
STREAMEND-1  A time to live counts from the last use, and after a restart from the start of the daemon: it never ends
    too early. So a use is kept as long as its stream, however many streams there are.
STREAMEND-2  The work of a look is in proportion to the streams whose time may be over, and not to all. A use moves no
    time: the look finds the stream used meanwhile, and looks again at its new time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from heapq import heapify, heappop, heappush

from offload.daemon.reserved import STREAMS_TOPIC
from offload.daemon.service import Service
from offload.daemon.streams.entries import Entry, State, decode_entry, encode_entry
from offload.daemon.streams.errors import StreamRefused
from offload.daemon.threads import in_threads
from seglog import AppendsHeld, DiskFull, Record
from seglog.delivery.keyed_topic import KeyedTopic, compact

_log = logging.getLogger("seglog.daemon")
_STALE_LOOKS_MAX = 1_000


class Registry:
    """The entries by path. For one event loop. The caller has a lock for each path, and calls `load` first.

    `expiry` gets each stream that is there.
    """

    def __init__(self, service: Service, expiry: Expiry) -> None:
        self._service = service
        self._expiry = expiry
        self._entries: dict[str, Entry] = {}  # of streams that are not gone
        self._left: dict[str, Entry] = {}  # by the topic that a stream left behind
        self._forks: defaultdict[str, set[str]] = defaultdict(set)
        self._waiting: set[str] = set()
        self._keyed = KeyedTopic(STREAMS_TOPIC, _keyed_entry, _log.error)
        self._loading = asyncio.Lock()
        self._is_loaded = False

    async def load(self) -> None:
        """Replay the topic, once."""
        async with self._loading:
            if self._is_loaded:
                return
            if self._service.sync.has_topic(STREAMS_TOPIC):
                await in_threads(self._service.cold_reads, self._replay)
            if self._keyed.is_outdated(len(self._newest())):
                with suppress(AppendsHeld, DiskFull):
                    await self._compact()
            self._is_loaded = True

    def find(self, path: str) -> Entry | None:
        """Return the entry of a path, or None for a stream that is gone.

        Raise `StreamRefused` if its newest record is unreadable (REGISTRY-3).
        """
        if path in self._keyed.unreadable:
            record = f"record {self._keyed.unreadable[path]} of {STREAMS_TOPIC}"
            text = f"the state of the stream {path} is unknown: {record} is no entry of this version"
            raise StreamRefused(500, text, hint="serve the directory with the version that wrote the record")
        return self._entries.get(path)

    def has_forks(self, path: str) -> bool:
        return path in self._forks

    def has_left(self, topic: str) -> bool:
        """Return whether a stream that is gone left the topic behind, for the next stream of its path."""
        return topic in self._left

    def waiting(self) -> tuple[str, ...]:
        """Return the paths at which something waits for its end (`is_waiting`)."""
        return tuple(self._waiting)

    def is_waiting(self, path: str) -> bool:
        """Return whether something waits for its end: a stream in the making, or a deletion that no fork holds up."""
        return path in self._waiting

    async def put(self, entry: Entry) -> Entry:
        """Store the entry durably (REGISTRY-1)."""
        value, service = encode_entry(entry), self._service
        try:
            await service.log.topic(STREAMS_TOPIC).append([value], durability="fsync")
        except (AppendsHeld, DiskFull):
            if entry.state in {State.MAKING, State.LIVE}:
                raise
            await in_threads(service.local, service.sync.append_upkeep, STREAMS_TOPIC, value)
        self._take(entry)
        return entry

    def _take(self, entry: Entry) -> None:
        before = self._entries.get(entry.path)
        if entry.state is State.GONE:
            self._leave(entry)
            if before is not None and before.topic != entry.topic:
                return  # it was an earlier stream of the path
            self._entries.pop(entry.path, None)
        else:
            self._entries[entry.path] = entry
            self._left.pop(entry.topic, None)
        if entry.state is State.LIVE:
            self._expiry.add(entry)
        else:
            self._expiry.drop(entry.path)
        self._note(entry.path)
        if entry.fork is not None:
            self._count_fork(entry.fork.source, entry)

    def _leave(self, entry: Entry) -> None:
        """Keep what says that the topic of a stream is ours, as long as the topic is there."""
        if "@" not in entry.topic and self._service.sync.has_topic(entry.topic):
            self._left[entry.topic] = entry
        else:
            self._left.pop(entry.topic, None)

    def _count_fork(self, source: str, entry: Entry) -> None:
        if entry.state is State.GONE:
            self._forks[source].discard(entry.path)
        else:
            self._forks[source].add(entry.path)
        if not self._forks[source]:
            del self._forks[source]
        self._note(source)

    def _note(self, path: str) -> None:
        entry = self._entries.get(path)
        state = None if entry is None else entry.state
        if state in {State.MAKING, State.DYING} or (state is State.SOFT and not self.has_forks(path)):
            self._waiting.add(path)
        else:
            self._waiting.discard(path)

    def _replay(self) -> None:
        """Take all records."""
        self._keyed.replay(self._service.sync.topic(STREAMS_TOPIC).read(), self._take, self._forget)

    def _forget(self, path: str) -> None:
        """Take note that nobody knows the state of a stream (REGISTRY-3)."""
        self._entries.pop(path, None)
        self._expiry.drop(path)
        self._note(path)

    def _newest(self) -> list[Entry]:
        """Return the entries that count. Those of topics left behind come first: their paths may have newer ones."""
        return [*self._left.values(), *self._entries.values()]

    async def _compact(self) -> None:
        topic, archive = self._service.sync.topic(STREAMS_TOPIC), self._service.archive
        states = [(encode_entry(entry), None) for entry in self._newest()]

        def delete(before: int) -> object:
            return topic.delete(before=before) if archive is None else archive.delete(STREAMS_TOPIC, before=before)

        pool = self._service.local if archive is None else self._service.cold_reads
        await in_threads(pool, compact, topic, states, delete)


def _keyed_entry(record: Record) -> tuple[str, Entry]:
    entry = decode_entry(record.value)
    return entry.path, entry


class Expiry:
    """The streams of one service that expire, by path. `begin_ms` is the start of the daemon."""

    def __init__(self, begin_ms: int) -> None:
        self._begin_ms = begin_ms
        self._used_ms: dict[str, int] = {}
        self._looks: dict[str, int] = {}  # the time of the next look at each path
        self._queue: list[tuple[int, str]] = []  # the same in order, with times that do not count any more

    def add(self, entry: Entry) -> None:
        """Look at a stream once its time may be over. A stream without an expiry needs no look."""
        end_ms = self._end_ms(entry)
        if end_ms is None:
            self.drop(entry.path)
            return
        self._looks[entry.path] = end_ms
        heappush(self._queue, (end_ms, entry.path))
        if len(self._queue) > 2 * len(self._looks) + _STALE_LOOKS_MAX:
            self._queue = [(at_ms, path) for path, at_ms in self._looks.items()]
            heapify(self._queue)

    def use(self, entry: Entry, now_ms: int) -> None:
        """Take note of a read or an append."""
        if entry.ttl_s is not None:
            self._used_ms[entry.path] = now_ms

    def drop(self, path: str) -> None:
        """Forget a stream that is gone, with its last use."""
        self._used_ms.pop(path, None)
        self._looks.pop(path, None)

    def is_over(self, entry: Entry, now_ms: int) -> bool:
        """Return whether the stream has expired."""
        end_ms = self._end_ms(entry)
        return end_ms is not None and now_ms >= end_ms

    def due(self, now_ms: int) -> str | None:
        """Return a stream to look at now, and forget the look; None if no time has come."""
        while self._queue and self._queue[0][0] <= now_ms:
            at_ms, path = heappop(self._queue)
            if self._looks.get(path) == at_ms:
                del self._looks[path]
                return path
        return None

    def _end_ms(self, entry: Entry) -> int | None:
        return entry.end_ms(self._used_ms.get(entry.path, self._begin_ms))
