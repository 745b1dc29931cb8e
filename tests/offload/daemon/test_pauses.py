"""A daemon that stood still takes what came meanwhile for what it is: in time. And a TLS handshake has a limit."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from offload.daemon.listeners import Kind, Listener
from offload.daemon.metrics import Metrics
from offload.daemon.request_limits import Guard
from offload.daemon.server import event_loop
from offload.daemon.serving import serve_unix
from offload.daemon.stopping import StopEvent
from offload.settings import ServeSettings
from tests.certificates import certificate

_LIMIT_S = 1
_PAUSE_S = 1.3
_HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
_LARGE, _PIECE = bytes(16 * 1024 * 1024), 64 * 1024


async def _answer(_scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body, or with 16 MiB in small pieces."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    text = _LARGE if body == b"more" else body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    for at in range(0, len(text), _PIECE):
        await send({"type": "http.response.body", "body": text[at : at + _PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def _serving(settings: ServeSettings, *, is_tls: bool = False) -> AsyncIterator[Callable[[], socket.socket]]:
    """Serve in this loop. Yield a function that connects to it."""
    guard = Guard(_answer, lambda: settings, Metrics())
    with socket.create_server(("127.0.0.1", 0)) as opened:
        listener = Listener(Kind.TCP, opened, "here", is_tls)
        end, served = serve_unix(guard.over_unix, listener, settings, StopEvent())
        try:
            yield lambda: socket.create_connection(opened.getsockname(), timeout=60)
        finally:
            end()
            await served


async def _received(client: socket.socket, size: int) -> bytes:
    """Return that many bytes, or fewer if the connection ends before."""
    client.setblocking(False)
    found, loop = b"", asyncio.get_running_loop()
    while len(found) < size and (data := await loop.sock_recv(client, size - len(found))):
        found += data
    return found


async def _answered(client: socket.socket, body: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert await _received(client, len(head) + len(body)) == head + body


def _stand_still() -> None:
    """Let no callback run for longer than the limits, as a stopped machine does. The kernel still takes bytes."""
    time.sleep(_PAUSE_S)


def _run(scenario: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=event_loop().make) as runner:
        runner.run(scenario())


def test_a_request_that_came_during_a_pause_is_answered_on_a_kept_connection() -> None:
    async def scenario() -> None:
        async with _serving(ServeSettings(header_timeout_s=_LIMIT_S)) as connect:
            with closing(connect()) as client, closing(connect()) as half:
                for each in (client, half):
                    each.sendall(_HEAD + b"here")
                    await _answered(each, b"here")
                # Both timers are over when the loop wakes, and it reads nothing between them.
                asyncio.get_running_loop().call_later(_LIMIT_S / 2, client.send, _HEAD + b"late")
                half.send(_HEAD[:20])
                _stand_still()
                await _answered(client, b"late")
                assert await _received(half, 1) == b"", "a head that is not whole is late"

    _run(scenario)


def test_a_body_that_came_during_a_pause_is_in_time() -> None:
    async def scenario() -> None:
        async with _serving(ServeSettings(body_timeout_s=_LIMIT_S)) as connect:
            with closing(connect()) as client, closing(connect()) as slow:
                for each in (client, slow):
                    each.sendall(_HEAD + b"la")
                await asyncio.sleep(0.2)  # the daemon waits for the rest
                client.sendall(b"te")
                _stand_still()
                await _answered(client, b"late")
                assert b" 408 " in await _received(slow, 20)

    _run(scenario)


def test_a_reader_that_took_its_bytes_during_a_pause_gets_the_rest() -> None:
    async def scenario() -> None:
        async with _serving(ServeSettings(body_timeout_s=_LIMIT_S)) as connect:
            with closing(connect()) as client, closing(connect()) as slow:
                for each in (client, slow):
                    each.sendall(_HEAD + b"more")
                await asyncio.sleep(0.2)  # the daemon waits until somebody takes the answer
                client.setblocking(False)
                taken = b""
                for _ in range(1_000):
                    try:
                        taken += client.recv(64 * 1024)
                    except BlockingIOError:
                        break
                _stand_still()
                head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(_LARGE)
                rest = await _received(client, len(head) + len(_LARGE) - len(taken))
                assert len(taken) + len(rest) == len(head) + len(_LARGE)

    _run(scenario)


def test_a_client_that_begins_no_tls_handshake_is_gone_after_the_time_for_a_head(tmp_path: Path) -> None:
    """Without a limit of its own, the loop holds it for 60 s."""
    path, key = certificate(tmp_path)
    settings = ServeSettings(header_timeout_s=_LIMIT_S, tls_certificate=str(path), tls_key=str(key))

    async def scenario() -> None:
        async with _serving(settings, is_tls=True) as connect:
            with closing(connect()) as client:
                async with asyncio.timeout(30):
                    assert await _received(client, 1) == b""

    _run(scenario)
