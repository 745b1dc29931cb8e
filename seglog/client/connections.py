"""One exchange with a daemon: a request, its answer, and the connections that carry both.

The clients and the command line share this module. It speaks HTTP/1.1 over TCP, TLS or a Unix socket, with the standard
library alone. A connection serves one request at a time, and waits in a pool between them. The daemon closes a
connection that is idle, so the pool looks for that before it gives one out. Safe for many threads.

Only the connections do I/O. A command asks a daemon with this module and the standard library. An import more shows in
its time, and so does a dataclass: it takes four times as long to make as a named tuple.
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
import time
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from seglog.client.address import Address, connected

if TYPE_CHECKING:
    import ssl

    from seglog.values.producer import ProducerBatch

_CONNECT_S = 10.0
_PIECE_BYTES = 64 * 1024
_IDLE_MAX = 16
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class Request(NamedTuple):
    """A request. `topic` and `producer` are for the errors that come back.

    `is_append` says that records may be in. The body is `chunks` if there are any, which can be sent once.
    """

    method: str
    path: str
    headers: Mapping[str, str] = _NO_HEADERS
    body: bytes = b""
    is_repeatable: bool = True
    is_append: bool = False
    topic: str = ""
    producer: ProducerBatch | None = None
    incarnation: str | None = None
    chunks: Iterable[bytes] | AsyncIterable[bytes] | None = None


class Answer(NamedTuple):
    """A whole answer. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Lost(NamedTuple):
    """No answer, or the answer broke off. If the request is not `is_sent`, the daemon got no byte of it.

    `is_lasting`: another try would fail as well, for example because the certificate is not trusted.
    """

    reason: str
    is_sent: bool
    is_lasting: bool = False


CLOSED: Final = Lost("the client is closed", is_sent=False, is_lasting=True)
Outcome: TypeAlias = "Answer | Lost"


class Broken(Exception):
    """The driver's notice that an answer broke off. No caller of the client gets it."""

    def __init__(self, lost: Lost) -> None:
        super().__init__(lost.reason)
        self.lost = lost


class Stream:
    """An answer whose body comes in pieces. `answer` has an empty body.

    `end_s` is the time of the monotonic clock at which the caller gives up; None: never.
    """

    def __init__(self, answer: Answer, response: http.client.HTTPResponse, connection: socket.socket) -> None:
        self.answer = answer
        self.end_s: float | None = None
        self._response = response
        self._connection = connection
        self._silence_s = connection.gettimeout()
        self._held, self._at = b"", 0  # what `line` has read too far

    def whole(self) -> Answer:
        """Return the answer with its body. Raise `Broken`."""
        return self.answer._replace(body=b"".join(self.pieces()))

    def pieces(self, end_s: float | None = None) -> Iterator[bytes]:
        """Yield the body as it comes. Raise `Broken` if it breaks off, or at `end_s`."""
        self.end_s = end_s
        while piece := self._taken(self._response.read1, _PIECE_BYTES):
            yield piece

    def line(self) -> bytes:
        """Return the next line with its line feed, or nothing at the end of the answer. Raise `Broken`.

        `HTTPResponse.readline` takes an answer that breaks off for one that ends.
        """
        while (end := self._held.find(b"\n", self._at) + 1) == 0:
            piece = self._taken(self._response.read1, _PIECE_BYTES)
            if not piece:
                return b""
            self._held, self._at = self._held[self._at :] + piece, 0
        begin, self._at = self._at, end
        return self._held[begin:end]

    def exactly(self, size_bytes: int) -> bytes:
        """Return the next bytes behind a line. Raise `Broken` if there are fewer."""
        data = self._held[self._at : self._at + size_bytes]
        self._at += len(data)
        if len(data) < size_bytes:
            data += self._taken(self._response.read, size_bytes - len(data))
        if len(data) < size_bytes:
            raise Broken(Lost("it closed the connection", is_sent=True))
        return data

    def _taken(self, read: Callable[[int], bytes], size_bytes: int) -> bytes:
        try:
            if self.end_s is not None:
                left_s = max(0.001, self.end_s - time.monotonic())
                self._connection.settimeout(left_s if self._silence_s is None else min(left_s, self._silence_s))
            return read(size_bytes)
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise Broken(Lost(_words(error), is_sent=True)) from error


class Connections:
    """A pool of connections to one daemon.

    `silence_s` bounds the wait for the next byte of an answer. A command may be silent for long: without that bound,
    the system looks now and then whether the other machine is still there. At most `idle_max` connections wait.
    """

    def __init__(
        self,
        address: Address,
        token: str | None,
        context: ssl.SSLContext | None,
        silence_s: float | None,
        *,
        idle_max: int = _IDLE_MAX,
    ) -> None:
        self._address = address
        self._context = context
        self._silence_s = silence_s
        self._idle_max = idle_max
        self._headers = {"Host": address.authority}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._is_closed = False

    def exchange(self, request: Request, on_written: Callable[[], None] = lambda: None) -> Answer | Lost:
        """Send a request, and return its whole answer. Call `on_written` between the two."""
        try:
            with self._response(request, on_written) as (answer, response, _):
                body = response.read()
        except Broken as broken:
            return broken.lost
        except (http.client.HTTPException, OSError, ValueError) as error:
            return Lost(_words(error), is_sent=True)
        return Answer(answer.status, answer.headers, body)

    @contextmanager
    def stream(self, request: Request) -> Generator[Stream]:
        """Yield the answer as a stream. Raise `Broken` if there is none."""
        with self._response(request) as (answer, response, connection):
            stream = Stream(answer, response, connection)
            try:
                yield stream
            finally:
                if stream.end_s is not None:
                    connection.settimeout(self._silence_s)

    def close(self) -> None:
        """Close the idle connections. A connection in use closes when its request ends, and no other begins."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _response(
        self, request: Request, on_written: Callable[[], None] = lambda: None
    ) -> Generator[tuple[Answer, http.client.HTTPResponse, socket.socket]]:
        connection = self._taken()
        is_sent = False
        try:
            if connection.sock is None:
                self._connect(connection)
            is_sent, sock = True, connection.sock
            target = self._address.prefix + request.path
            body: Any = request.body or None if request.chunks is None else request.chunks
            # A daemon that refuses a long body answers and closes. The send then fails, and the answer may be here.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(request.method, target, body, {**self._headers, **request.headers})
            on_written()
            response = connection.getresponse()
        except (http.client.HTTPException, OSError, ValueError) as error:
            connection.close()
            raise Broken(Lost(_words(error), is_sent=is_sent, is_lasting=not is_sent and _is_lasting(error))) from error
        except BaseException:
            connection.close()
            raise
        headers = {name.lower(): text for name, text in response.getheaders()}
        try:
            yield Answer(response.status, headers), response, sock
        finally:
            is_whole = response.isclosed()
            response.close()
            self._given_back(connection, is_whole=is_whole)

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        directory = self._address.directory
        if directory is None:
            connection.connect()
            connection.sock.settimeout(self._silence_s)
            if self._silence_s is None:
                _watch(connection.sock)
        else:
            connection.sock = connected(Path(directory), timeout_s=self._silence_s)

    def _taken(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._is_closed:
                raise Broken(CLOSED)
            while self._idle:
                connection = self._idle.pop()
                if not _is_readable(connection):
                    return connection
                connection.close()
        host, port = self._address.host, self._address.port or None
        if self._context is not None:
            return http.client.HTTPSConnection(host, port, timeout=_CONNECT_S, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=_CONNECT_S)

    def _given_back(self, connection: http.client.HTTPConnection, *, is_whole: bool) -> None:
        with self._lock:
            if is_whole and connection.sock is not None and not self._is_closed and len(self._idle) < self._idle_max:
                self._idle.append(connection)
                return
        connection.close()


def tls_context(address: Address, ca_file: str | None) -> ssl.SSLContext | None:
    """Return the context of a TLS connection, or None for an address without TLS.

    The certificate of the daemon is always checked: against `ca_file`, or against the system's authorities. The
    variable SSL_CERT_FILE names others.
    """
    if not address.is_tls:
        return None
    import ssl

    return ssl.create_default_context(cafile=ca_file)


def _watch(connection: socket.socket) -> None:
    """Let the system look for the other machine while a connection is silent."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Return whether the daemon sent something to an idle connection. That is its end."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _is_lasting(error: Exception) -> bool:
    """Return whether a failure to connect is none of the network: a wrong certificate, or a lack of rights."""
    return isinstance(error, PermissionError) or type(error).__name__ == "SSLCertVerificationError"


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
