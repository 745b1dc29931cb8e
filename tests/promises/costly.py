"""A daemon with much of one thing, the requests to it, and the work that each request makes.

The clock goes on by a minute before each request. So what a request does once in a while counts, too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import json
import selectors
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

import seglog
from catalog.objects.memory import MemoryStore
from offload.daemon import http
from offload.daemon.http import direct
from offload.daemon.service import Service, open_service
from offload.daemon.tickets import Tickets
from offload.settings import read_settings
from offload.token_rights import EVERYTHING, RIGHTS_KEY
from seglog import Topic
from seglog.client.bodies import LINES_TYPE, VALUES_TYPE
from tests.faults.files import FailingCalls, UnsyncedFiles
from tests.faults.store import CountingStore
from tests.seams.archive import looks_of
from tests.worlds.clock import HandClock

__all__ = [
    "JSON",
    "JSON_LINES",
    "LINES",
    "TTL",
    "VALUES",
    "Dimension",
    "Measure",
    "Request",
    "World",
    "command",
    "loop_calls",
]

JSON, JSON_LINES, LINES, VALUES = (
    (b"content-type", kind.encode()) for kind in ("application/json", "application/x-ndjson", LINES_TYPE, VALUES_TYPE)
)
TTL = (b"stream-ttl", b"100000")
_SETTINGS = {"SEGLOG_SERVE_CHECK_INTERVAL_MS": "3600000", "SEGLOG_OFFLOAD_BLOCK_SIZE": "33554432"}
_MINUTE_MS = 60_000

# How often the loop waits for a thread is chance, so the calls of its own modules are no measure.
_OF_THE_LOOP = tuple({str(Path(asyncio.__file__).parent), str(Path(concurrent.futures.__file__).parent)})
_WAITING = (*_OF_THE_LOOP, selectors.__file__, threading.__file__)


class Dimension(Enum):
    """What a directory has much of. Each topic, commit and stream has one record."""

    TOPICS = "topics"
    RECORDS = "records of a topic, in one segment"
    COMMITS = "commits of a topic, each with a segment"
    BRANCHES = "branches of a topic"
    STREAMS = "streams with a time to live"


class Measure(Enum):
    CALLS = "calls in the event loop"
    STORE = "requests to the store"
    FILES = "calls of the log's file system"


@dataclass(frozen=True, slots=True)
class Request:
    """A request. `kind` is a method and a path of the table of routes, or the path of a command."""

    kind: str
    method: str
    path: str
    body: bytes | Callable[[World], bytes] = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    query: bytes = b""


def command(kind: str, given: Callable[[World], dict[str, object]] | None = None, **named: object) -> Request:
    """Return the request that runs a command. `given` returns arguments that depend on the world."""
    body = (lambda world: json.dumps(named | given(world)).encode()) if given else json.dumps(named).encode()
    return Request(kind, "POST", f"/rpc/{kind}", body, (JSON,))


def loop_calls(work: Callable[[], object], counts: Callable[[], bool] = lambda: True) -> int:
    """Return the calls of functions that `work` makes in this thread, without those by which an event loop waits.

    Only the calls count at which `counts` returns True.
    """
    count, waiting = 0, dict[CodeType, bool]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        if event != "call" and event != "c_call":
            return
        code = frame.f_code
        waits = waiting.get(code)
        if waits is None:
            waits = waiting[code] = code.co_filename.startswith(_WAITING)
        if not waits:
            count += counts()

    gc.disable()  # its callbacks and finalizers are not calls of `work`
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


class World:
    """A daemon without sockets. Topic `t` has two commits and the branch `fix`, and there is the stream `s`."""

    def __init__(self, directory: Path) -> None:
        self._clock, self._store = HandClock(), CountingStore(MemoryStore())
        self._files = FailingCalls(UnsyncedFiles(), 0, OSError)
        self._runner = asyncio.Runner()
        self.service = self._runner.run(self._open(directory))
        self.app = http.make_app(self.service)
        self._answers = direct(self.app)
        self.answer = b""
        self._commit(self.service.sync.create_topic("t"), b"a", b"b", b"c")
        self._commit(self.service.sync.topic("t"), b"d")
        self.ask(command("branch/create", topic="t", name="fix"))
        self.ask(Request("", "PUT", "/streams/s", b"[0]", (JSON, TTL)))

    async def _open(self, directory: Path) -> Service:
        seglog.open(directory).close()
        settings = read_settings(directory / seglog.SETTINGS_FILE, _SETTINGS)
        return await open_service(directory, settings, store=self._store, clock=self._clock, files=self._files)

    def close(self) -> None:
        self._runner.run(self.service.close())
        self._runner.close()

    def grow(self, dimension: Dimension, number: int) -> None:
        """Make `number` more of one thing."""
        log, topic = self.service.sync, self.service.sync.topic("t")
        match dimension:
            case Dimension.RECORDS:
                self._commit(topic, *[b"r"] * number)
            case Dimension.COMMITS:
                for _ in range(number):
                    self._commit(topic, b"c")
            case Dimension.TOPICS:
                for place in range(number):
                    self._commit(log.create_topic(f"o{place}"), b"o")
            case Dimension.BRANCHES:
                for place in range(number):
                    self.ask(command("branch/create", topic="t", name=f"b{place}"))
            case Dimension.STREAMS:
                for place in range(number):
                    self.ask(Request("", "PUT", f"/streams/x{place}", b"[0]", (JSON, TTL)))

    def _commit(self, topic: Topic, *values: bytes) -> None:
        assert self.service.archive is not None
        topic.append(list(values), durability="memory")
        topic.seal()
        self.service.archive.offload(topic.name)

    @property
    def head(self) -> int:
        return self.service.sync.topic("t").head_seq

    def some_key(self) -> str:
        """Return the key of an object in the store."""
        return max(key for key in self._store.list(""))

    def ask(self, request: Request) -> dict[Measure, int]:
        """Make a request, keep its answer, and return its work. Raises AssertionError if it is refused."""
        return self._measured(lambda: self._asked(request))

    def look(self, task: str) -> dict[Measure, int]:
        """Let a task of the background look once, and return its work."""
        return self._measured(looks_of(self.service)[task])

    def _measured(self, work: Callable[[], Awaitable[None]]) -> dict[Measure, int]:
        self._clock.ms += _MINUTE_MS
        store, files = self._store.counts.total(), len(self._files.kinds)

        async def run() -> None:
            await work()

        calls = loop_calls(lambda: self._runner.run(run()))
        return {
            Measure.CALLS: calls,
            Measure.STORE: self._store.counts.total() - store,
            Measure.FILES: len(self._files.kinds) - files,
        }

    async def _asked(self, request: Request) -> None:
        body = request.body if isinstance(request.body, bytes) else request.body(self)
        if request.path == "/ws":
            await self._talked(request, body)
            return
        told = iter([{"type": "http.request", "body": body, "more_body": False}])
        sent: list[MutableMapping[str, Any]] = []
        has_begun = asyncio.Event()

        async def receive() -> dict[str, Any]:
            message = next(told, None)
            if message is None:  # the client leaves an answer without an end once that has begun
                await (
                    has_begun
                    if request.path in ("/daemon/events", "/events", "/topics/t/queues/q/work")
                    else asyncio.Event()
                ).wait()
                return {"type": "http.disconnect"}
            return cast("dict[str, Any]", message)

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)
            if message.get("body"):
                has_begun.set()

        scope = {"type": "http", "http_version": "1.1", "scheme": "http", "root_path": "", RIGHTS_KEY: EVERYTHING}
        named = {"method": request.method, "path": request.path, "query_string": request.query}
        scope |= {**named, "headers": [*request.headers]}
        Tickets().begin(scope)  # as a listener over TCP does
        await self._answers(scope, receive, send)
        self.answer = b"".join(message.get("body", b"") for message in sent[1:])
        is_error = sent[0]["status"] >= 300 or (request.path.startswith("/rpc/") and b'"error":' in self.answer)
        assert not is_error, f"{request.kind} with {body[:200]!r}: {self.answer[:500]!r}"

    async def _talked(self, request: Request, body: bytes) -> None:
        """Say each line of the body over a WebSocket, and leave once records came."""
        said = [{"type": "websocket.receive", "text": line.decode()} for line in body.splitlines()]
        told = iter([{"type": "websocket.connect"}, *said])
        sent: list[str] = []
        has_records = asyncio.Event()

        async def receive() -> dict[str, Any]:
            message = next(told, None)
            if message is None:
                await has_records.wait()
            return message or {"type": "websocket.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message.get("text", ""))
            if '"is":"records"' in sent[-1]:
                has_records.set()

        scope = {"type": "websocket", "root_path": "", RIGHTS_KEY: EVERYTHING, "headers": [], "query_string": b""}
        await self._answers({**scope, "method": request.method, "path": request.path}, receive, send)
        assert not [text for text in sent if '"is":"error"' in text], sent
