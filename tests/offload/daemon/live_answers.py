"""A client of the daemon's application in this process, whose answers do not end by themselves.

The layers are those of a listener over TCP: the entrance, the checks of clients, the guard, and the routes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offload.daemon.asgi import App
from offload.daemon.clients import for_checked_clients
from offload.daemon.credential_files import Access
from offload.daemon.http import direct, make_app
from offload.daemon.request_limits import Guard
from offload.daemon.request_log import entrance
from offload.daemon.service import Service
from offload.settings import ServeSettings
from offload.token_rights import Role, token_line
from tests.worlds.services import serving

__all__ = ["Listening", "LiveAnswer", "LiveEvent", "events_in", "listening", "write_tokens"]

_PATIENCE_S = 20


def write_tokens(path: Path, *lines: tuple[str, Role, str], tenant: str = "") -> None:
    """Write a token file. The token of NAME is `secret-of-NAME`."""
    path.write_text("".join(token_line(*each, f"secret-of-{each[0]}", tenant) + "\n" for each in lines))
    path.chmod(0o600)


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event, or a block without data. `id` is the one to come again with."""

    name: str
    data: Any
    id: str


def events_in(raw: bytes, last_id: str = "") -> list[LiveEvent]:
    """Return the blocks of a stream that are whole. A block without data has the name `` and the data None."""
    events: list[LiveEvent] = []
    for block in raw.split(b"\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n") if not line.startswith(":"))
        last_id = fields.get("id", last_id)
        data = json.loads(fields["data"]) if "data" in fields else None
        events.append(LiveEvent(fields.get("event", ""), data, last_id))
    return events


@dataclass
class LiveAnswer:
    """One request under way. While `is_stuck`, its client takes nothing."""

    app: App
    target: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    method: str = "GET"
    body: bytes = b""
    status: int = 0
    answer_headers: dict[str, str] = field(default_factory=dict[str, str])
    raw: bytes = b""
    is_stuck: bool = False
    taken: int = 0  # of the events

    def __post_init__(self) -> None:
        self._news = asyncio.Event()
        self._gone = asyncio.Event()
        self._flows = asyncio.Event()
        self._flows.set()

    async def __aenter__(self) -> LiveAnswer:
        path, _, query = self.target.partition("?")
        headers = {"host": "127.0.0.1", **{name.lower(): text for name, text in self.headers.items()}}
        if self.body:
            headers["content-length"] = str(len(self.body))
        scope = {
            "type": "http", "method": self.method, "path": path, "raw_path": path.encode(), "http_version": "1.1",
            "query_string": query.encode(), "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
        }  # fmt: skip
        self.task = asyncio.create_task(self._run(scope))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    async def _run(self, scope: dict[str, Any]) -> None:
        try:
            await self.app(scope, self._receive, self._send)
        finally:
            self._news.set()

    async def leave(self) -> None:
        """Close the connection, as a client that goes away."""
        self._gone.set()
        self._flows.set()
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(self.task, return_exceptions=True)

    def stick(self) -> None:
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    async def _receive(self) -> dict[str, Any]:
        if self.body is not None:
            body, self.body = self.body, None  # type: ignore[assignment]
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.answer_headers = {name.decode(): text.decode() for name, text in message["headers"]}
        else:
            self.raw += message.get("body", b"")
        self._news.set()
        await self._flows.wait()

    async def until_status(self) -> int:
        """Return the status, as soon as it is known."""
        await self.wait_for(lambda: self.status)
        return self.status

    async def whole(self) -> Any:
        """Return the body of an answer that ends, as JSON if it is some."""
        async with asyncio.timeout(_PATIENCE_S):
            await self.task
        return json.loads(self.raw) if self.raw.startswith(b"{") else self.raw

    @property
    def events(self) -> list[LiveEvent]:
        return [each for each in events_in(self.raw) if each.name]

    async def take(self, count: int) -> list[LiveEvent]:
        """Return the next events."""
        await self.wait_for(lambda: len(self.events) >= self.taken + count)
        self.taken += count
        return self.events[self.taken - count : self.taken]

    async def until(self, is_last: Any) -> list[LiveEvent]:
        """Return all events up to now, once `is_last` is true for one."""
        await self.wait_for(lambda: any(map(is_last, self.events)))
        return self.events

    async def begin(self) -> None:
        """Return when the stream has its place in each topic."""
        await self.wait_for(lambda: b"\n\n" in self.raw)
        assert self.status == 200, self.raw

    async def end(self) -> list[LiveEvent]:
        """Return all events of a stream that the daemon ends."""
        async with asyncio.timeout(_PATIENCE_S):
            await asyncio.gather(self.task, return_exceptions=True)
        return self.events

    async def wait_for(self, is_so: Any) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            while not is_so():
                assert not self.task.done(), (self.status, self.raw[-2000:])
                self._news.clear()
                await self._news.wait()


@dataclass
class Listening:
    """A service behind the layers of its listener, in this process."""

    service: Service
    app: App
    access: Access
    settings: ServeSettings
    token_file: Path

    def get(self, target: str, token: str = "", method: str = "GET", **headers: str) -> LiveAnswer:
        own = {"authorization": f"Bearer secret-of-{token}"} if token else {}
        return LiveAnswer(self.app, target, {**own, **{n.replace("_", "-"): t for n, t in headers.items()}}, method)

    async def ask(self, target: str, token: str = "", method: str = "GET", **headers: str) -> tuple[int, Any]:
        async with self.get(target, token, method, **headers) as answer:
            body = await answer.whole()
            return answer.status, body

    async def ticket(self, token: str = "") -> str:
        status, told = await self.ask("/tickets", token, "POST")
        assert status == 200, told
        return str(told["ticket"])

    def append(self, topic: str, *values: str, **options: Any) -> range:
        return self.service.sync.topic(topic).append([value.encode() for value in values], **options)

    def reload(self, *lines: tuple[str, Role, str]) -> None:
        """Take the tokens from other lines, as SIGHUP does."""
        write_tokens(self.token_file, *lines)
        self.access.reload(self.settings, [])


@asynccontextmanager
async def listening(
    directory: Path, *lines: tuple[str, Role, str], remote: str = "", **serve: Any
) -> AsyncIterator[Listening]:
    """Yield a service over TCP. With lines of a token file, its clients need a token."""
    tokens = directory / "tokens"
    directory.mkdir(exist_ok=True)
    write_tokens(tokens, *lines)
    settings = ServeSettings(token_file=str(tokens) if lines else "", **serve)
    access = Access(settings)
    async with serving(directory / "d", remote) as service:
        guard = Guard(direct(make_app(service)), lambda: settings, service.metrics)
        checked = for_checked_clients(
            guard.known,
            lambda: settings,
            lambda: access.tokens,
            service.metrics.count_rejected,
            access.open_answers,
            access.tickets,
        )
        yield Listening(service, entrance(checked, service), access, settings, tokens)
