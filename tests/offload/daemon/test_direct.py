"""Test the short way of appends: it answers as the way through Starlette does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from catalog.objects.memory import MemoryStore
from offload.daemon import http
from offload.daemon.http import direct
from offload.daemon.http.answers import answer_error
from offload.token_rights import EVERYTHING, RIGHTS_KEY, Grant, Rights, Role
from tests.worlds.asgi import BYTES, asked
from tests.worlds.services import serving

READER = Rights("reader", (Grant(Role.READ, ("*",)),))
OF_A = Rights("of-a", (Grant(Role.APPEND, ("a*",)),))


CASES: dict[str, tuple[str, tuple[tuple[bytes, bytes], ...], dict[str, Any]]] = {
    "an append": ("/topics/t/records", (BYTES,), {}),
    "a tag": ("/topics/t/records", (BYTES,), {"query_string": b"tag=eu"}),
    "an unknown option": ("/topics/t/records", (BYTES,), {"query_string": b"tags=eu"}),
    "a wrong durability": ("/topics/t/records", (BYTES,), {"query_string": b"durability=never"}),
    "a wrong name": ("/topics/a b/records", (BYTES,), {}),
    "the topic of streams": ("/topics/_streams/records", (BYTES,), {RIGHTS_KEY: OF_A}),
    "no content type": ("/topics/t/records", (), {}),
    "an unknown content type": ("/topics/t/records", ((b"content-type", b"text/html"),), {}),
    "an unknown encoding": ("/topics/t/records", (BYTES, (b"content-encoding", b"br")), {}),
    "a wrong head": ("/topics/t/records", (BYTES, (b"seglog-if-head", b"77")), {}),
    "a key": ("/topics/k/records", (BYTES, (b"idempotency-key", b"k")), {}),
    "half a producer": ("/topics/t/records", (BYTES, (b"producer-id", b"p")), {}),
    "a producer": (
        "/topics/p/records",
        (BYTES, (b"producer-id", b"p"), (b"producer-epoch", b"0"), (b"producer-seq", b"0")),
        {},
    ),
    "a header twice": ("/topics/t/records", (BYTES, (b"seglog-if-head", b"1"), (b"seglog-if-head", b"1")), {}),
    "a reader": ("/topics/t/records", (BYTES,), {RIGHTS_KEY: READER}),
    "its topic": ("/topics/a1/records", (BYTES,), {RIGHTS_KEY: OF_A}),
    "the topic of another": ("/topics/b1/records", (BYTES,), {RIGHTS_KEY: OF_A}),
    "no topic": ("/topics//records", (BYTES,), {}),
    "a topic less": ("/topics/records", (BYTES,), {}),
    "two topics": ("/topics/a/b/records", (BYTES,), {}),
    "a seq behind": ("/topics/t/records/", (BYTES,), {}),
    "another method": ("/topics/t/records", (BYTES,), {"method": "PATCH"}),
    "another route": ("/topics/t/rpc/truncate", (BYTES,), {}),
}


def test_both_ways_give_the_same_answers(tmp_path: Path) -> None:
    async def answers(directory: Path, *, is_direct: bool) -> dict[str, Any]:
        async with serving(directory, MemoryStore()) as service:
            app = http.make_app(service)
            way = direct(app) if is_direct else app
            found: dict[str, Any] = {
                name: await asked(way, path, *headers, **more) for name, (path, headers, more) in CASES.items()
            }
            for _, body, _ in found.values():
                if isinstance(body, dict) and "incarnation" in body:
                    body["incarnation"] = body["incarnation"] and "its"
            return found

    def scenario(name: str, *, is_direct: bool) -> dict[str, Any]:
        return asyncio.run(answers(tmp_path / name, is_direct=is_direct))

    short, long = scenario("short", is_direct=True), scenario("long", is_direct=False)
    assert short == long
    statuses = {name: status for name, (status, _, _) in short.items()}
    assert {statuses[name] for name in ("an append", "a tag", "a key", "a producer", "its topic")} == {201}
    assert {statuses[name] for name in ("a reader", "the topic of another", "the topic of streams")} == {403}
    assert (statuses["no content type"], statuses["a wrong head"], statuses["no topic"]) == (415, 412, 404)
    assert short["an append"][2] == "/topics/{topic}/records"


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_fault_of_the_daemon_is_answered_500_and_raised_for_the_log(is_direct: bool) -> None:
    async def append(_request: Any) -> Any:
        raise ZeroDivisionError("a fault")

    async def scenario() -> None:
        routes = [Route("/topics/{topic}/records", append, methods=["POST"])]
        app = Starlette(routes=routes, exception_handlers={Exception: answer_error})
        sent: list[MutableMapping[str, Any]] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request"}

        scope = {"type": "http", "method": "POST", "path": "/topics/t/records", "query_string": b"", "headers": []}
        with pytest.raises(ZeroDivisionError):
            await (direct(app) if is_direct else app)({**scope, RIGHTS_KEY: EVERYTHING}, receive, send)
        assert sent[0]["status"] == 500
        assert json.loads(sent[1]["body"])["title"] == "ZeroDivisionError"

    asyncio.run(scenario())
