"""The producer for asyncio: tasks send its batches, and the outbox decides (seglog.client.batches)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import time
from types import TracebackType

from seglog.base.arguments import checked
from seglog.client.aio.driver import AsyncDriver
from seglog.client.batches import IN_FLIGHT, NumberedBatch, Outbox, answered, sent, written
from seglog.client.requests import AppendLabels
from seglog.errors import Misuse


class AsyncRemoteProducer:
    """A producer of a topic, made by `AsyncRemoteTopic.producer`, for one event loop.

    As a context manager it flushes at the end. If the block raises, it leaves out the records that have no number yet.
    """

    def __init__(self, driver: AsyncDriver, outbox: Outbox, durability: str | None) -> None:
        self._driver = driver
        self._outbox = outbox
        self._durability = durability
        self._news = asyncio.Condition()
        self._senders: list[asyncio.Task[None]] = []
        self._is_closed = False

    async def __aenter__(self) -> AsyncRemoteProducer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        if kind is None:
            await self.close()
        else:
            await self._end()

    def __repr__(self) -> str:
        return f"<AsyncRemoteProducer {self._outbox.window.producer} of {self._outbox.window.topic}>"

    @property
    def acked(self) -> int:
        """Return the number of records that are in."""
        return self._outbox.window.acked

    @property
    def last_seq(self) -> int | None:
        """Return the highest seq of the records that are in, or None before there is one."""
        return self._outbox.window.last_seq

    @property
    def early(self) -> int:
        """Return how many times a batch came to the log before a lower one, and was sent again (CLIENT-7)."""
        return self._outbox.window.early

    @checked
    async def send(
        self, value: bytes, *, tag: str | None = None, node: str | None = None, unterminated: bool = False
    ) -> None:
        """Give the producer a record, as `RemoteProducer.send` does, with its errors."""
        labels = AppendLabels(tag, node, unterminated, self._durability)
        async with self._news:
            self._check()
            while not self._outbox.takes(value, labels):
                self._outbox.close_batch(time.monotonic())
                self._news.notify_all()
                await self._news.wait()
                self._check()
            if self._outbox.add(value, labels, time.monotonic()):
                self._start_sender()
                self._news.notify_all()

    async def flush(self) -> None:
        """Wait until all records so far are in, as `RemoteProducer.flush` does, with its errors."""
        async with self._news:
            outbox = self._outbox
            last = outbox.window.next_number + outbox.has_values
            outbox.close_batch(time.monotonic())
            self._news.notify_all()
            while outbox.lacks_answers(last):
                await self._news.wait()
            if outbox.error is not None:
                raise outbox.error

    async def close(self) -> None:
        """Flush, and end the tasks. The producer takes no record after this."""
        try:
            if not self._is_closed:
                await self.flush()
        finally:
            await self._end()

    async def _end(self) -> None:
        async with self._news:
            self._is_closed = True
            self._news.notify_all()
        await asyncio.gather(*self._senders)

    def _check(self) -> None:
        if self._is_closed:
            raise Misuse("the producer is closed")
        if self._outbox.error is not None:
            raise self._outbox.error

    def _start_sender(self) -> None:
        """Start a task if there are more batches than tasks."""
        if len(self._senders) < min(IN_FLIGHT, self._outbox.senders):
            self._senders.append(asyncio.create_task(self._send(), name="seglog-producer"))

    async def _send(self) -> None:
        while True:
            async with self._news:
                batch = await self._next()
                if batch is None:
                    return
                self._outbox.window, request = sent(self._outbox.window, batch.number, time.monotonic())
            outcome = await self._driver.exchange(request, functools.partial(self._written, batch.number))
            async with self._news:
                self._outbox.window = answered(
                    self._outbox.window, batch.number, outcome, time.monotonic(), random.random()
                )
                self._news.notify_all()

    async def _written(self, number: int) -> None:
        async with self._news:
            self._outbox.window = written(self._outbox.window, number)
            self._news.notify_all()

    async def _next(self) -> NumberedBatch | None:
        """Wait for a batch that is due, and return it. Return None when the producer is closed."""
        while not self._is_closed:
            now_s, number = time.monotonic(), self._outbox.window.next_number
            batch = self._outbox.step(now_s)
            if self._outbox.window.next_number != number:
                self._news.notify_all()  # the open batch is empty now
            if batch is not None:
                return batch
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._outbox.wait_s(now_s)):
                    await self._news.wait()
        return None
