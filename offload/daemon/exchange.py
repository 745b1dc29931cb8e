"""One request of a connection and its answer, as ASGI has them.

    an answer                          on the wire
    with a length                      its head and the first piece of its body, in one write if that piece is short
    without a length                   its head at once, and then chunks
    to HTTP/1.0, without a length      its head, its body, and the end of the connection
    to HEAD, or 204 or 304             its head alone

If the application fails before its answer begins, the client gets 500. If it fails later, or ends in the middle, the
connection closes, so that nobody takes a part of an answer for the whole.
"""

from __future__ import annotations

import asyncio
import functools
import http
import logging
from typing import Any, Protocol

from offload.daemon.asgi import App, Message, Scope

_NO_BODY = frozenset({204, 304})
_PHRASES = {each.value: each.phrase for each in http.HTTPStatus}
_FAILED = b"Internal Server Error"
_LONG_BYTES = 64 * 1024
_log = logging.getLogger("seglog.daemon")


@functools.cache
def status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n".encode()


class Carrier(Protocol):
    """What an exchange needs of its connection."""

    transport: asyncio.Transport
    writable: asyncio.Event  # not set while the client takes nothing

    def resume_reading(self) -> None: ...
    def answered(self) -> None:
        """Go on after an answer that is whole."""


class Exchange:
    """`body` are the bytes that came and that the application has not received. `more_body` says that more come."""

    def __init__(self, carrier: Carrier, scope: Scope, *, keep_alive: bool, expects_continue: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.body = bytearray()
        self.more_body = True
        self.is_disconnected = False
        self.has_begun = False  # its answer
        self.is_complete = False
        self._carrier = carrier
        self._transport = carrier.transport
        self._expects_continue = expects_continue
        self._news = asyncio.Event()
        self._head = b""
        self._left_bytes: int | None = None  # of the length that the head says
        self._has_body = True
        self._is_chunked = False

    @property
    def has_news(self) -> bool:
        """Return whether `receive` returns at once."""
        return self._news.is_set() or self.is_disconnected or self.is_complete

    @property
    def is_writable(self) -> bool:
        """Return whether `send` returns at once."""
        return self._carrier.writable.is_set()

    def drain(self) -> Any:
        """Wait until the client takes bytes again."""
        return self._carrier.writable.wait()

    def wake(self) -> None:
        """Let `receive` return: bytes came, the body ended, or the client is gone."""
        self._news.set()

    async def run(self, app: App) -> None:
        """Let the application answer. What it raises ends in the log, and in 500 if the client has no answer yet."""
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:
            _log.error("an application failed", exc_info=error)
        else:
            if self.is_complete or self.is_disconnected:
                return
            if not self.has_begun:
                _log.error("an application ended without an answer")
        if self.has_begun:  # it has logged why its answer has no end
            self._transport.close()
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(_FAILED))]
            start = {"type": "http.response.start", "status": 500, "headers": [*headers, (b"connection", b"close")]}
            await self.send(start)
            await self.send({"type": "http.response.body", "body": _FAILED})

    async def receive(self) -> Message:
        """Return the bytes of the body that came, or the end of the client."""
        if self._expects_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._expects_continue = False
        if not self.is_disconnected and not self.is_complete:
            self._carrier.resume_reading()
            await self._news.wait()
            self._news.clear()
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Any) -> None:
        """Send the start of the answer, or a piece of its body. Wait while the client takes nothing."""
        if not self.is_writable and not self.is_disconnected:
            await self.drain()
        if self.is_disconnected:
            return
        if self.is_complete:
            raise RuntimeError(f"{message['type']} after the end of an answer")
        is_start = message["type"] == "http.response.start"
        if is_start is self.has_begun:
            raise RuntimeError(f"{message['type']} at the wrong place of an answer")
        if is_start:
            self._start(message["status"], message.get("headers", ()))
        else:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))

    def _start(self, status: int, headers: Any) -> None:
        self.has_begun, self._expects_continue = True, False
        lines = [status_line(status)]
        length, says_close = None, False
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive, says_close = False, True
            lines.append(b"%b: %b\r\n" % (name, value))
        self._has_body = self.scope["method"] != "HEAD" and status not in _NO_BODY
        self._left_bytes = length
        self._is_chunked = length is None and self._has_body and self.scope["http_version"] == "1.1"
        if self._is_chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        elif length is None and self._has_body:
            self.keep_alive = False
        if not self.keep_alive and not says_close:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if not len(lines) == head.count(b"\n") == head.count(b"\r") or b"\0" in head:
            raise RuntimeError("a header of an answer has a line end or a NUL")
        self._head = head + b"\r\n"
        if length is None or not self._has_body:
            self._write(b"")

    def _send_body(self, body: bytes, *, is_last: bool) -> None:
        if self._has_body:
            if self._is_chunked:
                body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if is_last else b"")
            elif self._left_bytes is not None:
                self._left_bytes -= len(body)
            self._write(body)
        if not is_last:
            return
        if self._has_body and self._left_bytes:
            raise RuntimeError("the body of an answer has another length than its head says")
        self.is_complete = True
        self._news.set()
        self._carrier.answered()  # the connection knows how it ends

    def _write(self, body: bytes) -> None:
        head, self._head = self._head, b""
        if len(body) > _LONG_BYTES:  # a copy costs more than a second write, and some `writelines` pause no writer
            if head:
                self._transport.write(head)
            self._transport.write(body)
        elif head or body:
            self._transport.write(head + body)
