"""An application that fails: the client gets 500, or the end of a connection, and never a part that looks whole.

A client that takes nothing stops an answer, and a short one goes out in one write.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from offload.daemon.connection import Connection, Limits
from offload.daemon.exchange import Exchange

_START = {"type": "http.response.start", "status": 200, "headers": []}
_LENGTH = {**_START, "headers": [(b"content-length", b"10")]}
_PART = {"type": "http.response.body", "body": b"a part", "more_body": True}


async def _raises(scope: Any, receive: Any, send: Any) -> None:
    raise OSError("the disk is gone")


async def _says_nothing(scope: Any, receive: Any, send: Any) -> None:
    pass


async def _raises_later(scope: Any, receive: Any, send: Any) -> None:
    await send(_START)
    await send(_PART)
    raise OSError("the disk is gone")


async def _ends_in_the_middle(scope: Any, receive: Any, send: Any) -> None:
    await send(_START)
    await send(_PART)


async def _sends_less_than_its_length(scope: Any, receive: Any, send: Any) -> None:
    await send(_LENGTH)
    await send({**_PART, "more_body": False})


async def _sends_two_heads(scope: Any, receive: Any, send: Any) -> None:
    await send(_START)
    await send(_START)


async def _answer(app: Any) -> bytes:
    """Return all that a client gets for one request, up to the end of the connection."""
    limits = Limits(5, 5, lambda: False)
    connections: set[Any] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Connection(app, limits, connections, set(), scheme="http"), host="127.0.0.1", port=0
    )
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert not connections
    return answer


@pytest.mark.parametrize("app", [_raises, _says_nothing])
def test_an_application_that_fails_before_its_answer_is_500(app: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "seglog.daemon"):
        head, _, body = asyncio.run(_answer(app)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"connection: close" in head
    assert body == b"Internal Server Error"
    assert len(caplog.records) == 1


@pytest.mark.parametrize("app", [_raises_later, _ends_in_the_middle, _sends_two_heads])
def test_an_answer_that_breaks_off_has_no_end(app: Any) -> None:
    head, _, body = asyncio.run(_answer(app)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"transfer-encoding: chunked" in head
    assert not body.endswith(b"0\r\n\r\n")


def test_an_answer_that_is_shorter_than_its_length_ends_the_connection() -> None:
    head, _, body = asyncio.run(_answer(_sends_less_than_its_length)).partition(b"\r\n\r\n")
    assert b"content-length: 10" in head
    assert body == b"a part"


class _Carrier:
    """A connection whose transport is itself, and pauses its writer at each `write` of more than a few bytes, and at
    no `writelines`, as that of Python 3.12.0 does."""

    def __init__(self) -> None:
        self.transport: Any = self
        self.writable = asyncio.Event()
        self.writable.set()
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)
        if len(data) > 100_000:
            self.writable.clear()

    def writelines(self, pieces: Any) -> None:
        self.written.extend(pieces)

    def resume_reading(self) -> None: ...
    def answered(self) -> None: ...


def test_a_long_answer_waits_for_a_client_that_takes_nothing() -> None:
    async def work() -> None:
        carrier = _Carrier()
        exchange = Exchange(carrier, {"method": "GET", "http_version": "1.1"}, keep_alive=True, expects_continue=False)
        await exchange.send({**_START, "headers": [(b"content-length", b"400000")]})
        await exchange.send({**_PART, "body": bytes(200_000)})
        assert [len(each) for each in carrier.written[1:]] == [200_000]
        assert carrier.written[0].startswith(b"HTTP/1.1 200 OK\r\n")
        assert not exchange.is_writable
        rest = asyncio.create_task(exchange.send({**_PART, "body": bytes(200_000), "more_body": False}))
        await asyncio.sleep(0.01)
        assert len(carrier.written) == 2
        carrier.writable.set()
        await rest
        assert len(carrier.written) == 3

    asyncio.run(work())


def test_a_short_answer_goes_out_with_its_head_in_one_write() -> None:
    async def work() -> None:
        carrier = _Carrier()
        exchange = Exchange(carrier, {"method": "GET", "http_version": "1.1"}, keep_alive=True, expects_continue=False)
        await exchange.send(_LENGTH)
        await exchange.send({**_PART, "body": b"0123456789", "more_body": False})
        [written] = carrier.written
        assert written.endswith(b"\r\n\r\n0123456789")

    asyncio.run(work())
