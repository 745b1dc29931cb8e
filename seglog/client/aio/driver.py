"""The driver of the client for asyncio: it sends, waits and sends again as the core decides.

The core is `seglog.client.retries` and `seglog.client.reading`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from seglog.client.aio.connections import AsyncConnections
from seglog.client.answers import Answer, Lost, Outcome
from seglog.client.reading import Following, Reading
from seglog.client.requests import Request
from seglog.client.retries import Broken, Call, Retries, after, is_reached
from seglog.values.arrow import shown_batches
from seglog.values.record import Gap, Record

if TYPE_CHECKING:
    import pyarrow as pa

    from seglog.client.arrow import ArrowReading

__all__ = ["AsyncDriver"]


class AsyncDriver:
    """Sends the requests of one client. For one event loop."""

    def __init__(self, connections: AsyncConnections, place: str, retries: Retries) -> None:
        self.place = place
        self.retries = retries
        self._connections = connections
        self.is_reached = False  # a daemon got a request

    async def close(self) -> None:
        await self._connections.close()

    async def ask(self, request: Request) -> Answer:
        """Send a request, repeat it as `seglog.client.retries` says, and return its answer."""
        call = self._begin(request)
        while True:
            outcome = await self._connections.exchange(call.request)
            if isinstance(outcome, Answer) and outcome.status < 400:
                self.is_reached = True
                return outcome
            call = await self._next_try(call, outcome)

    async def exchange(self, request: Request, on_written: Callable[[], Any]) -> Outcome:
        """Send a request once. Await `on_written` when all of it went to the daemon, unless that fails."""
        outcome = await self._connections.exchange(request, on_written)
        self.is_reached |= is_reached(outcome)
        return outcome

    async def items(self, source: Reading | Following) -> AsyncIterator[Record | Gap]:
        """Yield the items of a read or a follower. After a lost connection, resume it (CLIENT-4)."""
        call = self._begin(source.request)
        while not source.is_done:
            outcome: Outcome = Lost("the daemon ended the answer", is_sent=True)
            try:
                async with self._connections.stream(source.request) as stream:
                    if stream.answer.status >= 400:
                        outcome = await stream.whole()
                    else:
                        self.is_reached = True
                        source = source.begun(stream.answer)
                        async for piece in stream.pieces():
                            source, items, error, is_progress = source.fed(piece)
                            for item in items:
                                yield item
                            if error is not None:
                                raise error
                            if is_progress or not call.failures:
                                call = self._begin(source.request)
                        if source.ends_with_answer:
                            return
            except Broken as broken:
                outcome = broken.lost
            call = await self._next_try(call, outcome)

    async def batches(self, source: ArrowReading, *, text: bool) -> AsyncIterator[pa.RecordBatch]:
        """Yield the batches of a read by pages, with `text` as texts."""
        while not source.is_done:
            source, batches = source.fed(await self.ask(source.request))
            for batch in shown_batches(batches, text=text):
                yield batch

    def _begin(self, request: Request) -> Call:
        """Return the call of a request, whose time begins now."""
        return Call.begun(request, self.place, self.retries, time.monotonic(), is_reached=self.is_reached)

    async def _next_try(self, call: Call, outcome: Outcome) -> Call:
        """Wait, and return the next try of the call. Raise the error that ends the call."""
        self.is_reached |= is_reached(outcome)
        again = after(call, outcome, time.monotonic(), random.random())
        await asyncio.sleep(again.wait_s)
        return again.call
