"""A topic for the tasks of one event loop.

Reads come in batches from another thread. A wait for news takes no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from seglog.aio.append_queue import AppendQueue
from seglog.aio.merged import Ack, Kind, own_error
from seglog.base.arguments import checked
from seglog.base.ownership import check_process
from seglog.errors import InvalidArgument, LogClosed
from seglog.maintenance.checkpoint_plan import Retention
from seglog.reading.follow import Follower, Patience
from seglog.topic import Topic, append_options
from seglog.values.arrow import check_arrow
from seglog.values.last_deletes import Undeleted
from seglog.values.names import BRANCH_MARK
from seglog.values.producer import Appended
from seglog.values.protocols import (
    Bounds,
    DeleteArguments,
    FollowArguments,
    LogAppendArguments,
    ReadArguments,
    Removed,
    Selection,
)
from seglog.values.record import Gap, Record, selected
from seglog.writing.append import PLAIN, append, check_append, open_branch

if TYPE_CHECKING:
    import pyarrow as pa

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
        return f"<Async{repr(self.sync)[1:]}"

    @property
    def name(self) -> str:
        return self.sync.name

    async def append(self, values: Sequence[bytes], **options: Unpack[LogAppendArguments]) -> range:
        """Append records as `Topic.append` does. Order, cancellation and bound follow AIO-1 to AIO-3."""
        kind = (self.sync.name, append_options(options)) if options else self._plain
        # The body of `append_once`, inlined, because each append of a task spends its time here.
        queue = self._queue
        ack = Ack()
        ack.waiting, ack.kind, ack.is_cancelled = queue.waiting, kind, False
        ack.values, records, size_bytes = check_append(queue.engine, values, kind[1])
        ack.records, ack.size_bytes = records, size_bytes
        if not records:
            return self.sync.append(values, if_head=kind[1].if_head, if_incarnation=kind[1].if_incarnation)
        if kind[0] not in queue.engine.topics or kind[0] in queue.branches:
            await self._open_branch()
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

    async def append_once(self, values: Sequence[bytes], **options: Unpack[LogAppendArguments]) -> Appended:
        """Append records as `append` does, and say whether the topic had the batch already (`Topic.append_once`)."""
        kind = (self.sync.name, append_options(options))
        queue = self._queue
        ack = Ack()
        ack.waiting, ack.kind, ack.is_cancelled = queue.waiting, kind, False
        ack.values, ack.records, ack.size_bytes = check_append(queue.engine, values, kind[1])
        if not ack.records:
            return self.sync.append_once(values, if_head=kind[1].if_head, if_incarnation=kind[1].if_incarnation)
        await self._open_branch()
        await queue.wait_for_room(ack.size_bytes)
        await ack
        outcome = ack.part.outcome
        if isinstance(outcome, int):
            first = outcome + ack.offset
            return Appended(range(first, first + ack.records), ack.part.is_repeated)
        assert isinstance(outcome, BaseException)  # noqa: S101 - the group is settled
        raise own_error(outcome)

    async def append_stream(self, chunks: AsyncIterable[bytes], **options: Unpack[LogAppendArguments]) -> Appended:
        """Append one record whose value comes in chunks (`Topic.append_stream`). Return its seq, in a range of one.

        Threads write the chunks and the record, so that the loop goes on meanwhile.
        """
        from seglog.writing.stream import Spool

        self._queue.check_loop()
        if not isinstance(chunks, AsyncIterable):
            raise InvalidArgument("chunks", chunks, "an asynchronous iterable of byte strings")
        engine, name, whole = self._queue.engine, self.sync.name, append_options(options)
        with Spool(engine, whole) as spool:
            await self._open_branch()
            async for chunk in chunks:
                await asyncio.to_thread(spool.add, chunk)
            return Appended(*await asyncio.to_thread(append, engine, name, spool.values(), whole))

    async def _open_branch(self) -> None:
        """Let the archive open a branch that the log lacks. One thread waits, and the appends stay in order (AIO-1)."""
        queue = self._queue
        if BRANCH_MARK in self.name and (self.name not in queue.engine.topics or self.name in queue.branches):
            queue.check_loop()
            async with queue.branches.setdefault(self.name, asyncio.Lock()):
                if self.name not in queue.engine.topics:
                    await asyncio.to_thread(open_branch, queue.engine, self.name)

    @overload
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: Literal[False] = False,
        **selection: Unpack[ReadArguments],
    ) -> AsyncIterator[Record]: ...
    @overload
    def read(
        self, start: int | None = None, end: int | None = None, *, gaps: bool, **selection: Unpack[ReadArguments]
    ) -> AsyncIterator[Record | Gap]: ...
    @checked
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: bool = False,
        **selection: Unpack[ReadArguments],
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]:
        """Read as `Topic.read` does, up to a MiB at a time in another thread.

        Errors are raised when a record is asked for.
        """
        if not any(value is not None for value in selection.values()) and not gaps:
            return self._read_batches(start, end)
        return _in_batches(self._queue, lambda: self.sync.read(start, end, gaps=gaps, **selection))

    async def _read_batches(self, start: int | None, end: int | None) -> AsyncIterator[Record]:
        batches = self.sync.read_batches(start, end)
        while (batch := await self._in_thread(next, batches, None)) is not None:
            for record in batch:
                yield record

    @checked
    def read_arrow(
        self, start: int | None = None, end: int | None = None, *, text: bool = False, **selection: Unpack[Selection]
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield the records of `read` as batches of Apache Arrow, none of them empty (`Topic.read_arrow`).

        A `pyarrow.RecordBatchReader` cannot wait for an event loop. To get one, collect the batches:

            batches = [batch async for batch in topic.read_arrow()]
            reader = pyarrow.RecordBatchReader.from_batches(seglog.arrow_schema(), batches)
        """
        check_arrow("AsyncTopic.read_arrow")
        return self._read_arrow(start, end, text, selection)

    async def _read_arrow(
        self, start: int | None, end: int | None, text: bool, selection: Selection
    ) -> AsyncIterator[pa.RecordBatch]:
        batches = iter(await self._in_thread(self.sync.read_arrow, start, end, text=text, **selection))
        while (batch := await self._in_thread(next, batches, None)) is not None:
            yield batch

    @overload
    def follow(
        self, start: int | None = None, *, gaps: Literal[False] = False, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, gaps: bool, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record | Gap]: ...
    @checked
    def follow(
        self, start: int | None = None, *, gaps: bool = False, **options: Unpack[FollowArguments]
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]:
        """Follow as `Topic.follow` does, but no thread waits. Errors are raised when a record is asked for."""
        return self._follow(start, options.get("epoch"), options.get("timeout_s"), options.get("tag"), gaps=gaps)

    async def _follow(
        self, start: int | None, epoch: int | None, timeout_s: float | None, tag: str | None, *, gaps: bool
    ) -> AsyncIterator[Any]:
        follower, patience = self.sync.inner.follower(start, gaps=gaps, epoch=epoch), Patience(timeout_s)
        try:
            while True:
                async for item in _in_batches(self._queue, lambda: selected(follower.new_items(), tag, None)):
                    yield item
                    patience.begin()
                if not await _wait_for_news(follower, patience.left_s):
                    return
        except LogClosed:
            return

    async def bounds(self) -> Bounds:
        return await self._in_thread(self.sync.bounds)

    @checked
    async def delete(self, **conditions: Unpack[DeleteArguments]) -> Removed:
        return await self._in_thread(self.sync.delete, **conditions)

    async def undo(self, delete: int | None = None, *, partial: bool = False, preview: bool = False) -> Undeleted:
        return await self._in_thread(self.sync.undo, delete, partial=partial, preview=preview)

    async def evict(self, before: int) -> Removed:
        return await self._in_thread(self.sync.evict, before)

    async def truncate(self, seq: int) -> None:
        await self._in_thread(self.sync.truncate, seq)

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
