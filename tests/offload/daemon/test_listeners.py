"""Test the listeners beside the API's, the messages to systemd and the access log, of real daemons."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

import seglog
from offload.daemon.serving import Notifier
from tests.daemons import ServedDirectory, served
from tests.waiting import wait_until

BYTES = {"Content-Type": "application/octet-stream"}
TOKEN = "correct-horse-battery-staple"
TIMEOUT_S = 120


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    seglog.open(tmp_path / "data").close()
    return tmp_path / "data"


def ask(port: int, method: str, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
        connection.request(method, path, headers=dict(headers or {}))
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_the_probe_port_asks_neither_for_a_token_nor_a_host_and_shows_nothing_else(
    directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    token = {"SERVE_TOKEN_FILE": str(tmp_path / "token")}
    with served(directory, "", SERVE_PROBE_PORT="0", **token) as daemon:
        port, pod = daemon.port_of("probes"), {"Host": "10.1.2.3:8080"}
        assert ask(port, "GET", "/healthz", pod) == (200, b'{"status":"ok"}')
        assert ask(port, "GET", "/readyz", pod)[0] == 200
        assert daemon.ask("GET", "/readyz")[0] == 401
        for path in ("/metrics", "/topics", "/openapi.json", "/topics/t/records", "/nothing"):
            assert ask(port, "GET", path)[0] == 404
        assert ask(port, "POST", "/healthz")[0] == 405
        assert ask(port, "POST", "/rpc/status")[0] == 404
    with served(directory, "", SERVE_PROBE_PORT="0", SERVE_PROBE_METRICS="true", **token) as daemon:
        assert b"seglog_disk_state 0.0" in ask(daemon.port_of("probes"), "GET", "/metrics", pod)[1]
        assert ask(daemon.port_of("probes"), "GET", "/topics")[0] == 404


@pytest.mark.long
def test_behind_a_proxy_the_token_suffices_and_the_first_line_warns(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    anywhere = {"SERVE_HOST": "0.0.0.0", "SERVE_INSECURE_BEHIND_PROXY": "true"}  # noqa: S104 - what the setting is for
    with served(directory, "", SERVE_TOKEN_FILE=str(tmp_path / "token"), **anywhere) as daemon:
        assert "serving WITHOUT TLS (insecure_behind_proxy" in "".join(daemon.lines)
        assert daemon.ask("GET", "/topics")[0] == 401
        assert daemon.ask("GET", "/topics", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
    for given in (anywhere, {"SERVE_HOST": "0.0.0.0", "SERVE_TOKEN_FILE": str(tmp_path / "token")}):  # noqa: S104
        refused = subprocess.run(
            [sys.executable, "-m", "offload", "-C", str(directory), "serve"],
            env={**os.environ, **{f"SEGLOG_{name}": text for name, text in given.items()}},
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 2
        assert "others could read and write the log" in refused.stderr


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_gets_ready_then_the_watchdog_then_stopping(
    directory: Path, tmp_path: Path, *, is_abstract: bool
) -> None:
    address = f"@seglog-{directory}" if is_abstract else str(tmp_path / "notify")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind("\0" + address[1:] if is_abstract else address)
        systemd.settimeout(TIMEOUT_S)
        daemon = ServedDirectory(directory, {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "40000"})
        try:
            messages = [systemd.recv(100)]
            while messages.count(b"WATCHDOG=1") < 5 or b"READY=1" not in messages:
                messages.append(systemd.recv(100))
            assert set(messages) == {b"READY=1", b"WATCHDOG=1"}
            assert messages.count(b"READY=1") == 1
            daemon.process.terminate()
            while (message := systemd.recv(100)) == b"WATCHDOG=1":
                pass
            assert message == b"STOPPING=1"
            assert daemon.process.wait(TIMEOUT_S) == 0
        finally:
            daemon.kill()


def test_a_log_that_failed_and_another_process_get_no_watchdog(tmp_path: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        given = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000"}
        looks: list[bool] = []

        def is_healthy() -> bool:
            looks.append(True)
            return len(looks) <= 2

        async def scenario() -> None:
            watching = asyncio.create_task(Notifier(given).watch(is_healthy))
            while len(looks) < 10:
                await asyncio.sleep(0.001)
            watching.cancel()

        asyncio.run(scenario())
        assert [systemd.recv(100) for _ in range(2)] == [b"WATCHDOG=1"] * 2
        with pytest.raises(BlockingIOError):
            systemd.recv(100)
    assert Notifier({**given, "WATCHDOG_PID": "1"}).interval_s == 0
    assert Notifier({"NOTIFY_SOCKET": "/x"}).interval_s == 0
    Notifier({}).say("READY=1")


def test_a_systemd_that_is_gone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).say("READY=1")
    assert "systemd did not take READY=1" in caplog.text


def test_the_access_log_has_a_line_for_each_request_with_its_id(directory: Path) -> None:
    with served(directory, "", SERVE_ACCESS_LOG="true", SERVE_LOG_FORMAT="json") as daemon:
        given = {"seglog-request-id": "mine-1"}
        _, _, headers = daemon.ask("POST", "/topics/t/records?tag=secret", b"x", {**BYTES, **given})
        assert headers["seglog-request-id"] == "mine-1"
        _, body, headers = daemon.ask("GET", "/topics/nope%0Afake/records", headers={"seglog-request-id": "a b"})
        given_id = headers["seglog-request-id"]
        assert given_id != "a b"
        assert json.loads(body)["request_id"] == given_id
        status, body, headers = daemon.ask("GET", "/topics", headers={"Host": "evil.example"})
        assert (status, json.loads(body)["request_id"]) == (421, headers["seglog-request-id"])
        daemon.terminate()
        wait_until(lambda: daemon.process.poll() is not None)
    events = [json.loads(line) for line in daemon.lines if line.startswith("{")]
    lines = [each for each in events if each["event"] == "request"]
    assert [(each["method"], each["path"], each["status"]) for each in lines] == [
        ("POST", "/topics/t/records", 201),
        ("GET", "/topics/nope%0Afake/records", 400),
        ("GET", "/topics", 421),
    ]
    assert [each["request_id"] for each in lines[:2]] == ["mine-1", given_id]
    assert all(each["client"].startswith("127.0.0.1:") and each["sent_bytes"] > 0 for each in lines)
    assert "secret" not in "".join(daemon.lines)


def test_a_proxy_on_this_machine_names_the_client_in_the_access_log(directory: Path) -> None:
    with served(directory, "", SERVE_ACCESS_LOG="true", SERVE_LOG_FORMAT="json") as daemon:
        assert daemon.ask("GET", "/topics", headers={"X-Forwarded-For": "203.0.113.7"})[0] == 200
        daemon.terminate()
        wait_until(lambda: daemon.process.poll() is not None)
    events = [json.loads(line) for line in daemon.lines if line.startswith("{")]
    assert [each["client"] for each in events if each["event"] == "request"] == ["203.0.113.7:0"]


def test_without_the_setting_there_is_no_access_log_but_an_id(directory: Path) -> None:
    with served(directory, "") as daemon:
        assert len(daemon.ask("GET", "/topics")[2]["seglog-request-id"]) == 16
        assert not any("request" in line for line in daemon.lines)
