"""Test the end of a daemon: /readyz fails first, and each request gets an answer or a refused connection."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import os
import select
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

import offload
import seglog
from catalog.errors import StoreUnreachable
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload.daemon.listeners import Kind, Listener
from offload.daemon.request_log import entrance
from offload.daemon.service import Service
from offload.daemon.serving import Server, serve_unix
from offload.daemon.stopping import StopEvent
from offload.settings import ServeSettings
from tests.daemons import ServedDirectory, served
from tests.faults.front import Front, HttpFault
from tests.waiting import wait_until
from tests.worlds.services import serving, until

BYTES = {"Content-Type": "application/octet-stream"}
TIMEOUT_S = 120
T = TypeVar("T")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    seglog.open(tmp_path / "data").close()
    return tmp_path / "data"


@pytest.fixture
def start(directory: Path, tmp_path: Path) -> Iterator[Callable[..., ServedDirectory]]:
    with served(directory, (tmp_path / "remote").as_uri(), SERVE_PROBE_PORT="0") as daemon:
        yield lambda: daemon


def tcp(daemon: ServedDirectory, _directory: Path) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=TIMEOUT_S)


def unix(_daemon: ServedDirectory, directory: Path) -> http.client.HTTPConnection:
    class Connection(http.client.HTTPConnection):
        def connect(self) -> None:
            opened = socket.socket(socket.AF_UNIX)
            try:
                opened.connect(str(directory / "seglog.sock"))
            except OSError:
                opened.close()
                raise
            self.sock = opened

    return Connection("localhost", timeout=TIMEOUT_S)


@pytest.mark.parametrize(("connect", "keeps_alive"), [(tcp, True), (tcp, False), (unix, False)])
def test_a_stop_under_load_leaves_no_request_without_an_answer(
    directory: Path, connect: Callable[..., http.client.HTTPConnection], keeps_alive: bool
) -> None:
    with served(directory, "", SERVE_STOP_TIMEOUT_S="60") as daemon:
        outcomes: list[str] = []

        def append() -> None:
            connection = connect(daemon, directory)
            while True:
                try:
                    connection.connect() if connection.sock is None else None
                except (ConnectionRefusedError, FileNotFoundError):
                    outcomes.append("refused")
                    return
                try:
                    connection.request("POST", "/topics/t/records", b"x", BYTES)
                    answer = connection.getresponse()
                    answer.read()
                    outcomes.append(str(answer.status))
                except (OSError, http.client.HTTPException) as error:
                    outcomes.append(f"lost: {error!r}")
                    connection.close()
                if not keeps_alive:
                    connection.close()

        clients = [threading.Thread(target=append) for _ in range(16)]
        for client in clients:
            client.start()
        wait_until(lambda: outcomes.count("201") >= 100)
        daemon.process.terminate()
        assert daemon.process.wait(TIMEOUT_S) == 0
        for client in clients:
            client.join(TIMEOUT_S)
    counts = Counter(outcomes)
    assert set(counts) <= {"201", "503", "refused"}, counts
    assert counts["refused"] == 16
    with seglog.open(directory) as log:
        assert log.topic("t").head_seq == counts["201"]


def test_a_client_that_connects_while_its_socket_closes_gets_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes the connection after the daemon's loop has let go of the socket, and before it is closed."""
    path = str(tmp_path / "socket")
    client = socket.socket(socket.AF_UNIX)
    start = Server.startup

    class Closing:
        def __init__(self, opened: asyncio.Server) -> None:
            self.opened = opened

        def close(self) -> None:
            with suppress(OSError):  # the base class closes once more
                client.connect(path)
                client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.opened.close()

        async def wait_closed(self) -> None:
            await self.opened.wait_closed()

    async def startup(server: Server, sockets: list[socket.socket] | None = None) -> None:
        await start(server, sockets)
        server.servers = [Closing(each) for each in server.servers]  # type: ignore[misc]

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answered"})

    async def scenario() -> bytes:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()
            listening.setblocking(False)
            end, ended = serve_unix(app, Listener(Kind.UNIX, listening, path), ServeSettings(), StopEvent())
            await asyncio.sleep(0)
            end()
            await ended
        return client.recv(4096)

    monkeypatch.setattr(Server, "startup", startup)
    with closing(client):
        client.settimeout(TIMEOUT_S)
        assert b"answered" in asyncio.run(scenario())


@pytest.mark.skipif(sys.platform != "linux", reason="no other kernel here has a filter for sockets")
def test_a_client_whose_handshake_begins_after_the_last_accept_is_refused_and_not_reset() -> None:
    client = socket.socket()
    client.setblocking(False)

    class LastAccept(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            try:
                return super().accept()
            except BlockingIOError:
                assert client.connect_ex(self.getsockname()) == errno.EINPROGRESS
                raise

    class Listening(socket.socket):
        def dup(self) -> Any:
            return LastAccept(self.family, self.type, self.proto, os.dup(self.fileno()))

    async def app(_scope: Any, _receive: Any, _send: Any) -> None: ...

    async def scenario() -> None:
        with Listening() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            listening.setblocking(False)
            end, ended = serve_unix(app, Listener(Kind.TCP, listening, "tcp"), ServeSettings(), StopEvent())
            await asyncio.sleep(0)
            end()
            await ended

    with closing(client):
        asyncio.run(scenario())
        assert select.select([], [client], [], TIMEOUT_S)[1]
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def test_readyz_fails_while_the_daemon_still_takes_requests(directory: Path) -> None:
    with served(directory, "", SERVE_STOP_DELAY_S="3600", SERVE_PROBE_PORT="0") as daemon:
        assert daemon.ask("GET", "/readyz")[0] == 200
        with closing(tcp(daemon, directory)) as open_before:
            open_before.request("GET", "/readyz")
            assert open_before.getresponse().read()
            daemon.terminate()
            for port in (daemon.port, daemon.port_of("probes")):
                with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as probe:
                    probe.request("GET", "/readyz")
                    answer = probe.getresponse()
                    assert answer.status == 503
                    assert json.loads(answer.read()) == {"ready": False, "disk": "fine", "stopping": True}
            status, _, headers = daemon.ask("POST", "/topics/t/records", b"x", BYTES)
            assert (status, headers["connection"]) == (201, "close")
            open_before.request("POST", "/topics/t/records", b"x", BYTES)
            assert open_before.getresponse().status == 201
        assert daemon.process.poll() is None


def test_a_request_that_has_begun_gets_its_answer_and_the_probe_port_stays_until_then(
    start: Callable[..., ServedDirectory], directory: Path
) -> None:
    daemon = start()
    begun = socket.create_connection(("127.0.0.1", daemon.port), timeout=TIMEOUT_S)
    head = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
    begun.sendall(head + b"Content-Length: 10\r\n\r\nhalf ")
    for _ in range(2):  # later requests are answered, so the daemon has read the half
        assert daemon.ask("GET", "/healthz")[0] == 200
    daemon.terminate()
    wait_until(lambda: _is_refused(daemon.port))
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port_of("probes"), timeout=TIMEOUT_S)) as probe:
        probe.request("GET", "/readyz")
        assert probe.getresponse().status == 503
    begun.sendall(b"whole")
    answer = http.client.HTTPResponse(begun)
    answer.begin()
    assert (answer.status, answer.getheader("Connection")) == (201, "close")
    assert json.loads(answer.read())["first_seq"] == 1
    begun.close()
    assert daemon.process.wait(TIMEOUT_S) == 0
    with seglog.open(directory) as log:
        assert [record.value for record in log.topic("t").read()] == [b"half whole"]


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    return False


async def _ask(app: Any, path: str, pieces: list[bytes]) -> tuple[int, dict[str, str], bytes]:
    """Send a POST of some pieces to the application. Return status, headers and body; `pieces` loses what was read."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        body = pieces.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(pieces)}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": []}
    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(each.get("body", b"") for each in sent[1:])


def test_a_request_that_comes_after_the_stop_is_read_and_answered_503_but_a_probe_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        asked: list[str] = []

        async def app(scope: Any, _receive: Any, send: Any) -> None:
            asked.append(scope["path"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async with serving(tmp_path / "data", MemoryStore()) as service:
            before = entrance(app, service)
            status, headers, _ = await _ask(before, "/topics/t/records", [b"a"])
            assert (status, "connection" in headers, asked) == (200, False, ["/topics/t/records"])
            service.is_leaving = True
            assert (await _ask(before, "/x", [b"a"]))[1]["connection"] == "close"
            service.stopping.set()
            pieces = [b"a", b"b", b"c"]
            status, headers, body = await _ask(before, "/topics/t/records", pieces)
            assert (status, headers["connection"], headers["retry-after"], pieces) == (503, "close", "1", [])
            problem = json.loads(body)
            assert (problem["title"], problem["request_id"]) == ("Stopping", headers["seglog-request-id"])
            assert (await _ask(before, "/readyz", [b""]))[0] == 200
            assert asked == ["/topics/t/records", "/x", "/readyz"]

    asyncio.run(scenario())


class HangingStore(WrappedStore):
    """A store in memory. While `hangs`, each call waits until the test ends. `begun` has the calls of that time."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.hangs = False
        self.begun: list[str] = []
        self.end = threading.Event()

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if self.hangs:
            self.begun.append(f"{method} {key}")
            assert self.end.wait(TIMEOUT_S)
            raise StoreUnreachable(self.url, "it did not answer")
        return act()


@pytest.fixture
def hanging() -> Iterator[HangingStore]:
    store = HangingStore()
    yield store
    store.end.set()


@pytest.mark.parametrize("stop_timeout_s", ["0", "60"])
def test_a_stop_waits_for_no_store_and_begins_no_queued_offload(
    directory: Path, hanging: HangingStore, stop_timeout_s: str
) -> None:
    """With 60 s to stop, the store answers again, so that the threads of the offloads would have time for others."""

    async def stopped() -> bool:
        async with serving(
            directory, hanging, OFFLOAD_TAIL_INTERVAL_S="1", SERVE_STOP_TIMEOUT_S=stop_timeout_s
        ) as service:
            hanging.hangs = True
            for number in range(5):
                await service.log.topic(f"t{number}").append([b"acked"])
            await until(lambda: len(hanging.begun) == 2, "offload.topics_at_once offloads begin")
            service.stopping.set()
            if stop_timeout_s != "0":
                hanging.end.set()
            await service.close()
            return service.has_work

    assert asyncio.run(stopped()) == (stop_timeout_s == "0")
    assert len(hanging.begun) == 2, hanging.begun
    with seglog.open(directory) as log:
        assert [log.topic(name).head_seq for name in log.topics()] == [1] * 5


def test_no_request_of_the_archive_begins_after_a_stop_that_left_a_thread(
    directory: Path, hanging: HangingStore
) -> None:
    async def stopped() -> Service:
        async with serving(directory, hanging, SERVE_STOP_TIMEOUT_S="0", OFFLOAD_TAIL_INTERVAL_S="1") as service:
            hanging.hangs = True
            await service.log.topic("t").append([b"acked"])
            await until(lambda: bool(hanging.begun), "the offload begins")
        return service

    service = asyncio.run(stopped())
    begun = len(hanging.begun)
    hanging.end.set()
    wait_until(lambda: not service.has_work)
    assert len(hanging.begun) == begun


def test_the_next_start_continues_what_a_stop_left(directory: Path, hanging: HangingStore) -> None:
    async def stopped() -> None:
        async with serving(directory, hanging, OFFLOAD_TAIL_INTERVAL_S="1", SERVE_STOP_TIMEOUT_S="0") as service:
            hanging.hangs = True
            await service.log.topic("t").append([b"acked"])
            await until(lambda: bool(hanging.begun), "the offload begins")

    async def started() -> None:
        async with serving(directory, hanging.inner, OFFLOAD_OFFLOAD_AFTER_S="0") as service:
            archive = service.archive
            assert archive is not None
            await until(lambda: archive.status.offloaded_seq("t") == 1, "the offload continues")

    asyncio.run(stopped())
    asyncio.run(started())


def test_readers_of_a_store_that_never_answers_get_503_when_the_daemon_stops(
    tmp_path: Path, s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Front(s3_endpoint) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        directory = tmp_path / "data"
        with seglog.open(directory) as log, offload.attach(log, s3_remote) as archive:
            log.topic("t").append([b"cold"])
            log.topic("t").seal()
            archive.offload("t", drop_hot=True)
        with served(directory, s3_remote, SERVE_STOP_TIMEOUT_S="1", SERVE_CHECK_INTERVAL_MS="3600000") as daemon:
            front.restart([HttpFault("timeout", lasts=True)])
            with ThreadPoolExecutor(20) as threads:  # more than the daemon has threads for cold reads
                answers = [threads.submit(daemon.ask, "GET", "/topics/t/records?from=1&limit=1") for _ in range(20)]
                wait_until(lambda: bool(front.struck))
                daemon.terminate()
                assert daemon.process.wait(TIMEOUT_S) == 0
                statuses = {each.result()[0] for each in answers}
            assert statuses == {503}
            assert not [line for line in daemon.lines if "Traceback" in line]
