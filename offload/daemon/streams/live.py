"""A stream in use: its entry, its topic, and the state that the last record says.

LIVE-1  The mark is read from the last record before the first request uses it, and again after an append that failed
    and after a truncation.
LIVE-2  A mark that was read counts only if no append changed the mark meanwhile, and none failed. Otherwise a request
    that reads it beside a closure would open the stream again.
LIVE-3  A deletion waits until no request makes the topic. So none makes it anew behind the deletion.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from offload.daemon.service import Service
from offload.daemon.streams.entries import Entry
from offload.daemon.streams.errors import InvalidStreamRequest, NoSuchStream, OffsetGone, StreamGone
from offload.daemon.streams.marks import NO_MARK, Mark, mark_of
from offload.daemon.streams.offsets import BEGINNING, NOW, offset_text, parsed_offset
from offload.daemon.streams.turns import Turns
from offload.daemon.threads import in_threads
from seglog import NoSuchTopic, SeqOutOfRange, Topic, TopicExists, Truncated

__all__ = ["WHOLE_BATCH", "Live"]

#: The producer of POSTs with several messages. No header has such a character, so no client has this id.
WHOLE_BATCH: Final = "\x01"


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
        self.turns = Turns()
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
        """Return the seq of the last record before an offset. Raise `InvalidStreamRequest` for one above the
        tail, and `OffsetGone` for a record that a truncation took."""
        if text == NOW:
            return self.tail
        if text == BEGINNING:
            return self.entry.base
        parsed = parsed_offset(text)
        if parsed is not None and parsed[0] < self.topic.epoch and parsed[1] > self.topic.head_seq:
            raise OffsetGone(text)
        if parsed is None or parsed[0] > self.topic.epoch or parsed[1] > self.topic.head_seq:
            raise InvalidStreamRequest(name, f"{text} is beyond the end of the stream, {self.tail_offset}")
        cut = self.topic.changed_since(parsed[0])[1] if self.topic.exists else None
        if parsed[0] and cut is not None and cut <= parsed[1]:  # before the first epoch the topic had no record
            raise OffsetGone(text)
        return min(max(parsed[1], self.entry.base), self.tail)

    def is_cut(self, epoch: int, after: int) -> bool:
        """Return whether the stream was deleted, or a truncation since `epoch` took the record at seq `after`."""
        if self.is_gone or not self.topic.exists:
            return True
        try:
            cut = self.topic.changed_since(epoch)[1]
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
        known = self.topic.producer(WHOLE_BATCH)
        self._batches = max(self._batches, 0 if known is None else known.number + 1)
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
            "@" in name or await in_threads(service.local, archive.replication.is_replica, name)
        ):
            await in_threads(service.cold_reads, archive.open_for_append, name)
        if not self.topic.exists:
            with suppress(TopicExists):
                await in_threads(service.local, service.sync.create_topic, name)
