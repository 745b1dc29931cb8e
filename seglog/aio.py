"""The log in an asyncio program: the same core, and one hop to a thread for all appends of a tick.

    from seglog import aio

    async with aio.open("data") as log:
        seqs = await log.topic("orders").append([b"one", b"two"], tag="eu")
        async for record in log.topic("orders").read():
            print(record.seq, record.value)

Appends that tasks make while the loop runs, and while a group is written, form the next group: one hop, one write, one
sync. Every other call that may wait for the disk or for other threads has a twin of the same name here. The twin
runs in a thread. A call that needs no I/O, such as `head_seq`, is made on `sync`, which is the plain log or topic.

AIO-1  Appends of one topic get their seqs in the order in which their tasks began to await them.
AIO-2  An append that is cancelled before its group begins appends nothing. If it is cancelled later, its records are
    appended once, and its task does not learn their seqs. The caller cannot tell the two cases apart, as after a crash.
AIO-3  The setting `queue_max_bytes` bounds the bytes of waiting appends. Beyond it, `append` waits for room, in order.
    An append that is larger than the bound goes alone.
AIO-4  Appends and `close` belong to the loop that opened the log. In any other loop they raise `OtherLoop`. When that
    loop has ended, `close` works in any loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from itertools import chain, islice
from operator import attrgetter
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar, overload

import seglog.log
from seglog.arguments import checked
from seglog.engine.engine import Engine
from seglog.errors import LogClosed, OtherLoop, TopicFull
from seglog.log import Log
from seglog.maintenance.checkpoint import wait_for_room
from seglog.maintenance.retention import Retention
from seglog.process.ownership import Owned, check_process, is_foreign
from seglog.reading.follow import Follower
from seglog.topic import Topic
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteOp
from seglog.values.record import Gap, Record
from seglog.writing.append import PLAIN, AppendOptions, PendingAppend, begin_append, check_append, finish_append

__all__ = ["AsyncLog", "AsyncTopic", "open"]

# The most bytes of merged appends. Further appends are another entry of the same group.
_MERGED_MAX_BYTES = 16 * 1024 * 1024
_READ_RECORDS = 1024
_READ_BYTES = 1024 * 1024

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

# The topic and the options of an append. Appends that agree in both can be merged.
_Kind: TypeAlias = tuple[str, AppendOptions]
_Outcome: TypeAlias = "range | BaseException"
_is_cancelled = attrgetter("is_cancelled")


@checked
def open(path: str | os.PathLike[str], **options: Any) -> AsyncLog:
    """Return a log for `async with`, which opens it. Options and errors are those of `seglog.open`."""
    return AsyncLog(path, options)


class AsyncLog(Owned):
    """A log for the tasks of one event loop, returned by `open`."""

    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        self._path = path
        self._options = options
        self._log: Log | None = None
        self._queue: _Queue | None = None

    async def __aenter__(self) -> AsyncLog:
        self._log = await asyncio.to_thread(seglog.log.open, self._path, **self._options)
        self._queue = _Queue(self._log._engine)  # noqa: SLF001 - the other face of the same engine
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def sync(self) -> Log:
        """Return the plain log, whose calls block the calling thread. Raise `LogClosed`."""
        if self._log is None:
            raise LogClosed
        return self._log

    def topic(self, name: str) -> AsyncTopic:
        """Return the topic of that name, whether it exists yet or not. No I/O.

        Raise `InvalidTopicName`, `LogClosed`.
        """
        topic = self.sync.topic(name)
        assert self._queue is not None  # noqa: S101 - set with the log
        return AsyncTopic(topic, self._queue)

    def get_topic(self, name: str) -> AsyncTopic:
        """Return the topic of that name. No I/O. Raise `NoSuchTopic`, `InvalidTopicName`, `LogClosed`."""
        self.sync.get_topic(name)
        return self.topic(name)

    def topics(self) -> list[str]:
        """Return the names of the topics, ascending. No I/O."""
        return self.sync.topics()

    async def create_topic(
        self, name: str, config: TopicConfig | None = None, first_seq: int = 1, ts_floor_ms: int = 0
    ) -> AsyncTopic:
        await asyncio.to_thread(self.sync.create_topic, name, config, first_seq, ts_floor_ms)
        return self.topic(name)

    async def configure(self, name: str, config: TopicConfig) -> None:
        await asyncio.to_thread(self.sync.configure, name, config)

    async def delete_topic(self, name: str) -> None:
        await asyncio.to_thread(self.sync.delete_topic, name)

    async def checkpoint(self) -> None:
        await asyncio.to_thread(self.sync.checkpoint)

    async def enforce_retention(self) -> list[Retention]:
        return await asyncio.to_thread(self.sync.enforce_retention)

    async def remove(self) -> None:
        """Remove the log as `Log.remove` does, once the appends in progress have ended."""
        if self._queue is not None:
            await self._queue.close()
        await asyncio.to_thread(self.sync.remove)

    async def reclaim(self) -> None:
        await asyncio.to_thread(self.sync.reclaim)

    async def close(self) -> None:
        """Close the log once the appends in progress have ended. Later appends raise `LogClosed`. Idempotent."""
        if is_foreign(self) or self._log is None or self._queue is None:
            return
        try:
            await self._queue.close()
        except OtherLoop:
            raise  # the log stays open in its own loop
        except BaseException:
            await asyncio.to_thread(self._log.close)
            raise
        await asyncio.to_thread(self._log.close)


class AsyncTopic:
    """A name in a log, for many tasks."""

    __slots__ = ("_plain", "_queue", "sync")

    def __init__(self, topic: Topic, queue: _Queue) -> None:
        self.sync = topic
        self._queue = queue
        self._plain: _Kind = (topic.name, PLAIN)

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
    ) -> range:
        """Append records as `Topic.append` does. Order, cancellation and bound follow AIO-1 to AIO-3."""
        kind = self._plain
        if tag is not None or node is not None or unterminated is not False or durability is not None:
            kind = (self.sync.name, AppendOptions(tag, node, unterminated, durability))
        queue = self._queue
        values, records, size_bytes = check_append(queue.engine, values, kind[1])
        if not records:
            return self.sync.append(values)
        if asyncio.get_running_loop() is not queue.loop:
            raise OtherLoop
        if queue.for_room or queue.is_closed or queue.waiting_bytes + size_bytes > queue.max_bytes:
            await queue.wait_for_room(size_bytes)
        return await queue.put(values, records, size_bytes, kind)

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
        self, start: int | None = None, *, timeout_s: float | None = None, gaps: Literal[False] = False
    ) -> AsyncIterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, timeout_s: float | None = None, gaps: bool
    ) -> AsyncIterator[Record | Gap]: ...
    @checked
    def follow(
        self, start: int | None = None, *, timeout_s: float | None = None, gaps: bool = False
    ) -> AsyncIterator[Record] | AsyncIterator[Record | Gap]:
        """Follow as `Topic.follow` does, but no thread waits. Errors are raised when a record is asked for."""
        return self._follow(start, timeout_s, gaps=gaps)

    async def _follow(self, start: int | None, timeout_s: float | None, *, gaps: bool) -> AsyncIterator[Any]:
        follower = self.sync.follower(start, gaps=gaps)
        try:
            while True:
                async for item in _in_batches(self._queue, follower.new_items):
                    yield item
                if not await _wait(follower, timeout_s):
                    return
        except LogClosed:
            return

    async def delete(self, *, before: int | None = None, tag: str | None = None) -> DeleteOp:
        return await self._in_thread(self.sync.delete, before=before, tag=tag)

    async def evict(self, before: int) -> DeleteOp:
        return await self._in_thread(self.sync.evict, before)

    async def truncate(self, seq: int, *, position: tuple[int, int, int] | None = None) -> None:
        await self._in_thread(self.sync.truncate, seq, position=position)

    async def seq_at(self, ts_ms: int) -> int:
        return await self._in_thread(self.sync.seq_at, ts_ms)

    async def seal(self) -> None:
        await self._in_thread(self.sync.seal)

    async def enforce_retention(self) -> Retention:
        return await self._in_thread(self.sync.enforce_retention)

    async def _in_thread(self, call: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs) -> _Result:
        # A forked child has no thread to wait for.
        check_process(self._queue)
        return await asyncio.to_thread(call, *given, **named)


class _Ack(asyncio.Future[range]):
    """The seqs of one append of `records` values, for the task that awaits them.

    A future of asyncio makes a callback in the loop for each task that it wakes. This one keeps the step that the task
    would make, and the queue makes the steps of all tasks of a group in one callback.
    """

    records = 0
    step: Callable[[_Ack], object] | None = None
    context: Context
    is_cancelled = False

    def add_done_callback(self, step: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Keep the step of the task that awaits this. Only that task calls this, and it does so once."""
        self.step, self.context = step, copy_context() if context is None else context

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel as any future does: the task makes its step in a callback of its own."""
        if not super().cancel(msg):
            return False
        self.is_cancelled = True
        step, self.step = self.step, None
        if step is not None:
            self.get_loop().call_soon(step, self, context=self.context)
        return True


class _Part:
    """Successive appends to a topic, of one kind. They become one entry, as if one caller had appended all values."""

    __slots__ = ("acks", "kind", "size_bytes", "values")

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self.values: list[bytes] = []
        self.acks: list[_Ack] = []
        self.size_bytes = 0

    def drop_cancelled(self) -> None:
        """Drop the appends that were cancelled before the group begins (AIO-2)."""
        if any(map(_is_cancelled, self.acks)):
            wanted = [own for own in self.split() if not own.acks[0].is_cancelled]
            self.acks = [own.acks[0] for own in wanted]
            self.values = [value for own in wanted for value in own.values]

    def split(self) -> list[_Part]:
        """Return each append as a part of its own. The first part has all the bytes, those of cancelled appends too."""
        values, parts = iter(self.values), []
        for ack in self.acks:
            parts.append(part := _Part(self.kind))
            part.values, part.acks = list(islice(values, ack.records)), [ack]
        parts[0].size_bytes = self.size_bytes
        return parts

    def settle(self, outcome: _Outcome) -> None:
        """Give each append its result. Its task does not run yet."""
        if isinstance(outcome, BaseException):
            for ack in self.acks:
                if not ack.is_cancelled:
                    ack.set_exception(_own(outcome))
            return
        first = outcome.start
        for ack in self.acks:
            stop = first + ack.records
            if not ack.is_cancelled:
                ack.set_result(range(first, stop))
            first = stop


class _Queue(Owned):
    """The queue of appends. The loop's thread does all work but the commit itself, once for each group:

    1  `_send` hands the waiting appends to the committing thread. If none wait, the queue rests.

    2  `_commit` writes and syncs, in the committing thread.

    3  `_settle` gives each append its result, and wakes the next append that waits for room. Then `_wake` makes the
    next step of each task of the group. After the tasks that these steps woke, the loop calls `_send` again.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.max_bytes = engine.settings.queue_max_bytes
        self.loop = asyncio.get_running_loop()
        self._work: SimpleQueue[list[_Part] | None] = SimpleQueue()
        self._waiting: list[_Part] = []
        # The newest part of each topic, and the newest of all.
        self._last_parts: dict[str, _Part] = {}
        self._last: _Part | None = None
        self.waiting_bytes = 0
        self.for_room: deque[asyncio.Future[None]] = deque()
        self._is_sending = False
        self._at_rest: asyncio.Future[None] | None = None
        self.is_closed = False
        # A daemon thread: a program that ends without `close` does not wait for it. Recovery makes up for that.
        threading.Thread(target=self._commit_all, name="seglog-append", daemon=True).start()

    def put(self, values: Sequence[bytes], records: int, size_bytes: int, kind: _Kind) -> _Ack:
        """Queue an append, for which there is room. It joins the last part of its topic, if it may (AIO-1)."""
        ack, part = _Ack(loop=self.loop), self._last
        ack.records = records
        if part is None or part.kind is not kind or part.size_bytes + size_bytes > _MERGED_MAX_BYTES:
            part = self._last = self._part_for(kind, size_bytes)
        part.values += values
        part.acks += [ack]
        part.size_bytes += size_bytes
        self.waiting_bytes += size_bytes
        if self.for_room:
            self._wake_next()
        if not self._is_sending:
            # Send a tick later, so that the group has the appends of all tasks of this tick.
            self._is_sending = True
            self.loop.call_soon(self._send)
        return ack

    def _part_for(self, kind: _Kind, size_bytes: int) -> _Part:
        part = self._last_parts.get(kind[0])
        if part is None or part.kind != kind or part.size_bytes + size_bytes > _MERGED_MAX_BYTES:
            part = self._last_parts[kind[0]] = _Part(kind)
            self._waiting.append(part)
        return part

    async def close(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            if not self.loop.is_closed():
                raise OtherLoop
            # The appends that wait get no answer. The group that is being written is completed.
            self.is_closed = True
            self._work.put(None)
            return
        if not self.is_closed:
            self.is_closed = True
            if self._is_sending:
                self._at_rest = self.loop.create_future()
            else:
                self._work.put(None)
        if self._at_rest is not None:
            await asyncio.shield(self._at_rest)

    def _check_open(self) -> None:
        if self.is_closed:
            self._wake_next()
            raise LogClosed

    def _has_room(self, size_bytes: int) -> bool:
        return not self.waiting_bytes or self.waiting_bytes + size_bytes <= self.max_bytes

    async def wait_for_room(self, size_bytes: int) -> None:
        """Wait until there is room for an append (AIO-3). Raise `LogClosed`.

        A waiter that leaves, with its append or without, wakes the next one.
        """
        self._check_open()
        if not self.for_room and self._has_room(size_bytes):
            return
        turn: asyncio.Future[None] = self.loop.create_future()
        self.for_room.append(turn)
        try:
            await turn
            while not self._has_room(size_bytes):
                turn = self.loop.create_future()
                self.for_room.appendleft(turn)
                await turn
        except BaseException:
            if turn in self.for_room:
                self.for_room.remove(turn)
            else:
                self._wake_next()
            raise
        self._check_open()

    def _wake_next(self) -> None:
        while self.for_room:
            turn = self.for_room.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _send(self) -> None:
        if self._waiting:
            group, self._waiting, self._last_parts, self._last = self._waiting, [], {}, None
            for part in group:
                part.drop_cancelled()
            self._work.put(group)
            return
        self._is_sending = False
        if self._at_rest is not None:
            self._at_rest.set_result(None)
            self._work.put(None)

    def _settle(self, outcomes: list[tuple[_Part, _Outcome]]) -> None:
        for part, outcome in outcomes:
            self.waiting_bytes -= part.size_bytes
            part.settle(outcome)
        self._wake_next()
        self._wake(chain.from_iterable([part.acks for part, _ in outcomes]))

    def _wake(self, acks: Iterator[_Ack]) -> None:
        """Make the next step of each task that awaits one of `acks`, and then send the appends that wait."""
        try:
            for ack in acks:
                step, ack.step = ack.step, None
                if step is not None:
                    ack.context.run(step, ack)
        except BaseException:
            # A step raises only an exception that ends the loop. If the loop runs again, wake the other tasks.
            self.loop.call_soon(self._wake, acks)
            raise
        self.loop.call_soon(self._send)

    def _commit_all(self) -> None:
        """Commit one group after the other, in the committing thread."""
        while (group := self._work.get()) is not None:
            outcomes = _commit(self.engine, group)
            try:
                self.loop.call_soon_threadsafe(self._settle, outcomes)
            except RuntimeError:
                return  # the loop is closed: no task waits for the outcome


def _commit(engine: Engine, group: Sequence[_Part]) -> list[tuple[_Part, _Outcome]]:
    """Commit all parts as one group of the committer, and return the outcome of each.

    If the topic of a part is being deleted, that part and all behind it are another group, after the deletion.
    """
    outcomes: list[tuple[_Part, _Outcome]] = []
    waiting = deque(group)
    try:
        wait_for_room(engine)
        while waiting:
            begun = _begin(engine, waiting)
            outcomes += [(part, _finish(engine, one) if isinstance(one, tuple) else one) for part, one in begun]
            if waiting:
                _flush(engine, waiting, outcomes)
    except BaseException as error:
        engine.committer.abandon()
        return [(part, error) for part in group]
    return outcomes


def _begin(engine: Engine, waiting: deque[_Part]) -> list[tuple[_Part, PendingAppend | _Outcome]]:
    """Begin the appends of the parts, in order, up to the first part whose topic is being deleted."""
    begun: list[tuple[_Part, PendingAppend | _Outcome]] = []
    while waiting:
        part = waiting[0]
        outcome = _begin_one(engine, part)
        if outcome is None:
            return begun
        waiting.popleft()
        if isinstance(outcome, TopicFull) and len(part.acks) > 1:
            waiting.extendleft(reversed(part.split()))  # there may be room for some of the appends
        else:
            begun.append((part, outcome))
    return begun


def _begin_one(engine: Engine, part: _Part) -> PendingAppend | _Outcome | None:
    if not part.values:
        return range(0)
    topic, options = part.kind
    try:
        return begin_append(engine, topic, part.values, len(part.values), options)
    except Exception as error:
        return error


def _flush(engine: Engine, waiting: deque[_Part], outcomes: list[tuple[_Part, _Outcome]]) -> None:
    """Make the deletion durable that the parts wait for. If that fails, the failure is their outcome."""
    try:
        engine.committer.flush()
    except Exception as error:
        outcomes += [(part, error) for part in waiting]
        waiting.clear()


def _finish(engine: Engine, begun: PendingAppend) -> _Outcome:
    try:
        return finish_append(engine, begun)
    except Exception as error:
        return error


def _own(error: BaseException) -> BaseException:
    """Return a copy of the error for one task. If several tasks raised one exception, their tracebacks would mix."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own


async def _in_batches(queue: _Queue, start: Callable[[], Iterator[Any]]) -> AsyncIterator[Any]:
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


async def _wait(follower: Follower, timeout_s: float | None) -> bool:
    """Wait until there is news. Return False at the time-out. Raise `LogClosed`."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def waiter() -> None:
        with suppress(RuntimeError):  # the loop has ended: no task waits any more
            loop.call_soon_threadsafe(news.set)

    try:
        while not follower.poll(waiter):
            try:
                await asyncio.wait_for(news.wait(), timeout_s)
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
