"""Test that a connection passes a WebSocket on, and that limits, stop and revocation hold for it as for a request.

A toy that echoes stands behind all layers of the daemon, on a real server. The route has tests of its own (test_ws.py).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.protocol import State
from websockets.server import ServerProtocol

from offload.daemon.asgi import Receive, Scope, Send
from offload.daemon.problems import refuse
from offload.daemon.request_places import become_follower
from offload.daemon.serving import WEBSOCKET_PATH
from offload.errors import Refused
from offload.token_rights import Role, rights_of
from tests.worlds.services import until
from tests.worlds.sockets import SocketWorld, end_of, in_the_loop, refusal

MIB = 1024 * 1024
PLAIN = b"GET /echo HTTP/1.1\r\nHost: localhost\r\n"
KEY = b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(bytes(16)) + b"\r\n"
UPGRADE = KEY + b"Upgrade: websocket\r\n"
ONE = b"\x81\x83\0\0\0\0one"
"""A text message of a client, with an empty mask."""


class Toy(SocketWorld):
    """A server with a toy. `scopes` are the kinds of its requests, `ends` the codes with which WebSockets ended."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.scopes: list[str] = []
        self.ends: list[int] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope["type"])
        if scope["path"] != "/echo" and scope["path"] != "/flood":
            await refuse(Refused(404, "route", "there is no such route"), send)
            return
        rights_of(scope).check(Role.READ, "t")
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
            return
        assert (await receive())["type"] == "websocket.connect"
        become_follower(scope)
        await send({"type": "websocket.accept"})
        while scope["path"] == "/flood":
            await send({"type": "websocket.send", "bytes": bytes(MIB)})
        while (message := await receive())["type"] == "websocket.receive":
            await send({**message, "type": "websocket.send"})
        self.ends.append(message["code"])

    def connected(self, name: str = "stays", path: str = "/echo", **more: Any) -> Any:
        return super().connected(name, path, **more)


@asynccontextmanager
async def echoing(tmp_path: Path, **more: Any) -> AsyncIterator[Toy]:
    toy = Toy(tmp_path)
    async with toy.served(lambda _: toy, is_any_path=True, SERVE_MAX_BODY_BYTES=str(2 * MIB), **more):
        yield toy


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_websocket_echoes_and_its_end_is_told(tmp_path: Path, is_tls: bool) -> None:
    async def run() -> None:
        async with echoing(tmp_path, is_tls=is_tls, SERVE_HEADER_TIMEOUT_S="1") as toy:
            async with toy.connected() as client:
                assert client.response is not None
                assert client.response.headers["seglog-request-id"]
                for message in ("text", b"\0bytes", "", os.urandom(MIB)):
                    await client.send(message)
                    assert await client.recv() == message
                await asyncio.sleep(1.2)  # longer than a head may take
                await client.send("later")
                assert await client.recv() == "later"
                assert len(toy.server.server_state.connections) == 1
            await until(lambda: toy.ends == [1000], "the end reaches the application")
            await until(lambda: not toy.server.server_state.connections, "the connection is gone")
            status, problem = await refusal(toy.connected(path="/nope"))
            assert (status, problem["reason"]) == (404, "route")

    in_the_loop(run())


@pytest.mark.parametrize(
    ("sent", "scopes"),
    [
        (PLAIN + b"\r\n" + PLAIN + UPGRADE + b"\r\n", ["http", "http", "http"]),  # its turn has not come
        (PLAIN.replace(b"GET", b"POST") + UPGRADE + b"Content-Length: 3\r\n\r\none", ["http", "http"]),
        (PLAIN + UPGRADE + b"Content-Length: 3\r\n\r\none", ["http", "http"]),
        (PLAIN + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ["http", "http"]),
        (PLAIN.replace(b"1.1", b"1.0") + UPGRADE + b"\r\n", ["http"]),  # its answer ends the connection
        (PLAIN + KEY + b"Upgrade: h2c\r\n\r\n", ["http", "http"]),
    ],
)
def test_only_a_get_without_a_body_whose_turn_it_is_becomes_a_websocket(
    tmp_path: Path, sent: bytes, scopes: list[str]
) -> None:
    async def run() -> None:
        async with echoing(tmp_path, asks_for_tokens=False) as toy:
            reader, writer = await asyncio.open_connection("127.0.0.1", toy.port)
            writer.write(sent + PLAIN + b"Connection: close\r\n\r\n")
            async with asyncio.timeout(20):
                found = await reader.read()
            writer.close()
            assert toy.scopes == scopes
            assert found.count(b"HTTP/1.1 200 ") == len(scopes)

    in_the_loop(run())


def test_a_connection_that_answered_a_request_becomes_a_websocket(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path, asks_for_tokens=False) as toy:
            reader, writer = await asyncio.open_connection("127.0.0.1", toy.port)
            writer.write(PLAIN + b"\r\n")
            assert await reader.readuntil(b"ok")
            writer.write(PLAIN + UPGRADE + b"\r\n" + ONE)  # the first message comes with the head
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            assert await reader.readexactly(5) == b"\x81\x03one"
            assert toy.scopes == ["http", "websocket"]
            writer.close()

    in_the_loop(run())


def test_the_limits_hold(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path, SERVE_MAX_FOLLOWERS="1") as toy:
            async with toy.connected() as client:
                await client.send("in")
                assert await client.recv() == "in"
                status, problem = await refusal(toy.connected())
                assert (status, problem["title"]) == (429, "Busy")
                await client.send(bytes(2 * MIB + 1))
                assert (await end_of(client))[0] == 1009
            await until(lambda: toy.ends == [1009], "the end reaches the application")
            async with toy.connected() as client:  # the place is free
                await client.send("again")
                assert await client.recv() == "again"

    in_the_loop(run())


def test_a_client_that_takes_no_byte_is_cut_off(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path, SERVE_BODY_TIMEOUT_S="1", SERVE_MAX_FOLLOWERS="1") as toy:
            reader, writer = await asyncio.open_connection("127.0.0.1", toy.port, limit=1)  # so it reads a few KiB
            token = b"Authorization: Bearer secret-of-stays\r\n"
            writer.write(PLAIN.replace(b"/echo", b"/flood") + token + UPGRADE + b"\r\n")
            await until(lambda: toy.rejected("slow"), "the guard ends the request")
            await until(lambda: not toy.server.server_state.connections, "the connection is cut")
            async with toy.connected() as client:
                await client.send("next")
                assert await client.recv() == "next"
            assert not reader.at_eof()  # it has not read what came
            writer.transport.abort()

    in_the_loop(run())


def test_an_orderly_stop_ends_it_with_1012(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path) as toy, toy.connected() as client:
            await client.send("in")
            assert await client.recv() == "in"
            toy.service.stopping.set()
            status, problem = await refusal(toy.connected())
            assert (status, problem["title"]) == (503, "Stopping")
            toy.server.end()
            assert (await end_of(client))[0] == 1012
            await until(lambda: toy.ends == [1012], "the end reaches the application")

    in_the_loop(run())


def test_the_end_of_its_token_ends_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path) as toy, toy.connected("gone") as gone, toy.connected("stays") as stays:
            for client in (gone, stays):
                await client.send("in")
                assert await client.recv() == "in"
            toy.reload("stays")
            assert await end_of(gone) == (1008, "revoked")
            status, problem = await refusal(toy.connected("gone"))
            assert (status, problem["reason"]) == (401, "token")
            status, problem = await refusal(toy.connected("stays", origin="https://elsewhere.example"))
            assert (status, problem["reason"]) == (403, "origin")
            await stays.send("still")
            assert await stays.recv() == "still"

    in_the_loop(run())


@pytest.mark.parametrize(
    "more",
    [
        b"Cookie: " + b"c" * 9000 + b"\r\n\r\n",
        b"".join(b"X-%d: x\r\n" % number for number in range(130)) + b"\r\n",
        b"\r\n" + b"\xff" * 8,  # a frame that is none comes with the head
    ],
)
def test_a_head_that_the_parser_of_websockets_does_not_take_gets_400(tmp_path: Path, more: bytes) -> None:
    async def run() -> None:
        async with echoing(tmp_path, asks_for_tokens=False, SERVE_STOP_TIMEOUT_S="1") as toy:
            reader, writer = await asyncio.open_connection("127.0.0.1", toy.port)
            writer.write(PLAIN + UPGRADE + more)
            try:
                async with asyncio.timeout(5):
                    found = await reader.read()
            finally:
                writer.transport.abort()
            head, _, body = found.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 400 ")
            assert json.loads(body)["reason"] == "websocket"
            await until(lambda: not toy.server.server_state.connections, "the connection is gone")

    in_the_loop(run())


def _frame(kind: int, data: bytes) -> bytes:
    assert len(data) < 126
    return bytes([kind, 0x80 | len(data)]) + bytes(4) + data


def test_a_client_that_sends_pings_and_takes_no_pong_is_not_read(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path, asks_for_tokens=False) as toy:
            _, writer = await asyncio.open_connection("127.0.0.1", toy.port, limit=1)
            writer.write(PLAIN + UPGRADE + b"\r\n")
            pings = _frame(0x89, b"p" * 125) * 8000
            with suppress(TimeoutError):
                async with asyncio.timeout(20):
                    for _ in range(32):  # 34 MB; the system holds some
                        writer.write(pings)
                        async with asyncio.timeout(2):
                            await writer.drain()
            (protocol,) = toy.server.server_state.connections
            assert protocol.transport.get_write_buffer_size() < MIB
            assert not protocol.writable.is_set()
            writer.transport.abort()
            await until(lambda: not toy.server.server_state.connections, "the connection is gone")

    in_the_loop(run())


def test_a_client_whose_messages_wait_until_it_takes_bytes_loses_none(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path) as toy, toy.connected(max_queue=1) as client:
            sent = [bytes([number]) * MIB for number in range(24)]
            sending = asyncio.gather(*map(client.send, sent))
            await asyncio.sleep(0.5)  # the echoes fill all that is between
            assert [await client.recv() for _ in sent] == sent
            await sending

    in_the_loop(run())


def test_a_message_in_many_frames_is_one_buffer(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path, asks_for_tokens=False) as toy:
            reader, writer = await asyncio.open_connection("127.0.0.1", toy.port)
            writer.write(
                PLAIN + UPGRADE + b"\r\n" + _frame(0x01, b"b") + (_frame(0x00, b"") + _frame(0x00, b"o")) * 1000
            )
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            (protocol,) = toy.server.server_state.connections
            await until(lambda: protocol.frames and len(protocol.frames[0]) == 1001, "all frames came")
            assert len(protocol.frames) == 1
            writer.write(_frame(0x80, b"m") + ONE)
            assert (
                await reader.readexactly(4 + 1002 + 5)
                == b"\x81\x7e\x03\xea" + b"b" + b"o" * 1000 + b"m" + b"\x81\x03one"
            )
            writer.close()

    in_the_loop(run())


@pytest.mark.parametrize("frame_bytes", [2 * MIB, 64 * 1024])
def test_messages_that_came_in_part_count_as_bodies(tmp_path: Path, frame_bytes: int) -> None:
    message = b"x" * (3 * MIB // 2)
    half_bytes = 700 * 1024

    def framed() -> bytes:
        pieces = [message[at : at + frame_bytes] for at in range(0, len(message), frame_bytes)]
        kinds = [(0x01 if not at else 0) | (0x80 if at == len(pieces) - 1 else 0) for at in range(len(pieces))]
        return b"".join(
            bytes((kind, 0xFF)) + len(piece).to_bytes(8, "big") + bytes(4) + piece
            for kind, piece in zip(kinds, pieces, strict=True)
        )

    async def run() -> None:
        async with echoing(tmp_path, asks_for_tokens=False, SERVE_MAX_BODIES_BYTES=str(MIB)) as toy:
            text, talks = framed(), []

            async def half() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                reader, writer = await asyncio.open_connection("127.0.0.1", toy.port, limit=2 * len(text))
                talks.append((reader, writer))
                writer.write(PLAIN + UPGRADE + b"\r\n")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
                writer.write(text[:half_bytes])
                await writer.drain()
                return reader, writer

            async def finished(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
                writer.write(text[half_bytes:])
                await reader.readexactly(10)
                return await reader.readexactly(len(message))

            def held() -> int:
                return sum(protocol.held_bytes for protocol in toy.server.server_state.connections)

            first, second = await half(), await half()
            await until(lambda: held() > 2 * half_bytes - 1000, "both halves came")
            for _ in range(3):
                reader, _ = await half()
                async with asyncio.timeout(10):
                    assert await reader.read() == b"\x88\x18" + (1013).to_bytes(2, "big") + b"serve.max_bodies_bytes"
                assert toy.rejected("busy")
            for _, writer in (*talks[2:], first):
                writer.close()
            # A connection is gone before its application ends, which gives the room back.
            await until(lambda: len(toy.ends) == len(talks) - 1, "the others have ended")
            await until(lambda: len(toy.server.server_state.connections) == 1, "the others have gone")
            assert await finished(*second) == message, "one message may have more than all together"
            for _ in range(3):  # the room is free again, also that of a message that was taken
                third = await half()
                assert await finished(*third) == message
                assert held() == 0
            for _, writer in talks:
                writer.transport.abort()
            await asyncio.gather(*(writer.wait_closed() for _, writer in talks), return_exceptions=True)

    in_the_loop(run())


def test_a_close_that_comes_with_the_end_of_a_message_ends_it_without_room(tmp_path: Path) -> None:
    faults: list[object] = []

    async def opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(PLAIN + UPGRADE + b"\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        return reader, writer

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        async with echoing(tmp_path, asks_for_tokens=False, SERVE_MAX_BODIES_BYTES=str(MIB)) as toy:

            def held() -> int:
                return sum(protocol.held_bytes for protocol in toy.server.server_state.connections)

            _, other = await opened(toy.port)
            other.write(b"\x81\xff" + (2 * MIB).to_bytes(8, "big") + bytes(4) + b"x" * (5 * MIB // 4))
            await until(lambda: held() > MIB, "no room is left")  # but for short messages
            before, (reader, writer) = held(), await opened(toy.port)
            writer.write(b"\x81\xff" + (270 * 1024).to_bytes(8, "big") + bytes(4) + b"x" * (250 * 1024))
            await until(lambda: held() > before + 249 * 1024, "a part came")
            writer.write(b"x" * (20 * 1024) + b"\x88\x82" + bytes(4) + (1000).to_bytes(2, "big"))
            async with asyncio.timeout(10):
                assert (await reader.read())[-4:] == b"\x88\x02" + (1000).to_bytes(2, "big")
            for each in (writer, other):
                each.transport.abort()
        assert faults == []

    in_the_loop(run())


def test_a_close_ends_although_the_client_takes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with echoing(tmp_path, asks_for_tokens=False, SERVE_BODY_TIMEOUT_S="1", SERVE_STOP_TIMEOUT_S="1") as toy:
            _, writer = await asyncio.open_connection("127.0.0.1", toy.port, limit=1)
            writer.write(PLAIN + UPGRADE + b"\r\n")
            await until(lambda: toy.scopes == ["websocket"], "the server has taken it")
            (protocol,) = toy.server.server_state.connections
            protocol.transport.write(bytes(32 * MIB))  # so much that no system holds it
            protocol.keepalive_timeout()
            try:
                await until(lambda: not toy.server.server_state.connections, "the connection is cut")
            finally:
                writer.transport.abort()
            await until(lambda: toy.ends == [1005], "the end reaches the application")

    in_the_loop(run())


@pytest.mark.parametrize(
    ("path", "is_socket"),
    [
        (b"/ws", True),
        (b"/tenants/acme/ws", True),
        (b"/ws/", False),
        (b"/streams/ws", False),
        (b"/tenants/ws", False),
        (b"/tenants/a/b/ws", False),
        (b"/topics/ws/records", False),
    ],
)
def test_the_daemon_takes_a_websocket_at_one_path(path: bytes, is_socket: bool) -> None:
    assert bool(WEBSOCKET_PATH.fullmatch(path)) is is_socket


#: What SocketProtocol overrides, calls, or relies on.
_OF_UVICORN = (
    "__init__", "connection_made", "connection_lost", "pause_writing", "resume_writing", "data_received",
    "handle_events", "handle_connect", "handle_cont", "handle_text", "handle_bytes", "send_receive_event_to_app",
    "handle_close", "handle_parser_exception", "keepalive_timeout", "shutdown", "run_asgi", "send", "receive",
)  # fmt: skip


def test_the_code_of_uvicorn_that_the_protocol_uses_is_known() -> None:
    """If this fails, read what changed, mend `SocketProtocol` and the bound in pyproject.toml, and note the digest."""
    sources = [inspect.getsource(getattr(WebSocketsSansIOProtocol, name)) for name in _OF_UVICORN]
    digest = hashlib.sha256("".join(sources).encode()).hexdigest()
    assert digest == "f566a13616a86e05d48b1b09312434922422be9496cf742ea9eb6475039aaa82"


def test_the_parser_of_websockets_keeps_the_bytes_of_a_frame_that_is_not_whole() -> None:
    conn = ServerProtocol(state=State.OPEN)
    conn.receive_data(b"\x81\x85\0\0\0\0one")
    assert (len(conn.reader.buffer), conn.events_received()) == (3, [])
    conn.receive_data(b"ly")
    assert (len(conn.reader.buffer), len(conn.events_received())) == (0, 1)
    conn.fail(CloseCode.TRY_AGAIN_LATER, "no room")
    assert conn.close_sent is not None
    assert conn.close_sent.code == 1013
    assert conn.data_to_send()[0] == b"\x88\x09\x03\xf5no room"
    conn.receive_data(b"\x81\x85\0\0\0\0" * 1000)
    assert (len(conn.reader.buffer), conn.parser_exc) == (0, None)


def test_elsewhere_an_upgrade_is_ignored(tmp_path: Path) -> None:
    async def run() -> None:
        toy = Toy(tmp_path)
        async with toy.served(lambda _: toy, asks_for_tokens=False):
            reader, writer = await asyncio.open_connection("127.0.0.1", toy.port)
            writer.write(PLAIN + UPGRADE + b"\r\n" + PLAIN + b"Connection: close\r\n\r\n")
            async with asyncio.timeout(20):
                found = await reader.read()
            writer.close()
            assert toy.scopes == ["http", "http"]
            assert found.count(b"HTTP/1.1 200 ") == 2

    in_the_loop(run())
