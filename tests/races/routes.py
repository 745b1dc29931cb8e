"""Calls over HTTP that meet in one daemon: its routes, its service and its threads, without sockets.

A client is a thread. What it sends reaches the event loop as arrivals: the request, its body, its leave. The daemon
waits before its next answer's part until the client has taken the one before, as after a full buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import seglog
from offload.daemon.access import Access
from offload.daemon.asgi import App
from offload.daemon.clients import for_checked_clients
from offload.daemon.entrance import entrance
from offload.daemon.guard import Guard
from offload.daemon.http import make_app
from offload.daemon.http.direct import direct
from offload.daemon.opening import open_service
from offload.daemon.service import Service
from offload.rights import Role, token_line
from offload.settings_file import read_settings
from tests.races.loop import RacingLoop
from tests.races.meeting import meet
from tests.races.serial import Result
from tests.races.turns import Turns
from tests.races.world import BEGINNING, Beginning, World

__all__ = ["Answer", "Daemon", "Request"]

BYTES = {"content-type": "application/octet-stream"}
TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}
_LONG = "n" * 100  # longer than the part of a path that the name of a branch has

_QUICK = {
    "SEGLOG_SERVE_CHECK_INTERVAL_MS": "3600000",
    "SEGLOG_SERVE_MAX_REQUESTS": "16",
    "SEGLOG_OFFLOAD_BLOCK_SIZE": "33554432",
    "SEGLOG_OFFLOAD_CODEC": "none",
    "SEGLOG_OFFLOAD_CONCURRENCY": "1",
    "SEGLOG_COLD_CACHE_BYTES": "0",
    "SEGLOG_LOG_WAL_FILE_BYTES": "65536",
}


@dataclass(frozen=True)
class Request:
    """One request of a client. `leaves_after_s` ends one that waits for news."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    token: str = "boss"
    leaves_after_s: float = 0.0


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
        self.app: App
        self.access: Access
        self.service: Service
        self._looks: dict[str, Callable[[], Awaitable[None]]] = {}

    @contextlib.contextmanager
    def running(self) -> Iterator[Daemon]:
        self.allow("boss", "reader")
        ready, self._end = threading.Event(), asyncio.Event()
        thread = threading.Thread(target=self._run, args=(ready,), name="loop")
        thread.start()
        ready.wait()
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
        scope = _scope(request)

        async def send(message: MutableMapping[str, Any]) -> None:
            has_taken = loop.create_future()
            taken.put((message, has_taken))
            if turns.is_racing:
                await has_taken

        async def run() -> None:
            try:
                await self.app(scope, told.get, send)
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
            access = self.access
            checked = for_checked_clients(
                guard.known, lambda: service.settings, lambda: access.tokens, lambda _: None, access.open_answers
            )
            self.app = entrance(checked, service)
            ready.set()
            await self._end.wait()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            await service.close()


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


# ---------------------------------------------------------------- the calls

LINES = {"content-type": "application/vnd.seglog.lines"}
_FORK = {"stream-forked-from": "/streams/s", **TEXT}


def _batch(number: int) -> dict[str, str]:
    return {**LINES, "producer-id": "p", "producer-epoch": "0", "producer-seq": str(number)}


def _post(path: str, body: bytes, headers: dict[str, str]) -> Request:
    return Request("POST", path, body, headers)


def _rpc(path: str, **given: Any) -> Request:
    return Request("POST", path, json.dumps(given).encode(), JSON)


_RECORDS = "/topics/t/records"
_FOLLOW_S = 3.0

TOPICS = {
    "append": _post(_RECORDS, b"one", BYTES),
    "append two": _post(f"{_RECORDS}?whole=1", b"two\nthree\n", LINES),
    "append as producer": _post(_RECORDS, b"four\nfive\n", _batch(0)),
    "append next as producer": _post(_RECORDS, b"six\n", _batch(1)),
    "append by key": _post(_RECORDS, b"seven\n", {**LINES, "idempotency-key": "k"}),
    "append if head": _post(_RECORDS, b"eight\n", {**LINES, "seglog-if-head": "3"}),
    "truncate": _rpc("/topics/t/rpc/truncate", seq=3),
    "delete": _rpc("/topics/t/rpc/delete", before=2, yes=True),
    "delete topic": _rpc("/topics/t/rpc/topic/delete", yes=True),
    "create topic": _rpc("/topics/t/rpc/topic/create"),
    "create another": _rpc("/topics/n/rpc/topic/create"),
    "append to another": _post("/topics/n/records", b"nine\n", LINES),
    "seal": _rpc("/topics/t/rpc/seal"),
    "read": Request("GET", f"{_RECORDS}?from=1"),
    "read by command": _rpc("/topics/t/rpc/read"),
    "follow": Request("GET", f"{_RECORDS}?from=1&follow=1", leaves_after_s=_FOLLOW_S),
}
STREAMS = {
    "make": Request("PUT", "/streams/new", b"m", TEXT),
    "make otherwise": Request("PUT", "/streams/new", b"[1]", JSON),
    "append": Request("POST", "/streams/s", b"one", TEXT),
    "append with a number": Request("POST", "/streams/s", b"two", {**TEXT, "stream-seq": "5"}),
    "close": Request("POST", "/streams/s", b"", {"stream-closed": "true"}),
    "append and close": Request("POST", "/streams/s", b"end", {**TEXT, "stream-closed": "true"}),
    "delete": Request("DELETE", "/streams/s"),
    "delete the fork": Request("DELETE", "/streams/f"),
    "append to the fork": Request("POST", "/streams/f", b"own", TEXT),
    "fork": Request("PUT", f"/streams/{_LONG}a", b"a", _FORK),
    "fork beside": Request("PUT", f"/streams/{_LONG}b", b"b", _FORK),
    "read": Request("GET", "/streams/s?offset=-1"),
    "wait": Request("GET", "/streams/s?offset=now&live=long-poll", leaves_after_s=_FOLLOW_S),
}


def _revoke(daemon: Daemon) -> object:
    """Take the reader's token away, and then append what the reader must not see."""
    daemon.allow("boss")
    daemon.reload()
    return daemon.ask(_post(_RECORDS, b"secret", BYTES)).status


_READER = "reader"
TOKENS: dict[str, Request | Callable[[Daemon], object]] = {
    "revoke": _revoke,
    "follow": Request("GET", f"{_RECORDS}?from=1&follow=1", token=_READER, leaves_after_s=_FOLLOW_S),
    "follow as events": Request(
        "GET", f"{_RECORDS}?from=1&follow=1", b"", {"accept": "text/event-stream"}, _READER, _FOLLOW_S
    ),
    "wait for records": Request("GET", f"{_RECORDS}?from=4&wait_s=2", token=_READER, leaves_after_s=_FOLLOW_S),
    "follow by command": Request("POST", "/topics/t/rpc/read", b'{"follow": true}', JSON, _READER, _FOLLOW_S),
    "watch the daemon": Request("GET", "/daemon/events", b"", {}, _READER, _FOLLOW_S),
    "wait for a stream": Request(
        "GET", "/streams/s?offset=now&live=long-poll", b"", {}, _READER, leaves_after_s=_FOLLOW_S
    ),
}

_BEGINNING = (
    _post(_RECORDS, b"a", BYTES),
    _post(f"{_RECORDS}?tag=eu", b"b", BYTES),
    _post(_RECORDS, b"c", BYTES),
    Request("PUT", "/streams/s", b"x", TEXT),
    Request("POST", "/streams/s", b"y", TEXT),
    Request("PUT", "/streams/f", b"", _FORK),
)
_TOPICS = ("t", "n")
_PATHS = ("s", "f", "new", f"{_LONG}a", f"{_LONG}b")


# ---------------------------------------------------------------- the scene


@dataclass
class Routes:
    """A scene: calls of clients of one daemon, which has just been started."""

    name: str
    calls: Mapping[str, Request | Callable[[Daemon], object]]
    folder: Path
    _begun: list[Beginning] = field(default_factory=list)

    def run(self, pair: tuple[str, str], order: str, seed: int) -> Result:
        if not self._begun:
            self._begun.append(self._begin())
        turns = Turns(seed)
        world = World(turns, self._begun[0])
        return turns.run(lambda: self._main(world, pair, order))  # type: ignore[no-any-return]

    def allows(self, pair: tuple[str, str], met: Result, serial: Callable[[str], Result]) -> str:
        return allowed(pair, met, serial)

    def _begin(self) -> Beginning:
        turns = Turns(BEGINNING)
        world = World(turns, Beginning())

        def main() -> Beginning:
            with world.databases():
                with self._daemon(world).running() as daemon:
                    for request in _BEGINNING:
                        answer = daemon.ask(request)
                        assert answer.status in (200, 201, 204), answer
                return world.end()

        return turns.run(main)  # type: ignore[no-any-return]

    def _daemon(self, world: World) -> Daemon:
        return Daemon(world, self.folder / "tokens")

    def _main(self, world: World, pair: tuple[str, str], order: str) -> Result:
        turns = world.turns
        with world.databases():
            with self._daemon(world).running() as daemon:
                answers = meet(turns, [lambda name=name: self._call(daemon, name) for name in pair], order)
                turns.sleep(_SWEEP_S)
                daemon.sweep()
                state = state_of(daemon)
            if order == "met" and turns.random.random() < 0.2:
                with self._daemon(world).running() as daemon:
                    again = state_of(daemon)
                assert again == state, f"a restart changes what is there:\nbefore: {state}\nafter:  {again}"
        return Result(answers, state)

    def _call(self, daemon: Daemon, name: str) -> object:
        call = self.calls[name]
        if not isinstance(call, Request):
            return call(daemon)
        return said(daemon.ask(call), is_change=call.method == "POST")


_SWEEP_S = 30.0
_SAID = ("stream-next-offset", "stream-closed", "stream-up-to-date", "content-type")
_RANDOM = re.compile(r"_g[0-9a-f]+")
_LEFT_OUT = {
    "ts_ms", "time", "incarnation", "request_id", "detail", "hint", "lsn", "seconds", "created_at_ms", "id", "vid",
}  # fmt: skip


#: Where a topic or a stream ends is looked up after the change, so the other call may have come in between.
_LATER = {"next_seq", "head_seq", "stream-next-offset"}


def said(answer: Answer, *, is_change: bool = False) -> object:
    """Return what an answer says, without times and random ids, and that of a change without `_LATER`."""
    left_out = _LEFT_OUT | _LATER if is_change else _LEFT_OUT
    headers = {name: text for name, text in answer.headers.items() if name in _SAID and name not in left_out}
    text = _RANDOM.sub("_g", answer.body.decode())
    if answer.status >= 400:
        return [answer.status, json.loads(text)["title"] if text else ""]
    if "text/event-stream" in headers.get("content-type", ""):
        lines = [each.removeprefix("data:").strip() for each in text.splitlines() if each.startswith("data:")]
    else:
        lines = text.splitlines()
    return [answer.status, headers, [_plain(each, left_out) for each in lines]]


def _plain(line: str, left_out: set[str]) -> Any:
    try:
        return _without(json.loads(line), left_out)
    except ValueError:
        return line


def _without(value: Any, left_out: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: _without(each, left_out) for name, each in value.items() if name not in left_out}
    return [_without(each, left_out) for each in value] if isinstance(value, list) else value


def state_of(daemon: Daemon) -> dict[str, object]:
    """Return what readers find of each topic and each stream."""
    found: dict[str, object] = {"topics": said(daemon.ask(Request("GET", "/topics")))}
    for name in _TOPICS:
        found[name] = said(daemon.ask(Request("GET", f"/topics/{name}/records?from=1&gaps=1")))
        found[f"bounds of {name}"] = said(daemon.ask(Request("GET", f"/topics/{name}/index_bounds")))
    for path in _PATHS:
        found[path[-3:]] = [
            said(daemon.ask(Request("HEAD", f"/streams/{path}"))),
            said(daemon.ask(Request("GET", f"/streams/{path}?offset=-1"))),
        ]
    return found


def allowed(pair: tuple[str, str], met: Result, serial: Callable[[str], Result]) -> str:
    """Return why a result is fine that no order gives. These are all differences that a race may make:

    a follower lost its token   its answer ends after any of its records, or within a line (REVOKE-3)
    a delete beside another change   it counts the records beside that, and says null beside a truncation
    """
    for order in ("ab", "ba"):
        one = serial(order)
        if met.state == one.state and all(map(_may_be, met.answers, one.answers)):
            return "a follower ends within its records, or the count of deleted records is of another moment"
    return ""


def _may_be(met: Any, one: Any) -> bool:
    if met == one:
        return True
    if not (isinstance(met, list) and isinstance(one, list) and met[0] == one[0] == 200 and met[1] == one[1]):
        return False
    if met[2] and one[2] and "deleted" in met[2][0]:
        return met[2] == [{**one[2][0], "deleted": met[2][0]["deleted"]}]
    is_revoked = one[2][-1:] in ([{"end": "revoked"}], [{"reason": "revoked"}])
    records = [each for each in met[2] if isinstance(each, dict) and each not in one[2][-1:]]
    return is_revoked and records == one[2][: len(records)]
