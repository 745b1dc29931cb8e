"""A proxy of bytes before a server in this process, which cuts connections after a random number of bytes.

The head of an answer passes whole. Chromium takes a head that is cut for a whole one. If the header that lets the page
read the answer is behind the cut, an `EventSource` ends for good.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self

__all__ = ["CuttingProxy"]

_READ_BYTES = 4096


class CuttingProxy:
    """It cuts connections until `is_enough` is True. `cuts` has the number by the path of the connection's request."""

    port: int

    def __init__(self, server_port: int, rng: random.Random, is_enough: Callable[[Counter[str]], bool]) -> None:
        self.cuts = Counter[str]()
        self._server_port = server_port
        self._rng = rng
        self._is_enough = is_enough
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Self]:
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            while self._tasks:
                for writer in self._writers:
                    writer.transport.abort()
                await asyncio.wait(self._tasks, timeout=0.1)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        task.add_done_callback(self._tasks.discard)
        with suppress(OSError, asyncio.IncompleteReadError):
            await self._pass_on(reader, writer)
        self._writers.discard(writer)
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].partition(b"?")[0].decode()
        upstream, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers.add(to_server)
        to_server.write(head)
        sending = asyncio.create_task(_pump(reader, to_server))
        try:
            writer.write(await upstream.readuntil(b"\r\n\r\n"))
            left_bytes = self._rng.randrange(self._rng.choice((200, 2_000, 20_000)))
            while data := await upstream.read(_READ_BYTES):
                if len(data) > left_bytes and not self._is_enough(self.cuts):
                    self.cuts[path] += 1
                    writer.write(data[:left_bytes])  # the rest is lost, and a message may be cut in two
                    await writer.drain()
                    return
                left_bytes -= len(data)
                writer.write(data)
                await writer.drain()
        finally:
            to_server.transport.abort()
            self._writers.discard(to_server)
            sending.cancel()
            await asyncio.wait({sending})


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
