"""The driver of the plain client: it sends, waits and sends again as the core decides.

The core is `seglog.client.retries` and `seglog.client.reading`.

It speaks HTTP/1.1 over TCP, TLS or a Unix socket, with the standard library alone. A connection serves one request at a
time, and waits in a pool between them. The daemon closes a connection that is idle, so the pool looks for that before
it gives one out. Safe for many threads.
"""

from __future__ import annotations

import http.client
import random
import select
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from seglog.client.address import Address, connected
from seglog.client.answers import Answer, Lost, Outcome
from seglog.client.reading import ArrowReading, Following, Reading
from seglog.client.requests import Request
from seglog.client.retries import Broken, Call, Retries, after, is_reached
from seglog.values.record import Gap, Record

if TYPE_CHECKING:
    import ssl

    import pyarrow as pa

__all__ = ["Connections", "Driver", "tls_context"]

_CONNECT_S = 10.0
_PIECE_BYTES = 64 * 1024
_IDLE_MAX = 16


class _Stream:
    """An answer whose body comes in pieces. `answer` has an empty body."""

    def __init__(self, answer: Answer, response: http.client.HTTPResponse) -> None:
        self.answer = answer
        self._response = response

    def whole(self) -> Answer:
        """Return the answer with its body. Raise `Broken`."""
        return replace(self.answer, body=b"".join(self.pieces()))

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes. Raise `Broken` if it breaks off."""
        while True:
            try:
                piece = self._response.read1(_PIECE_BYTES)
            except (http.client.HTTPException, OSError, ValueError) as error:
                raise Broken(Lost(_words(error), is_sent=True)) from error
            if not piece:
                return
            yield piece


class Connections:
    """A pool of connections to one daemon."""

    def __init__(self, address: Address, token: str | None, context: ssl.SSLContext | None, silence_s: float) -> None:
        self._address = address
        self._context = context
        self._silence_s = silence_s
        self._headers = {"Host": address.authority}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._is_closed = False

    def exchange(self, request: Request, on_written: Callable[[], None] = lambda: None) -> Answer | Lost:
        """Send a request, and return its whole answer. Call `on_written` between the two."""
        try:
            with self._response(request, on_written) as (answer, response):
                body = response.read()
        except Broken as broken:
            return broken.lost
        except (http.client.HTTPException, OSError, ValueError) as error:
            return Lost(_words(error), is_sent=True)
        return Answer(answer.status, answer.headers, body)

    @contextmanager
    def stream(self, request: Request) -> Generator[_Stream]:
        """Yield the answer as a stream. Raise `Broken` if there is none."""
        with self._response(request) as (answer, response):
            yield _Stream(answer, response)

    def close(self) -> None:
        """Close the idle connections. A connection in use closes when its request ends."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    @contextmanager
    def _response(
        self, request: Request, on_written: Callable[[], None] = lambda: None
    ) -> Generator[tuple[Answer, http.client.HTTPResponse]]:
        connection = self._taken()
        is_sent = False
        try:
            if connection.sock is None:
                self._connect(connection)
            is_sent = True
            target = self._address.prefix + request.path
            body = request.body if request.method == "POST" else None
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
            yield Answer(response.status, headers), response
        finally:
            is_whole = response.isclosed()
            response.close()
            self._given_back(connection, is_whole=is_whole)

    def _connect(self, connection: http.client.HTTPConnection) -> None:
        directory = self._address.directory
        if directory is None:
            connection.connect()
            connection.sock.settimeout(self._silence_s)
        else:
            connection.sock = connected(Path(directory), timeout_s=self._silence_s)

    def _taken(self) -> http.client.HTTPConnection:
        with self._lock:
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
            if is_whole and connection.sock is not None and not self._is_closed and len(self._idle) < _IDLE_MAX:
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


class Driver:
    """Sends the requests of one client. Safe for many threads."""

    def __init__(self, connections: Connections, place: str, retries: Retries) -> None:
        self.place = place
        self.retries = retries
        self._connections = connections
        self.is_reached = False  # a daemon got a request

    def close(self) -> None:
        self._connections.close()

    def ask(self, request: Request) -> Answer:
        """Send a request, repeat it as `seglog.client.retries` says, and return its answer."""
        call = self._begin(request)
        while True:
            outcome = self._connections.exchange(call.request)
            if isinstance(outcome, Answer) and outcome.status < 400:
                self.is_reached = True
                return outcome
            call = self._next_try(call, outcome)

    def exchange(self, request: Request, on_written: Callable[[], None]) -> Outcome:
        """Send a request once. Call `on_written` when all of it went to the daemon, unless that fails."""
        outcome = self._connections.exchange(request, on_written)
        self.is_reached |= is_reached(outcome)
        return outcome

    def batches(self, source: ArrowReading) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a read by pages."""
        while not source.is_done:
            source, batches = source.fed(self.ask(source.request))
            yield from batches

    def _begin(self, request: Request) -> Call:
        """Return the call of a request, whose time begins now."""
        return Call.begun(request, self.place, self.retries, time.monotonic(), is_reached=self.is_reached)

    def _next_try(self, call: Call, outcome: Outcome) -> Call:
        """Wait, and return the next try of the call. Raise the error that ends the call."""
        self.is_reached |= is_reached(outcome)
        again = after(call, outcome, time.monotonic(), random.random())
        time.sleep(again.wait_s)
        return again.call

    def items(self, source: Reading | Following) -> Iterator[Record | Gap]:
        """Yield the items of a read or a follower. After a lost connection, resume it (CLIENT-4)."""
        call = self._begin(source.request)
        while not source.is_done:
            outcome: Outcome = Lost("the daemon ended the answer", is_sent=True)
            try:
                with self._connections.stream(source.request) as stream:
                    if stream.answer.status >= 400:
                        outcome = stream.whole()
                    else:
                        self.is_reached = True
                        source = source.begun(stream.answer)
                        for piece in stream.pieces():
                            source, items, error, is_progress = source.fed(piece)
                            yield from items
                            if error is not None:
                                raise error
                            if is_progress or not call.failures:
                                call = self._begin(source.request)
                        if source.ends_with_answer:
                            return
            except Broken as broken:
                outcome = broken.lost
            call = self._next_try(call, outcome)
