"""The protocol of a WebSocket: that of uvicorn, with the bounds that hold for each connection of the daemon.

    what a client does                             the daemon then
    sends pings, and takes no pong                 reads no more, until the client takes bytes
    sends a message in millions of frames          keeps their bytes in one buffer
    sends a head that uvicorn's parser refuses     answers 400: more than 128 headers, or one of over 8 KiB
    takes no byte after the close                  aborts the connection after `body_timeout_s`
    sends a message in part, as many others do     closes it with 1013, once all bodies have `max_bodies_bytes`

uvicorn takes a class of protocols (`ws=`), and the calls of asyncio's transport are a public interface. The frames of a
message, the buffer of the parser, the end of a head and the close have none, so this reaches into both packages.
`pyproject.toml` names the versions of uvicorn that are known, and a test has a digest of the code that this uses.

FRAMES-1  What waits for a client has a bound, also what no application sent.
FRAMES-2  A close waits until the client takes the buffered bytes, so an abort follows each close.
FRAMES-3  A head gets an answer. Nothing else would end the connection: no request is under way, and no time limit runs.
FRAMES-4  What came of a message counts as a body does (ROOM-2), until the application takes it. Then an append and an
    ack count for themselves, and the application takes no other message that is long. Without room for more, this
    connection ends: a message cannot be refused before its end, and others keep theirs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from offload.daemon.asgi import HOLD, WRITABLE
from offload.daemon.exchange import status_line
from offload.daemon.problems import error_answer
from offload.errors import Refused


class SocketProtocol(WebSocketsSansIOProtocol):
    held_bytes = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.app_state = {**self.app_state, WRITABLE: self.writable.is_set}
        self._whole_bytes = deque[int]()  # of each message that the application has not taken

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_Closing(transport, self.config.ws_ping_timeout or 0))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.transport.is_lost()  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated and not self.close_sent:  # the head comes whole
            self._refuse_head()
        self._count_held()

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is not None:  # else it came with the head, which `data_received` refuses
            super().handle_parser_exception()

    def handle_cont(self, event: Any) -> None:
        frames: list[Any] = self.frames
        if not isinstance(frames[0], bytearray):  # a list of small frames takes many times their bytes
            frames[0] = bytearray(frames[0])
        frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        size_bytes = sum(map(len, self.frames))
        super().send_receive_event_to_app()
        if not self.close_sent:
            self._whole_bytes.append(size_bytes)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_if_writable()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_if_writable()

    async def receive(self) -> Any:
        message = await super().receive()
        if message["type"] == "websocket.receive":
            self._whole_bytes.popleft()
        self._count_held()
        self._read_if_writable()
        return message

    def _read_if_writable(self) -> None:
        """Read no message for which there may be no room to answer (FRAMES-1)."""
        if self.transport.is_closing():
            return
        if not self.writable.is_set():
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()

    def _count_held(self) -> None:
        """Count what came of messages, and end the connection if there is no room for it (FRAMES-4)."""
        held_bytes = len(self.conn.reader.buffer) + sum(map(len, self.frames)) + sum(self._whole_bytes)
        if held_bytes == self.held_bytes or not self.handshake_initiated or self.close_sent or self.conn.close_rcvd:
            return
        hold = self.scope["state"].get(HOLD)  # none before the guard has seen the head
        if hold is None:
            return
        self.held_bytes = held_bytes
        if not hold(held_bytes):
            self._refuse_more(CloseCode.TRY_AGAIN_LATER, "serve.max_bodies_bytes")

    def _refuse_more(self, code: CloseCode, reason: str) -> None:
        """Close the connection, and drop what still comes: a close before the client's end would take the answer."""
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.frames = []
        while not self.queue.empty():
            self.queue.get_nowait()
            self._whole_bytes.popleft()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def _refuse_head(self) -> None:
        hint = "send at most 128 headers of 8 KiB, and no frame before the answer"
        status, headers, body = error_answer(Refused(400, "websocket", "this is no head of a WebSocket", hint=hint))
        lines = [b"%b: %b\r\n" % header for header in (*headers, (b"connection", b"close"))]
        self.close_sent = True
        self.transport.write(b"".join((status_line(status), *lines, b"\r\n", body)))
        self.transport.close()


class _Closing:
    """A transport whose `close` ends, also if the client takes nothing (FRAMES-2)."""

    def __init__(self, transport: asyncio.Transport, limit_s: float) -> None:
        self._transport = transport
        self._limit_s = limit_s
        self._timer: asyncio.TimerHandle | None = None
        self.write = transport.write
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        self._transport.close()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._transport.abort)

    def is_lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
