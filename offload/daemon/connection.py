"""A connection of a client: HTTP/1.1 with time limits, and with an end that loses no request.

    limit                 starts                      the daemon then
    header_timeout_s      at the connection, and      closes the connection
                          after each answer
    body_timeout_s        when the client takes no    aborts the connection, a second after the guard ended the request
                          byte of its answer
    64 KiB                a head begins               answers 431
    64 KiB                a trailer, or the line of   answers 400
                          a chunk begins

    an answer                          on the wire
    with a length                      its head and the first piece of its body in one write
    without a length                   its head at once, and then chunks
    to HTTP/1.0, without a length      its head, its body, and the end of the connection
    to HEAD, or 204 or 304             its head alone

A close waits until the client takes the buffered bytes, so an abort follows each close. If a body breaks off, but the
connection can still carry an answer, the guard gets to know (`BROKEN`). So the answer of an append says which records
are in.

The daemon D refuses a request of a client C before the body is whole, or bytes that are not HTTP:

    1  D sends the answer, which says `Connection: close`.
    2  D ends its direction of the connection. TLS has no such end, so there D leaves this step out.
    3  C still sends. D reads the bytes and drops them.
    4  C reads the answer, and closes the connection. D does the same.
    5  If C does not close, D closes 5 s after the last byte, after 30 s, or after 256 MiB.

CONNECTION-1  When the daemon stops, an idle connection stays open until no byte came for half a second and none waits.
    So the daemon answers a request that the client sent before it saw the end.
CONNECTION-2  Answers keep the order of their requests. If bytes are not HTTP, each request before them gets its answer,
    and then the client gets 400 with the cause.
CONNECTION-3  The daemon and a proxy in front never differ about where a request ends. Of `Transfer-Encoding`, the
    daemon takes `chunked` alone, and only of HTTP/1.1. It ignores trailers and `Upgrade`. It wants one `Host`, and
    takes one `Authorization`. The host of a target in absolute form stands for `Host` (RFC 9112, 3.2.2). The parser
    refuses the other doubtful forms (tests/offload/daemon/test_connection.py).
CONNECTION-4  A client that still sends gets its answer before the end (LINGER-1).
CONNECTION-5  A timer that is over waits until the loop has read the sockets once more (PACE-1).
LINGER-1  If D closed after step 1, C's next bytes would meet a reset. The system of C then drops the answer before C
    reads it (RFC 9112, section 9.6).
LINGER-2  A connection that lingers has no place (offload.daemon.places), and D keeps none of its bytes.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import re
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from offload.daemon.asgi import BROKEN, EXCHANGE
from offload.daemon.pacing import READ_AGAIN_S
from offload.daemon.problems import error_answer
from offload.errors import Refused

__all__ = ["Connection", "Lingering"]

_NO_BODY = frozenset({204, 304})
_LINGER_SILENT_S = 5
_LINGER_LONGEST_S = 30
_LINGER_BYTES = 256 * 1024 * 1024
_ABORT_AFTER_S = 1
_QUIET_S = 0.5
_HEAD_BYTES = 64 * 1024
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)((?:[/?][^#]*)?)", re.IGNORECASE)
_log = logging.getLogger("seglog.daemon")


class _Exchange(RequestResponseCycle):
    """One request and its answer, as ASGI has them. The base class receives. This class sends."""

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


@dataclass(slots=True)
class Lingering:
    """One connection that lingers since `start_s`. Its last byte came at `came_s`."""

    start_s: float
    came_s: float
    dropped_bytes: int = 0

    def drop(self, size_bytes: int, now_s: float) -> None:
        self.came_s = now_s
        self.dropped_bytes += size_bytes

    def left_s(self, now_s: float) -> float:
        """Return the time until the connection closes; at most 0 if it closes now."""
        if self.dropped_bytes >= _LINGER_BYTES:
            return 0
        return min(self.came_s + _LINGER_SILENT_S, self.start_s + _LINGER_LONGEST_S) - now_s


class Connection(HttpToolsProtocol):
    """The limits and `is_stopping` are attributes of a subclass, one for each listener."""

    header_timeout_s: float
    reader_timeout_s: float
    is_stopping: Callable[[], bool]
    _exchange: _Exchange | None = None  # the one whose answer is next, or the last one
    _reader_timer: asyncio.TimerHandle | None = None
    _header_timer: asyncio.TimerHandle | None = None
    _lingering: Lingering | None = None
    _linger_timer: asyncio.TimerHandle | None = None
    _waits_since: float | None = 0.0  # None while a request is at work
    _is_late = False  # with its next head; the loop reads once more
    _came_at: float = 0.0
    _unparsed_bytes = 0  # since the parser got further
    _is_in_head = False
    _is_in_message = False
    _refusal: Refused | None = None  # of bytes that are not HTTP
    _is_half_closed = False  # by the client
    _is_ending = False

    # ------------------------------------------------------------ the transport

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._came_at = self.loop.time()
        self._wait_for_headers()
        if self.is_stopping():
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        for exchange in (self._exchange, *(each for each, _ in self.pipeline)):
            if exchange is not None and not exchange.response_complete:
                exchange.disconnected = True
                exchange.message_event.set()
        self.pipeline.clear()
        for timer in (self._header_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._came_at = self.loop.time()
        if self._lingering is not None:
            self._lingering.drop(len(data), self._came_at)
            self._close_if_lingered()
        if self._lingering is not None or self._refusal is not None:
            return
        self._unparsed_bytes += len(data)
        try:
            while data:
                data = self._parse(data)
        except httptools.HttpParserError as error:
            cause = error.__context__ or error
            self._refuse(cause if isinstance(cause, Refused) else _not_http(str(cause)))
        else:
            if self._is_in_message and self._unparsed_bytes > _HEAD_BYTES:
                self._refuse(_head_too_large() if self._is_in_head else _not_http("a line of a chunk is too long"))

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Keep the connection open for the answer to a body that broke off."""
        self._is_half_closed = True
        return self._breaks_off()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        super().resume_writing()

    # ------------------------------------------------------------ the parser

    def _parse(self, data: bytes) -> bytes:
        """Parse bytes. Return those that are left to parse.

        The parser takes all behind a head with `Upgrade` for another protocol. So that head comes again without it.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
            lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            return b"\r\n".join((*lines, b"", data[upgrade.args[0] :]))
        return b""

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._is_in_head = self._is_in_message = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # else it is a trailer
            self.headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        """Begin the exchange of a request, or put it behind those under way. An error is answered 400 or 431."""
        self._is_in_head, self._unparsed_bytes = False, 0
        method, version = self.parser.get_method().decode("ascii"), self.parser.get_http_version()
        self._check_head(method, version)
        if self.parser.should_upgrade():
            return  # `_parse` makes the head come again
        raw_path, _, query = self._origin_form().partition(b"?")
        path = raw_path.decode("ascii")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": self.headers,
            "method": method,
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
        }
        exchange = _Exchange(
            scope=scope,  # type: ignore[arg-type]
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        scope[EXCHANGE] = exchange
        self._waits_since = None
        self.cycle = exchange
        if self._exchange is None or self._exchange.response_complete:
            self._begin(exchange)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))

    def _origin_form(self) -> bytes:
        """Return the path and the query of the target. Raise `ValueError` for an absolute form without a plain host."""
        if self.url[:1] in {b"/", b"*"}:
            return self.url
        absolute = _ABSOLUTE.fullmatch(self.url)
        if absolute is None:
            raise ValueError("the target is neither a path nor a URL of HTTP")
        host, target = absolute.groups()
        self.headers = [header for header in self.headers if header[0] != b"host"] + [(b"host", host)]
        return target if target.startswith(b"/") else b"/" + target

    def _check_head(self, method: str, version: str) -> None:
        """Raise `ValueError`, or `Refused`, for a head that the parser takes and the daemon does not (CONNECTION-3)."""
        hosts = tokens = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"authorization":
                tokens += 1
            elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version != "1.1"):
                raise ValueError("the daemon takes no Transfer-Encoding but chunked")
            elif name == b"expect" and version == "1.1":
                self.expect_100_continue = value.lower() == b"100-continue"
        if version not in {"1.0", "1.1"} or method == "CONNECT":
            raise ValueError("the daemon takes HTTP/1.0 and HTTP/1.1, and no CONNECT")
        if hosts != 1 and (hosts or version == "1.1"):
            raise ValueError("the head has no Host, or several")
        if tokens > 1:
            raise ValueError("the head has several Authorization")
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > _HEAD_BYTES:
            raise _head_too_large()
        if not self.url.isascii():
            raise ValueError("the path and the query are ASCII: write other characters with percent signs")

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_message, self._unparsed_bytes = False, 0
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _refuse(self, refusal: Refused) -> None:
        """Answer bytes that are not HTTP, after the requests before them (CONNECTION-2)."""
        self._refusal = refusal
        if self._breaks_off():
            return  # the request that they break has an answer of its own
        _log.info("a client sent bytes that are not HTTP: %s", refusal)
        if self._is_idle:
            self._answer_refusal(refusal)
        else:
            self.flow.pause_reading()

    def _answer_refusal(self, refusal: Refused) -> None:
        status, headers, body = error_answer(refusal)
        lines = [b"%b: %b\r\n" % header for header in (*headers, (b"connection", b"close"))]
        self.transport.write(b"".join((STATUS_LINE[status], *lines, b"\r\n", body)))
        self._end()

    def _breaks_off(self) -> bool:
        """Return whether a request waits for the rest of its body. If so, its body ends here."""
        exchange = self.cycle
        if exchange is None or exchange.response_started or not (exchange.more_body or BROKEN in exchange.scope):
            return False
        exchange.scope[BROKEN] = True  # type: ignore[literal-required]
        exchange.more_body = exchange.keep_alive = False
        exchange.message_event.set()
        return True

    # ------------------------------------------------------------ exchanges

    def _begin(self, exchange: _Exchange) -> None:
        self._exchange = exchange
        task = self.loop.create_task(exchange.run_asgi(self.app))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self._exchange is not None and not self._exchange.keep_alive:
            self._end()
            return
        if self.pipeline:
            exchange, _ = self.pipeline.pop()
            self._begin(exchange)  # type: ignore[arg-type]
        elif self._refusal is not None:
            self._answer_refusal(self._refusal)
            return
        else:
            self._wait_for_headers()
        self.flow.resume_reading()
        if self._is_ending:  # an answer that began before the end did not say `Connection: close`
            self.shutdown()

    def shutdown(self) -> None:
        """End the connection after the request under way, or once it is quiet (CONNECTION-1)."""
        self._is_ending = True
        if self._is_idle:
            self.loop.call_later(_QUIET_S, self._close_if_quiet)

    def _close_if_quiet(self) -> None:
        if not self._is_idle or self.transport.is_closing():
            return  # the end of the answer calls this again, unless the answer says `Connection: close`
        quiet_s = self.loop.time() - self._came_at
        if quiet_s < _QUIET_S or _waiting_bytes(self.transport):
            self.loop.call_later(max(_QUIET_S - quiet_s, READ_AGAIN_S), self._close_if_quiet)
            return
        self.transport.close()
        self._abort_later()

    def _end(self) -> None:
        """Close the connection after its last answer. If the client may still send, linger before that."""
        exchange = self._exchange
        is_sending = self._refusal is not None or bool(self.pipeline) or (exchange is not None and exchange.more_body)
        if self._is_half_closed or not (is_sending or _waiting_bytes(self.transport)):
            self.transport.close()
            return
        self.pipeline.clear()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        now_s = self.loop.time()
        self._lingering = Lingering(now_s, now_s)
        self._close_if_lingered()
        self.flow.resume_reading()

    def _close_if_lingered(self) -> None:
        assert self._lingering is not None  # noqa: S101 - the caller has seen to it
        if self.transport.is_closing():
            return
        left_s = self._lingering.left_s(self.loop.time())
        if left_s <= 0:
            self.transport.close()
            self._abort_later()
        elif self._linger_timer is None:
            self._linger_timer = self.loop.call_later(left_s, self._look_at_lingering)

    def _look_at_lingering(self) -> None:
        self._linger_timer = None
        self._close_if_lingered()

    # ------------------------------------------------------------ time limits

    def _wait_for_headers(self) -> None:
        """Begin the time for the next head. One timer serves many requests."""
        self._waits_since = self.loop.time()
        self._is_late = False
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.header_timeout_s, self._close_if_late)

    def _close_if_late(self) -> None:
        self._header_timer = None
        if self._waits_since is None or self.transport.is_closing():
            return
        left_s = self._waits_since + self.header_timeout_s - self.loop.time()
        if left_s > 0:
            self._header_timer = self.loop.call_later(left_s, self._close_if_late)
        elif not self._is_late:
            self._is_late = True  # CONNECTION-5: its head may wait in the socket
            self._header_timer = self.loop.call_later(READ_AGAIN_S, self._close_if_late)
        else:
            self.transport.close()
            self._abort_later()

    def _abort_later(self) -> None:
        # The guard's timeout comes first: the guard counts the slow client and ends the request.
        self._reader_timer = self.loop.call_later(self.reader_timeout_s + _ABORT_AFTER_S, self._abort_soon)

    def _abort_soon(self) -> None:
        self._reader_timer = self.loop.call_later(READ_AGAIN_S, self.transport.abort)


def _not_http(cause: str) -> Refused:
    return Refused(400, "http", cause, hint="the daemon takes HTTP/1.1")


def _head_too_large() -> Refused:
    return Refused(431, "head", f"the head is larger than {_HEAD_BYTES} bytes", hint="send fewer or shorter headers")


def _waiting_bytes(transport: Any) -> int:
    """Return the number of bytes that the kernel holds and the daemon has not read."""
    count = bytearray(4)
    fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, count)
    return int(struct.unpack("i", count)[0])
