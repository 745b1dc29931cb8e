"""A topic for the tasks of one event loop.

Reads come in batches from another thread. A wait for news takes no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, ParamSpec, TypeVar, overload

from seglog.aio.append_queue import AppendQueue
from seglog.aio.merged import Ack, Kind, own_error
from seglog.base.arguments import checked
from seglog.base.ownership import check_process
from seglog.errors import InvalidArgument, LogClosed
from seglog.maintenance.plan import Retention
from seglog.reading.follow import Follower
from seglog.topic import Topic
from seglog.values.deletes import DeleteOp
from seglog.values.producer import Appended, ProducerBatch
from seglog.values.record import Gap, Record
from seglog.values.seq_set import SeqSet
from seglog.writing.append import PLAIN, AppendOptions, append, check_append
from seglog.writing.conditions import plain_times

__all__ = ["AsyncTopic"]

_READ_RECORDS = 1024
_READ_BYTES = 1024 * 1024
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


async def _in_batches(queue: AppendQueue, start: Callable[[], Iterator[Any]]) -> AsyncIterator[Any]:
    records: Iterator[Any] | None = None
    error: Exception | None = None
    is_at_end = False
    while not is_at_end:
        check_process(queue)
        if records is None:
            records = await asyncio.to_thread(start)
        batch, is_at_end, error = await asyncio.to_thread(_take, records)
        for record in batch:
            yield record
    if error is not None:
        raise error


async def _wait_for_news(follower: Follower, timeout_s: float | None) -> bool:
    """Wait until there is news. Return False at the time-out. Raise `LogClosed`."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def waiter() -> None:
        with suppress(RuntimeError):  # the loop has ended: no task waits any more
            loop.call_soon_threadsafe(news.set)

    try:
        while not follower.poll(waiter):
            try:
                async with asyncio.timeout(timeout_s):
                    await news.wait()
            except TimeoutError:
                return False
            news.clear()
        return True
    finally:
        follower.forget(waiter)


def _take(records: Iterator[Record | Gap]) -> tuple[list[Record | Gap], bool, Exception | None]:
    """Return the next records, whether they are the last, and the error that came after them, if any."""
    batch: list[Record | Gap] = []
    size_bytes = 0
    try:
        for record in records:
            batch.append(record)
            size_bytes += 0 if isinstance(record, Gap) else len(record.value)
            if len(batch) >= _READ_RECORDS or size_bytes >= _READ_BYTES:
                return batch, False, None
    except Exception as error:
        return batch, True, error
    return batch, True, None


class AsyncTopic:
    """A name in a log, for many tasks."""

    __slots__ = ("_plain", "_queue", "sync")

    def __init__(self, topic: Topic, queue: AppendQueue) -> None:
        self.sync = topic
        self._queue = queue
        self._plain: Kind = (topic.name, PLAIN)

    def __repr__(self) -> str:
        return f"<AsyncTopic {self.sync.name}>"

    @property
    def name(self) -> str:
        return self.sync.name

    async def append(
        self,
        values: Sequence[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
        producer: ProducerBatch | None = None,
        if_head: int | None = None,
        key: str | None = None,
        if_incarnation: str | None = None,
        times_ms: Sequence[int] | None = None,
    ) -> range:
        """Append records as `Topic.append` does. Order, cancellation and bound follow AIO-1 to AIO-3."""
        kind = self._plain
        if tag is not None or node is not None or unterminated is not False or durability is not None:
            options = AppendOptions(tag, node, unterminated, durability, producer, if_head, key, if_incarnation)
            kind = (self.sync.name, options)
        elif producer is not None or if_head is not None or key is not None or if_incarnation is not None:
            options = AppendOptions(producer=producer, if_head=if_head, key=key, if_incarnation=if_incarnation)
            kind = (self.sync.name, options)
        if times_ms is not None:
            kind = (self.sync.name, kind[1]._replace(times_ms=plain_times(times_ms)))
        # The body of `_append`, inlined, because each append of a task spends its time here.
        queue = self._queue
        ack = Ack()
        ack.waiting, ack.kind, ack.is_cancelled = queue.waiting, kind, False
        ack.values, records, size_bytes = check_append(queue.engine, values, kind[1])
        ack.records, ack.size_bytes = records, size_bytes
        if not records:
            return self.sync.append(values, if_head=if_head, if_incarnation=if_incarnation)
        if queue.for_room or queue.is_closed or queue.waiting.unsettled_bytes + size_bytes > queue.max_bytes:
            await queue.wait_for_room(size_bytes)
        try:
            await ack
        except RuntimeError:
            queue.check_loop()
            raise
        outcome = ack.part.outcome
        if type(outcome) is int:
            first = outcome + ack.offset
            return range(first, first + records)
        assert isinstance(outcome, BaseException)  # noqa: S101 - the group is settled
        raise own_error(outcome)

    async def append_once(
        self,
        values: Sequence[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
        producer: ProducerBatch | None = None,
        if_head: int | None = None,
        key: str | None = None,
        if_incarnation: str | None = None,
        times_ms: Sequence[int] | None = None,
    ) -> Appended:
        """Append records as `append` does, and say whether the topic had the batch already (`Topic.append_once`)."""
        times = None if times_ms is None else plain_times(times_ms)
        options = AppendOptions(tag, node, unterminated, durability, producer, if_head, key, if_incarnation, times)
        return await self._append(values, (self.sync.name, options))

    async def append_stream(
        self,
        chunks: AsyncIterable[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
        producer: ProducerBatch | None = None,
        if_head: int | None = None,
        key: str | None = None,
        if_incarnation: str | None = None,
    ) -> Appended:
        """Append one record whose value comes in chunks (`Topic.append_stream`). Return its seq, in a range of one.

        Threads write the chunks and the record, so that the loop goes on meanwhile.
        """
        from seglog.writing.stream import Spool

        self._queue.check_loop()
        if not isinstance(chunks, AsyncIterable):
            raise InvalidArgument("chunks", chunks, "an asynchronous iterable of byte strings")
        options = AppendOptions(tag, node, unterminated, durability, producer, if_head, key, if_incarnation)
        with Spool(self._queue.engine, options) as spool:
            async for chunk in chunks:
                await asyncio.to_thread(spool.add, chunk)
            return Appended(
                *await asyncio.to_thread(append, self._queue.engine, self.sync.name, spool.values(), options)
            )

    async def _append(self, values: Sequence[bytes], kind: Kind) -> Appended:
        queue = self._queue
        ack = Ack()
        ack.waiting, ack.kind, ack.is_cancelled = queue.waiting, kind, False
        ack.values, ack.records, ack.size_bytes = check_append(queue.engine, values, kind[1])
        if not ack.records:
            return self.sync.append_once(values, if_head=kind[1].if_head, if_incarnation=kind[1].if_incarnation)
        await queue.wait_for_room(ack.size_bytes)
        await ack
        outcome = ack.part.outcome
        if isinstance(outcome, int):
            first = outcome + ack.offset
            return Appended(range(first, first + ack.records), ack.part.is_repeated)
        assert isinstance(outcome, BaseException)  # noqa: S101 - the group is settled
        raise own_error(outcome)

    @overload
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: Literal[False] = False,
    ) -> AsyncIterator[Record]: ...
    @overload
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: bool,
    ) -> AsyncIterator[Record | Gap]: ...
    @checked
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: bool = False,
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]:
        """Read as `Topic.read` does, up to a MiB at a time in another thread.

        Errors are raised when a record is asked for.
        """
        if since_ms is None and until_ms is None and not gaps:
            return self._read_batches(start, end)
        return _in_batches(
            self._queue, lambda: self.sync.read(start, end, since_ms=since_ms, until_ms=until_ms, gaps=gaps)
        )

    async def _read_batches(self, start: int | None, end: int | None) -> AsyncIterator[Record]:
        batches = self.sync.read_batches(start, end)
        while (batch := await self._in_thread(next, batches, None)) is not None:
            for record in batch:
                yield record

    @overload
    def follow(
        self,
        start: int | None = None,
        *,
        epoch: int | None = None,
        timeout_s: float | None = None,
        gaps: Literal[False] = False,
    ) -> AsyncIterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, epoch: int | None = None, timeout_s: float | None = None, gaps: bool
    ) -> AsyncIterator[Record | Gap]: ...
    @checked
    def follow(
        self,
        start: int | None = None,
        *,
        epoch: int | None = None,
        timeout_s: float | None = None,
        gaps: bool = False,
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]:
        """Follow as `Topic.follow` does, but no thread waits. Errors are raised when a record is asked for."""
        return self._follow(start, epoch, timeout_s, gaps=gaps)

    async def _follow(
        self, start: int | None, epoch: int | None, timeout_s: float | None, *, gaps: bool
    ) -> AsyncIterator[Any]:
        follower = self.sync.follower(start, gaps=gaps, epoch=epoch)
        try:
            while True:
                async for item in _in_batches(self._queue, follower.new_items):
                    yield item
                if not await _wait_for_news(follower, timeout_s):
                    return
        except LogClosed:
            return

    async def delete(
        self,
        *,
        before: int | None = None,
        tag: str | None = None,
        start: int | None = None,
        end: int | None = None,
        seqs: SeqSet | Iterable[int] | None = None,
        epoch: int | None = None,
    ) -> DeleteOp:
        return await self._in_thread(
            self.sync.delete, before=before, tag=tag, start=start, end=end, seqs=seqs, epoch=epoch
        )

    async def evict(self, before: int) -> DeleteOp:
        return await self._in_thread(self.sync.evict, before)

    async def truncate(self, seq: int, *, position: tuple[int, int, int] | None = None) -> None:
        await self._in_thread(self.sync.truncate, seq, position=position)

    async def seq_at(self, ts_ms: int) -> int:
        return await self._in_thread(self.sync.seq_at, ts_ms)

    async def incarnation(self) -> str:
        return await self._in_thread(self.sync.incarnation)

    async def seal(self) -> None:
        await self._in_thread(self.sync.seal)

    async def enforce_retention(self) -> Retention:
        return await self._in_thread(self.sync.enforce_retention)

    async def _in_thread(self, call: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        # A forked child has no thread to wait for.
        check_process(self._queue)
        return await asyncio.to_thread(call, *args, **kwargs)
