"""One request and its answer on a connection, as ASGI has them. The base class receives. This class sends.

an answer                          on the wire
with a length                      its head and the first piece of its body in one write
without a length                   its head at once, and then chunks
to HTTP/1.0, without a length      its head, its body, and the end of the connection
to HEAD, or 204 or 304             its head alone
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

__all__ = ["Exchange"]

_NO_BODY = frozenset({204, 304})


class Exchange(RequestResponseCycle):
    _head = b""
    _left_bytes: int | None = None  # of the length that the head says
    _has_body = True

    @property
    def has_news(self) -> bool:
        """Return whether `receive` returns at once."""
        return self.message_event.is_set() or self.disconnected or self.response_complete

    @property
    def is_writable(self) -> bool:
        """Return whether `send` returns at once."""
        return not self.flow.write_paused

    async def send(self, message: Any) -> None:
        """Send the start of the answer, or a piece of its body. Wait while the client takes nothing."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if self.response_complete:
            raise RuntimeError(f"{message['type']} after the end of an answer")
        is_start = message["type"] == "http.response.start"
        if is_start is self.response_started:
            raise RuntimeError(f"{message['type']} at the wrong place of an answer")
        if is_start:
            self._start(message["status"], message.get("headers", ()))
        else:
            self._send_body(message.get("body", b""), is_last=not message.get("more_body", False))

    def _start(self, status: int, headers: Any) -> None:
        self.response_started, self.waiting_for_100_continue = True, False
        lines = [STATUS_LINE[status]]
        length, says_close = None, False
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive, says_close = False, True
            lines.append(b"%b: %b\r\n" % (name, value))
        self._has_body = self.scope["method"] != "HEAD" and status not in _NO_BODY
        self._left_bytes = length
        self.chunked_encoding = length is None and self._has_body and self.scope["http_version"] == "1.1"
        if self.chunked_encoding:
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
            if self.chunked_encoding:
                body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if is_last else b"")
            elif self._left_bytes is not None:
                self._left_bytes -= len(body)
            self._write(body)
        if not is_last:
            return
        if self._has_body and self._left_bytes:
            raise RuntimeError("the body of an answer has another length than its head says")
        self.response_complete = True
        self.message_event.set()
        self.on_response()  # the connection knows how it ends

    def _write(self, body: bytes) -> None:
        head, self._head = self._head, b""
        if head or body:
            self.transport.write(head + body)
