"""Test `seglog serve` as a real process: it serves the commands and HTTP, and its end loses nothing."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import seglog
from offload.client import DaemonClient
from offload.operations.command import COMMANDS, SHOWN_TYPE
from seglog.client.bodies import VALUES_TYPE, encode_values
from tests.certificates import certificate
from tests.forge import Forged, forged
from tests.seams.limits import Limit, set_limit
from tests.waiting import wait_until
from tests.worlds.command import Run

TOKEN = "correct-horse-battery-staple"


@dataclass
class Daemon:
    """A running daemon. `lines` are its lines on standard error."""

    process: Forged
    directory: Path
    lines: list[str] = field(default_factory=list)
    port: int = 0
    listener: threading.Thread = field(init=False)

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Send a request over TCP. Return status, body and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read(), {name.lower(): text for name, text in answer.getheaders()}
        finally:
            connection.close()

    def json(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        status, answer, _ = self.ask(method, path, None if body is None else json.dumps(body), headers)
        return status, json.loads(answer)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


Start = Callable[..., Daemon]
BYTES = {"Content-Type": "application/octet-stream"}
NDJSON = {"Content-Type": "application/x-ndjson"}


@contextmanager
def _starting(place: Path) -> Iterator[Start]:
    """`start(SERVE_MAX_REQUESTS="2")` serves a directory with a file:// remote. The end kills the running daemons."""
    running: list[Daemon] = []

    def begin(**variables: str) -> Daemon:
        directory = place / "data"
        seglog.open(directory).close()
        given = {
            "SEGLOG_SERVE_PORT": "0",
            "SEGLOG_SERVE_CHECK_INTERVAL_MS": "50",
            "SEGLOG_REMOTE": (place / "remote").as_uri(),
            **{f"SEGLOG_{name}": text for name, text in variables.items()},
        }
        process = forged(["-C", str(directory), "serve"], {**os.environ, **given})
        daemon = Daemon(process, directory)
        running.append(daemon)
        ready = threading.Event()

        def listen() -> None:
            for line in process.stderr:
                daemon.lines.append(line)
                if line.startswith("seglog: serving "):
                    daemon.port = int(line.strip().rpartition(":")[2]) if "http" in line else 0
                    ready.set()
            ready.set()

        daemon.listener = threading.Thread(target=listen)
        daemon.listener.start()
        assert ready.wait(60)
        assert daemon.port, "".join(daemon.lines)
        return daemon

    yield begin
    for daemon in running:
        if daemon.process.poll() is None:
            daemon.process.kill()
        daemon.process.wait(60)
        daemon.listener.join(60)
        daemon.process.stderr.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with _starting(tmp_path) as begin:
        yield begin


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that all tests of refused requests share. It holds one record of `t`."""
    with _starting(tmp_path_factory.mktemp("strict")) as begin:
        daemon = begin(SERVE_MAX_BODY_BYTES="4096")
        assert daemon.ask("POST", "/topics/t/records", b"first", BYTES)[0] == 201
        yield daemon


def test_commands_on_a_served_directory_go_through_the_daemon(
    start: Start, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.TEXT_IN_A_LIST_BYTES, 0)
    daemon = start(OFFLOAD_OFFLOAD_AFTER_S="never")
    body = b"one\ntwo\r\n\xff\xfe\nthree"
    (tmp_path / "input").write_bytes(body)
    assert run("append", "t", "input", "--tag", "x").text == "appended 4 records to t, seq 1 to 4\n"
    assert run("read", "t").out == body
    assert [json.loads(line)["seq"] for line in run("--json", "read", "t").out.splitlines()] == [1, 2, 3, 4]
    assert run("read", "t", "--limit", "1").out == b"one\n"
    client, read = DaemonClient(f"unix:{daemon.directory}"), COMMANDS["read"]
    for given, takes_lines, wanted in (
        ({}, True, {"RecordLines"}),
        ({}, False, {"RecordBatch"}),
        ({"limit": 2}, True, {"RecordBatch"}),
    ):
        values = read.arguments({"topic": "t", **given})
        assert {type(each).__name__ for each in client.results(read, values, remote=None, takes_lines=takes_lines)} == (
            wanted
        )
    assert run("read", "t", "--grep", "t[wh]").out == b"two\r\nthree"
    run("seal", "t")
    offloaded = run("--json", "offload", "t", "--drop-hot")
    assert offloaded.err == ""
    assert json.loads(offloaded.out)["released_seq"] == 4
    assert run("read", "t").out == body
    assert run("delete", "t", "--before", "2").code == 2
    assert "would take 1 of about 4 records" in run("delete", "t", "--before", "2", "--dry-run").text
    refused = run("delete", "t", "--before", "2", stdin=b"no\n", is_terminal=True)
    assert (refused.code, "not confirmed" in refused.err, run("read", "t").out) == (1, True, body)
    done = run("delete", "t", "--before", "2", stdin=b"y\n", is_terminal=True)
    assert done.undated == "deleted 1 record of t (lsn 2)\n  undo: `seglog undo t lsn:2`, until TIME\n"
    assert len(run("log", "t").text.splitlines()) == 2
    assert "t@half holds 4 records" in run("restore", "t", "--to", "head~1", "--as", "half").text
    assert run("read", "t@half").out == body
    assert run("append", "t@half", stdin=b"more\n").text == "appended 1 record to t@half, seq 5 to 5\n"
    assert "half" in run("branch", "list", "t").text
    assert run("topic", "set", "t", "--ttl", "7d").code == 0
    assert json.loads(run("--json", "topic", "show", "t").out)["ttl_ms"] == 7 * 86_400_000
    own = json.loads(run("--json", "topic", "set", "t", "--tail-interval", "5m", "--offload-after", "never").out)
    assert own["attributes"] == {"tail_interval_s": "300", "offload_after_s": "never"}
    own = json.loads(run("--json", "topic", "set", "t", "--tail-interval", "default").out)
    assert own["attributes"] == {"offload_after_s": "never"}
    assert run("topic", "set", "t", "--tail-interval", "soon").code == 2
    assert "cold up to 4" in run("status", "t", "-v").text
    assert run("pause", "t").text == "t is paused\n"
    assert "t: PAUSED: the daemon does not offload it\n  to do: `seglog resume t`\n" in run("status", "t").text
    assert run("retry", "t").code == 0
    assert run("uploads").text == "none\n"
    assert daemon.end() == 0
    assert not (daemon.directory / "seglog.sock").exists()
    assert run("--remote", (tmp_path / "remote").as_uri(), "read", "t").out == body[4:]


def test_errors_come_back_with_their_exit_code_and_hint(start: Start, run: Run) -> None:
    start()
    run("append", "t", stdin=b"x\n")
    missing = run("read", "nope")
    assert missing.code == 3
    assert "no topic nope" in missing.err
    assert run("restore", "t", "--to", "lsn:99", "--as", "b").code == 3
    assert run("restore", "t", "--to", "nonsense", "--as", "b").code == 2
    assert run("topic", "delete", "t").code == 2
    assert run("append", "t", "--durability", "never", stdin=b"x\n").code == 2
    slash = run("append", "a/b", stdin=b"x\n")
    assert (slash.code, "Not Found" in slash.err) == (3, True)
    other = run("--remote", "file:///elsewhere", "offload", "t")
    assert other.code == 4
    assert "file:///elsewhere" in other.err


def test_two_daemons_cannot_serve_one_directory(start: Start, run: Run) -> None:
    daemon = start()
    second = run("serve")
    assert second.code == 4
    assert str(daemon.process.pid) in second.err
    assert run("status").code == 0


def test_records_over_http(start: Start) -> None:
    daemon = start()
    status, body, _ = daemon.ask("POST", "/topics/t/records?tag=eu%2Fx&node=n", b"\x00value\xff", BYTES)
    told = json.loads(body)
    assert len(told.pop("incarnation")) > 8
    assert (status, told) == (201, {"first_seq": 1, "last_seq": 1, "appended": 1, "next_seq": 2})
    lines = b'{"value": "two", "tag": "a"}\n{"value_base64": "AP8="}\n'
    assert daemon.ask("POST", "/topics/t/records", lines, {"Content-Type": "application/x-ndjson"})[0] == 201
    assert daemon.json("GET", "/topics/t/index_bounds") == (200, {"earliest_seq": 1, "head_seq": 3, "hot_first_seq": 1})
    status, body, headers = daemon.ask("GET", "/topics/t/records/1")
    assert (status, body, headers["seglog-tag"], headers["seglog-node"]) == (200, b"\x00value\xff", "eu%2Fx", "n")
    status, body, _ = daemon.ask("GET", "/topics/t/records?from=2&limit=1")
    assert [json.loads(line)["value"] for line in body.splitlines()] == ["two"]
    assert daemon.json("GET", "/topics") == (200, {"topics": ["t"]})
    text = {"Content-Type": "application/vnd.seglog.lines"}
    assert json.loads(daemon.ask("POST", "/topics/u/records", b"a\r\n\nb\n", text)[1])["appended"] == 3
    assert [json.loads(line)["value"] for line in daemon.ask("GET", "/topics/u/records")[1].splitlines()] == [
        "a\r",
        "",
        "b",
    ]
    assert daemon.ask("POST", "/topics/u/records", b"a\nb", text)[0] == 400
    preview = daemon.json("POST", "/topics/t/rpc/truncate", {"seq": 3, "dry_run": True})[1]
    assert (preview["kind"], preview["records"], preview["first_seq"]) == ("would_take", 1, 3)
    assert daemon.json("GET", "/topics/t/index_bounds")[1]["head_seq"] == 3
    truncated = {"topic": "t", "head_seq": 2, "lsn": None, "waits_for": None}
    assert daemon.json("POST", "/topics/t/rpc/truncate", {"seq": 3}) == (200, truncated)
    assert daemon.json("POST", "/topics/t/rpc/delete", {"before": 2, "yes": True})[1]["deleted"] == 1
    assert daemon.ask("GET", "/topics/t/records/1")[0] == 404
    document = daemon.json("GET", "/openapi.json")[1]
    assert {"drop_hot", "up_to", "dry_run"} <= set(
        document["paths"]["/topics/{topic}/rpc/offload"]["post"]["requestBody"]["content"]["application/json"][
            "schema"
        ]["properties"]
    )


def test_what_others_append_meanwhile_is_not_counted(start: Start) -> None:
    daemon = start()
    lines = b"".join(b'{"value": "x", "tag": "%d"}\n' % (number % 2) for number in range(300))
    counts: list[int] = []

    def append() -> None:
        answer = daemon.ask("POST", "/topics/t/records", lines, {"Content-Type": "application/x-ndjson"})[1]
        counts.append(json.loads(answer)["appended"])

    workers = [threading.Thread(target=append) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert counts == [300] * 3


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "title"),
    [
        ("GET", "/topics/nope/records", None, {}, 404, "NoSuchTopic"),
        ("GET", "/topics/t/records?from=x", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records?form=1", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records?from=99", None, {}, 404, "SeqOutOfRange"),
        ("GET", "/topics/t/records?follow=1&to=3", None, {}, 400, "InvalidOption"),
        ("POST", "/topics/t/records", b"x", {"Content-Type": "text/html"}, 415, "Refused"),
        ("POST", "/topics/t/records", b"{", {"Content-Type": "application/x-ndjson"}, 400, "InvalidInput"),
        ("POST", "/topics/t/records", b"\x09", {"Content-Type": "application/vnd.seglog.values"}, 400, "InvalidInput"),
        ("POST", "/topics/-bad/records", b"x", BYTES, 400, "InvalidName"),
        ("POST", "/topics/t/records?durability=x", b"x", BYTES, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/offload", b"not json", {}, 400, "Misuse"),
        ("POST", "/topics/t/rpc/offload", b'{"up_to": "1"}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/nothing", b"", {}, 404, "Missing"),
        ("POST", "/topics/t/rpc/offload?dry_run=1", b"", {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/truncate?seq=1", b"", {}, 400, "InvalidOption"),
        ("GET", "/topics?prefix=t", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/index_bounds?from=1", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records/1?form=json", None, {}, 400, "InvalidOption"),
        ("GET", "/daemon/events?topic=t", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records?%ff=1", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records?limit=1&limit=2", None, {}, 400, "InvalidOption"),
        ("HEAD", "/topics/t/records?limit=1&limit=1", None, {}, 400, None),
        ("POST", "/topics/t/records?tag=a&tag=b", b"x", BYTES, 400, "InvalidOption"),
        ("POST", "/topics/t/records?tag=%ff", b"x", BYTES, 400, "InvalidOption"),
        ("POST", "/topics/t/records?tag=%ed%a0%80", b"x", BYTES, 400, "InvalidOption"),
        ("POST", "/topics/t/records", b'{"value": "a", "value_base64": "YQ=="}', NDJSON, 400, "InvalidInput"),
        ("POST", "/topics/t/records", b'{"value": "a", "value": "b"}', NDJSON, 400, "InvalidInput"),
        ("POST", "/topics/t/records", b'{"value": "a", "tga": "eu"}', NDJSON, 400, "InvalidInput"),
        ("POST", "/topics/t/records", b"", {**NDJSON, "Idempotency-Key": "k"}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/truncate", b"{}", {}, 400, "InvalidOption"),
        ("POST", "/rpc/delete", b"{}", {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/delete", b'{"before": 2}', {}, 400, "Misuse"),
        ("GET", "/topics/t/records/x", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records/9223372036854775808", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records?since_ms=9999999999999999999", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records?to=-1", None, {}, 400, "InvalidOption"),
        ("GET", "/topics/t/records?limit=0", None, {}, 400, "InvalidOption"),
        ("POST", "/topics/t/records", b"x", {}, 415, "Refused"),
        ("GET", "/topics/t/records?gaps=2", None, {}, 400, "InvalidOption"),
        ("POST", "/topics/t/records?unterminated=2", b"x", BYTES, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/truncate", b'{"seq": true}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/truncate", b'{"seq": -1}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/truncate", b'{"seq": 3, "dryrun": true}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/truncate", b'{"seq": 3, "dry_run": 1}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/truncate", b'{"seq": 3, "yes": false}', {}, 400, "Misuse"),
        ("POST", "/topics/t/rpc/truncate", b'{"seq": 3, "start": 1}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/seal", b'{"nothing": 1}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/delete", b'{"tag": "\\ud800", "yes": true}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/delete", b'{"before": -1}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/read", b'{"wait": NaN}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/read", b'{"limit": 99999999999999999999}', {}, 400, "InvalidOption"),
        ("POST", "/topics/t/records", b'{"value": "x"}\n{"value": "y", "tag": "\\ud800"}', NDJSON, 400, "InvalidInput"),
        ("POST", "/topics/t/records", b'{"value": "x"}\n' + b"[" * 3_000, NDJSON, 400, "InvalidInput"),
        ("GET", f"/topics/t/records/{'9' * 5000}", None, {}, 400, "InvalidOption"),
        ("POST", "/topics/t/rpc/offload", b"[" * 4_000, {}, 400, "Misuse"),
        ("POST", "/rpc/seal", b'{"topic": null}', {}, 400, "InvalidOption"),
        ("POST", "/topics/a%2Fb/records", b"x", BYTES, 404, "Refused"),
        ("DELETE", "/topics", None, {}, 405, "Refused"),
        ("GET", "/topics", None, {"Host": "evil.example"}, 421, "Refused"),
        ("GET", "/topics", None, {"Origin": "http://localhost"}, 403, "Refused"),
        ("POST", "/topics/t/records", bytes(5_000), BYTES, 413, "Refused"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_a_reason(
    strict: Daemon, method: str, path: str, body: bytes | None, headers: dict[str, str], status: int, title: str
) -> None:
    """A refused request changes nothing, so all cases share one daemon."""
    found, answer = strict.ask(method, path, body, headers)[:2]
    assert (found, json.loads(answer)["title"] if answer else None) == (status, title)
    bounds = {"earliest_seq": 1, "head_seq": 1, "hot_first_seq": 1}
    assert strict.json("GET", "/topics/t/index_bounds") == (200, bounds)
    assert strict.json("GET", "/topics") == (200, {"topics": ["t"]})


def test_the_token_is_asked_for_on_tcp_and_not_in_the_directory(start: Start, run: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    daemon = start(SERVE_TOKEN_FILE=str(tmp_path / "token"))
    assert daemon.ask("GET", "/topics")[0] == 401
    assert daemon.ask("GET", "/topics", headers={"Authorization": "Bearer wrong"})[0] == 401
    assert daemon.ask("GET", "/topics", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
    assert daemon.ask("GET", "/healthz")[0] == 200
    assert run("append", "t", stdin=b"x\n").code == 0
    assert (daemon.directory / "seglog.sock").stat().st_mode & 0o777 == 0o600
    assert TOKEN not in "".join(daemon.lines)


def test_a_connection_that_was_reset_is_asked_for_the_token_too(start: Start, tmp_path: Path) -> None:
    """The daemon accepts the connection after its reset and cannot learn the peer.

    An earlier version took such a connection for one of the Unix socket.
    """
    (tmp_path / "token").write_text(TOKEN)
    daemon = start(SERVE_TOKEN_FILE=str(tmp_path / "token"))
    daemon.process.send_signal(signal.SIGSTOP)
    stranger = socket.create_connection(("127.0.0.1", daemon.port), timeout=60)
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets the connection
    stranger.sendall(b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nevil")
    stranger.close()
    daemon.process.send_signal(signal.SIGCONT)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    wait_until(lambda: b'reason="token"' in daemon.ask("GET", "/metrics", headers=bearer)[1], pause_s=0.01)
    assert json.loads(daemon.ask("GET", "/topics", headers=bearer)[1]) == {"topics": []}


def test_a_pipelined_request_may_take_longer_than_headers(start: Start) -> None:
    daemon = start(SERVE_HEADER_TIMEOUT_S="1")
    daemon.ask("POST", "/topics/t/records", b"first", BYTES)
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as both:
        heads = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
        both.sendall(heads % b"/topics" + heads % b"/topics/t/records?follow=1")
        answer = both.makefile("rb")
        while b"first" not in (line := answer.readline()):
            assert line, "it was closed"
        time.sleep(1.5)
        daemon.ask("POST", "/topics/t/records", b"second", BYTES)
        while b"second" not in (line := answer.readline()):
            assert line, "it was closed"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - it is refused
def test_an_address_that_others_reach_needs_a_token_and_tls(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    run("init")
    monkeypatch.setenv("SEGLOG_SERVE_HOST", host)
    refused = run("serve")
    assert refused.code == 2
    assert "token_file" in refused.err
    assert not (tmp_path / "data" / "seglog.sock").exists()


def test_a_wrong_token_file_ends_the_start_with_its_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init")
    monkeypatch.setenv("SEGLOG_SERVE_PORT", "0")
    monkeypatch.setenv("SEGLOG_SERVE_TOKEN_FILE", str(tmp_path / "tokens"))
    assert "the token file cannot be read" in run("serve").err
    (tmp_path / "tokens").write_text("# ours\nci:write:*:00\n")
    refused = run("serve")
    assert refused.code == 2
    assert f"{tmp_path}/tokens, line 2: 'write' is none of metrics, read, append, admin" in refused.err


def test_a_daemon_that_cannot_serve_does_not_say_that_it_does(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init")
    (tmp_path / "nothing.pem").write_text("nothing")
    monkeypatch.setenv("SEGLOG_SERVE_PORT", "0")
    monkeypatch.setenv("SEGLOG_SERVE_TLS_CERTIFICATE", str(tmp_path / "nothing.pem"))
    failed = run("serve")
    assert failed.code == 1
    assert "serving" not in failed.err
    assert run("status").code == 0


def test_names_of_hosts_have_no_case(start: Start) -> None:
    daemon = start(SERVE_ALLOWED_HOSTS="127.0.0.1, Log.Example")
    assert daemon.ask("GET", "/topics", headers={"Host": "LOG.example:80"})[0] == 200
    assert daemon.ask("GET", "/topics", headers={"Host": "log.example.org"})[0] == 421


def test_tls_answers_https_and_nothing_else(start: Start, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    daemon = start(SERVE_TLS_CERTIFICATE=str(cert), SERVE_TLS_KEY=str(key))
    context = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection("localhost", daemon.port, timeout=60, context=context)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read() == b'{"status":"ok"}'
    connection.close()
    with pytest.raises((OSError, http.client.HTTPException)):
        daemon.ask("GET", "/healthz")
    assert daemon.end() == 0


def test_a_follower_gets_what_is_appended_later_and_ends_with_the_daemon(start: Start) -> None:
    daemon = start()
    daemon.ask("POST", "/topics/t/records", b"before", BYTES)
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
    connection.request("GET", "/topics/t/records?follow=1")
    answer = connection.getresponse()
    assert json.loads(answer.readline())["value"] == "before"
    daemon.ask("POST", "/topics/t/records", b"after", BYTES)
    assert json.loads(answer.readline())["value"] == "after"
    assert daemon.end() == 0
    assert json.loads(answer.read()) == {"end": "stopping"}
    connection.close()


def _command(daemon: Daemon, path: str, parameters: dict[str, Any]) -> http.client.HTTPConnection:
    """Send a command as the command line does, and do not wait for the answer."""
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(daemon.directory / "seglog.sock"))
    connection.request("POST", f"/rpc/{path}", json.dumps(parameters), {"Accept": SHOWN_TYPE})
    return connection


def test_results_come_whole_and_an_answer_that_breaks_off_is_none_that_ends(start: Start) -> None:
    daemon, command = start(), COMMANDS["read"]
    values = [b"%d\xff\n" % number * (number % 500) for number in range(3000)]
    assert daemon.ask("POST", "/topics/t/records", encode_values(values), {"Content-Type": VALUES_TYPE})[0] == 201

    def results(*, takes_lines: bool = False, **given: Any) -> Iterator[Any]:
        asked = command.arguments({"topic": "t", **given})
        client = DaemonClient(f"unix:{daemon.directory}")
        return client.results(command, asked, remote=None, takes_lines=takes_lines)

    batches = [each.items for each in results()]
    assert [item.value for batch in batches for item in batch] == values
    assert len(batches) > 1
    assert b"".join(each.data for each in results(takes_lines=True)) == b"".join(value + b"\n" for value in values)
    following = results(follow=True)
    assert next(following).items[0].value == values[0]
    daemon.end(signal.SIGKILL)
    with pytest.raises(seglog.errors.DaemonGone, match=r"seglog\.sock did not answer: IncompleteRead"):
        list(following)


def _running(daemon: Daemon) -> dict[str, int]:
    """Return the numbers of requests and of commands that run."""
    text = daemon.ask("GET", "/metrics")[1].decode()
    return {name: int(float(count)) for name, count in re.findall(r"^seglog_(\w+)_running (\S+)$", text, re.MULTILINE)}


def test_followers_that_wait_leave_commands_and_metrics_alone_and_end_with_the_daemon(start: Start, run: Run) -> None:
    daemon = start()
    run("append", "t", stdin=b"x\n")
    followers = [_command(daemon, "read", {"topic": "t", "start": 2, "follow": True}) for _ in range(40)]
    assert run("status", "t").code == 0
    assert daemon.ask("GET", "/metrics")[0] == 200
    assert run("append", "other", stdin=b"x\n").code == 0
    assert daemon.end() == 0
    answers = [each.getresponse() for each in followers]
    # Each answer has its end, and no error before it.
    assert [(each.status, each.read()) for each in answers] == [(200, b"")] * 40
    for each in followers:
        each.close()


@pytest.mark.long
def test_a_command_whose_client_is_gone_gives_its_place_back(start: Start, run: Run) -> None:
    daemon = start(SERVE_MAX_REQUESTS="4")
    run("append", "t", stdin=b"x\n")
    for first in (1, 2):  # with an answer that has begun, and without one
        for _ in range(2):
            followers = [_command(daemon, "read", {"topic": "t", "start": first, "follow": True}) for _ in range(4)]
            wait_until(
                lambda: _running(daemon) == {"http_requests": 4, "http_followers": 0, "commands": 4}, pause_s=0.05
            )
            assert daemon.ask("POST", "/topics/t/rpc/status")[0] == 429
            for each in followers:
                each.close()
            wait_until(
                lambda: _running(daemon) == {"http_requests": 0, "http_followers": 0, "commands": 0}, pause_s=0.05
            )
    assert daemon.ask("POST", "/topics/t/rpc/status")[0] == 200
    assert daemon.end() == 0


def test_one_request_too_many_is_told_to_come_back(start: Start) -> None:
    daemon = start(SERVE_MAX_REQUESTS="2")
    daemon.ask("POST", "/topics/t/records", b"x", BYTES)
    commands = [_command(daemon, "read", {"topic": "t", "follow": True}) for _ in range(2)]
    wait_until(lambda: _running(daemon)["http_requests"] == 2, pause_s=0.01)
    status, body, headers = daemon.ask("GET", "/topics")
    assert (status, json.loads(body)["title"]) == (429, "Busy")
    assert 1 <= int(headers["retry-after"]) <= 30  # by the rate at which requests ended
    assert daemon.ask("GET", "/healthz")[0] == 200
    assert b'seglog_http_rejected_total{reason="busy"} 1.0' in daemon.ask("GET", "/metrics")[1]
    for each in commands:
        each.close()
    wait_until(lambda: daemon.ask("GET", "/topics")[0] == 200, pause_s=0.01)


def test_the_daemon_may_open_as_many_files_as_the_system_allows(start: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        daemon = start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_200_slow_sockets_leave_others_alone_and_are_closed(start: Start) -> None:
    daemon = start(SERVE_HEADER_TIMEOUT_S="2", SERVE_BODY_TIMEOUT_S="2")
    slow = [socket.create_connection(("127.0.0.1", daemon.port), timeout=60) for _ in range(200)]
    for number, each in enumerate(slow):
        head = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\n"
        rest = b"Content-Type: application/octet-stream\r\nContent-Length: 10\r\n\r\nhalf" if number % 2 else b""
        each.sendall(head + rest)
    for number in range(50):
        assert daemon.ask("POST", "/topics/t/records", b"%d" % number, BYTES)[0] == 201
    ends = [each.recv(65536) for each in slow]
    assert [end for end in ends[::2] if end] == [], "a request without an end of its headers was answered"
    assert all(end.startswith(b"HTTP/1.1 408") for end in ends[1::2])
    for each in slow:
        each.close()
    assert daemon.json("GET", "/topics/t/index_bounds")[1]["head_seq"] == 50


@pytest.mark.long
def test_a_connection_whose_reader_takes_nothing_is_closed(start: Start) -> None:
    daemon = start(SERVE_BODY_TIMEOUT_S="1")
    for _ in range(30):
        daemon.ask("POST", "/topics/t/records", bytes(1_000_000), BYTES)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow.connect(("127.0.0.1", daemon.port))
    slow.sendall(b"GET /topics/t/records HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert slow.recv(1) == b"H"
    wait_until(
        lambda: b'reason="slow"' in daemon.ask("GET", "/metrics")[1] and not _is_held(daemon, slow.getsockname()[1]),
        pause_s=0.02,
    )
    slow.close()


def _is_held(daemon: Daemon, peer_port: int) -> bool:
    """Return True if, by the kernel's tables, the daemon has an open connection from that client port."""
    rows = [line.split() for line in Path(f"/proc/{daemon.process.pid}/net/tcp").read_text().splitlines()[1:]]
    inodes = {row[9] for row in rows if row[1].endswith(f":{daemon.port:04X}") and row[2].endswith(f":{peer_port:04X}")}
    links = [str(each.readlink()) for each in Path(f"/proc/{daemon.process.pid}/fd").iterdir() if each.is_symlink()]
    return any(f"socket:[{inode}]" in links for inode in inodes)


def test_what_was_acked_is_there_after_a_kill(start: Start) -> None:
    daemon = start(OFFLOAD_OFFLOAD_AFTER_S="0", OFFLOAD_TAIL_INTERVAL_S="1")
    acked: list[int] = []

    def append() -> None:
        try:
            for number in range(100_000):
                status, body, _ = daemon.ask("POST", "/topics/t/records", b"%d" % number, BYTES)
                assert status == 201
                acked.append(json.loads(body)["last_seq"])
        except (OSError, http.client.HTTPException):
            return

    worker = threading.Thread(target=append)
    worker.start()
    wait_until(lambda: len(acked) >= 100)
    daemon.end(signal.SIGKILL)
    worker.join(60)
    again = start(OFFLOAD_OFFLOAD_AFTER_S="0", OFFLOAD_TAIL_INTERVAL_S="1")
    head = again.json("GET", "/topics/t/index_bounds")[1]["head_seq"]
    assert acked == list(range(1, len(acked) + 1))
    assert head in {len(acked), len(acked) + 1}
    values = [json.loads(line)["value"] for line in again.ask("GET", "/topics/t/records")[1].splitlines()]
    assert values == [str(number) for number in range(head)]
    assert again.end() == 0


def test_appends_on_their_way_are_answered_when_it_stops(start: Start) -> None:
    daemon = start()
    answers: list[int] = []

    def append(number: int) -> None:
        try:
            while True:
                answers.append(daemon.ask("POST", "/topics/t/records", b"%d" % number, BYTES)[0])
        except (OSError, http.client.HTTPException):
            return

    workers = [threading.Thread(target=append, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    wait_until(lambda: len(answers) >= 50)
    assert daemon.end() == 0
    for worker in workers:
        worker.join(60)
    assert set(answers) <= {201, 503}
    with seglog.open(daemon.directory) as log:
        assert log.topic("t").head_seq == answers.count(201)


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    daemon = start(SERVE_STOP_TIMEOUT_S="600")
    daemon.ask("POST", "/topics/t/records", b"x", BYTES)
    stuck = socket.create_connection(("127.0.0.1", daemon.port), timeout=60)
    stuck.sendall(b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
    time.sleep(0.2)
    daemon.process.send_signal(signal.SIGTERM)
    wait_until(lambda: any("stopping" in line for line in daemon.lines))
    assert daemon.end() == 128 + signal.SIGTERM
    stuck.close()
    with seglog.open(daemon.directory) as log:
        assert [record.value for record in log.topic("t").read()] == [b"x"]


def test_hup_takes_new_settings(start: Start) -> None:
    daemon = start(OFFLOAD_TAIL_INTERVAL_S="")
    daemon.ask("POST", "/topics/t/records", b"x", BYTES)
    (daemon.directory / "seglog.toml").write_text("[offload]\ntail_interval_s = 1\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.json("POST", "/topics/t/rpc/status")[1]["offloaded_seq"] == 1, pause_s=0.01)


def test_its_log_can_be_json(start: Start) -> None:
    daemon = start(SERVE_LOG_FORMAT="json")
    assert daemon.end() == 0
    # A directory in memory, as a test may have it, is a line too.
    events = [json.loads(line) for line in daemon.lines if line.startswith("{") and "is in memory" not in line]
    assert [event["event"] for event in events] == ["stopping"]
    assert events[0]["level"] == "info"
