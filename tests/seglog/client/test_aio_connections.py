"""Test the connections of the client for asyncio."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from seglog.client.address import address_of
from seglog.client.aio.driver import AsyncConnections
from seglog.client.requests import topics_request

_FOLLOWERS = 101  # httpx has 100 connections by default


def test_many_streams_at_once_leave_a_connection_for_the_next_request() -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await ended.wait()
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, AsyncExitStack() as stack:
            stack.callback(ended.set)
            port = server.sockets[0].getsockname()[1]
            connections = AsyncConnections(address_of(f"http://127.0.0.1:{port}"), None, None, 60.0)
            stack.push_async_callback(connections.close)
            async with asyncio.timeout(30):
                for _ in range(_FOLLOWERS):
                    stream = await stack.enter_async_context(connections.stream(topics_request()))
                    assert stream.answer.status == 200

    asyncio.run(run())
