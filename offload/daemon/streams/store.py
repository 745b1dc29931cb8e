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

DSTREAM-1  A crash or an error leaves an entry `making` or `dying`, or one `soft` without forks. Requests get 404, or
    410 for `soft`. The next sweep ends what is left, and for the first two the next PUT of the path does so too. The
    sweep runs in the background, so no request waits for what it does about other streams.
DSTREAM-2  A fork in the making already needs its source. So no deletion takes the records that a fork begins with.
DSTREAM-3  A path that was deleted gets a later part of the same topic, or a branch of another name. So an offset never
    means a record of an earlier stream.
DSTREAM-4  The locks of paths are taken from a fork to its source, never the other way.
DSFORK-1  The branch of a fork ends with `_g` and 64 random bits. So two forks beside each other never get one branch,
    and the daemon never deletes another branch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from weakref import WeakValueDictionary

from catalog import errors as catalog_errors
from offload.archive import Archive
from offload.daemon.quota import frame_bytes
from offload.daemon.service import Service
from offload.daemon.streams.appends import records_of, write
from offload.daemon.streams.entries import Entry, State, check_same, encode_entry
from offload.daemon.streams.errors import NoSuchStream, StreamGone, StreamRefused, invalid_request, stream_exists
from offload.daemon.streams.live import Kept, Live, Mark
from offload.daemon.streams.messages import base_type, is_json
from offload.daemon.streams.registry import Expiry, Registry
from offload.daemon.streams.requests import Create, Fork, topic_name
from offload.daemon.threads import in_threads
from offload.errors import TopicAttached
from seglog import NoSuchTopic, SeglogError

_log = logging.getLogger("seglog.daemon")
_SWEEP_MS = 10_000
_PATH_PART = 100  # characters of the path's name; `_g` and 16 hexadecimal digits follow


class Streams:
    """The streams of one service, in its event loop."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._expiry = Expiry(service.now_ms())
        self._registry = Registry(service, self._expiry)
        self._kept = Kept(service)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._swept_ms = service.now_ms()

    async def find(self, path: str, *, uses: bool = True) -> Live:
        """Return a stream, ready for reads. `uses` restarts its time to live.

        Raise `NoSuchStream`, and `StreamGone` for one that only forks need.
        """
        await self._registry.load()
        self._kept.listen()
        entry = self._registry.find(path)
        if entry is not None and entry.state is State.LIVE and self._is_expired(entry):
            await self.delete(path, is_expired=True)
            entry = self._registry.find(path)
        if entry is not None and entry.state is State.SOFT:
            raise StreamGone(path)
        if entry is None or entry.state is not State.LIVE:
            raise NoSuchStream(path)
        live = self._kept.get(entry)
        if uses:
            self._expiry.use(entry, self.service.now_ms())
        await live.prepare()
        return live

    async def create(self, path: str, request: Create, body: bytes) -> tuple[bool, Live]:
        """Make a stream, or find it with the same configuration. Return whether it is new, and the stream."""
        name = topic_name(path)
        await self._registry.load()
        with suppress(NoSuchStream, StreamGone):
            live = await self.find(path)
            check_same(live.entry, request, is_closed=live.mark.is_closed)
            return False, live
        async with self._locked(path):
            entry = self._registry.find(path)
            if entry is not None and entry.state in {State.MAKING, State.DYING}:
                await self._end(entry)
                entry = self._registry.find(path)
            if entry is not None and entry.state is State.SOFT:
                raise stream_exists(path, "it was deleted, and forks still need its records")
            if entry is not None and entry.state is State.LIVE:
                live = self._kept.get(entry)
                await live.prepare()
                check_same(live.entry, request, is_closed=live.mark.is_closed)
                return False, live
            if request.fork is not None:
                return True, await self._make_fork(path, name, request, request.fork, body)
            kind = request.type_or_default
            values = await records_of(self.service, kind, body)
            new = Entry(path, name, kind, request.ttl_s, request.expires_at, 0, 0, None, State.MAKING)
            return True, await self._make(await self._placed(new), values, request)

    async def delete(self, path: str, *, is_expired: bool = False) -> None:
        """Delete a stream. Raise `NoSuchStream` and `StreamGone`."""
        if not is_expired:
            await self.find(path, uses=False)
        async with self._locked(path):
            entry = self._registry.find(path)
            if entry is None or entry.state is not State.LIVE or (is_expired and not self._is_expired(entry)):
                if is_expired:
                    return
                raise StreamGone(path) if entry is not None and entry.state is State.SOFT else NoSuchStream(path)
            live = self._kept.get(entry)
            async with live.turns.alone():
                state = State.SOFT if self._registry.has_forks(path) else State.DYING
                entry = await self._registry.put(replace(entry, state=state))
                await live.end(StreamGone if state is State.SOFT else NoSuchStream)
                self._kept.drop(path)
            if state is State.DYING:
                await self._try_to_end(entry)

    # ------------------------------------------------------------ making

    async def _placed(self, entry: Entry) -> Entry:
        """Return the entry with the base of its records: behind those of an earlier stream of the path (DSTREAM-3)."""
        topic = self.service.sync.topic(entry.topic)
        if not topic.exists:
            return entry
        if not self._registry.has_left(entry.topic):
            raise stream_exists(entry.path, f"{entry.topic} is a topic already, and no stream")
        if (router := await self.service.routers.name_at(entry.topic)) is not None:
            raise stream_exists(entry.path, f"router {router} copies from or to topic {entry.topic}")
        return replace(entry, base=topic.head_seq, own=topic.head_seq)

    async def _make(self, entry: Entry, values: list[bytes], request: Create, prefix: bytes = b"") -> Live:
        """Append the first records of a new stream, and put its entry."""
        mark = Mark(request.is_closed)
        records = values or [b""] * request.is_closed
        size_bytes = frame_bytes([encode_entry(entry), *([prefix] if prefix else [])]) + frame_bytes(records, mark.tag)
        with await self.service.quota.take_append(size_bytes) as hold:
            if records or prefix:
                if self._registry.find(entry.path) != entry:
                    await self._registry.put(entry)
                live = Live(self.service, entry)
                await live.prepare()
                if prefix:
                    await write(self.service, live, [prefix], live.mark)
                if records:
                    await write(self.service, live, values, mark)
            self._expiry.use(entry, self.service.now_ms())
            entry = await self._registry.put(replace(entry, state=State.LIVE))
            hold.appended(size_bytes)
        live = self._kept.get(entry)
        await live.prepare()
        return live

    async def _make_fork(self, path: str, name: str, request: Create, fork: Fork, body: bytes) -> Live:
        source = await self._source(fork.source, path)
        if request.content_type is not None and base_type(request.content_type) != base_type(source.entry.content_type):
            raise stream_exists(path, f"its source has the content type {source.entry.content_type}")
        values = await records_of(self.service, source.entry.content_type, body)
        last, prefix = await divergence(self.service, source, fork)
        has_expiry = request.ttl_s is not None or request.expires_at is not None
        entry = Entry(
            path,
            name,
            source.entry.content_type if request.content_type is None else request.content_type,
            request.ttl_s if has_expiry else source.entry.ttl_s,
            request.expires_at if has_expiry else source.entry.expires_at,
            0,
            0,
            fork,
            State.MAKING,
        )
        if last == source.entry.base:  # nothing is inherited, so the fork is a topic of its own
            return await self._make(await self._placed(entry), values, request, prefix)
        if self.service.archive is None:
            text = "a fork is a branch in the remote, and this daemon has none"
            raise StreamRefused(501, text, hint="set `remote`")
        entry = replace(entry, base=source.entry.base, own=last)
        async with source.turns.shared():  # a deletion looks for forks in a turn of its own
            if source.is_gone:
                raise _source_gone(path, fork.source)
            branch = await self._registry.put(replace(entry, topic=branch_name(source, name)))
        await _make_branch(self.service, self.service.archive, branch, source)
        return await self._make(branch, values, request, prefix)

    async def _source(self, path: str, fork: str) -> Live:
        try:
            return await self.find(path)
        except StreamGone:
            raise _source_gone(fork, path) from None

    # ------------------------------------------------------------ deletion

    async def _end(self, entry: Entry) -> None:
        """End a deletion, or what a crash left of a stream in the making. The caller has the lock of the path."""
        if entry.is_fork and "@" in entry.topic:
            await in_threads(self.service.cold_reads, _drop_branch, self.service, entry.topic)
        else:
            await in_threads(self.service.cold_reads, _drop_topic, self.service, entry.topic)
        await self._registry.put(replace(entry, state=State.GONE))
        if entry.fork is not None:
            await self._settle(entry.fork.source)

    async def _try_to_end(self, entry: Entry) -> None:
        """End a deletion, now or with a later sweep. For clients it is complete already."""
        try:
            await self._end(entry)
        except SeglogError as error:
            _log.warning("the deletion of stream %s waits: %s", entry.path, error)

    async def _settle(self, path: str) -> None:
        """End what waits for its end at a path.

        The caller may have the lock of a fork of the path, and of no other path. A fork ends before its source, so no
        two callers wait for each other.
        """
        async with self._locked(path):  # a deletion of the source may be about to store that it has forks
            entry = self._registry.find(path)
            if entry is None or not self._registry.is_waiting(path):
                return
            if entry.state is State.SOFT:
                entry = await self._registry.put(replace(entry, state=State.DYING))
            await self._try_to_end(entry)

    async def sweep(self) -> None:
        """Delete the streams that have expired, and end what a crash or the store stopped (DSTREAM-1)."""
        await self._registry.load()
        now_ms = self.service.now_ms()
        if abs(now_ms - self._swept_ms) < _SWEEP_MS:
            return
        self._swept_ms = now_ms
        while (path := self._expiry.due(self.service.now_ms())) is not None:
            entry = self._registry.find(path)
            if entry is not None:
                self._expiry.add(entry)  # it was used meanwhile, or its deletion may fail
                await self.delete(path, is_expired=True)
            await asyncio.sleep(0)
        for path in self._registry.waiting():
            if path not in self._locks:  # else a request works on it
                await self._settle(path)

    # ------------------------------------------------------------ shared

    def _is_expired(self, entry: Entry) -> bool:
        return self._expiry.is_over(entry, self.service.now_ms())

    @asynccontextmanager
    async def _locked(self, path: str) -> AsyncIterator[None]:
        lock = self._locks.get(path)
        if lock is None:
            lock = self._locks[path] = asyncio.Lock()
        async with lock:
            yield


def _source_gone(fork: str, source: str) -> StreamRefused:
    return stream_exists(fork, f"its source {source} was deleted")


def branch_name(source: Live, name: str) -> str:
    """Return a name for the branch of a fork whose path has this name (DSFORK-1)."""
    return f"{source.entry.topic.partition('@')[0]}@{name[:_PATH_PART]}_g{secrets.token_hex(8)}"


async def _make_branch(service: Service, archive: Archive, entry: Entry, source: Live) -> None:
    """Make the branch of a fork. The archive first offloads the tail of the source, if the branch needs it."""
    branch = entry.topic.partition("@")[2]
    restore = partial(archive.restore, source.entry.topic, to=f"seq:{entry.own}", name=branch)
    await in_threads(service.cold_reads, restore)


async def divergence(service: Service, source: Live, fork: Fork) -> tuple[int, bytes]:
    """Return the last seq that the fork inherits, and the bytes that it inherits of the record behind it."""
    async with source.turns.shared():  # beside a closure, its end would count as a record of data
        tail = source.tail
        after = source.place(fork.offset, "Stream-Fork-Offset") if fork.offset else tail
    if not fork.skip:
        return after, b""
    is_message = is_json(source.entry.content_type)
    seq_and_prefix: tuple[int, bytes] = await in_threads(
        service.cold_reads, _skipped, source, range(after + 1, tail + 1), fork.skip, is_message
    )
    return seq_and_prefix


def _drop_topic(service: Service, name: str) -> None:
    """Delete the topic of a stream. If the remote has records of it, delete its records, and keep the topic."""
    archive, log = service.archive, service.sync
    with suppress(NoSuchTopic):
        if archive is None:
            log.delete_topic(name)
            return
        try:
            archive.delete_topic(name)
        except TopicAttached:
            archive.delete(name, before=log.get_topic(name).head_seq + 1)


def _drop_branch(service: Service, name: str) -> None:
    """Delete the branch of a fork, here and in the remote."""
    archive = service.archive
    if archive is None:
        return
    with suppress(NoSuchTopic):
        archive.delete_topic(name, detach=True, discard=True)
    root, _, branch = name.partition("@")
    with suppress(
        catalog_errors.NoSuchBranch, catalog_errors.NoSuchTopic
    ):  # the source may never have reached the remote
        archive.branches.delete_branch(root, branch)


def _skipped(source: Live, seqs: range, skip: int, is_message: bool) -> tuple[int, bytes]:
    """Return the last whole record and the prefix of the next one, `skip` messages or bytes on from the first seq."""
    last, left = seqs.start - 1, skip
    if seqs:
        for record in source.topic.read(seqs[0], seqs[-1]):
            size = 1 if is_message else len(record.value)
            if left < size:
                return last, record.value[:left]
            last, left = record.seq, left - size
            if not left:
                return last, b""
    raise invalid_request("Stream-Fork-Sub-Offset", f"{skip} goes beyond the end of the source")
