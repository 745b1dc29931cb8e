"""A proxy in this process: a service with `serve.proxy`, which clients ask over HTTP without another process."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from catalog.format.keys import Key
from catalog.objects import ObjectInfo, ObjectStore, WithETag
from catalog.objects.http import HttpStore
from catalog.objects.object_store import Forward
from catalog.objects.wrapped import T, WrappedStore
from offload.daemon.clients import for_checked_clients
from offload.daemon.http import direct, make_app
from offload.daemon.request_limits import Guard
from offload.daemon.service import Service
from offload.token_rights import parse_tokens
from tests.answering import Answer, AnsweringServer, Asked
from tests.seams.proxy import look_at_remote
from tests.worlds.services import serving

__all__ = ["QUIET", "Proxied", "ThroughProxy", "Via", "http_is_long", "over_http_too", "proxied", "via"]

QUIET = {"CATALOG_SYNC_INTERVAL_S": "100000000000"}
"""The setting of a proxy that looks at its remote only when the test says so."""


@dataclass
class Proxied:
    """A proxy that answers at `url`. `asked` are the requests, and `spoil` may change an answer."""

    url: str
    service: Service
    loop: asyncio.AbstractEventLoop
    asked: list[Asked] = field(default_factory=list)
    spoil: Callable[[Asked, Answer | None], Answer | None] | None = None

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def ask(
        self, target: str, token: str | None, body: bytes | None = None, method: str = "GET", **headers: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request as it is, whatever its target."""
        given = {name.replace("_", "-"): text for name, text in headers.items()}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        with closing(http.client.HTTPConnection("127.0.0.1", int(self.url.rpartition(":")[2]), timeout=60)) as sent:
            sent.putrequest(method, quote(target, safe="/%?=&.~"), skip_accept_encoding=True)
            for name, text in {**given, "Content-Length": str(len(body or b""))}.items():
                sent.putheader(name, text)
            sent.endheaders(body or b"")
            answer = sent.getresponse()
            return answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read()

    def store(self, token: str | None = None) -> HttpStore:
        return HttpStore(self.url, lambda: token, attempts=1)


@contextmanager
def proxied(
    directory: Path, store: ObjectStore | str, tokens: bytes | None = None, **variables: str
) -> Iterator[Proxied]:
    """Run a proxy of `store`. `tokens` is the content of its token file; without one, everybody may do everything."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    opened: list[tuple[Service, Any]] = []

    async def run() -> None:
        async with serving(directory, store, None, **{"SERVE_PROXY": "true", **variables}) as service:
            known = None if tokens is None else parse_tokens(tokens, "tokens")
            guard = Guard(direct(make_app(service)), lambda: service.settings, service.metrics, service.quota)
            app = for_checked_clients(guard.known, lambda: service.settings, lambda: known, lambda _: None)
            opened.append((service, app))
            ready.set()
            await stop.wait()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(60)
    try:
        [(service, app)] = opened
        proxy = Proxied("", service, loop)

        def decide(asked: Asked) -> Answer | None:
            proxy.asked.append(asked)
            answer: Answer | None = proxy.run(_answer(app, asked))
            return answer if proxy.spoil is None else proxy.spoil(asked, answer)

        with AnsweringServer(decide) as server:
            proxy.url = server.url
            yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


async def _answer(app: Any, asked: Asked) -> Answer:
    path, _, query = asked.target.partition("?")
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not bodies:
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    bodies = [asked.body]
    scope: dict[str, Any] = {
        "type": "http", "method": asked.method, "path": unquote(path), "raw_path": path.encode("latin-1"),
        "query_string": query.encode(), "root_path": "", "http_version": "1.1", "state": {},
        "headers": [(name.lower().encode(), text.encode("latin-1")) for name, text in asked.headers.items()],
    }  # fmt: skip
    await app(scope, receive, send)
    headers = {name.decode(): text.decode("latin-1") for name, text in sent[0]["headers"]}
    length = headers.pop("content-length", None)
    body = b"".join(each.get("body", b"") for each in sent[1:])
    return Answer(sent[0]["status"], body, headers, int(length) if length and asked.method == "HEAD" else None)


class FreshStore(HttpStore):
    """A remote over HTTP whose proxy looks at its own remote before each answer to a follower."""

    def __init__(self, proxy: Proxied) -> None:
        super().__init__(proxy.url, attempts=1)
        self._proxy = proxy

    def forward(self, name: str, since: int) -> Forward | None:
        look_at_remote(self._proxy.service)
        return super().forward(name, since)


class ThroughProxy(WrappedStore):
    """A store whose reads go over HTTP, through a proxy of the store itself, in `directory`."""

    def __init__(self, inner: ObjectStore, directory: Path) -> None:
        super().__init__(inner)
        self._stack = ExitStack()
        self._reads = self._stack.enter_context(proxied(directory, inner)).store()

    @property
    def is_ordered(self) -> bool:
        return self._reads.is_ordered

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        return act()

    def get(self, key: Key) -> bytes:
        return self._reads.get(key)

    def get_with_etag(self, key: Key) -> WithETag:
        return self._reads.get_with_etag(key)

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        return self._reads.get_range(key, start, length)

    def head(self, key: Key) -> ObjectInfo:
        return self._reads.head(key)

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        return self._reads.list(prefix, limit=limit, start_after=start_after)

    def close(self) -> None:
        self._stack.close()


Via = Callable[[ObjectStore], ObjectStore]
"""A function that returns a store as a reader sees it: itself, or through a proxy of it."""

over_http_too = pytest.mark.parametrize("via", ["bucket", "http"], indirect=True)
#: A reader over HTTP only in `make test-all`, because one exemplar of each kind runs in `make test`.
http_is_long = pytest.mark.parametrize("via", ["bucket", pytest.param("http", marks=pytest.mark.long)], indirect=True)


@pytest.fixture
def via(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Via]:
    proxies: dict[int, Proxied] = {}
    with ExitStack() as stack:

        def through_proxy(store: ObjectStore) -> ObjectStore:
            if id(store) not in proxies:
                directory = tmp_path / f"proxy-{len(proxies)}"
                proxies[id(store)] = stack.enter_context(proxied(directory, store, **QUIET))
            return FreshStore(proxies[id(store)])

        yield through_proxy if request.param == "http" else lambda store: store
