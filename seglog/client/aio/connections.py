"""The driver's connections for asyncio, over httpx: TCP, TLS or a Unix socket."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from seglog.client.address import Address
from seglog.client.answers import Answer, Lost
from seglog.client.requests import Request
from seglog.client.retries import Broken
from seglog.client.unix_socket import SOCKET_FILE
from seglog.errors import NotInstalled

try:
    import httpx
except ImportError:
    raise NotInstalled("the client for asyncio", "httpx", "client") from None

__all__ = ["AsyncConnections", "AsyncStream"]

_CONNECT_S = 10.0
_IDLE_MAX = 16
_WRITTEN = "http11.send_request_body.complete"
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LASTING = (ssl.SSLCertVerificationError, PermissionError)


class AsyncStream:
    """An answer whose body comes in pieces. `answer` has an empty body."""

    def __init__(self, response: httpx.Response) -> None:
        self.answer = Answer(response.status_code, {name.lower(): text for name, text in response.headers.items()})
        self._response = response

    async def whole(self) -> Answer:
        """Return the answer with its body. Raise `Broken`."""
        return replace(self.answer, body=b"".join([piece async for piece in self.pieces()]))

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raise `Broken` if it breaks off."""
        try:
            async for piece in self._response.aiter_raw():
                yield piece
        except (httpx.TransportError, httpx.StreamError) as error:
            raise Broken(_lost(error, is_sent=True)) from error


class AsyncConnections:
    """A pool of connections to one daemon. For one event loop."""

    def __init__(self, address: Address, token: str | None, context: ssl.SSLContext | None, silence_s: float) -> None:
        self._root = f"{'https' if address.is_tls else 'http'}://{address.authority}{address.prefix}"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._directory = address.directory
        self._inside: int | None = None
        self._context = context
        self._silence_s = silence_s
        self._client: httpx.AsyncClient | None = None

    async def exchange(self, request: Request, on_written: Callable[[], Any] | None = None) -> Answer | Lost:
        """Send a request, and return its whole answer. Await `on_written` when all of the request went out."""
        try:
            async with self.stream(request, on_written) as stream:
                return await stream.whole()
        except Broken as broken:
            return broken.lost

    @asynccontextmanager
    async def stream(
        self, request: Request, on_written: Callable[[], Any] | None = None
    ) -> AsyncGenerator[AsyncStream]:
        """Yield the answer as a stream. Raise `Broken` if there is none."""

        async def trace(event: str, _told: object) -> None:
            if event == _WRITTEN and on_written is not None:
                await on_written()

        headers = [
            (name.encode(), text.encode("latin-1")) for name, text in {**self._headers, **request.headers}.items()
        ]
        try:
            client = self._opened()
            made = client.build_request(
                request.method,
                self._root + request.path,
                headers=headers,
                content=request.body if request.method == "POST" else None,
                extensions={"trace": trace},
            )
            response = await client.send(made, stream=True)
        except (httpx.TransportError, OSError) as error:
            raise Broken(_lost(error, is_sent=not isinstance(error, (*_UNSENT, OSError)))) from error
        try:
            yield AsyncStream(response)
        finally:
            await response.aclose()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        inside, self._inside = self._inside, None
        if inside is not None:
            os.close(inside)

    def _opened(self) -> httpx.AsyncClient:
        """Return the client of httpx. Raise an error of the system if the directory of the socket cannot be opened."""
        if self._client is None:
            uds = None
            if self._directory is not None:
                # An address has 108 bytes, and a path may be longer (seglog.client.unix_socket).
                self._inside = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
                uds = f"/proc/self/fd/{self._inside}/{SOCKET_FILE}"
            verify = self._context if self._context is not None else False
            # Each follower has a connection. With a maximum, a request beyond it would wait without an end.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=_IDLE_MAX)
            transport = httpx.AsyncHTTPTransport(verify=verify, uds=uds, trust_env=False, limits=limits)
            timeout = httpx.Timeout(self._silence_s, connect=_CONNECT_S, pool=None)
            self._client = httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)
        return self._client


def _lost(error: Exception, *, is_sent: bool) -> Lost:
    told: BaseException | None = error
    while told is not None and not isinstance(told, _LASTING):
        told = told.__cause__ or told.__context__
    return Lost(str(error) or type(error).__name__, is_sent=is_sent, is_lasting=told is not None and not is_sent)
