"""The entries of all streams, in memory and in the topic `_streams`.

REGISTRY-1  `put` returns when the entry is durable, and only then does a request see it.
REGISTRY-2  The registry replays `_streams` once, at the first request about a stream. If most of its records are
    outdated, it appends each entry again and deletes the records before them.
REGISTRY-3  A record that is no entry is an error in the log of the daemon, with its seq. The replay continues, so other
    streams work. This is safe: the daemon writes whole entries only, and checksums find damage before this. So such
    a record holds no state of a stream, or is of a later version. A stream that it names is refused, and is not swept.
    `_streams` is then not compacted, so that version finds its entry. A fork that only that version can read does not
    keep the records of its source.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterator

from offload.daemon.service import Service
from offload.daemon.streams.entries import Entry, State, UnreadableEntry, decode_entry, encode_entry
from offload.daemon.streams.errors import StreamUnknown
from offload.daemon.streams.reserved import TOPIC
from offload.daemon.threads import in_threads

__all__ = ["Registry"]

_log = logging.getLogger("seglog.daemon")
_OUTDATED_MAX = 10_000
_AT_ONCE = 1000


class Registry:
    """The entries by path. For one event loop. The caller has a lock for each path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._entries: dict[str, Entry] = {}
        self._forks: defaultdict[str, set[str]] = defaultdict(set)
        self._unreadable: dict[str, int] = {}  # path, and the seq of its newest record
        self._loading = asyncio.Lock()
        self._is_loaded = False

    async def load(self) -> None:
        """Replay the topic, once."""
        async with self._loading:
            if self._is_loaded:
                return
            records = 0
            if self._service.sync.has_topic(TOPIC):
                for entry in await in_threads(self._service.cold_reads, self._replay):
                    records += 1
                    self._take(entry)
            self._entries = {path: each for path, each in self._entries.items() if self._is_needed(each)}
            if records > 2 * len(self._entries) + _OUTDATED_MAX and not self._unreadable:
                await self._compact()
            self._is_loaded = True

    @property
    def serial(self) -> int:
        """Return a number that grows with each entry."""
        return self._service.sync.topic(TOPIC).head_seq

    def find(self, path: str) -> Entry | None:
        """Return the entry of a path. Raise `StreamUnknown` if its newest record is unreadable (REGISTRY-3)."""
        if path in self._unreadable:
            raise StreamUnknown(path, TOPIC, self._unreadable[path])
        return self._entries.get(path)

    def all(self) -> list[Entry]:
        """Return the entries of all streams whose state is known."""
        return [each for path, each in self._entries.items() if path not in self._unreadable]

    def has_forks(self, path: str) -> bool:
        return bool(self._forks.get(path))

    async def put(self, entry: Entry) -> Entry:
        """Store the entry durably (REGISTRY-1)."""
        await self._service.log.topic(TOPIC).append([encode_entry(entry)], durability="fsync")
        self._take(entry)
        return entry

    async def forget(self, entry: Entry) -> None:
        """Store durably that the stream is gone. If its topic stays, keep the entry, as its path has that topic."""
        await self.put(entry)
        if not self._is_needed(entry):
            self._entries.pop(entry.path, None)

    def _take(self, entry: Entry) -> None:
        self._entries[entry.path] = entry
        if entry.fork is None:
            return
        forks = self._forks[entry.fork.source]
        if entry.state is State.GONE:
            forks.discard(entry.path)
            if not forks:
                del self._forks[entry.fork.source]
        else:
            forks.add(entry.path)

    def _replay(self) -> list[Entry]:
        return list(self._records())

    def _records(self) -> Iterator[Entry]:
        for record in self._service.sync.topic(TOPIC).read():
            try:
                entry = decode_entry(record.value)
            except UnreadableEntry as error:
                _log.error("record %d of %s: %s", record.seq, TOPIC, error)
                if error.path is not None:
                    self._unreadable[error.path] = record.seq
            else:
                self._unreadable.pop(entry.path, None)
                yield entry

    async def _compact(self) -> None:
        topic = self._service.log.topic(TOPIC)
        first = topic.sync.head_seq + 1
        values = [encode_entry(each) for each in self._entries.values()]
        for at in range(0, len(values), _AT_ONCE):
            await topic.append(values[at : at + _AT_ONCE], durability="fsync")
        archive = self._service.archive
        if archive is None:
            await in_threads(self._service.local, lambda: topic.sync.delete(before=first))
        else:
            await in_threads(self._service.cold_reads, lambda: archive.delete(TOPIC, before=first))

    def _is_needed(self, entry: Entry) -> bool:
        return entry.state is not State.GONE or ("@" not in entry.topic and self._service.sync.has_topic(entry.topic))
