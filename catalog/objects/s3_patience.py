"""Clients of botocore that end a request when its command has waited long enough (catalog.objects.patience).

botocore knows time limits of a connection and of single reads. A store that sends a byte now and then passes them for
ever. So the sockets of these clients look at the time that is left before each step.

No public interface of botocore bounds a whole answer. `connect_timeout` and `read_timeout` hold for one step of a
socket. Its event `before-send` takes an answer from another client of HTTP, which would need the proxies, certificates
and limits of this one, and sockets that watch the time just as well. A thread for each request could be left behind at
the limit, but then a write that the command gave up may still be sent. So the sockets of botocore's own connections are
wrapped, in one place: `be_patient`. `tests/promises/test_silent_stores.py` fails if botocore no longer takes them.

WATCH-1  Also a body is sent in slices. Python gives the whole of one `sendall` the time limit of the connection, so a
    part of 64 MiB over a slow line would never get through.
"""

from __future__ import annotations

import io
import socket
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.exceptions import BotoCoreError, ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError

from catalog.objects.patience import this_call, waiting

_SLICE_BYTES = 64 * 1024
_TROUBLE = frozenset({429})
_NOT_SENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)


class SilentStore(BotoCoreError):  # type: ignore[misc]  # botocore has no types
    """The store made too little progress. The SDK does not repeat such a request.

    `was_sent` says that the request may have had an effect.
    """

    fmt = "it has not answered, or too slowly, for {limit_s:g} s"

    def __init__(self, limit_s: float, *, was_sent: bool) -> None:
        super().__init__(limit_s=limit_s)
        self.was_sent = was_sent


def be_patient(client: Any, limit_s: float) -> None:
    """Let each command wait `limit_s` at most for the requests of a client, which raise `SilentStore` then."""
    endpoint = client._endpoint  # noqa: SLF001 - botocore takes no session from a caller
    session = endpoint.http_session
    session._pool_classes_by_scheme |= {"http": _Pool, "https": _SecurePool}  # noqa: SLF001 - nor a kind of connection
    endpoint.http_session = _PatientSession(session, limit_s)


def read_patiently(body: Any, limit_s: float) -> bytes:
    """Return the body of an answer that is read as a stream. Raises `SilentStore`, and what botocore raises."""
    with waiting(limit_s) as call:
        try:
            return bytes(body.read())
        except BotoCoreError as error:
            if call.left_s() > 0:
                raise
            raise SilentStore(call.limit_s, was_sent=True) from error


class _PatientSession:
    """A session of botocore, which sends through another one."""

    def __init__(self, inner: Any, limit_s: float) -> None:
        self._inner = inner
        self._limit_s = limit_s

    def send(self, request: Any) -> Any:
        with waiting(self._limit_s) as call:
            if call.left_s() <= 0:
                raise SilentStore(call.limit_s, was_sent=False)
            try:
                answer = self._inner.send(request)
            except BotoCoreError as error:
                if call.left_s() > 0:
                    raise
                raise SilentStore(call.limit_s, was_sent=not isinstance(error, _NOT_SENT)) from error
            if answer.status_code < 500 and answer.status_code not in _TROUBLE:
                call.answered()
            return answer

    def close(self) -> None:
        self._inner.close()


class _Limit:
    """A context in which a step of a socket takes no longer than what is left for the command of this thread."""

    __slots__ = ("_call", "_former_s", "_socket")

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._call = this_call()
        self._former_s: float | None = None

    def __enter__(self) -> _Limit:
        if self._call is not None:
            left_s, former_s = self._call.left_s(), self._socket.gettimeout()
            if left_s <= 0:
                raise TimeoutError("timed out")
            if former_s is None or left_s < former_s:
                self._former_s = former_s
                self._socket.settimeout(left_s)
        return self

    def moved(self, count: int) -> None:
        if self._call is not None:
            self._call.moved(count)

    def __exit__(self, *_: object) -> None:
        if self._former_s is not None and self._socket.fileno() >= 0:
            self._socket.settimeout(self._former_s)


class _Reading(socket.SocketIO):
    def readinto(self, buffer: Any) -> int | None:
        with _Limit(self._sock) as limit:  # type: ignore[attr-defined]  # of the base class
            count = super().readinto(buffer)
            limit.moved(count or 0)
            return count


class _WatchedSocket:
    """A socket whose steps look at the time that is left."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _SLICE_BYTES):
            part = view[start : start + _SLICE_BYTES]
            with _Limit(self._opened) as limit:
                self._opened.sendall(part, flags) if flags else self._opened.sendall(part)
                limit.moved(len(part))

    def makefile(self, mode: str, buffering: int = -1) -> io.RawIOBase | io.BufferedReader:
        assert mode == "rb"  # noqa: S101 - http.client asks for nothing else
        self._opened._io_refs += 1  # noqa: SLF001 - as `socket.makefile` does: the file keeps the socket open
        raw = _Reading(self._opened, "r")
        return io.BufferedReader(raw) if buffering else raw


class _Connection(AWSHTTPConnection):  # type: ignore[misc]  # botocore has no types
    sock: Any

    def connect(self) -> None:
        super().connect()
        self.sock = _WatchedSocket(self.sock)


class _SecureConnection(AWSHTTPSConnection):  # type: ignore[misc]  # botocore has no types
    sock: Any

    def connect(self) -> None:
        super().connect()
        self.sock = _WatchedSocket(self.sock)


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]  # botocore has no types
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]  # botocore has no types
    ConnectionCls = _SecureConnection
