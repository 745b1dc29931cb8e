"""The streams in use: each with its entry, its topic, the order of its appends, and the mark of its last record.

    the mark, in the tag of a record    the state of the stream after it
    stream;closed                       the stream is closed
    stream;seq=TEXT                     the last `Stream-Seq` is TEXT
    stream;closed;seq=TEXT              both

LIVE-1  The mark is read from the last record before the first request uses it, and again after an append that failed
    and after a truncation.
LIVE-2  A mark that was read counts only if no append changed the mark meanwhile, and none failed. Otherwise a request
    that reads it beside a closure would open the stream again.
LIVE-3  A deletion waits until no request makes the topic. So none makes it anew behind the deletion.
KEPT-1  All requests that use a stream at one time use one object, so they have one order.
KEPT-2  The objects of the 10,000 streams used last stay. The mark of another one is read again.
TURN-1  An append that only adds records shares its turn with others of its kind, and they are written together.
TURN-2  An append that first looks at the state of the stream, and a deletion, has its turn alone. It begins when all
    earlier appends have ended, and later ones wait for it.
SMARK-1  Each record of a stream carries the state, so the last record has it. The state and the records come with one
    write, and agree after any crash.
SMARK-2  An empty record whose mark says `closed` is the end of its stream, and no data. Any other record has a byte.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from weakref import WeakValueDictionary

from offload.daemon.service import Service
from offload.daemon.streams.entries import Entry
from offload.daemon.streams.errors import NoSuchStream, StreamGone, invalid_request, offset_gone
from offload.daemon.streams.requests import BEGINNING, NOW, offset_text, parsed_offset
from offload.daemon.threads import in_threads
from seglog import NoSuchTopic, SeqOutOfRange, Topic, TopicExists, Truncated
from seglog.base.dataclasses import dataclass

#: The producer of POSTs with several messages. No header has such a character, so no client has this id.
WHOLE_BATCH: Final = "\x01"
_KEPT = 10_000
_MARK = "stream"
_MARK_CLOSED = ";closed"
_MARK_SEQ = ";seq="


class Live:
    """One stream. `topic` exists once `prepare` has returned."""

    __slots__ = (
        "__weakref__",
        "_batches",
        "_changes",
        "_epoch",
        "_gone",
        "_is_known",
        "_opening",
        "_service",
        "entry",
        "has_end",
        "mark",
        "topic",
        "turns",
        "waiters",
    )

    def __init__(self, service: Service, entry: Entry) -> None:
        self._service = service
        self.entry = entry
        self.topic: Topic = service.sync.topic(entry.topic)
        self.mark = NO_MARK
        self.has_end = False
        self.turns = _Turns()
        self.waiters: set[asyncio.Event] = set()
        self._is_known = False
        self._changes = 0  # of the mark, and doubts about it
        self._opening = asyncio.Lock()
        self._batches = 0
        self._epoch = 0
        self._gone: type[NoSuchStream | StreamGone] | None = None

    @property
    def is_gone(self) -> bool:
        """Return whether the stream was deleted."""
        return self._gone is not None

    @property
    def first_seq(self) -> int:
        """Return the lowest seq that a record of the stream may have."""
        return self.entry.base + 1

    @property
    def tail(self) -> int:
        """Return the seq of the last record of data; the base before there is one."""
        return max(self.entry.base, self.topic.head_seq - self.has_end)

    def offset(self, seq: int) -> str:
        return offset_text(self.topic.epoch, seq)

    @property
    def tail_offset(self) -> str:
        return self.offset(self.tail)

    def place(self, text: str, name: str = "offset") -> int:
        """Return the seq of the last record before an offset. Raise `StreamRefused` for one above the
        tail, and for one whose record a truncation took."""
        if text == NOW:
            return self.tail
        if text == BEGINNING:
            return self.entry.base
        parsed = parsed_offset(text)
        if parsed is not None and parsed[0] < self.topic.epoch and parsed[1] > self.topic.head_seq:
            raise offset_gone(text)
        if parsed is None or parsed[0] > self.topic.epoch or parsed[1] > self.topic.head_seq:
            raise invalid_request(name, f"{text} is beyond the end of the stream, {self.tail_offset}")
        cut = self.topic.inner.changed_since(parsed[0])[1] if self.topic.exists else None
        if parsed[0] and cut is not None and cut <= parsed[1]:  # before the first epoch the topic had no record
            raise offset_gone(text)
        return min(max(parsed[1], self.entry.base), self.tail)

    def is_cut(self, epoch: int, after: int) -> bool:
        """Return whether the stream was deleted, or a truncation since `epoch` took the record at seq `after`."""
        if self.is_gone or not self.topic.exists:
            return True
        try:
            cut = self.topic.inner.changed_since(epoch)[1]
        except NoSuchTopic:
            return True
        return cut is not None and cut <= after

    async def prepare(self) -> None:
        """Open the topic if needed, and read the mark of its last record (LIVE-1)."""
        while True:
            if self._gone is not None:
                raise self._gone(self.entry.path)
            if not self.topic.exists:
                await self._open()
            elif self._is_known and self.topic.epoch == self._epoch:
                return
            else:
                await self._read_mark()

    async def _read_mark(self) -> None:
        """Read the mark of the last record, and keep it unless it changed meanwhile (LIVE-2)."""
        changes, epoch, head = self._changes, self.topic.epoch, self.topic.head_seq
        mark, has_end = NO_MARK, False
        if head > max(self.entry.base, self.entry.own):
            pool = self._service.read_threads(self.topic, head)
            try:
                last = await in_threads(pool, lambda: next(self.topic.read(head, head), None))
            except (SeqOutOfRange, Truncated):
                if epoch == self.topic.epoch:
                    raise
                return  # a truncation took the record: `prepare` reads the one before it
            if last is not None:
                mark = mark_of(last.tag)
                has_end = mark.is_closed and not last.value
        if changes != self._changes:
            return
        newest = self.topic.inner.known_producer(WHOLE_BATCH)
        self._batches = max(self._batches, 0 if newest is None else newest.number + 1)
        self.mark, self.has_end, self._epoch, self._is_known = mark, has_end, epoch, True

    def next_batch(self) -> int:
        """Return a number that no batch of `WHOLE_BATCH` had."""
        self._batches += 1
        return self._batches - 1

    def doubt(self) -> None:
        """Read the mark again at the next request: an append has failed."""
        self._is_known = False
        self._changes += 1

    def appended(self, mark: Mark, *, is_end: bool) -> None:
        self.mark, self.has_end = mark, is_end
        self._changes += 1

    async def end(self, refusal: type[NoSuchStream | StreamGone]) -> None:
        """Refuse what comes from now on, and wake the readers that wait: the stream was deleted."""
        async with self._opening:  # LIVE-3: a deletion waits until no request makes the topic
            self._gone = refusal
        self.wake()

    def wake(self) -> None:
        """Wake the readers that wait."""
        for waiter in self.waiters:
            waiter.set()

    async def _open(self) -> None:
        async with self._opening:
            if not self.is_gone and not self.topic.exists:
                await self._make_topic()

    async def _make_topic(self) -> None:
        service, name = self._service, self.entry.topic
        archive = service.archive
        if archive is not None and (
            "@" in name
            or service.settings.proxy
            or await in_threads(service.local, archive.replication.is_replica, name)
        ):
            await in_threads(service.cold_reads, archive.open_for_append, name)
        if not self.topic.exists:
            with suppress(TopicExists):
                await in_threads(service.local, service.sync.create_topic, name)


class Kept:
    """The streams in use of one service. For one event loop."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._all: WeakValueDictionary[str, Live] = WeakValueDictionary()
        self._newest: OrderedDict[str, Live] = OrderedDict()
        self._listens = False

    def get(self, entry: Entry) -> Live:
        """Return the object of a stream, for this entry."""
        live = self._all.get(entry.path)
        if live is None or live.entry != entry:
            live = self._all[entry.path] = Live(self._service, entry)
        self._newest[entry.path] = live
        self._newest.move_to_end(entry.path)
        if len(self._newest) > _KEPT:
            self._newest.popitem(last=False)
        return live

    def drop(self, path: str) -> None:
        self._all.pop(path, None)
        self._newest.pop(path, None)

    def listen(self) -> None:
        """Wake the readers that wait when the daemon stops."""
        if self._listens:
            return
        self._listens = True
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake_all)

        self._service.stopping.listen(wake)

    def _wake_all(self) -> None:
        for live in list(self._all.values()):
            live.wake()


class _Turns:
    """The turns of one stream. For one event loop."""

    __slots__ = ("_idle", "_lock", "_running")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._lock:
            self._running += 1
            self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._lock:
            await self._idle.wait()
            yield


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a stream: open or closed, and its last `Stream-Seq`."""

    is_closed: bool = False
    seq: str | None = None

    @property
    def tag(self) -> str | None:
        """Return the tag of a record; None for a stream that is open and never had a `Stream-Seq`."""
        if not self.is_closed and self.seq is None:
            return None
        return _MARK + (_MARK_CLOSED if self.is_closed else "") + ("" if self.seq is None else _MARK_SEQ + self.seq)


NO_MARK = Mark()


def mark_of(tag: str | None) -> Mark:
    """Return the mark of a record. A tag that an append outside of the stream gave is no mark."""
    if tag is None or not tag.startswith(_MARK + ";"):
        return NO_MARK
    text = tag.removeprefix(_MARK)
    is_closed = text == _MARK_CLOSED or text.startswith(_MARK_CLOSED + ";")
    text = text.removeprefix(_MARK_CLOSED) if is_closed else text
    return Mark(is_closed, text.removeprefix(_MARK_SEQ) if text.startswith(_MARK_SEQ) else None)
