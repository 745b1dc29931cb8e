"""Test laminarmq's routes: each answer is that of laminarmq's own server, but for the listed differences."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import seglog
from catalog.objects.memory import MemoryStore
from offload.daemon.laminarmq import make_laminarmq_app
from tests.daemons import served
from tests.offload.daemon.laminarmq_script import SCRIPT, differences, stored, transcript
from tests.seams.limits import Limit, set_limit
from tests.waiting import wait_until
from tests.worlds.services import serving

# By request: the statuses of laminarmq and of seglog. The table of docs/internals/daemon.md has a row for each reason.
DIFFERENCES = {
    "GET /records/4294967296": (400, 500),
    "GET /records/18446744073709551615": (400, 500),
    "GET /records/0 Origin: http://page.example": (200, 403),
    "GET /records/0 Host: other.example": (200, 421),
    """POST /rpc/truncate Content-Type: application/json b'{"truncate_index": 99} more'""": (500, 400),
    """POST /rpc/truncate Content-Type: application/json b'{"truncate_index": 4294967296}'""": (422, 500),
    "POST /rpc/truncate Content-Type: application/json b'[1, 2]'": (400, 422),
    f"POST /rpc/truncate Content-Type: application/json {repr(b'[' * 3_000)[:60]}": (422, 400),
}
_THEIR_PORT = 3000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    seglog.open(tmp_path / "data").close()
    return tmp_path / "data"


def test_every_answer_is_laminarmqs_but_for_the_listed_ones(directory: Path, tmp_path: Path) -> None:
    with served(directory, (tmp_path / "remote").as_uri(), SERVE_LAMINARMQ="orders:0, other:0") as daemon:
        ours = transcript(daemon.port_of("laminarmq orders"))
        assert len(ours) == len(SCRIPT) > 80
        found = {their.request: (their.status, our.status) for their, our in differences(stored(), ours)}
        assert found == DIFFERENCES
        assert daemon.values("orders") == ["first"]
        bounds = {"highest_index": 0, "lowest_index": 0}
        assert _json(daemon.port_of("laminarmq other"), "/index_bounds") == bounds
        assert not any("Traceback" in line for line in daemon.lines)


@pytest.mark.soak(part=3)
def test_laminarmqs_own_server_answers_as_the_stored_transcript(tmp_path: Path) -> None:
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        pytest.skip("cargo is not installed, and builds laminarmq's server")
    name = "laminarmq-tokio-commit-log-server"
    built = subprocess.run(
        [cargo, "install", "laminarmq", "--version", "0.0.5", "--example", name, "--locked", "--debug", "--root", "."],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if built.returncode:
        pytest.skip(f"cargo cannot build laminarmq: {built.stderr[-200:]}")
    environment = {**os.environ, "STORAGE_DIRECTORY": str(tmp_path / "log"), "RUST_LOG": "error"}
    with subprocess.Popen([tmp_path / "bin" / name], env=environment) as server:
        try:
            wait_until(lambda: _takes_connections(_THEIR_PORT), pause_s=0.01)
            assert transcript(_THEIR_PORT) == stored()
        finally:
            server.terminate()


def _takes_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def _json(port: int, path: str) -> Any:
    return json.loads(_ask(port, "GET", path)[1])


def _ask(port: int, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_a_pruned_or_deleted_index_is_an_error_and_a_token_needs_its_role(directory: Path, tmp_path: Path) -> None:
    with seglog.open(directory) as log:
        topic = log.create_topic("orders")
        for number in range(6):
            topic.append([b"%d" % number], tag="wrong" if number == 3 else None)
        topic.delete(tag="wrong")
        topic.delete(before=2)
    (tmp_path / "token").write_text("correct-horse-battery-staple")
    variables = {"SERVE_LAMINARMQ": "orders:0", "SERVE_TOKEN_FILE": str(tmp_path / "token")}
    with served(directory, "", **variables) as daemon:
        port, token = daemon.port_of("laminarmq orders"), "Bearer correct-horse-battery-staple"
        assert _ask(port, "GET", "/records/0")[0] == 401
        found = [_ask(port, "GET", f"/records/{index}", Authorization=token) for index in range(7)]
        assert [status for status, _ in found] == [500, 200, 200, 500, 200, 200, 500]
        assert found[3][1] == b"CommitLogError(IndexGapEncountered)"
        assert found[6][1] == b"CommitLogError(IndexOutOfBounds)"
        assert [body for status, body in found if status == 200] == [b"1", b"2", b"4", b"5"]


class _Client:
    """Requests to the application itself, in one event loop. `read_bodies` counts the bodies that it asked for."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.read_bodies = 0
        self.gate = asyncio.Event()

    async def post(self) -> int:
        """Append a record whose body comes when the gate opens. Return the status."""
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            self.read_bodies += 1
            await self.gate.wait()
            return {"type": "http.request", "body": b"x", "more_body": False}

        async def send(message: Any) -> None:
            statuses.append(message.get("status", 0))

        scope = {"type": "http", "method": "POST", "path": "/records", "query_string": b"", "headers": []}
        await self._app(scope, receive, send)
        return statuses[0]


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    set_limit(monkeypatch, Limit.LAMINARMQ_AT_ONCE, 2)
    return monkeypatch


def test_two_requests_run_at_once_and_the_others_wait_unread(tmp_path: Path, two_at_once: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with serving(tmp_path / "data", MemoryStore()) as service:
            client = _Client(make_laminarmq_app(service, "t"))
            asked = [asyncio.create_task(client.post()) for _ in range(10)]
            for _ in range(50):
                await asyncio.sleep(0)
            assert client.read_bodies == 2
            client.gate.set()
            assert await asyncio.gather(*asked) == [200] * 10
            assert service.sync.topic("t").head_seq == 10

    asyncio.run(scenario())


def test_a_request_without_an_answer_gets_408_and_gives_its_place_back(
    tmp_path: Path, two_at_once: pytest.MonkeyPatch
) -> None:
    set_limit(two_at_once, Limit.LAMINARMQ_S, 0.05)

    async def scenario() -> None:
        async with serving(tmp_path / "data", MemoryStore()) as service:
            client = _Client(make_laminarmq_app(service, "t"))
            assert await asyncio.gather(*(client.post() for _ in range(5))) == [408] * 5
            set_limit(two_at_once, Limit.LAMINARMQ_S, 60.0)
            client.gate.set()
            assert await asyncio.gather(*(client.post() for _ in range(5))) == [200] * 5
            assert service.sync.topic("t").head_seq == 5

    asyncio.run(scenario())
