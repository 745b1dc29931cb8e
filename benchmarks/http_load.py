"""The load of one keep-alive connection: the same POST again and again, and the time of each answer.

The client writes ready-made bytes and takes only the status and the length of the answer. So it costs a small part of
the server's time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from benchmarks.runner import Figures
from benchmarks.slices import Slice, rate_and_percentiles

__all__ = ["Target", "connected", "post"]


@dataclass(frozen=True, slots=True)
class Target:
    """A server on loopback, and the request number N of a connection. `records` is the number in each request."""

    port: int
    request: Callable[[str, int], bytes]
    records: int


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return a whole request."""
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers)
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


@contextmanager
def connected(target: Target, connections: int) -> Iterator[Slice]:
    """Yield a slice in which each of so many connections sends one request after the other."""
    with asyncio.Runner() as runner:
        clients = runner.run(_connect(target, connections))
        try:
            yield lambda slice_s: runner.run(_loaded(clients, target.records, slice_s))
        finally:
            runner.run(_close(clients))


async def _connect(target: Target, connections: int) -> list[_Client]:
    streams = [await asyncio.open_connection("127.0.0.1", target.port) for _ in range(connections)]
    return [_Client(f"c{number}", target, reader, writer) for number, (reader, writer) in enumerate(streams)]


async def _close(clients: list[_Client]) -> None:
    for client in clients:
        client.writer.close()
        await client.writer.wait_closed()


async def _loaded(clients: list[_Client], records: int, slice_s: float) -> Figures:
    begin = time.perf_counter()
    own = await asyncio.gather(*(client.send_until(begin + slice_s) for client in clients))
    elapsed = time.perf_counter() - begin
    times = [one for each in own for one in each]
    return rate_and_percentiles(len(times) * records, elapsed, times)


class _Client:
    def __init__(self, name: str, target: Target, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._name = name
        self._target = target
        self._reader = reader
        self._numbers = count()

    async def send_until(self, end: float) -> list[float]:
        clock, times = time.perf_counter, []
        now = clock()
        while now < end:
            start = now
            self.writer.write(self._target.request(self._name, next(self._numbers)))
            await self._answer()
            now = clock()
            times.append(now - start)
        return times

    async def _answer(self) -> None:
        """Take one answer. Raise `RuntimeError` if it is no success."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head[9:12])
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
        body = await self._reader.readexactly(int(length)) if length else b""
        if not length and b"transfer-encoding" in head:
            body = await self._reader.readuntil(b"0\r\n\r\n")
        if not 200 <= status < 300:
            raise RuntimeError(f"{status}: {body[:500]!r}")
