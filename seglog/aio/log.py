"""A log for the tasks of one event loop, and the way to open it."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import seglog.log
from seglog.aio.append_queue import AppendQueue, LoopTime
from seglog.aio.topic import AsyncTopic
from seglog.base.arguments import checked
from seglog.base.ownership import Owned, is_foreign
from seglog.errors import LogClosed, OtherLoop
from seglog.interrupts import closing_after
from seglog.log import Log
from seglog.maintenance.checkpoint_plan import Retention
from seglog.values.config import TopicConfig


@checked
def open(path: str | os.PathLike[str], *, loop_wait_ms: float = 0, **options: Any) -> AsyncLog:
    """Return a log for `async with`, which opens it. The other options, and the errors, are those of `seglog.open`.

    `loop_wait_ms` is the time for which a write may keep the loop waiting (AIO-5). With 0, a thread makes all writes.
    A program of few tasks on a fast disk gains the time that the way to a thread and back takes. All other tasks of the
    loop wait for the disk then, too.
    """
    return AsyncLog(path, options, LoopTime(loop_wait_ms / 1000))


class AsyncLog(Owned):
    """A log for the tasks of one event loop, returned by `open`."""

    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any], loop_time: LoopTime) -> None:
        self._path = path
        self._options = options
        self._loop_time = loop_time
        self._log: Log | None = None
        self._queue: AppendQueue | None = None

    async def __aenter__(self) -> AsyncLog:
        self._log = await asyncio.to_thread(seglog.log.open, self._path, **self._options)
        self._queue = AppendQueue(self._log._engine, self._loop_time)  # noqa: SLF001 - the other face of the same engine
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with closing_after(error):
            await self.close()

    def __repr__(self) -> str:
        if is_foreign(self):
            return "<AsyncLog of another process>"
        if self._log is None:
            return f"<AsyncLog of {os.fspath(self._path)}: not open>"
        return f"<Async{repr(self._log)[1:]}"

    @property
    def sync(self) -> Log:
        """Return the plain log, whose calls block the calling thread. Raise `LogClosed`."""
        if self._log is None:
            raise LogClosed
        return self._log

    def topic(self, name: str) -> AsyncTopic:
        """Return the topic of that name, whether it exists yet or not. No I/O.

        Raise `InvalidName`, `LogClosed`.
        """
        topic = self.sync.topic(name)
        assert self._queue is not None  # noqa: S101 - set with the log
        return AsyncTopic(topic, self._queue)

    def get_topic(self, name: str) -> AsyncTopic:
        """Return the topic of that name. No I/O. Raise `NoSuchTopic`, `InvalidName`, `LogClosed`."""
        self.sync.get_topic(name)
        return self.topic(name)

    @property
    def queue(self) -> AppendQueue:
        """Return the queue of the appends, for a program that slows them down. Raise `LogClosed`."""
        if self._queue is None:
            raise LogClosed
        return self._queue

    async def topics(self) -> list[str]:
        """Return the names of the topics, ascending. No I/O."""
        return self.sync.topics()

    async def create_topic(
        self,
        name: str,
        config: TopicConfig | None = None,
        first_seq: int = 1,
        ts_floor_ms: int = 0,
        *,
        is_taken_over: bool = False,
    ) -> AsyncTopic:
        create = functools.partial(self.sync.create_topic, is_taken_over=is_taken_over)
        await asyncio.to_thread(create, name, config, first_seq, ts_floor_ms)
        return self.topic(name)

    async def configure(self, name: str, config: TopicConfig) -> None:
        await asyncio.to_thread(self.sync.configure, name, config)

    async def reconfigure(self, name: str, change: Callable[[TopicConfig], TopicConfig]) -> TopicConfig:
        """Do what `Log.reconfigure` does. The function runs in another thread."""
        return await asyncio.to_thread(self.sync.reconfigure, name, change)

    async def delete_topic(self, name: str) -> None:
        await asyncio.to_thread(self.sync.delete_topic, name)

    @checked
    async def seal(self, names: Iterable[str]) -> None:
        await asyncio.to_thread(self.sync.seal, names)

    async def checkpoint(self) -> None:
        await asyncio.to_thread(self.sync.checkpoint)

    async def enforce_retention(self) -> list[Retention]:
        return await asyncio.to_thread(self.sync.enforce_retention)

    async def remove(self) -> None:
        """Remove the log as `Log.remove` does, once the appends in progress have ended."""
        if self._queue is not None:
            await self._queue.close()
        await asyncio.to_thread(self.sync.remove)

    async def upgrade(self) -> None:
        await asyncio.to_thread(self.sync.upgrade)

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
        except BaseException as error:
            with closing_after(error):
                await asyncio.to_thread(self._log.close)
            raise
        await asyncio.to_thread(self._log.close)
