"""A server in this process, with all layers of the daemon as `seglog serve` sets them up, and clients of WebSockets."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from catalog.objects import ObjectStore
from offload.daemon.asgi import App
from offload.daemon.clients import for_checked_clients
from offload.daemon.connection import ANY_PATH
from offload.daemon.credential_files import Access
from offload.daemon.http import direct, make_app
from offload.daemon.listeners import Kind, Listener
from offload.daemon.request_limits import Guard
from offload.daemon.request_log import entrance
from offload.daemon.server import event_loop
from offload.daemon.service import Service
from offload.token_rights import Role, token_line
from tests.certificates import certificate
from tests.seams.delivery import new_server, take_at
from tests.worlds.services import serving, until

__all__ = ["SocketWorld", "Talk", "end_of", "in_the_loop", "refusal"]


class SocketWorld:
    """A server, and the tokens of its clients: `stays` and `gone` may append to each topic."""

    service: Service
    access: Access
    server: Any
    port: int

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.token_file = directory / "tokens"
        self.tls: ssl.SSLContext | None = None

    @asynccontextmanager
    async def served(
        self,
        app_of: Callable[[Service], App] = lambda service: direct(make_app(service)),
        *,
        asks_for_tokens: bool = True,
        is_tls: bool = False,
        is_any_path: bool = False,
        store: ObjectStore | str = "",
        **settings: str,
    ) -> AsyncIterator[Self]:
        """Serve the directory `d`. `is_any_path` lets a WebSocket have any path."""
        self.tokens("stays", "gone")
        if asks_for_tokens:
            settings = {"SERVE_TOKEN_FILE": str(self.token_file), **settings}
        if is_tls:
            certificate_file, key_file = certificate(self.directory)
            settings |= {"SERVE_TLS_CERTIFICATE": str(certificate_file), "SERVE_TLS_KEY": str(key_file)}
            self.tls = ssl.create_default_context(cafile=certificate_file)
        async with serving(self.directory / "d", store, None, **settings) as service:
            self.service, self.access = service, Access(service.settings)
            guard = Guard(app_of(service), lambda: service.settings, service.metrics, service.quota)
            checked = for_checked_clients(
                guard.known,
                lambda: service.settings,
                lambda: self.access.tokens,
                service.metrics.count_rejected,
                self.access.open_answers,
                self.access.tickets,
            )
            with socket.create_server(("127.0.0.1", 0)) as opened:
                opened.setblocking(False)
                self.port = opened.getsockname()[1]
                listener = Listener(Kind.TCP, opened, "", is_tls=is_tls)
                self.server = new_server(entrance(checked, service), listener, service.settings, service.stopping)
                if is_any_path:
                    take_at(self.server, ANY_PATH)
                task = asyncio.create_task(self.server.serve(sockets=[opened]))
                await until(lambda: bool(self.server.started), "the server starts")
                try:
                    yield self
                finally:
                    self.server.end()
                    await task

    def connected(self, name: str = "stays", path: str = "/ws", **more: Any) -> connect:
        headers = {"Authorization": f"Bearer secret-of-{name}"}
        url = f"{'wss' if self.tls else 'ws'}://localhost:{self.port}{path}"
        return connect(url, additional_headers=headers, proxy=None, max_size=None, ssl=self.tls, **more)

    @asynccontextmanager
    async def talking(self, name: str = "stays", **more: Any) -> AsyncIterator[Talk]:
        async with self.connected(name, **more) as client:
            yield Talk(client)

    def tokens(self, *given: str | tuple[str, Role, str]) -> None:
        """Write the token file: a name may append to each topic, or comes with its role and its topics."""
        named = [(each, Role.APPEND, "*") if isinstance(each, str) else each for each in given]
        lines = (token_line(name, role, topics, f"secret-of-{name}") + "\n" for name, role, topics in named)
        self.token_file.write_text("".join(lines))
        self.token_file.chmod(0o600)

    def reload(self, *given: str | tuple[str, Role, str]) -> None:
        self.tokens(*given)
        self.access.reload(self.service.settings, [])

    def rejected(self, reason: str) -> bool:
        """Return whether a metric counts a refusal for the reason."""
        return f'reason="{reason}"' in self.service.metrics.text(lambda _: True).decode()


class Talk:
    """A client that speaks the messages of `/ws`. `heard` are the records of each subscription, by its id."""

    def __init__(self, client: ClientConnection) -> None:
        self.client = client
        self.heard: dict[int, list[tuple[int, str]]] = {}
        self.last: dict[int, str] = {}

    async def say(self, do: str, number: int = 1, **members: Any) -> None:
        await self.client.send(json.dumps({"do": do, "id": number, **members}))

    async def hear(self) -> dict[str, Any]:
        """Return the next message. Take note of its records."""
        async with asyncio.timeout(30):
            text = await self.client.recv()
        assert isinstance(text, str)
        message: dict[str, Any] = json.loads(text)
        if message["is"] == "records":
            found = [(each["seq"], each["value"]) for each in message["records"] if each["kind"] == "record"]
            self.heard.setdefault(message["id"], []).extend(found)
        if "last" in message:
            self.last[message["id"]] = message["last"]
        return message

    async def ask(self, do: str, number: int = 1, **members: Any) -> dict[str, Any]:
        """Say a message, and return the next one of the daemon."""
        await self.say(do, number, **members)
        return await self.hear()

    async def until(self, number: int, count: int) -> list[tuple[int, str]]:
        """Return the records of a subscription once there are so many, each as its seq and its value."""
        while len(self.heard.get(number, ())) < count:
            await self.hear()
        return self.heard[number]

    async def is_quiet(self) -> bool:
        """Return whether no message comes for a while."""
        try:
            async with asyncio.timeout(0.2):
                await self.client.recv()
        except TimeoutError:
            return True
        return False


def in_the_loop(run: Coroutine[Any, Any, None]) -> None:
    """Run a test in the event loop of the daemon: that of uvloop, if it is installed."""
    with asyncio.Runner(loop_factory=event_loop().make) as runner:
        runner.run(run)


async def refusal(connecting: connect) -> tuple[int, Mapping[str, Any]]:
    """Return the status and the problem of a WebSocket that is refused."""
    with pytest.raises(InvalidStatus) as caught:
        async with connecting:
            pass
    response = caught.value.response
    assert response.headers["content-type"] == "application/problem+json"
    return response.status_code, json.loads(response.body or b"")


async def end_of(client: ClientConnection) -> tuple[int | None, str | None]:
    """Return the code and the reason of the server's close."""
    with suppress(ConnectionClosed):
        while True:
            await client.recv()
    return client.close_code, client.close_reason
