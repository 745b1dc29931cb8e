"""Test the HTTP of a connection, byte for byte: doubtful framing is refused, and answers keep their order."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import seglog
from offload.daemon.connection import Lingering
from tests.daemons import ServedDirectory, served
from tests.waiting import wait_until

TIMEOUT_S = 120
HOST = b"Host: localhost\r\n"
BYTES = HOST + b"Content-Type: application/octet-stream\r\n"
POST = b"POST /topics/t/records HTTP/1.1\r\n" + BYTES
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
PROBE = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("connection") / "data"
    seglog.open(directory).close()
    return directory


@pytest.fixture(scope="module")
def daemon(directory: Path) -> Iterator[ServedDirectory]:
    with served(directory, "") as daemon:
        yield daemon


def connected(daemon: ServedDirectory) -> socket.socket:
    return socket.create_connection(("127.0.0.1", daemon.port), timeout=TIMEOUT_S)


def received(connection: socket.socket) -> bytes:
    """Return all bytes up to the end of the connection."""
    found = b""
    while data := connection.recv(65_536):
        found += data
    return found


def told(daemon: ServedDirectory, *pieces: bytes) -> bytes:
    """Send bytes, and then nothing. Return all that the daemon says until it closes the connection."""
    with closing(connected(daemon)) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return received(connection)


def statuses(text: bytes) -> list[int]:
    return [int(each[:3]) for each in text.split(b"HTTP/1.1 ")[1:]]


def head_seq(daemon: ServedDirectory, topic: str = "t") -> int:
    status, body, _ = daemon.ask("GET", f"/topics/{topic}/index_bounds")
    return int(json.loads(body)["head_seq"]) if status == 200 else 0


DOUBTFUL = {
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "two lengths that differ": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a length and chunks": CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "chunks and a length": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a sign": POST + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": POST + b"Content-Length: -3\r\n\r\nabc",
    "an empty length": POST + b"Content-Length:\r\n\r\nabc",
    "a length in hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "a length beyond 64 bits": POST + b"Content-Length: 99999999999999999999\r\n\r\nabc",
    "chunks in gzip": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "chunks twice": CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "a vertical tab before chunked": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0") + b"\r\n1\r\na\r\n0\r\n\r\n",
    "a line feed alone": b"POST /topics/t/records HTTP/1.1\nHost: localhost\nContent-Length: 1\n\na",
    "a line feed alone in a header": POST + b"X: a\nContent-Length: 1\r\n\r\na",
    "a carriage return alone": POST + b"X: a\rContent-Length: 1\r\n\r\na",
    "a folded line": POST + b"X: a\r\n b\r\nContent-Length: 1\r\n\r\na",
    "a NUL": POST + b"X: a\0b\r\nContent-Length: 1\r\n\r\na",
    "a space before the colon": POST + b"Content-Length : 1\r\n\r\na",
    "a space before the first header": b"POST /topics/t/records HTTP/1.1\r\n " + BYTES + b"Content-Length: 1\r\n\r\na",
    "a header without a name": POST + b": 1\r\nContent-Length: 1\r\n\r\na",
    "two hosts": POST + HOST + b"Content-Length: 1\r\n\r\na",
    "two tokens": POST + b"Authorization: Bearer a\r\n" * 2 + b"Content-Length: 1\r\n\r\na",
    "a user in the target": b"GET http://user@localhost/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "no host in the target": b"GET http:///healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "another scheme": b"GET ftp://localhost/healthz HTTP/1.1\r\n" + HOST + b"\r\n",
    "no host": b"POST /topics/t/records HTTP/1.1\r\nContent-Length: 1\r\n\r\na",
    "bytes beyond ASCII in the path": b"POST /topics/\xc3\xa4/records HTTP/1.1\r\n"
    + BYTES
    + b"Content-Length: 0\r\n\r\n",
    "HTTP/2.0": b"POST /topics/t/records HTTP/2.0\r\n" + BYTES + b"Content-Length: 1\r\n\r\na",
    "CONNECT": b"CONNECT localhost:1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00",
    "a long header": POST + b"X: " + b"x" * 70_000 + b"\r\n\r\n",
    "many headers": POST + b"X: abcdefgh\r\n" * 9_000 + b"\r\n",
    "a long path": b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
}


TOO_LARGE = ("a long header", "many headers", "a long path")


def problem_of(answer: bytes) -> dict[str, Any]:
    """Return the problem of one answer, whose head has its type and its length."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
    found: dict[str, Any] = json.loads(body)
    return found


@pytest.mark.parametrize("name", DOUBTFUL)
def test_doubtful_framing_is_refused_and_appends_nothing(daemon: ServedDirectory, name: str) -> None:
    before = head_seq(daemon)
    answer = told(daemon, DOUBTFUL[name])
    assert statuses(answer) == [431 if name in TOO_LARGE else 400]
    assert b"connection: close" in answer
    problem = problem_of(answer)
    assert problem["reason"] == ("head" if name in TOO_LARGE else "http")
    assert problem["detail"]
    assert head_seq(daemon) == before


def test_a_target_in_absolute_form_is_taken_with_its_host(daemon: ServedDirectory) -> None:
    """RFC 9112, 3.2.2: a server must accept it, and its host stands for `Host`."""
    end = b" HTTP/1.1\r\nConnection: close\r\n"
    for target in (b"http://localhost/healthz", b"HTTP://localhost:1/healthz?", b"https://localhost/healthz"):
        assert statuses(told(daemon, b"GET " + target + end + HOST + b"\r\n")) == [200]
    assert statuses(told(daemon, b"GET http://evil.example/topics" + end + HOST + b"\r\n")) == [421]
    assert statuses(told(daemon, b"GET http://localhost/topics" + end + b"Host: evil.example\r\n\r\n")) == [200]
    upgraded = b"Connection: close, upgrade\r\nUpgrade: h2c\r\n"
    assert statuses(told(daemon, b"GET http://localhost?x=1 HTTP/1.1\r\n" + HOST + upgraded + b"\r\n")) == [404]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/topics", "GET, HEAD"),
        ("PATCH", "/topics/t/records", "GET, HEAD, POST, PUT"),
        ("GET", "/topics/t/rpc/truncate", "POST"),
        ("PATCH", "/streams/a", "DELETE, GET, HEAD, POST, PUT"),
    ],
)
def test_a_wrong_method_is_answered_with_the_methods_of_the_path(
    daemon: ServedDirectory, method: str, path: str, allowed: str
) -> None:
    status, _, headers = daemon.ask(method, path)
    assert (status, headers.get("allow")) == (405, allowed)


def test_a_slash_at_the_end_is_another_path_and_no_redirect(daemon: ServedDirectory) -> None:
    """A redirect would name http:// behind a proxy with TLS."""
    status, _, headers = daemon.ask("GET", "/topics/")
    assert (status, "location" in headers) == (404, False)


def test_only_an_unknown_coding_of_records_names_the_known_ones(daemon: ServedDirectory) -> None:
    text, value = {"Content-Type": "text/plain"}, {"Content-Type": "application/octet-stream"}
    assert daemon.ask("PUT", "/streams/coded", b"", text)[0] == 201
    for method, path, headers, told in (
        (
            "POST",
            "/topics/t/records",
            value | {"Content-Encoding": "br"},
            "zstd, gzip",
        ),
        ("POST", "/topics/t/records", text, None),
        ("POST", "/streams/coded", text | {"Content-Encoding": "gzip"}, None),
    ):
        status, _, found = daemon.ask(method, path, b"x", headers)
        assert (status, found.get("accept-encoding")) == (415, told)


def test_a_record_that_never_was_is_not_called_deleted(daemon: ServedDirectory) -> None:
    for _ in range(2):
        daemon.append("numbered", b"x")
    assert daemon.call("delete", topic="numbered", before=2, yes=True)[0]["deleted"] == 1
    told = [json.loads(daemon.ask("GET", f"/topics/numbered/records/{seq}")[1]) for seq in (1, 3, 4)]
    assert [each["status"] for each in told] == [404] * 3
    assert ["was deleted" in each["detail"] for each in told] == [True, False, False]
    assert [each["title"] for each in told[1:]] == ["SeqOutOfRange"] * 2


BROKEN_CHUNKS = {
    "a line feed alone": b"1\na\n0\n\n",
    "a space behind the size": b"1 \r\na\r\n0\r\n\r\n",
    "a NUL in an extension": b"1;a\0\r\na\r\n0\r\n\r\n",
    "a size beyond 64 bits": b"fffffffffffffffff\r\na\r\n0\r\n\r\n",
    "more than the size": b"1\r\nabc\r\n0\r\n\r\n",
    "a length in a trailer": b"1\r\na\r\n0\r\nContent-Length: 7\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN_CHUNKS)
def test_broken_chunks_are_a_body_that_broke_off(daemon: ServedDirectory, name: str) -> None:
    before = head_seq(daemon)
    answer = told(daemon, CHUNKED + b"\r\n" + BROKEN_CHUNKS[name])
    assert statuses(answer) == [400]
    assert b"BodyBroken" in answer
    assert head_seq(daemon) == before


@pytest.mark.parametrize(
    "endless", [b"a: " + b"x" * 8_192, b"1;" + b"x" * 8_192], ids=["a trailer", "an extension of a chunk"]
)
def test_an_endless_line_within_a_body_is_refused(daemon: ServedDirectory, endless: bytes) -> None:
    before = head_seq(daemon)
    begin = b"0\r\n" if endless.startswith(b"a") else b""
    answer = _told_without_end(daemon, CHUNKED + b"\r\n" + begin + endless)
    assert statuses(answer) == [400]
    assert head_seq(daemon) == before


def test_an_endless_head_is_refused_before_its_end(daemon: ServedDirectory) -> None:
    assert statuses(_told_without_end(daemon, POST + b"X: ")) == [431]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("no host", "the head has no Host, or several"),
        ("chunks in gzip", "the daemon takes no Transfer-Encoding but chunked"),
        ("a long header", "the head is larger than 65536 bytes"),
    ],
)
def test_bytes_that_are_not_http_get_the_cause_that_the_log_has(daemon: ServedDirectory, name: str, cause: str) -> None:
    assert problem_of(told(daemon, DOUBTFUL[name]))["detail"] == cause
    wait_until(lambda: any(cause in line for line in daemon.lines))


def test_a_query_beyond_ascii_is_refused_with_its_cause(daemon: ServedDirectory) -> None:
    head = b"GET /topics/t/records?tag=\xc3\xa4 HTTP/1.1\r\n" + HOST + b"\r\n"
    assert problem_of(told(daemon, head))["detail"]


def _told_without_end(daemon: ServedDirectory, begin: bytes) -> bytes:
    """Send a line that is longer than the daemon takes, even if one read has the first 256 KiB of it."""
    return told(daemon, begin, *[b"x" * 16_384] * 24)


def test_chunks_with_extensions_and_trailers_are_taken_and_a_trailer_is_no_header(daemon: ServedDirectory) -> None:
    body = b'2;a="b";c\r\nab\r\n1\r\nc\r\n0\r\nProducer-Id: p\r\n\r\n'
    before = head_seq(daemon, "chunks")
    answer = told(daemon, CHUNKED.replace(b"/t/", b"/chunks/") + b"Connection: close\r\n\r\n" + body)
    assert statuses(answer) == [201], answer
    assert daemon.ask("GET", f"/topics/chunks/records/{before + 1}")[1] == b"abc"


def test_spaces_around_a_value_and_an_empty_value_are_taken(daemon: ServedDirectory) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost:  localhost \t \r\nX:\r\nConnection: close\r\n\r\n"
    assert statuses(told(daemon, head)) == [200]


def test_a_request_of_single_bytes_is_taken(daemon: ServedDirectory) -> None:
    request = CHUNKED.replace(b"/t/", b"/single/") + b"Connection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert statuses(told(daemon, *(request[at : at + 1] for at in range(len(request))))) == [201]
    assert daemon.ask("GET", "/topics/single/records/1")[1] == b"abc"


@pytest.mark.parametrize(("path", "status"), [("/nope", 404), ("/topics/nope/records", 404), ("/healthz", 200)])
def test_a_client_of_websockets_gets_the_answer_of_a_get(daemon: ServedDirectory, path: str, status: int) -> None:
    with pytest.raises(InvalidStatus) as caught, connect(f"ws://127.0.0.1:{daemon.port}{path}", proxy=None):
        pass
    response = caught.value.response
    assert response.status_code == status
    assert json.loads(response.body or b"").get("status") == (404 if status == 404 else "ok")


def test_an_upgrade_of_http_1_0_is_answered_as_http_1_0(daemon: ServedDirectory) -> None:
    get = b"GET /topics HTTP/1.0\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    behind = PROBE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answer = told(daemon, get + behind)
    assert statuses(answer) == [200]  # it ends the connection
    assert b"connection: close" in answer


def test_an_upgrade_is_ignored_and_the_body_of_its_request_and_the_next_request_are_read(
    daemon: ServedDirectory,
) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    post = POST.replace(b"/t/", b"/upgrade/") + upgrade + b"Content-Length: 4\r\n\r\nbody"
    get = b"GET /topics/upgrade/records/1 HTTP/1.1\r\n" + HOST + upgrade + b"\r\n"
    last = PROBE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answer = told(daemon, post + get + last)
    assert statuses(answer) == [201, 200, 200], answer
    assert b"\r\n\r\nbody" in answer


def test_pipelined_requests_are_answered_in_order_and_before_bytes_that_are_not_http(daemon: ServedDirectory) -> None:
    posts = [
        POST.replace(b"/t/", b"/order/") + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        for body in (b"%d" % number for number in range(60))
    ]
    answer = told(daemon, b"".join(posts) + PROBE + b"no HTTP\r\n\r\n")
    assert statuses(answer) == [*[201] * 60, 200, 400]
    first_seqs = re.findall(rb'"first_seq":([0-9]+)', answer)
    assert first_seqs == [b"%d" % seq for seq in range(1, 61)]
    with_values = daemon.ask("GET", "/topics/order/records")[1].splitlines()
    assert [json.loads(line)["value"] for line in with_values] == [str(number) for number in range(60)]


def test_a_client_that_expects_100_gets_it_before_it_sends_the_body(daemon: ServedDirectory) -> None:
    with closing(connected(daemon)) as connection:
        head = POST.replace(b"/t/", b"/expect/") + b"Connection: close\r\nContent-Length: 3\r\n"
        connection.sendall(head + b"Expect: 100-Continue\r\n\r\n")
        assert connection.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"abc")
        assert statuses(received(connection)) == [201]


def test_an_expectation_of_a_refused_request_gets_the_refusal_alone(daemon: ServedDirectory) -> None:
    head = POST.replace(b"octet-stream", b"pdf") + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    with closing(connected(daemon)) as connection:
        connection.sendall(head)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 415")


@pytest.mark.parametrize("path", [b"/healthz", b"/topics/t/records?limit=1"])
def test_http_1_0_gets_an_answer_without_chunks_and_its_end(daemon: ServedDirectory, path: bytes) -> None:
    daemon.ask("POST", "/topics/t/records", b"x", {"Content-Type": "application/octet-stream"})
    answer = told(daemon, b"GET %b HTTP/1.0\r\n" % path + HOST + b"\r\n")
    assert statuses(answer) == [200]
    assert b"transfer-encoding" not in answer
    assert answer.rstrip().endswith(b"}")


def test_a_head_request_gets_no_body_and_the_connection_stays(daemon: ServedDirectory) -> None:
    last = PROBE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answer = told(daemon, b"HEAD /topics/t/records HTTP/1.1\r\n" + HOST + b"\r\n" + last)
    assert statuses(answer) == [200, 200]
    assert answer.count(b"{") == 1


def test_an_answer_with_a_length_comes_in_one_piece(daemon: ServedDirectory) -> None:
    with closing(connected(daemon)) as connection:
        for _ in range(20):
            connection.sendall(PROBE)
            assert connection.recv(65_536).endswith(b"}")


LARGE = b"x" * (16 * 1024 * 1024)
LENGTH = b"Content-Length: %d\r\n\r\n" % len(LARGE)
TOKEN = b"Authorization: Bearer correct-horse-battery\r\n"
COMMAND = b"POST /rpc/status HTTP/1.1\r\n"

EARLY = {
    "a body that is too large": (413, COMMAND + HOST + TOKEN + LENGTH),
    "no token": (401, POST + LENGTH),
    "another host": (421, POST.replace(b"localhost", b"evil.example") + TOKEN + LENGTH),
    "bytes that are not HTTP": (400, b"no HTTP\r\n\r\n"),
}


@pytest.fixture(scope="module")
def strict_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    directory = tmp_path_factory.mktemp("strict")
    seglog.open(directory / "data").close()
    (directory / "token").write_text("correct-horse-battery")
    given = {"SERVE_TOKEN_FILE": str(directory / "token"), "SERVE_MAX_BODY_BYTES": "1024"}
    with served(directory / "data", "", **given) as daemon:
        yield daemon


@pytest.mark.parametrize("name", EARLY)
def test_a_client_that_sends_a_large_body_reads_the_refusal_that_came_before_its_end(
    strict_daemon: ServedDirectory, name: str
) -> None:
    status, head = EARLY[name]
    answer = told(strict_daemon, head, LARGE)
    assert statuses(answer) == [status]
    assert b"connection: close" in answer


def test_a_refusal_arrives_though_its_client_has_sent_further_requests(strict_daemon: ServedDirectory) -> None:
    refused = POST + b"Content-Length: 1\r\n\r\nx"
    assert statuses(told(strict_daemon, refused + PROBE * 100_000)) == [401]


def test_a_connection_lingers_until_its_client_is_silent_or_slow_or_sends_too_much() -> None:
    lingering = Lingering(100, 100)
    assert lingering.left_s(100) == 5
    lingering.drop(1, 103)
    assert lingering.left_s(104) == 4
    assert lingering.left_s(108) == 0
    for now_s in range(104, 130, 2):
        lingering.drop(1_000_000, now_s)
        assert lingering.left_s(now_s) == min(5, 130 - now_s)
    lingering.drop(0, 130)
    assert lingering.left_s(130) == 0
    lingering = Lingering(100, 100)
    lingering.drop(256 * 1024 * 1024, 100)
    assert lingering.left_s(100) == 0


@pytest.mark.soak(part=2)
def test_a_connection_whose_client_never_closes_it_ends(strict_daemon: ServedDirectory) -> None:
    """Send bytes after the refusal: the daemon ends the connection after 30 s, and a reset says so."""
    with closing(connected(strict_daemon)) as connection:
        connection.sendall(EARLY["no token"][1])
        assert statuses(received(connection)) == [401]

        def is_reset() -> bool:
            try:
                connection.sendall(b"x")
            except ConnectionError:
                return True
            return False

        wait_until(is_reset, pause_s=0.01)
