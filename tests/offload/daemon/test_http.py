"""Test followers over HTTP, of a service in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from catalog.objects.memory import MemoryStore
from offload.daemon import http
from tests.seams.archive import note_threads_of_bodies
from tests.seams.limits import Limit, set_limit
from tests.worlds.services import serving, until


class Request:
    """A GET, or a POST of `sent`, that calls the application without a connection.

    `body` is the answer so far.
    """

    def __init__(self, app: Any, path: str, query: str = "", sent: bytes | None = None, accept: bytes = b"*/*") -> None:
        self.body = b""
        self._gone = asyncio.Event()
        self._sent: bytes | None = sent or b""
        method, headers = "GET" if sent is None else "POST", [(b"content-type", b"application/x-ndjson")]
        headers.append((b"accept", accept))
        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": headers}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def end(self) -> None:
        self._gone.set()
        await self.task

    async def _receive(self) -> dict[str, Any]:
        if self._sent is not None:
            sent, self._sent = self._sent, None
            return {"type": "http.request", "body": sent}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.body += message.get("body", b"")


def test_a_follower_that_waits_holds_no_thread(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore()) as service:
            service.hot_reads.shutdown()
            service.hot_reads = ThreadPoolExecutor(1)
            app = http.make_app(service)
            await service.log.topic("t").append([b"first"])
            followers = [Request(app, "/topics/t/records", "follow=1") for _ in range(3)]
            await until(lambda: all(b"first" in each.body for each in followers), "the first record")
            single = Request(app, "/topics/t/records/1")
            await until(lambda: single.body == b"first", "a read beside the followers")
            await service.log.topic("t").append([b"second"], tag="x")
            await until(lambda: all(b"second" in each.body for each in followers), "the second record")
            for each in (*followers, single):
                await each.end()

    asyncio.run(run())


def test_an_idle_event_stream_gets_comments_and_a_follower_of_lines_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.KEEP_ALIVE_S, 0.02)

    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore()) as service:
            app = http.make_app(service)
            await service.log.topic("t").append([b"first"])
            lines = Request(app, "/topics/t/records", "follow=1&tail=0")
            events = Request(app, "/topics/t/records", "follow=1&tail=0", accept=b"text/event-stream")
            await until(lambda: events.body == b":\n\n" * 5, "comments")
            assert lines.body == b""
            await service.log.topic("t").append([b"second"])
            await until(lambda: b"second" in lines.body and b"id: 1-2\nevent: record" in events.body, "the record")
            for each in (lines, events):
                await each.end()

    asyncio.run(run())


def test_json_that_is_nested_too_deep_is_the_clients_mistake(tmp_path: Path) -> None:
    deep = b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore()) as service:
            app = http.make_app(service)
            for path, title in (("/topics/t/records", b'"InvalidInput"'), ("/topics/t/rpc/seal", b'"Misuse"')):
                request = Request(app, path, sent=deep)
                await request.task
                assert title in request.body
                assert b'"status": 400' in request.body

    asyncio.run(run())


def test_a_long_body_is_taken_apart_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = note_threads_of_bodies(monkeypatch)

    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore()) as service:
            app = http.make_app(service)
            short = b'{"value": "x"}\n'
            for sent, answer in ((short, b'"appended":1,'), (short * 100_000, b'"appended":100000,')):
                request = Request(app, "/topics/t/records", sent=sent)
                await request.task
                assert answer in request.body

    asyncio.run(run())
    assert [each is threading.main_thread() for each in threads] == [True, False, False]
