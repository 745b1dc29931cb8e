"""Clients of botocore that end a request when its command has waited long enough (catalog.objects.store_timeout).

botocore knows time limits of a connection and of single reads. A store that sends a byte now and then passes them for
ever. So the sockets of these clients look at the time that is left before each step.

No public interface of botocore bounds a whole answer. `connect_timeout` and `read_timeout` hold for one step of a
socket. Its event `before-send` takes an answer from another client of HTTP, which would need the proxies, certificates
and limits of this one, and sockets that watch the time just as well. A thread for each request could be left behind at
the limit, but then a write that the command gave up may still be sent. So the sockets of botocore's own connections are
wrapped, in one place: `be_patient`. `tests/promises/test_silent_stores.py` fails if botocore no longer takes them.
"""

from __future__ import annotations

from typing import Any

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
from botocore.exceptions import BotoCoreError, ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError

from catalog.objects.store_timeout import waiting
from catalog.objects.watched_sockets import Watched

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


class _Connection(Watched, AWSHTTPConnection): ...  # type: ignore[misc]  # botocore has no types


class _SecureConnection(Watched, AWSHTTPSConnection): ...  # type: ignore[misc]  # botocore has no types


class _Pool(AWSHTTPConnectionPool):  # type: ignore[misc]  # botocore has no types
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):  # type: ignore[misc]  # botocore has no types
    ConnectionCls = _SecureConnection
