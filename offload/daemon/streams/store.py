"""The streams of a daemon: how a request finds one, and how one is made and deleted.

Making a stream with records, or a fork:

    1  The daemon puts an entry `making`.
    2  For a fork, the daemon offloads the tail of the source, puts the branch, and opens it for appends.
    3  The daemon appends the records.
    4  The daemon puts the entry `live`. The client gets its answer.

Deletion:

    1  The daemon puts an entry `soft` if the stream has forks, else `dying`. The client gets 410 or 404 from now on.
    2  Without forks, the daemon deletes the branch, or the topic. If the remote has records of the topic, the topic
       stays, and the daemon deletes its records.
    3  The daemon puts the entry `gone`, and looks at the source of a fork in the same way.

DSTREAM-1  A crash leaves an entry `making` or `dying`. Requests get 404. The next PUT of the path ends the deletion.
    For `dying`, the next sweep does so too.
DSTREAM-2  A fork in the making already needs its source. So no deletion takes the records that a fork begins with.
DSTREAM-3  A path that was deleted gets a later part of the same topic, or a branch of another name. So an offset never
    means a record of an earlier stream.
DSTREAM-4  A time to live counts from the last request, and after a restart from the start of the daemon: it never ends
    too early.
DSTREAM-5  All requests that use a stream at one time use one object, so they have one order. The daemon keeps the
    objects of the 10,000 streams used last. It reads the mark of another one again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

from catalog.errors import BranchExists, CatalogError, NoSuchBranch
from offload.archive import Archive
from offload.daemon.service import Service
from offload.daemon.streams.appends import write
from offload.daemon.streams.entries import Entry, State
from offload.daemon.streams.errors import (
    InvalidStreamRequest,
    NoForks,
    NoSuchStream,
    StreamExists,
    StreamGone,
)
from offload.daemon.streams.live import Live
from offload.daemon.streams.marks import Mark
from offload.daemon.streams.messages import base_type, is_json, messages
from offload.daemon.streams.names import topic_name
from offload.daemon.streams.registry import Registry
from offload.daemon.streams.requests import Create, Fork, expires_ms
from offload.daemon.threads import in_threads
from offload.errors import OffloadError, TopicAttached
from seglog import NoSuchTopic, SeglogError

__all__ = ["Streams"]

_log = logging.getLogger("seglog.daemon")
_SWEEP_MS = 10_000
_KEPT = 10_000


class Streams:
    """The streams of one service, in its event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._registry = Registry(service)
        self._lives: WeakValueDictionary[str, Live] = WeakValueDictionary()
        self._kept: OrderedDict[str, Live] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._swept_ms = service.now_ms()
        self._listens = False

    async def find(self, path: str, *, uses: bool = True) -> Live:
        """Return a stream, ready for reads. `uses` restarts its time to live.

        Raise `NoSuchStream`, and `StreamGone` for one that only forks need.
        """
        await self._registry.load()
        self._listen()
        entry = self._registry.find(path)
        if entry is not None and entry.state is State.LIVE and self._is_expired(entry):
            await self.delete(path, is_expired=True)
            entry = self._registry.find(path)
        if entry is not None and entry.state is State.SOFT:
            raise StreamGone(path)
        if entry is None or entry.state is not State.LIVE:
            raise NoSuchStream(path)
        live = self._live(entry)
        if uses:
            live.used_ms = self.service.now_ms()
        await live.prepare()
        return live

    async def create(self, path: str, wanted: Create, body: bytes) -> tuple[bool, Live]:
        """Make a stream, or find it with the same configuration. Return whether it is new, and the stream."""
        name = topic_name(path)
        await self._registry.load()
        await self._sweep()
        with suppress(NoSuchStream, StreamGone):
            live = await self.find(path)
            _check_same(live, wanted)
            return False, live
        async with self._locked(path):
            entry = self._registry.find(path)
            if entry is not None and entry.state in {State.MAKING, State.DYING}:
                await self._end(entry)
                entry = self._registry.find(path)
            if entry is not None and entry.state is State.SOFT:
                raise StreamExists(path, "it was deleted, and forks still need its records")
            if entry is not None and entry.state is State.LIVE:
                live = self._live(entry)
                await live.prepare()
                _check_same(live, wanted)
                return False, live
            if wanted.fork is not None:
                return True, await self._make_fork(path, name, wanted, wanted.fork, body)
            made = Entry(path, name, wanted.type_or_default, wanted.ttl_s, wanted.expires_at, 0, 0, None, State.MAKING)
            return True, await self._make(self._placed(made), messages(made.content_type, body), wanted)

    async def delete(self, path: str, *, is_expired: bool = False) -> None:
        """Delete a stream. Raise `NoSuchStream` and `StreamGone`."""
        if not is_expired:
            await self.find(path, uses=False)
        async with self._locked(path):
            entry = self._registry.find(path)
            if entry is None or entry.state is not State.LIVE or (is_expired and not self._is_expired(entry)):
                return
            live = self._live(entry)
            async with live.turns.alone():
                state = State.SOFT if self._registry.has_forks(path) else State.DYING
                entry = await self._registry.put(replace(entry, state=state))
                live.end()
                self._drop(path)
            if state is State.DYING:
                await self._try_to_end(entry)

    # ------------------------------------------------------------ making

    def _placed(self, entry: Entry) -> Entry:
        """Return the entry with the base of its records: behind those of an earlier stream of the path (DSTREAM-3)."""
        before, topic = self._registry.find(entry.path), self.service.sync.topic(entry.topic)
        if not topic.exists:
            return entry
        if before is None or before.topic != entry.topic:
            raise StreamExists(entry.path, f"{entry.topic} is a topic already, and no stream")
        return replace(entry, base=topic.head_seq, own=topic.head_seq)

    async def _make(self, entry: Entry, values: list[bytes], wanted: Create, prefix: bytes = b"") -> Live:
        """Append the first records of a new stream, and put its entry."""
        if values or prefix or wanted.is_closed:
            if self._registry.find(entry.path) != entry:
                await self._registry.put(entry)
            live = Live(self.service, entry)
            await live.prepare()
            if prefix:
                await write(self.service, live, [prefix], live.mark)
            if values or wanted.is_closed:
                await write(self.service, live, values, Mark(wanted.is_closed))
        entry = await self._registry.put(replace(entry, state=State.LIVE))
        live = self._live(entry)
        await live.prepare()
        return live

    async def _make_fork(self, path: str, name: str, wanted: Create, fork: Fork, body: bytes) -> Live:
        source = await self._source(fork.source, path)
        if wanted.content_type is not None and base_type(wanted.content_type) != base_type(source.entry.content_type):
            raise StreamExists(path, f"its source has the content type {source.entry.content_type}")
        values = messages(source.entry.content_type, body)
        last, prefix = await self._divergence(source, fork)
        has_expiry = wanted.ttl_s is not None or wanted.expires_at is not None
        entry = Entry(
            path,
            name,
            source.entry.content_type if wanted.content_type is None else wanted.content_type,
            wanted.ttl_s if has_expiry else source.entry.ttl_s,
            wanted.expires_at if has_expiry else source.entry.expires_at,
            0,
            0,
            fork,
            State.MAKING,
        )
        if last == source.entry.base:  # nothing is inherited, so the fork is a topic of its own
            return await self._make(self._placed(entry), values, wanted, prefix)
        if self.service.archive is None:
            raise NoForks
        entry = replace(entry, base=source.entry.base, own=last)
        branch = await self._make_branch(self.service.archive, entry, source)
        return await self._make(branch, values, wanted, prefix)

    async def _make_branch(self, archive: Archive, entry: Entry, source: Live) -> Entry:
        """Make the branch of a fork. If its name is taken by an earlier fork of the path, take another (DSTREAM-3)."""
        root, name = source.entry.topic.partition("@")[0], entry.topic
        number = self._registry.serial
        for branch in (name, f"{name[:100]}_g{number}"):
            entry = await self._registry.put(replace(entry, topic=f"{root}@{branch}"))
            try:
                restore = partial(archive.restore, source.entry.topic, to=f"seq:{entry.own}", name=branch)
                await in_threads(self.service.cold_reads, restore)
            except BranchExists:
                continue
            return entry
        raise StreamExists(entry.path, f"{entry.topic} is a branch already")

    async def _source(self, path: str, fork: str) -> Live:
        try:
            return await self.find(path)
        except StreamGone:
            raise StreamExists(fork, f"its source {path} was deleted") from None

    async def _divergence(self, source: Live, fork: Fork) -> tuple[int, bytes]:
        """Return the last seq that the fork inherits, and the bytes that it inherits of the record behind it."""
        after = source.place(fork.offset, "Stream-Fork-Offset") if fork.offset else source.tail
        if not fork.skip:
            return after, b""
        kind = source.entry.content_type
        found: tuple[int, bytes] = await in_threads(
            self.service.cold_reads, _skipped, source, after, fork.skip, is_json(kind)
        )
        return found

    # ------------------------------------------------------------ deletion

    async def _end(self, entry: Entry) -> None:
        """End a deletion, or what a crash left of a stream in the making. The caller has the lock of the path."""
        if entry.is_fork and "@" in entry.topic:
            await in_threads(self.service.cold_reads, self._drop_branch, entry.topic)
        else:
            await in_threads(self.service.cold_reads, self._drop_topic, entry.topic)
        await self._registry.forget(replace(entry, state=State.GONE))
        if entry.fork is not None:
            await self._look_at_source(entry.fork.source)

    async def _try_to_end(self, entry: Entry) -> None:
        """End a deletion, now or with a later sweep. For clients it is complete already."""
        try:
            await self._end(entry)
        except (SeglogError, CatalogError, OffloadError) as error:
            _log.warning("the deletion of stream %s waits: %s", entry.path, error)

    async def _look_at_source(self, path: str) -> None:
        source = self._registry.find(path)
        if source is None or source.state is not State.SOFT or self._registry.has_forks(path):
            return
        async with self._locked(path):
            await self._try_to_end(await self._registry.put(replace(source, state=State.DYING)))

    def _drop_topic(self, name: str) -> None:
        archive, log = self.service.archive, self.service.sync
        with suppress(NoSuchTopic):
            if archive is None:
                log.delete_topic(name)
                return
            try:
                archive.delete_topic(name)
            except TopicAttached:
                archive.delete(name, before=log.get_topic(name).head_seq + 1)

    def _drop_branch(self, name: str) -> None:
        archive = self.service.archive
        if archive is None:
            return
        with suppress(NoSuchTopic):
            archive.delete_topic(name, detach=True, discard=True)
        root, _, branch = name.partition("@")
        with suppress(NoSuchBranch):
            archive.branches.delete_branch(root, branch)

    async def _sweep(self) -> None:
        """Delete the streams that have expired, and end deletions that a crash or the store stopped."""
        now_ms = self.service.now_ms()
        if abs(now_ms - self._swept_ms) < _SWEEP_MS:
            return
        self._swept_ms = now_ms
        for entry in self._registry.all():
            if entry.state is State.LIVE and self._is_expired(entry):
                await self.delete(entry.path, is_expired=True)
            elif entry.state is State.DYING and entry.path not in self._locks:
                async with self._locked(entry.path):
                    await self._try_to_end(entry)

    # ------------------------------------------------------------ shared

    def _listen(self) -> None:
        """Wake the readers that wait when the daemon stops."""
        if self._listens:
            return
        self._listens = True
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake_all)

        self.service.stopping.listen(wake)

    def _wake_all(self) -> None:
        for live in list(self._lives.values()):
            live.wake()

    def _live(self, entry: Entry) -> Live:
        live = self._lives.get(entry.path)
        if live is None or live.entry != entry:
            live = self._lives[entry.path] = Live(self.service, entry)
        self._keep(live)
        return live

    def _keep(self, live: Live) -> None:
        """Keep the streams used last, and all with a time to live (DSTREAM-5)."""
        kept = self._kept
        kept[live.entry.path] = live
        kept.move_to_end(live.entry.path)
        for _ in range(len(kept) - _KEPT):
            path, oldest = kept.popitem(last=False)
            if oldest.entry.ttl_s is not None:
                kept[path] = oldest

    def _drop(self, path: str) -> None:
        self._lives.pop(path, None)
        self._kept.pop(path, None)

    def _is_expired(self, entry: Entry) -> bool:
        if entry.ttl_s is None and entry.expires_at is None:
            return False
        return entry.is_expired(self.service.now_ms(), self._live(entry).used_ms)

    @asynccontextmanager
    async def _locked(self, path: str) -> AsyncIterator[None]:
        lock = self._locks.get(path)
        if lock is None:
            lock = self._locks[path] = asyncio.Lock()
        async with lock:
            yield


def _check_same(live: Live, wanted: Create) -> None:
    """Raise `StreamExists` if a PUT asks for another configuration than the stream has."""
    entry = live.entry
    is_inherited = wanted.fork is not None and wanted.ttl_s is None and wanted.expires_at is None
    if wanted.fork is not None and wanted.fork != entry.fork:
        raise StreamExists(entry.path, "it exists, and is no fork of that source at that offset")
    if (wanted.fork is None or wanted.content_type is not None) and (
        base_type(wanted.type_or_default) != base_type(entry.content_type)
    ):
        raise StreamExists(entry.path, f"it exists with the content type {entry.content_type}")
    if not is_inherited and (wanted.ttl_s != entry.ttl_s or _time(wanted.expires_at) != _time(entry.expires_at)):
        raise StreamExists(entry.path, "it exists with another expiry")
    if wanted.is_closed != live.mark.is_closed:
        raise StreamExists(entry.path, "it exists and is closed" if live.mark.is_closed else "it exists and is open")


def _time(text: str | None) -> int | None:
    return None if text is None else expires_ms(text)


def _skipped(source: Live, after: int, skip: int, is_message: bool) -> tuple[int, bytes]:
    """Return the last whole record and the prefix of the next one, `skip` messages or bytes behind seq `after`."""
    last, left = after, skip
    if after < source.tail:
        for record in source.topic.read(after + 1, source.tail):
            size = 1 if is_message else len(record.value)
            if left < size:
                return last, record.value[:left]
            last, left = record.seq, left - size
            if not left:
                return last, b""
    raise InvalidStreamRequest("Stream-Fork-Sub-Offset", f"{skip} goes beyond the end of the source")
