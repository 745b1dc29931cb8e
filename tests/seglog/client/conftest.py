"""Real daemons, and a client of each kind of address, that the tests of the client share."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, cast

import pytest

import seglog
from seglog.client import Client, aio
from seglog.client.aio import AsyncRemoteFollower, AsyncRemoteProducer, AsyncRemoteQueue, AsyncRemoteTopic
from tests.certificates import certificate
from tests.daemons import served
from tests.worlds.places import PATIENT, TOKEN, Place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    # The address of a Unix socket has 108 bytes at most. The path of this directory is longer.
    directory = tmp_path_factory.mktemp("d" * 120)
    seglog.open(directory).close()
    public, key = certificate(directory)
    token = directory / "token"
    token.write_text(TOKEN)
    variables = {"TLS_CERTIFICATE": str(public), "TLS_KEY": str(key), "TOKEN_FILE": str(token)}
    with served(directory, "", **{f"SERVE_{name}": text for name, text in variables.items()}) as daemon:
        yield Place(daemon, directory, public)


class InLoop:
    """An object of the client for asyncio, whose calls run its event loop until they have a result.

    So one suite tests both drivers.
    """

    def __init__(self, runner: asyncio.Runner, inner: Any) -> None:
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return self._plain(getattr(self._inner, name))

    def __enter__(self) -> InLoop:
        self._runner.run(self._inner.__aenter__())
        return self

    def __exit__(self, *told: Any) -> None:
        self._runner.run(self._inner.__aexit__(*told))

    def __iter__(self) -> InLoop:
        return self

    def __next__(self) -> Any:
        try:
            return self._runner.run(anext(self._inner))
        except StopAsyncIteration:
            raise StopIteration from None

    def _plain(self, found: Any) -> Any:
        if inspect.iscoroutine(found):
            return self._runner.run(found)
        if inspect.isasyncgen(found):
            return self._items(found)
        if callable(found):
            return lambda *given, **named: self._plain(self._called(found, given, named))
        kinds = (AsyncRemoteTopic, AsyncRemoteProducer, AsyncRemoteFollower, AsyncRemoteQueue)
        return InLoop(self._runner, found) if isinstance(found, kinds) else found

    def _called(self, call: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        async def within() -> Any:  # a call may look for the loop
            return call(*(_awaited(each) if inspect.isgenerator(each) else each for each in given), **named)

        return self._runner.run(within())

    def _items(self, items: AsyncGenerator[Any]) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run(anext(items))  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(items.aclose())  # type: ignore[arg-type]


async def _awaited(items: Iterator[Any]) -> AsyncGenerator[Any]:
    for item in items:
        yield item


_SOAKED = pytest.mark.soak(part=2)


@pytest.fixture(
    params=["unix", pytest.param("https", marks=_SOAKED), pytest.param("unix asyncio", marks=_SOAKED), "https asyncio"]
)
def client(request: pytest.FixtureRequest, place: Place) -> Iterator[Client]:
    """Return a client. The default run has each driver and each kind of address once, and the soak each pair."""
    kind, _, driver = request.param.partition(" ")
    if not driver:
        with place.connect(kind) as made:
            yield made
        return
    with asyncio.Runner() as runner:
        given = {} if kind == "unix" else {"token": TOKEN, "ca_file": place.ca_file}
        with InLoop(runner, aio.connect(place.url(kind), **given, retries=PATIENT)) as made_in_loop:
            yield cast("Client", made_in_loop)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test has."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:100]


@pytest.fixture
def free_port() -> Callable[[], int]:
    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as one:
            return int(one.getsockname()[1])

    return find
