"""Test the end of followers whose token is gone or has fewer rights after a reload, on a real daemon."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import seglog
from offload.daemon.asgi import App, Receive, Scope, Send
from offload.daemon.clients import for_checked_clients
from offload.daemon.credential_files import Access
from offload.daemon.http import direct, make_app
from offload.daemon.request_limits import Guard
from offload.daemon.request_log import entrance
from offload.daemon.revocation import keep_open, last_words
from offload.daemon.service import Service
from offload.settings import ServeSettings
from offload.token_rights import Role, token_line
from tests.daemons import ServedDirectory, served, served_tenants
from tests.offload.daemon.open_answers import EventStream, LineStream, opened
from tests.waiting import wait_until
from tests.worlds.proxies import QUIET
from tests.worlds.services import serving

ALL = (
    ("boss", Role.ADMIN, "*"),
    ("stays", Role.READ, "t,u"),
    ("lines", Role.READ, "*"),
    ("events", Role.READ, "*"),
    ("daemon", Role.READ, "*"),
    ("waits", Role.READ, "*"),
    ("commands", Role.READ, "*"),
    ("less", Role.READ, "t,u"),
)


def write(path: Path, *lines: tuple[str, Role, str], tenant: str = "") -> None:
    path.write_text("".join(token_line(*each, f"secret-of-{each[0]}", tenant) + "\n" for each in lines))
    path.chmod(0o600)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer secret-of-{name}"}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedDirectory]:
    seglog.open(tmp_path / "d").close()
    write(tmp_path / "tokens", *ALL)
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        yield daemon


def append(daemon: ServedDirectory, value: bytes) -> None:
    headers = {"Content-Type": "application/octet-stream", **bearer("boss")}
    assert daemon.ask("POST", "/topics/t/records", value, headers)[0] == 201


def hang_up(daemon: ServedDirectory, line: str) -> None:
    before = sum(line in each for each in daemon.lines)
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: sum(line in each for each in daemon.lines) > before, pause_s=0.01)


FOLLOW = "/topics/t/records?follow=1&from=1"


def test_a_follower_ends_when_its_token_is_gone_or_has_fewer_rights(daemon: ServedDirectory, tmp_path: Path) -> None:
    append(daemon, b"first")
    sse = {"Accept": "text/event-stream"}
    with ExitStack() as stack:

        def follow(name: str, path: str = FOLLOW, **more: str) -> http.client.HTTPResponse:
            return stack.enter_context(opened(daemon.port, path, {**bearer(name), **more}))

        stays, lines, less = (LineStream(follow(name)) for name in ("stays", "lines", "less"))
        events = EventStream(follow("events", **sse))
        watch = EventStream(follow("daemon", "/daemon/events"))
        command = stack.enter_context(_FollowingCommand(daemon, "commands"))
        answer = command.getresponse()
        assert b"seq" in answer.readline()  # so the daemon has the request
        for each in (stays, lines, less):
            first = each.next()
            assert first is not None
            assert first["seq"] == 1, first
        assert [each.name for each in events.take(1)] == ["record"]
        write(
            tmp_path / "tokens",
            ALL[0], ("stays", Role.APPEND, "*"), ("less", Role.READ, "u"),
        )  # fmt: skip
        hang_up(daemon, "5 open answers end")
        append(daemon, b"second")
        second = stays.next()
        assert second is not None
        assert second["seq"] == 2, second
        for each in (lines, less):
            assert each.next() == {"end": "revoked"}
            assert each.next() is None
        for stream in (events, watch):
            found = list(iter(stream.next, None))
            assert [(each.name, json.loads(each.data)) for each in found[-1:]] == [("end", {"reason": "revoked"})]
            assert b"second" not in stream.raw
        assert b"second" not in _rest_of(answer)
        # The daemon forgot them: a later reload ends nobody.
        daemon.process.send_signal(signal.SIGHUP)
        append(daemon, b"third")
        assert stays.next() is not None
        assert sum("open answers end" in each for each in daemon.lines) == 1
        assert not any("Exception" in each or "without completing" in each for each in daemon.lines)


def _rest_of(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read()
    except http.client.IncompleteRead as broken:  # nothing follows half a line (REVOKE-3)
        return broken.partial


class _FollowingCommand(http.client.HTTPConnection):
    """A command that follows, over HTTP."""

    def __init__(self, daemon: ServedDirectory, name: str) -> None:
        super().__init__("127.0.0.1", daemon.port, timeout=60)
        headers = {"Content-Type": "application/json", **bearer(name)}
        self.request("POST", "/topics/t/rpc/read", json.dumps({"follow": True}), headers)

    def __enter__(self) -> _FollowingCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_a_request_that_waits_for_a_record_gets_401(daemon: ServedDirectory, tmp_path: Path) -> None:
    append(daemon, b"first")
    waiting = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
    waiting.request("GET", "/topics/t/records?from=2&wait_s=50", headers=bearer("waits"))
    wait_until(lambda: b"seglog_http_followers_running 1.0" in daemon.ask("GET", "/metrics", None, bearer("boss"))[1])
    write(tmp_path / "tokens", ALL[0])
    hang_up(daemon, "1 open answers end")
    answer = waiting.getresponse()
    assert answer.status == 401
    assert json.loads(answer.read())["title"] == "Refused"
    waiting.close()


def test_a_follower_of_a_tenant_ends_too(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    seglog.open(root / "acme").close()
    write(tmp_path / "tokens", ("app", Role.APPEND, "*"), ("boss", Role.ADMIN, "*"), tenant="acme")
    with served_tenants(root, SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        append(daemon, b"first")
        with opened(daemon.port, FOLLOW, bearer("app")) as answer:
            follower = LineStream(answer)
            assert follower.next() is not None
            write(tmp_path / "tokens", ("app", Role.APPEND, "*"), tenant="globex")
            hang_up(daemon, "1 open answers end")
            assert follower.next() == {"end": "revoked"}
            assert follower.next() is None


@dataclass
class Asked:
    """One request to an application in this process, and what it answers."""

    app: App
    method: str
    target: str
    pieces: Sequence[bytes] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int = 0
    body: bytes = b""

    async def run(self, before: Callable[[int], None] = lambda _number: None) -> int:
        """Return the status. Call `before` with the number of each piece of the body, before it comes."""
        path, _, query = self.target.partition("?")
        headers = {"host": "127.0.0.1", **bearer("gone"), **self.headers}
        if self.pieces:
            headers |= {"content-length": str(sum(map(len, self.pieces)))}
        scope = {
            "type": "http", "method": self.method, "path": path, "raw_path": path.encode(), "http_version": "1.1",
            "query_string": query.encode(), "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
            "headers": [(name.lower().encode(), text.encode()) for name, text in headers.items()],
        }  # fmt: skip
        left = enumerate(self.pieces or [b""])

        async def receive() -> dict[str, Any]:
            number, piece = next(left, (-1, b""))
            if number < 0:
                await asyncio.Event().wait()  # the client stays
            before(number)
            return {"type": "http.request", "body": piece, "more_body": number + 1 < len(self.pieces)}

        async def send(message: MutableMapping[str, Any]) -> None:
            self.status = message.get("status", self.status)
            self.body += message.get("body", b"")

        async with asyncio.timeout(10):  # a follower that was not refused
            await self.app(scope, receive, send)
        return self.status


@asynccontextmanager
async def reloading(
    directory: Path, between: Callable[[Callable[[], None]], None], remote: str = "", **variables: str
) -> AsyncIterator[tuple[Service, App]]:
    """Yield a service and its application over TCP. `between` runs after the check of each client, with a function that
    takes the token of `gone` away as SIGHUP does."""
    settings = ServeSettings(token_file=str(directory / "tokens"))
    write(directory / "tokens", ("gone", Role.APPEND, "*"), ("stays", Role.READ, "*"))
    access = Access(settings)

    def revoke() -> None:
        write(directory / "tokens", ("stays", Role.READ, "*"))
        access.reload(settings, [])

    entry = {"content_type": "text/plain", "base": 0, "own": 0, "path": "s", "topic": "s", "state": "live"}
    with seglog.open(directory / "d") as log:
        for topic, value in (("t", b"first"), ("s", b"first"), ("_streams", json.dumps(entry).encode())):
            log.topic(topic).append([value])
    async with serving(directory / "d", remote, **variables) as service:
        guard = Guard(direct(make_app(service)), lambda: service.settings, service.metrics)

        async def checked(scope: Scope, receive: Receive, send: Send) -> None:
            between(revoke)
            await guard.known(scope, receive, send)

        told = for_checked_clients(
            checked, lambda: settings, lambda: access.tokens, lambda _reason: None, access.open_answers
        )
        yield service, entrance(told, service)


SSE = {"accept": "text/event-stream"}


@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/topics/t/records?follow=1", {}),
        ("/topics/t/records?follow=1", SSE),
        ("/topics/t/records?from=2&wait_s=50", {}),
        ("/daemon/events", {}),
        ("/streams/s?offset=now&live=long-poll", {}),
        ("/streams/s?offset=now&live=sse", {}),
    ],
)
def test_a_reload_between_the_check_of_a_client_and_its_wait_refuses_it(
    tmp_path: Path, target: str, headers: dict[str, str]
) -> None:
    async def run() -> None:
        async with reloading(tmp_path, lambda revoke: revoke()) as (_, app):
            asked = Asked(app, "GET", target, headers=headers)
            assert await asked.run() == 401
            assert json.loads(asked.body)["reason"] == "token"

    asyncio.run(run())


@pytest.mark.parametrize("target", ["/objects?prefix=refs/", "/objects/refs/t/main"])
def test_a_reload_refuses_what_a_proxy_still_has_to_fetch(tmp_path: Path, target: str) -> None:
    async def run() -> None:
        remote = (tmp_path / "remote").as_uri()
        async with reloading(tmp_path, lambda revoke: revoke(), remote, SERVE_PROXY="true", **QUIET) as (_, app):
            assert await Asked(app, "GET", target).run() == 401

    asyncio.run(run())


def test_other_requests_that_had_their_rights_complete(tmp_path: Path) -> None:
    async def run() -> None:
        async with reloading(tmp_path, lambda revoke: revoke()) as (_, app):
            assert await Asked(app, "GET", "/topics/t/records").run() == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    ("target", "pieces", "headers"),
    [
        ("/rpc/read", [b'{"topic": "t", "follow"', b": true}"], {"content-type": "application/json"}),
        ("/rpc/read", [b'{"topic"', b': "t"}'], {"content-type": "application/json"}),
        ("/topics/t/records", [b"one\n", b"two\n"], {"content-type": "application/vnd.seglog.lines"}),
        ("/streams/s", [b"one", b"two"], {"content-type": "text/plain"}),
    ],
)
def test_a_body_that_comes_after_the_reload_is_refused(
    tmp_path: Path, target: str, pieces: list[bytes], headers: dict[str, str]
) -> None:
    async def run() -> None:
        takers: list[Callable[[], None]] = []
        async with reloading(tmp_path, takers.append) as (service, app):
            asked = Asked(app, "POST", target, pieces, headers)
            assert await asked.run(lambda number: takers[0]() if number == 1 else None) == 401
            for topic in "ts":
                assert [each.value for each in service.sync.topic(topic).read()] == [b"first"]

    asyncio.run(run())


def test_nothing_passes_between_the_reload_and_the_end_of_a_request(tmp_path: Path) -> None:
    async def run() -> None:
        async def answer(scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"x/y")]})
            keep_open(scope)
            ends = asyncio.Event()

            async def more() -> None:
                await ends.wait()
                await send({"type": "http.response.body", "body": b"secret", "more_body": True})

            async with asyncio.TaskGroup() as group:
                group.create_task(more())
                await asyncio.sleep(0)  # `more` waits
                ends.set()  # it goes on before the cancellation below comes to this task
                write(tmp_path / "tokens", ("stays", Role.READ, "*"))
                access.reload(settings, [])

        settings = ServeSettings(token_file=str(tmp_path / "tokens"))
        write(tmp_path / "tokens", ("gone", Role.READ, "*"), ("stays", Role.READ, "*"))
        access = Access(settings)
        async with serving(tmp_path / "d", "") as service:
            checked = for_checked_clients(
                answer, lambda: settings, lambda: access.tokens, lambda _: None, access.open_answers
            )
            asked = Asked(entrance(checked, service), "GET", "/")
            assert await asked.run() == 200
            assert asked.body == b""

    asyncio.run(run())


@pytest.mark.parametrize(
    ("media_type", "end", "has_words"),
    [
        (b"text/event-stream; charset=utf-8", b"\n\n", True),
        (b"text/event-stream", b"", True),
        (b"text/event-stream", b"x\n", False),
        (b"application/x-ndjson", b"}\n", True),
        (b"application/x-ndjson", b"{}", False),
        (b"application/octet-stream", b"}\n", False),
        (b"", b"", False),
    ],
)
def test_nothing_follows_half_a_line_or_half_an_event(media_type: bytes, end: bytes, has_words: bool) -> None:
    assert (last_words(media_type, end) is not None) is has_words
