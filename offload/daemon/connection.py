"""A connection of a client: HTTP/1.1 with time limits, and with an end that loses no request.

    limit                 starts                      the daemon then
    header_timeout_s      at the connection, and      closes the connection
                          after each answer
    body_timeout_s        when the client takes no    aborts the connection, a second after the guard ended the request
                          byte of its answer
    64 KiB                a head begins               answers 431
    64 KiB                a trailer, or the line of   answers 400
                          a chunk begins

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
    daemon takes `chunked` alone, and only of HTTP/1.1. It ignores trailers, and `Upgrade` but for CONNECTION-6. It
    wants one `Host`, and takes one `Authorization`. The host of a target in absolute form stands for `Host` (RFC 9112,
    3.2.2). The parser refuses the other doubtful forms (tests/offload/daemon/test_connection.py).
CONNECTION-4  A client that still sends gets its answer before the end (LINGER-1).
CONNECTION-5  A timer that is over waits until the loop has read the sockets once more (PACE-1).
CONNECTION-6  A server may have a protocol for WebSockets, and the paths of them. A GET of such a path with `Upgrade:
    websocket` and no body, behind which no answer is due, then hands the transport over: that protocol takes the head
    once more, and counts as the connection.
LINGER-1  If D closed after step 1, C's next bytes would meet a reset. The system of C then drops the answer before C
    reads it (RFC 9112, section 9.6).
LINGER-2  A connection that lingers has no place (offload.daemon.request_places), and D keeps none of its bytes.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import re
import struct
import termios
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools

from offload.daemon.asgi import BROKEN, EXCHANGE, App
from offload.daemon.exchange import Exchange, status_line
from offload.daemon.pacing import READ_AGAIN_S
from offload.daemon.problems import error_answer
from offload.errors import Refused
from seglog.base.dataclasses import dataclass

_LINGER_SILENT_S = 5
_LINGER_LONGEST_S = 30
_LINGER_BYTES = 256 * 1024 * 1024
_ABORT_AFTER_S = 1
_QUIET_S = 0.5
_HEAD_BYTES = 64 * 1024
_AHEAD_BYTES = 64 * 1024  # of a body that the application has not received
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_OF_BODIES = frozenset({b"content-length", b"transfer-encoding"})
ANY_PATH = re.compile(rb"/.*")
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)((?:[/?][^#]*)?)", re.IGNORECASE)
_log = logging.getLogger("seglog.daemon")


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


class Limits(NamedTuple):
    """The time limits of a listener's connections. `is_stopping` tells whether the daemon stops."""

    header_timeout_s: float
    reader_timeout_s: float
    is_stopping: Callable[[], bool]


class Connection(asyncio.Protocol):
    """`connections` and `tasks` are those of a server: the open ones, and the requests at work.

    `websocket` returns a protocol for a WebSocket over a transport, and `websocket_path` fits the paths of those
    (CONNECTION-6).
    """

    transport: asyncio.Transport

    def __init__(
        self,
        app: App,
        limits: Limits,
        connections: set[Any],
        tasks: set[asyncio.Task[None]],
        *,
        scheme: str,
        websocket: Callable[[asyncio.Transport], Any] | None = None,
        websocket_path: re.Pattern[bytes] = ANY_PATH,
    ) -> None:
        self.writable = asyncio.Event()
        self.writable.set()
        self._app = app
        self._limits = limits
        self._connections = connections
        self._tasks = tasks
        self._scheme = scheme
        self._websocket = websocket
        self._websocket_path = websocket_path
        self._loop = asyncio.get_running_loop()
        self._parser = _parser_of(self)
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expects_continue = False
        self._receiving: Exchange | None = None  # the one whose body comes, or the last one
        self._answering: Exchange | None = None  # the one whose answer is next, or the last one
        self._waiting: deque[Exchange] = deque()  # until the answers before theirs are whole
        self._is_reading = True
        self._reader_timer: asyncio.TimerHandle | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._lingering: Lingering | None = None
        self._waits_since: float | None = 0.0  # None while a request is at work
        self._is_late = False  # with its next head; the loop reads once more
        self._came_at = 0.0
        self._unparsed_bytes = 0  # since the parser got further
        self._is_in_head = False
        self._is_in_message = False
        self._refusal: Refused | None = None  # of bytes that are not HTTP
        self._is_half_closed = False  # by the client
        self._is_ending = False

    # ------------------------------------------------------------ the transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._server = _address(transport, "sockname") or (str(transport.get_extra_info("sockname")), None)
        self._client = _address(transport, "peername")
        self._connections.add(self)
        self._came_at = self._loop.time()
        self._wait_for_headers()
        if self._limits.is_stopping():
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        for exchange in (self._answering, *self._waiting):
            if exchange is not None and not exchange.is_complete:
                exchange.is_disconnected = True
                exchange.wake()
        self._waiting.clear()
        for timer in (self._header_timer, self._linger_timer, self._reader_timer):
            if timer is not None:
                timer.cancel()
        self.writable.set()
        if exc is None:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._came_at = self._loop.time()
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

    def eof_received(self) -> bool:
        """Keep the connection open for the answer to a body that broke off."""
        self._is_half_closed = True
        return self._breaks_off()

    def pause_writing(self) -> None:
        self.writable.clear()
        self._abort_later()

    def resume_writing(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        self.writable.set()

    def pause_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.transport.resume_reading()

    # ------------------------------------------------------------ the parser

    def _parse(self, data: bytes) -> bytes:
        """Parse bytes. Return those that are left to parse.

        The parser takes all behind a head with `Upgrade` for another protocol. So that head comes again without it,
        or the connection goes to the protocol for WebSockets.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            version = self._parser.get_http_version().encode("ascii")
            lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, version)]
            is_handed_over = self._wants_websocket()
            lines += [b"%b: %b" % header for header in self._headers if is_handed_over or header[0] != b"upgrade"]
            again = b"\r\n".join((*lines, b"", data[upgrade.args[0] :]))
            if not is_handed_over:
                self._parser = _parser_of(self)
                return again
            self._hand_over(again)
        return b""

    def _wants_websocket(self) -> bool:
        headers = dict(self._headers)
        is_plain = self._parser.get_method() == b"GET" and self._parser.get_http_version() == "1.1"
        is_plain = is_plain and not headers.keys() & _OF_BODIES
        is_there = self._websocket_path.fullmatch(self._url.partition(b"?")[0]) is not None
        is_free = self._is_idle and self.writable.is_set() and not self._is_ending
        is_wanted = headers.get(b"upgrade", b"").lower() == b"websocket"
        return self._websocket is not None and is_wanted and is_there and is_plain and is_free

    def _hand_over(self, data: bytes) -> None:
        assert self._websocket is not None  # noqa: S101 - the caller has seen to it
        self._connections.discard(self)
        self._waits_since = None  # the time for a head is over
        protocol = self._websocket(self.transport)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        protocol.data_received(data)

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._expects_continue = False
        self._is_in_head = self._is_in_message = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:  # else it is a trailer
            self._headers.append((name.lower(), value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        """Begin the exchange of a request, or put it behind those under way. An error is answered 400 or 431."""
        self._is_in_head, self._unparsed_bytes = False, 0
        method, version = self._parser.get_method().decode("ascii"), self._parser.get_http_version()
        self._check_head(method, version)
        if self._parser.should_upgrade():
            return  # `_parse` makes the head come again
        raw_path, _, query = self._origin_form().partition(b"?")
        path = raw_path.decode("ascii")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "root_path": "",
            "headers": self._headers,
            "method": method,
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
        }
        keep_alive = version == "1.1" and self._parser.should_keep_alive()
        exchange = Exchange(self, scope, keep_alive=keep_alive, expects_continue=self._expects_continue)
        scope[EXCHANGE] = exchange
        self._waits_since = None
        self._receiving = exchange
        if self._answering is None or self._answering.is_complete:
            self._begin(exchange)
        else:
            self.pause_reading()
            self._waiting.append(exchange)

    def _origin_form(self) -> bytes:
        """Return the path and the query of the target. Raise `ValueError` for an absolute form without a plain host."""
        if self._url[:1] in {b"/", b"*"}:
            return self._url
        absolute = _ABSOLUTE.fullmatch(self._url)
        if absolute is None:
            raise ValueError("the target is neither a path nor a URL of HTTP")
        host, target = absolute.groups()
        self._headers = [header for header in self._headers if header[0] != b"host"] + [(b"host", host)]
        return target if target.startswith(b"/") else b"/" + target

    def _check_head(self, method: str, version: str) -> None:
        """Raise `ValueError`, or `Refused`, for a head that the parser takes and the daemon does not (CONNECTION-3)."""
        hosts = tokens = 0
        for name, value in self._headers:
            if name == b"host":
                hosts += 1
            elif name == b"authorization":
                tokens += 1
            elif name == b"transfer-encoding" and (value.lower() != b"chunked" or version != "1.1"):
                raise ValueError("the daemon takes no Transfer-Encoding but chunked")
            elif name == b"expect" and version == "1.1":
                self._expects_continue = value.lower() == b"100-continue"
        if version not in {"1.0", "1.1"} or method == "CONNECT":
            raise ValueError("the daemon takes HTTP/1.0 and HTTP/1.1, and no CONNECT")
        if hosts != 1 and (hosts or version == "1.1"):
            raise ValueError("the head has no Host, or several")
        if tokens > 1:
            raise ValueError("the head has several Authorization")
        if sum(len(name) + len(value) for name, value in self._headers) + len(self._url) > _HEAD_BYTES:
            raise _head_too_large()
        if not self._url.isascii():
            raise ValueError("the path and the query are ASCII: write other characters with percent signs")

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        exchange = self._receiving
        if exchange is not None and not exchange.is_complete:
            exchange.body += body
            if len(exchange.body) > _AHEAD_BYTES:
                self.pause_reading()
            exchange.wake()

    def on_message_complete(self) -> None:
        self._is_in_message, self._unparsed_bytes = False, 0
        exchange = self._receiving
        if exchange is not None and not exchange.is_complete and not self._parser.should_upgrade():
            exchange.more_body = False
            exchange.wake()

    def _refuse(self, refusal: Refused) -> None:
        """Answer bytes that are not HTTP, after the requests before them (CONNECTION-2)."""
        self._refusal = refusal
        if self._breaks_off():
            return  # the request that they break has an answer of its own
        _log.info("a client sent bytes that are not HTTP: %s", refusal)
        if self._is_idle:
            self._answer_refusal(refusal)
        else:
            self.pause_reading()

    def _answer_refusal(self, refusal: Refused) -> None:
        status, headers, body = error_answer(refusal)
        lines = [b"%b: %b\r\n" % header for header in (*headers, (b"connection", b"close"))]
        self.transport.write(b"".join((status_line(status), *lines, b"\r\n", body)))
        self._end()

    def _breaks_off(self) -> bool:
        """Return whether a request waits for the rest of its body. If so, its body ends here."""
        exchange = self._receiving
        if exchange is None or exchange.has_begun or not (exchange.more_body or BROKEN in exchange.scope):
            return False
        exchange.scope[BROKEN] = True
        exchange.more_body = exchange.keep_alive = False
        exchange.wake()
        return True

    # ------------------------------------------------------------ exchanges

    def _begin(self, exchange: Exchange) -> None:
        self._answering = exchange
        task = self._loop.create_task(exchange.run(self._app))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def _is_idle(self) -> bool:
        return self._receiving is None or self._receiving.is_complete

    def answered(self) -> None:
        """Go on after an answer that is whole: with the next request, the refusal behind it, or the wait for a head."""
        if self.transport.is_closing():
            return
        if self._answering is not None and not self._answering.keep_alive:
            self._end()
            return
        if self._waiting:
            self._begin(self._waiting.popleft())
        elif self._refusal is not None:
            self._answer_refusal(self._refusal)
            return
        else:
            self._wait_for_headers()
        self.resume_reading()
        if self._is_ending:  # an answer that began before the end did not say `Connection: close`
            self.shutdown()

    def shutdown(self) -> None:
        """End the connection after the request under way, or once it is quiet (CONNECTION-1)."""
        self._is_ending = True
        if self._is_idle:
            self._loop.call_later(_QUIET_S, self._close_if_quiet)

    def _close_if_quiet(self) -> None:
        if not self._is_idle or self.transport.is_closing():
            return  # the end of the answer calls this again, unless the answer says `Connection: close`
        quiet_s = self._loop.time() - self._came_at
        if quiet_s < _QUIET_S or _waiting_bytes(self.transport):
            self._loop.call_later(max(_QUIET_S - quiet_s, READ_AGAIN_S), self._close_if_quiet)
            return
        self.transport.close()
        self._abort_later()

    def _end(self) -> None:
        """Close the connection after its last answer. If the client may still send, linger before that."""
        exchange = self._answering
        is_sending = self._refusal is not None or bool(self._waiting) or (exchange is not None and exchange.more_body)
        if self._is_half_closed or not (is_sending or _waiting_bytes(self.transport)):
            self.transport.close()
            return
        self._waiting.clear()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        now_s = self._loop.time()
        self._lingering = Lingering(now_s, now_s)
        self._close_if_lingered()
        self.resume_reading()

    def _close_if_lingered(self) -> None:
        assert self._lingering is not None  # noqa: S101 - the caller has seen to it
        if self.transport.is_closing():
            return
        left_s = self._lingering.left_s(self._loop.time())
        if left_s <= 0:
            self.transport.close()
            self._abort_later()
        elif self._linger_timer is None:
            self._linger_timer = self._loop.call_later(left_s, self._look_at_lingering)

    def _look_at_lingering(self) -> None:
        self._linger_timer = None
        self._close_if_lingered()

    # ------------------------------------------------------------ time limits

    def _wait_for_headers(self) -> None:
        """Begin the time for the next head. One timer serves many requests."""
        self._waits_since = self._loop.time()
        self._is_late = False
        if self._header_timer is None:
            self._header_timer = self._loop.call_later(self._limits.header_timeout_s, self._close_if_late)

    def _close_if_late(self) -> None:
        self._header_timer = None
        if self._waits_since is None or self.transport.is_closing():
            return
        left_s = self._waits_since + self._limits.header_timeout_s - self._loop.time()
        if left_s > 0:
            self._header_timer = self._loop.call_later(left_s, self._close_if_late)
        elif not self._is_late:
            self._is_late = True  # CONNECTION-5: its head may wait in the socket
            self._header_timer = self._loop.call_later(READ_AGAIN_S, self._close_if_late)
        else:
            self.transport.close()
            self._abort_later()

    def _abort_later(self) -> None:
        # The guard's timeout comes first: the guard counts the slow client and ends the request.
        self._reader_timer = self._loop.call_later(self._limits.reader_timeout_s + _ABORT_AFTER_S, self._abort_soon)

    def _abort_soon(self) -> None:
        self._reader_timer = self._loop.call_later(READ_AGAIN_S, self.transport.abort)


def _not_http(cause: str) -> Refused:
    return Refused(400, "http", cause, hint="the daemon takes HTTP/1.1")


def _head_too_large() -> Refused:
    return Refused(431, "head", f"the head is larger than {_HEAD_BYTES} bytes", hint="send fewer or shorter headers")


def _parser_of(connection: Connection) -> Any:
    """Return a parser that takes requests behind one that ends the connection, so that its answer comes first."""
    parser = httptools.HttpRequestParser(connection)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _address(transport: Any, name: str) -> tuple[str, int] | None:
    """Return the host and the port of one side, None at a Unix socket."""
    address = transport.get_extra_info(name)
    return (str(address[0]), int(address[1])) if isinstance(address, (list, tuple)) and len(address) > 1 else None


def _waiting_bytes(transport: Any) -> int:
    """Return the number of bytes that the kernel holds and the daemon has not read."""
    count = bytearray(4)
    fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, count)
    return int(struct.unpack("i", count)[0])
