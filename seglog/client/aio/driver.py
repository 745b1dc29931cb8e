"""The driver of the client for asyncio: it sends, waits and sends again as the core decides.

The core is `seglog.client.retries` and `seglog.client.reading`.

Its connections are httpx's, over TCP, TLS or a Unix socket.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from seglog.client.address import SOCKET_FILE, Address
from seglog.client.answers import bounds_of, fit
from seglog.client.commands import Asking, delete_of
from seglog.client.connections import CLOSED, Answer, Broken, Lost, Outcome, Request
from seglog.client.following import FollowingTopics
from seglog.client.reading import ArrowReading, Following, Lookup, Reading, is_looked_up_here
from seglog.client.requests import bounds_request
from seglog.client.retries import Call, Retries, after, is_reached
from seglog.errors import Misuse, NotInstalled
from seglog.values.arrow import shown_batches
from seglog.values.protocols import DeleteArguments, Removed

if TYPE_CHECKING:
    import pyarrow as pa

_Result = TypeVar("_Result")

try:
    import httpx
except ImportError:
    raise NotInstalled("the client for asyncio", "httpx", "client") from None


_CONNECT_S = 10.0
_IDLE_MAX = 16
_WRITTEN = "http11.send_request_body.complete"
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LASTING = (ssl.SSLCertVerificationError, PermissionError)


class _AsyncStream:
    """An answer whose body comes in pieces. `answer` has an empty body."""

    def __init__(self, response: httpx.Response) -> None:
        self.answer = Answer(response.status_code, {name.lower(): text for name, text in response.headers.items()})
        self._response = response

    async def whole(self) -> Answer:
        """Return the answer with its body. Raise `Broken`."""
        return self.answer._replace(body=b"".join([piece async for piece in self.pieces()]))

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
        self._is_closed = False

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
    ) -> AsyncGenerator[_AsyncStream]:
        """Yield the answer as a stream. Raise `Broken` if there is none."""

        async def trace(event: str, _told: object) -> None:
            if event == _WRITTEN and on_written is not None:
                await on_written()

        content: Any = request.body or None if request.chunks is None else request.chunks
        headers = [
            (name.encode(), text.encode("latin-1")) for name, text in {**self._headers, **request.headers}.items()
        ]
        try:
            client = self._opened()
            http_request = client.build_request(
                request.method, self._root + request.path, headers=headers, content=content, extensions={"trace": trace}
            )
            response = await client.send(http_request, stream=True)
        except (httpx.TransportError, OSError) as error:
            raise Broken(_lost(error, is_sent=not isinstance(error, (*_UNSENT, OSError)))) from error
        try:
            yield _AsyncStream(response)
        finally:
            await response.aclose()

    async def close(self) -> None:
        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        inside, self._inside = self._inside, None
        if inside is not None:
            os.close(inside)

    def _opened(self) -> httpx.AsyncClient:
        """Return the client of httpx. Raise `Broken` after `close`, and an error of the system without the socket."""
        if self._is_closed:
            raise Broken(CLOSED)
        if self._client is None:
            uds = None
            if self._directory is not None:
                # An address has 108 bytes, and a path may be longer (seglog.client.address).
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
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, _LASTING):
        cause = cause.__cause__ or cause.__context__
    return Lost(str(error) or type(error).__name__, is_sent=is_sent, is_lasting=cause is not None and not is_sent)


class AsyncDriver:
    """Sends the requests of one client. For one event loop."""

    def __init__(self, connections: AsyncConnections, address: str, retries: Retries) -> None:
        self.address = address
        self.retries = retries
        self._connections = connections
        self.is_reached = False  # a daemon got a request

    async def close(self) -> None:
        await self._connections.close()

    async def ask(self, request: Request) -> Answer:
        """Send a request, repeat it as `seglog.client.retries` says, and return its answer."""
        call = self._begin(request)
        while True:
            outcome = await self._connections.exchange(call.request)
            if isinstance(outcome, Answer) and outcome.status < 400:
                self.is_reached = True
                return fit(call.request, outcome)
            call = await self._next_try(call, outcome)

    async def result(self, asking: Asking[_Result]) -> _Result:
        """Run a command, and return its result. Raise its error."""
        return asking.result(await self.ask(asking.request))

    async def delete(self, topic: str, conditions: DeleteArguments, message: str = "") -> Removed:
        """Delete records. Look for a pattern here if the daemon does not take it, or may read it in another way."""
        asking = delete_of(topic, conditions, message)
        if not is_looked_up_here(conditions):
            try:
                return await self.result(asking)
            except Misuse:
                if conditions.get("grep") is None:
                    raise
        request = bounds_request(topic)
        lookup = Lookup(topic, conditions, bounds_of(request, await self.ask(request)))
        takes = lookup.takes
        found = lookup.found([item.seq async for item in self._items(lookup.reading) if takes(item)])
        return await self.result(delete_of(topic, found, message))

    async def exchange(self, request: Request, on_written: Callable[[], Any]) -> Outcome:
        """Send a request once. Await `on_written` when all of it went to the daemon, unless that fails."""
        outcome = await self._connections.exchange(request, on_written)
        self.is_reached |= is_reached(outcome)
        return outcome

    async def items(
        self, source: Reading | Following | FollowingTopics, *, timeout_s: float | None = None
    ) -> AsyncGenerator[Any]:
        """Yield the items of `_items`. End after `timeout_s` without one."""
        async with aclosing(self._items(source)) as items:
            while True:
                try:
                    async with asyncio.timeout(timeout_s):
                        item = await anext(items)
                except (StopAsyncIteration, TimeoutError):
                    return
                yield item

    async def _items(self, source: Reading | Following | FollowingTopics) -> AsyncGenerator[Any]:
        """Yield the items of a read or a follower. After a lost connection, resume it (CLIENT-4)."""
        call = self._begin(source.request)
        while not source.is_done:
            outcome: Outcome = Lost("the daemon ended the answer", is_sent=True)
            try:
                async with self._connections.stream(source.request) as stream:
                    if stream.answer.status >= 400:
                        outcome = await stream.whole()
                    else:
                        self.is_reached = True
                        source = source.begun(stream.answer)
                        async for piece in stream.pieces():
                            source, items, error, is_progress = source.fed(piece)
                            for item in items:
                                yield item
                            if error is not None:
                                raise error
                            if is_progress or not call.failures:
                                call = self._begin(source.request)
                        if source.ends_with_answer:
                            return
            except Broken as broken:
                outcome = broken.lost
            call = await self._next_try(call, outcome)

    async def batches(self, source: ArrowReading, *, text: bool) -> AsyncIterator[pa.RecordBatch]:
        """Yield the batches of a read by pages, with `text` as texts."""
        while not source.is_done:
            source, batches = source.fed(await self.ask(source.request))
            for batch in shown_batches(batches, text=text):
                yield batch

    def _begin(self, request: Request) -> Call:
        """Return the call of a request, whose time begins now."""
        return Call.begun(request, self.address, self.retries, time.monotonic(), is_reached=self.is_reached)

    async def _next_try(self, call: Call, outcome: Outcome) -> Call:
        """Wait, and return the next try of the call. Raise the error that ends the call."""
        self.is_reached |= is_reached(outcome)
        again = after(call, outcome, time.monotonic(), random.random())
        await asyncio.sleep(again.wait_s)
        return again.call
