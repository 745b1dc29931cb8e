"""The log in an asyncio program: the same core, and one hop to a thread for all appends of a tick.

    from seglog import aio

    async with aio.open("data") as log:
        seqs = await log.topic("orders").append([b"one", b"two"], tag="eu")
        async for record in log.topic("orders").read():
            print(record.seq, record.value)

What tasks append while the loop runs, and while a group is written, is the next group: one hop, one write, one sync.
There is a twin only for what is done often. The rest is `sync`, which is safe for many threads:

    await asyncio.to_thread(log.sync.topic("orders").delete, before=100)

A1  Appends of one topic get their seqs in the order in which their tasks came to await them.
A2  An append that is cancelled before its group begins appends nothing. One that is cancelled later is appended, once,
    as if it had not been cancelled: only nobody hears of it. Which one it was cannot be told, as after a crash.
A3  What waits is bounded by the setting `queue_max_bytes`: beyond it `append` waits for room, in order. One append that
    is larger than that goes alone.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

import seglog.log
from seglog import write
from seglog.checkpoint import wait_for_room
from seglog.engine import Engine
from seglog.errors import LogClosed
from seglog.log import Log
from seglog.record import Record
from seglog.topic import Topic

__all__ = ["AsyncLog", "AsyncTopic", "open"]

# Of what is appended as one; more is another entry of the same group.
_MERGED_MAX_BYTES = 16 * 1024 * 1024
_READ_RECORDS = 1024
_READ_BYTES = 1024 * 1024

# Topic, tag, node, unterminated, durability: what appends have in common that can be one.
_Kind: TypeAlias = tuple[str, str | None, str | None, bool, str | None]
_Outcome: TypeAlias = "range | Exception"


def open(path: str | os.PathLike[str], **options: Any) -> AsyncLog:
    """For `async with`, which opens it: with the options, and the errors, of `seglog.open`."""
    return AsyncLog(path, options)


class AsyncLog:
    """Use `open`. For the tasks of one event loop."""

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
        """The log itself: whatever it does blocks the thread that calls it."""
        if self._log is None:
            raise LogClosed
        return self._log

    def topic(self, name: str) -> AsyncTopic:
        """The topic of that name, whether it is there yet or not. No I/O. Raises `InvalidTopicName`, `LogClosed`."""
        topic = self.sync.topic(name)
        assert self._queue is not None  # noqa: S101 - set with the log
        return AsyncTopic(topic, self._queue)

    async def close(self) -> None:
        """Appends on their way come to their end; later ones raise `LogClosed`. Idempotent."""
        if self._log is None or self._queue is None:
            return
        try:
            await self._queue.close()
        finally:
            await asyncio.to_thread(self._log.close)


class AsyncTopic:
    """A name in a log. For many tasks."""

    __slots__ = ("_queue", "sync")

    def __init__(self, topic: Topic, queue: _Queue) -> None:
        self.sync = topic
        self._queue = queue

    def __repr__(self) -> str:
        return f"<AsyncTopic {self.sync.name}>"

    @property
    def name(self) -> str:
        return self.sync.name

    def append(
        self,
        values: Sequence[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
    ) -> Coroutine[Any, Any, range]:
        """`Topic.append`, to be awaited; see A1 to A3 of this module."""
        return self._queue.append(values, (self.sync.name, tag, node, unterminated, durability))

    async def read(self, start: int | None = None, end: int | None = None) -> AsyncIterator[Record]:
        """`Topic.read`, up to a MiB at a time in another thread. It raises when a record is asked for."""
        records = self.sync.read(start, end)
        error: Exception | None = None
        is_at_end = False
        while not is_at_end:
            batch, is_at_end, error = await asyncio.to_thread(_take, records)
            for record in batch:
                yield record
        if error is not None:
            raise error


@dataclass(slots=True, eq=False)
class _Request:
    values: Sequence[bytes]
    kind: _Kind
    size_bytes: int
    seqs: asyncio.Future[range]


class _Queue:
    """What waits to be appended. All but the commit itself happens in the loop's thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "seglog-append")
        self._waiting: list[_Request] = []
        self._waiting_bytes = 0
        self._for_room: deque[asyncio.Future[None]] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._is_closed = False

    async def append(self, values: Sequence[bytes], kind: _Kind) -> range:
        engine = self._engine
        topic, tag, node, unterminated, durability = kind
        size_bytes = write.check_append(engine, values, tag=tag, node=node, durability=durability)
        if not values:
            return write.append(
                engine, topic, values, tag=tag, node=node, unterminated=unterminated, durability=durability
            )
        self._check_open()
        if self._for_room or not self._has_room(size_bytes):
            await self._wait_for_room(size_bytes)
            self._check_open()
        request = _Request(values, kind, size_bytes, self._loop.create_future())
        self._waiting.append(request)
        self._waiting_bytes += size_bytes
        if self._for_room:
            self._wake_next()
        if self._sender is None:
            self._sender = self._loop.create_task(self._send_all())
        return await request.seqs

    async def close(self) -> None:
        self._is_closed = True
        while self._sender is not None:
            await asyncio.wait([self._sender])
        self._thread.shutdown(wait=False)

    def _check_open(self) -> None:
        if self._is_closed:
            self._wake_next()
            raise LogClosed

    def _has_room(self, size_bytes: int) -> bool:
        return not self._waiting_bytes or self._waiting_bytes + size_bytes <= self._engine.settings.queue_max_bytes

    async def _wait_for_room(self, size_bytes: int) -> None:
        """A3. Whoever goes, with its append or without, lets the next one look."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._for_room.append(turn)
        try:
            await turn
            while not self._has_room(size_bytes):
                turn = self._loop.create_future()
                self._for_room.appendleft(turn)
                await turn
        except BaseException:
            if turn in self._for_room:
                self._for_room.remove(turn)
            else:
                self._wake_next()
            raise

    def _wake_next(self) -> None:
        while self._for_room:
            turn = self._for_room.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _send_all(self) -> None:
        """Group after group, until nothing waits. It begins a tick later, so that all tasks of this one are in."""
        group: list[_Request] = []
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                wanted = [request for request in group if not request.seqs.cancelled()]
                outcomes = await self._loop.run_in_executor(self._thread, _commit, self._engine, wanted)
                self._waiting_bytes -= sum(request.size_bytes for request in group)
                for request, outcome in zip(wanted, outcomes, strict=True):
                    if request.seqs.done():
                        continue
                    if isinstance(outcome, Exception):
                        request.seqs.set_exception(outcome)
                    else:
                        request.seqs.set_result(outcome)
                self._wake_next()
                # Those that were woken may have more: let them in before the next group goes.
                await asyncio.sleep(0)
        finally:
            self._sender = None
            for request in (*group, *self._waiting):
                request.seqs.cancel()


def _commit(engine: Engine, requests: Sequence[_Request]) -> list[_Outcome]:
    """In the other thread: all of them as one group."""
    try:
        wait_for_room(engine)
    except Exception as error:
        return [_own(error) for _ in requests]
    merged = list(_merged(requests))
    begun = [_begin(engine, parts) for parts in merged]
    outcomes: list[_Outcome] = []
    for parts, one in zip(merged, begun, strict=True):
        outcome = _finish(engine, one) if isinstance(one, write.Begun) else one
        if isinstance(outcome, Exception):
            outcomes += [_own(outcome) for _ in parts]
        else:
            outcomes += _split(outcome, parts)
    return outcomes


def _merged(requests: Sequence[_Request]) -> Iterator[list[_Request]]:
    """Neighbours of a kind together: one entry each, as if one caller had appended all of it."""
    parts: list[_Request] = []
    size_bytes = 0
    for request in requests:
        size_bytes += request.size_bytes
        if parts and (request.kind != parts[0].kind or size_bytes > _MERGED_MAX_BYTES):
            yield parts
            parts, size_bytes = [], request.size_bytes
        parts.append(request)
    if parts:
        yield parts


def _begin(engine: Engine, parts: list[_Request]) -> write.Begun | Exception:
    topic, tag, node, unterminated, durability = parts[0].kind
    values = [value for request in parts for value in request.values]
    try:
        return write.begin_append(
            engine, topic, values, tag=tag, node=node, unterminated=unterminated, durability=durability
        )
    except Exception as error:
        return error


def _finish(engine: Engine, begun: write.Begun) -> _Outcome:
    try:
        return write.finish_append(engine, begun)
    except Exception as error:
        return error


def _split(seqs: range, parts: list[_Request]) -> Iterator[range]:
    first = seqs.start
    for request in parts:
        yield range(first, first + len(request.values))
        first += len(request.values)


def _own(error: Exception) -> Exception:
    """One for each: an exception that several tasks raise would mix up their tracebacks."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own


def _take(records: Iterator[Record]) -> tuple[list[Record], bool, Exception | None]:
    """The next ones, whether that was all, and what came instead of the one after."""
    batch: list[Record] = []
    size_bytes = 0
    try:
        for record in records:
            batch.append(record)
            size_bytes += len(record.value)
            if len(batch) >= _READ_RECORDS or size_bytes >= _READ_BYTES:
                return batch, False, None
    except Exception as error:
        return batch, True, error
    return batch, True, None
