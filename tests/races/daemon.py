"""A daemon of the schedule: its routes, its service and its threads, without sockets.

A client is a thread. What it sends reaches the event loop as arrivals: the request, its body, its leave. The daemon
waits before its next answer's part until the client has taken the one before, as after a full buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import seglog
from offload.daemon.asgi import App
from offload.daemon.clients import for_checked_clients
from offload.daemon.credential_files import Access
from offload.daemon.http import direct, make_app
from offload.daemon.laminarmq import make_laminarmq_app
from offload.daemon.request_limits import Guard
from offload.daemon.request_log import entrance
from offload.daemon.service import Service, open_service
from offload.settings import read_settings
from offload.token_rights import Role, token_line
from tests.races.loop import RacingLoop
from tests.races.world import World

__all__ = ["LAMINARMQ", "Answer", "Daemon", "Request"]

LAMINARMQ = "laminarmq"
"""The port of the commit log server, which serves the topic `t`."""

_QUICK = {
    "SEGLOG_SERVE_CHECK_INTERVAL_MS": "3600000",
    "SEGLOG_SERVE_MAX_REQUESTS": "16",
    "SEGLOG_OFFLOAD_BLOCK_SIZE": "33554432",
    "SEGLOG_OFFLOAD_CODEC": "none",
    "SEGLOG_OFFLOAD_CONCURRENCY": "1",
    "SEGLOG_COLD_CACHE_BYTES": "0",
    "SEGLOG_LOG_WAL_FILE_BYTES": "65536",
    "SEGLOG_LOG_DISK_REJECT_BYTES": "0",
}


@dataclass(frozen=True)
class Request:
    """One request of a client. `leaves_after_s` ends one that waits for news. `port` is that of the API, if empty."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    token: str = "boss"
    leaves_after_s: float = 0.0
    port: str = ""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Daemon:
    """A daemon whose event loop is a thread of the schedule."""

    def __init__(self, world: World, tokens: Path) -> None:
        self.world = world
        self._tokens = tokens
        self.loop: RacingLoop = RacingLoop(world.turns)
        self.access: Access
        self.service: Service
        self.known: dict[str, str] = {}  # what the clients know before the race
        self._apps: dict[str, App] = {}
        self._looks: dict[str, Callable[[], Awaitable[None]]] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[Daemon]:
        self.allow("boss", "reader")
        ready, self._end = threading.Event(), asyncio.Event()
        thread = threading.Thread(target=self._run, args=(ready,), name="loop")
        thread.start()
        ready.wait()
        if not hasattr(self, "service"):  # it did not start
            thread.join()
            raise thread.error  # type: ignore[attr-defined]
        try:
            yield self
        finally:
            self.loop.call_soon_threadsafe(self._end.set)
            thread.join()
        if thread.error is not None:  # type: ignore[attr-defined]
            raise thread.error  # type: ignore[attr-defined]

    def allow(self, *names: str) -> None:
        """Write the token file."""
        roles = {"boss": Role.ADMIN, "reader": Role.READ}
        self._tokens.write_text(
            "".join(token_line(each, roles[each], "*", f"secret-of-{each}", "") + "\n" for each in names)
        )
        self._tokens.chmod(0o600)

    def reload(self) -> None:
        """Read the token file again, as after SIGHUP."""
        done = threading.Event()

        def act() -> None:
            self.access.reload(self.service.settings, ())
            done.set()

        self.loop.call_soon_threadsafe(act)
        done.wait()

    def sweep(self) -> None:
        """Let the background look at the streams, as it does some time later."""
        asyncio.run_coroutine_threadsafe(_awaited(self._looks["streams"]), self.loop).result()

    def ask(self, request: Request) -> Answer:
        """Send a request, and return its answer. The caller is a thread of the schedule."""
        taken: queue.SimpleQueue[Any] = queue.SimpleQueue()
        told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        loop, turns = self.loop, self.world.turns
        scope, app = _scope(request), self._apps[request.port]

        async def send(message: MutableMapping[str, Any]) -> None:
            has_taken = loop.create_future()
            taken.put((message, has_taken))
            if turns.is_racing:
                await has_taken

        async def run() -> None:
            try:
                await app(scope, told.get, send)
                taken.put((None, None))
            except asyncio.CancelledError:
                taken.put((None, None))
                raise
            except BaseException as error:
                taken.put((error, None))

        tasks: list[asyncio.Task[None]] = []
        loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(run())))
        pieces = (
            [request.body[: len(request.body) // 2], request.body[len(request.body) // 2 :]] if request.body else [b""]
        )
        for number, piece in enumerate(pieces):
            message = {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
            loop.call_soon_threadsafe(told.put_nowait, message)
        status, headers, body, due_s = 0, {}, b"", turns.now_s + request.leaves_after_s
        has_left = not request.leaves_after_s
        while True:
            try:
                message, has_taken = taken.get(timeout=None if has_left else max(0.0, due_s - turns.now_s))
            except queue.Empty:
                loop.call_soon_threadsafe(told.put_nowait, {"type": "http.disconnect"})
                has_left = True
                continue
            if isinstance(message, BaseException):
                raise message
            if message is None:
                return Answer(status, headers, body)
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = {name.decode(): text.decode() for name, text in message.get("headers", ())}
            else:
                body += message.get("body", b"")
            loop.call_soon_threadsafe(_set, has_taken)

    def _run(self, ready: Any) -> None:
        try:
            self.loop.run_until_complete(self._serve(ready))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            ready.set()
            self.loop.close()

    async def _serve(self, ready: Any) -> None:
        path = self.world.path("d")
        settings = read_settings(path / seglog.SETTINGS_FILE, {**_QUICK, "SEGLOG_SERVE_TOKEN_FILE": str(self._tokens)})
        files, store = self.world.files("d"), self.world.store
        if not files.is_dir(path):
            seglog.open(path, files=files, clock=self.world).close()
        service = await open_service(path, settings, store=store, clock=self.world, files=files)
        try:
            self.service, self.access = service, Access(settings.serve, "")
            service.repeat = self._looks.__setitem__
            guard = Guard(direct(make_app(service)), lambda: service.settings, service.metrics, service.quota)
            commit_log = guard.before(make_laminarmq_app(service, "t"))
            self._apps = {"": self._checked(guard.known), LAMINARMQ: self._checked(commit_log)}
            ready.set()
            await self._end.wait()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await service.close()

    def _checked(self, app: App) -> App:
        """Return an app behind the checks of clients and the entrance."""
        service, access = self.service, self.access
        checked = for_checked_clients(
            app, lambda: service.settings, lambda: access.tokens, lambda _: None, access.open_answers
        )
        return entrance(checked, service)


async def _awaited(look: Callable[[], Awaitable[None]]) -> None:
    await look()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _scope(request: Request) -> dict[str, Any]:
    path, _, query = request.path.partition("?")
    headers = {"host": "localhost", "authorization": f"Bearer secret-of-{request.token}", **request.headers}
    if request.body:
        headers["content-length"] = str(len(request.body))
    return {
        "type": "http",
        "method": request.method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("localhost", 7070),
        "client": ("127.0.0.1", 1),
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
    }
