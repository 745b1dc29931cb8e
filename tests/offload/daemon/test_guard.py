"""Test the guard before every request, called directly.

The guard checks the client, and limits the size of requests and their number at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from offload.daemon.clients import for_checked_clients
from offload.daemon.metrics import Metrics
from offload.daemon.request_limits import Guard
from offload.daemon.request_places import become_follower
from offload.settings import ServeSettings
from offload.token_rights import parse_tokens

Headers = dict[str, str]
TOKEN = b"secret-of-16-chars"
OURS: Headers = {"host": "localhost:8080", "authorization": "Bearer secret-of-16-chars"}


class Asked:
    """A guard before an application that reads the whole body and answers 200."""

    def __init__(self, settings: ServeSettings | None = None, token: bytes | None = TOKEN) -> None:
        self.bodies: list[bytes] = []
        self.gate: asyncio.Event | None = None
        self.inside = asyncio.Event()
        self.waiting = asyncio.Event()
        tokens = parse_tokens(token, "tokens") if token else None
        given, metrics = settings or ServeSettings(), Metrics()
        self.guard = Guard(self._app, lambda: given, metrics)
        self.over_tcp = for_checked_clients(self.guard.known, lambda: given, lambda: tokens, metrics.count_rejected)
        self.follows = False

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        if self.follows:
            become_follower(scope)
            become_follower(scope)
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        self.inside.set()
        if self.gate is not None:
            await self.gate.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(
        self,
        headers: Headers,
        *,
        path: str = "/v1/topics",
        pieces: tuple[bytes, ...] = (b"",),
        tcp: bool = True,
        rest: asyncio.Event | None = None,
    ) -> tuple[int, dict[str, Any]]:
        """Send a request, its last piece after `rest`. Return the status, and the content of an error."""
        scope = {
            "type": "http",
            "method": "POST" if pieces != (b"",) else "GET",
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        coming = list(pieces)
        if "content-length" not in headers and pieces != (b"",):
            scope["headers"].append((b"transfer-encoding", b"chunked"))
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            body = coming.pop(0)
            if rest is not None and not coming:
                self.waiting.set()
                await rest.wait()
            return {"type": "http.request", "body": body, "more_body": bool(coming)}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await (self.over_tcp if tcp else self.guard.over_unix)(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], json.loads(body) if body else {}


def status(asked: Asked, headers: Headers, **how: Any) -> int:
    return asyncio.run(asked.ask(headers, **how))[0]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (OURS, 200),
        ({**OURS, "host": "LOCALHOST"}, 200),
        ({**OURS, "host": "127.0.0.1:1"}, 200),
        ({**OURS, "host": "[::1]:8080"}, 200),
        ({**OURS, "host": "evil.example"}, 421),
        ({**OURS, "host": "localhost.evil.example:8080"}, 421),
        ({"authorization": "Bearer secret-of-16-chars"}, 421),
        ({**OURS, "origin": "http://localhost:8080"}, 403),
        ({**OURS, "authorization": "Bearer wrong"}, 401),
        ({**OURS, "authorization": "bEARER  secret-of-16-chars"}, 200),
        ({**OURS, "authorization": "secret-of-16-chars"}, 401),
        ({**OURS, "authorization": "Basic secret-of-16-chars"}, 401),
        ({**OURS, "authorization": "Bearer"}, 401),
        ({**OURS, "authorization": "Bearer secret-of-16-chars-and-more"}, 401),
        ({"host": "localhost"}, 401),
    ],
)
def test_over_tcp_host_origin_and_token_are_asked_and_over_the_socket_none_of_them(
    headers: Headers, expected: int
) -> None:
    asked = Asked()
    assert status(asked, headers) == expected
    assert len(asked.bodies) == (expected == 200)
    assert status(Asked(), headers, tcp=False) == 200


def test_without_a_token_none_is_asked_and_the_health_of_a_daemon_needs_none() -> None:
    assert status(Asked(token=None), {"host": "localhost"}) == 200
    for path, expected in (("/healthz", 200), ("/readyz", 401), ("/metrics", 401)):
        assert status(Asked(), {"host": "localhost"}, path=path) == expected


HALF, MOST = b"x" * 512, 1024


@pytest.mark.parametrize(
    ("declared", "pieces", "expected"),
    [
        (str(MOST), (HALF + HALF,), 200),
        (str(MOST + 1), (b"",), 413),
        ("-1", (b"",), 413),
        ("ten", (b"",), 413),
        (None, (HALF, HALF), 200),
        (None, (HALF, HALF, b"x"), 413),
        ("5", (HALF, HALF, b"x"), 413),
    ],
)
def test_a_body_is_bounded_by_what_it_declares_and_by_what_comes(
    declared: str | None, pieces: tuple[bytes, ...], expected: int
) -> None:
    for tcp in (True, False):
        asked = Asked(ServeSettings(max_body_bytes=MOST))
        headers = OURS | ({} if declared is None else {"content-length": declared})
        assert status(asked, headers, pieces=pieces, tcp=tcp) == expected
        assert asked.bodies == ([b"".join(pieces)] if expected == 200 else [])


def test_only_so_many_are_on_their_way_but_probes_are_let_in() -> None:
    async def crowd() -> None:
        asked = Asked(ServeSettings(max_requests=1))
        asked.gate = asyncio.Event()
        first = asyncio.ensure_future(asked.ask(OURS))
        await asked.inside.wait()
        assert (await asyncio.wait_for(asked.ask(OURS), 10))[0] == 429
        probe = asyncio.ensure_future(asked.ask(OURS, path="/readyz"))
        asked.gate.set()
        assert [(await each)[0] for each in (first, probe)] == [200, 200]
        assert (await asked.ask(OURS))[0] == 200

    asyncio.run(crowd())


def test_a_body_that_comes_slowly_takes_no_place_until_it_is_whole() -> None:
    async def crowd() -> None:
        asked = Asked(ServeSettings(max_requests=1))
        rest = asyncio.Event()
        slow = [asyncio.ensure_future(asked.ask(OURS, pieces=(HALF, HALF), rest=rest)) for _ in range(20)]
        await asked.waiting.wait()
        assert [(await asked.ask(OURS, pieces=(HALF,)))[0] for _ in range(3)] == [200] * 3
        asked.gate = asyncio.Event()
        rest.set()
        asyncio.get_running_loop().call_later(0.01, asked.gate.set)
        ends = sorted([(await each)[0] for each in slow])
        assert ends == [200] + [429] * 19, "one place, and 20 bodies that are whole at once"
        assert (await asked.ask(OURS))[0] == 200

    asyncio.run(crowd())


def test_the_bytes_of_all_bodies_are_bounded_and_one_alone_always_fits() -> None:
    large = bytes(600 * 1024)  # 344 KiB of them count
    settings = ServeSettings(max_bodies_bytes=700 * 1024)

    async def crowd() -> None:
        asked = Asked(settings)
        rest = asyncio.Event()
        asked.gate = asyncio.Event()
        held = [asyncio.ensure_future(asked.ask(OURS, pieces=(large, b"x"), rest=rest)) for _ in range(2)]
        await asyncio.sleep(0)
        await asked.waiting.wait()
        assert (await asked.ask(OURS, pieces=(large, b"x")))[0] == 429
        small = asyncio.ensure_future(asked.ask(OURS, pieces=(HALF, HALF)))
        rest.set()
        asked.gate.set()
        assert [(await each)[0] for each in (*held, small)] == [200] * 3
        assert (await asked.ask(OURS, pieces=(bytes(2 << 20),)))[0] == 200

    asyncio.run(crowd())


def test_followers_leave_the_places_of_requests_and_have_a_limit_of_their_own() -> None:
    async def crowd() -> None:
        asked = Asked(ServeSettings(max_requests=1, max_followers=3))
        asked.gate, asked.follows = asyncio.Event(), True
        followers = []
        for _ in range(3):
            followers.append(asyncio.ensure_future(asked.ask(OURS)))
            await asked.inside.wait()
            asked.inside.clear()
        refused, said = await asked.ask(OURS)
        assert (refused, said["title"]) == (429, "Busy")
        asked.follows = False
        request = asyncio.ensure_future(asked.ask(OURS))
        await asked.inside.wait()
        assert (await asked.ask(OURS))[0] == 429, "the one place of requests is taken"
        asked.gate.set()
        assert [(await each)[0] for each in (*followers, request)] == [200] * 4
        asked.follows = True
        assert (await asked.ask(OURS))[0] == 200

    asyncio.run(crowd())
