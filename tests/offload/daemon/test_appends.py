"""Test appends over HTTP on a real daemon: conditions, repetitions, parts of a body, encodings, and what breaks."""

from __future__ import annotations

import functools
import gzip
import http.client
import json
import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import zstandard

import seglog
from seglog.client.bodies import encode_values
from seglog.format.frame import FrameType, Header, read_header
from tests.daemons import ServedDirectory, served
from tests.waiting import wait_until
from tests.work import amounts, tell

BYTES = {"Content-Type": "application/octet-stream"}
JSON_LINES = {"Content-Type": "application/x-ndjson"}
VALUES = {"Content-Type": "application/vnd.seglog.values"}
LINES = {"Content-Type": "application/vnd.seglog.lines"}
MIB = 1024 * 1024
MAX_BODY_BYTES = 8 * MIB
MAX_RECORDS = MAX_BODY_BYTES // 128


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    """A daemon that all tests share, each with a topic of its own. No request may leave a traceback in its log."""
    place = tmp_path_factory.mktemp("appends")
    seglog.open(place / "data").close()
    with served(
        place / "data",
        (place / "remote").as_uri(),
        SERVE_MAX_BODY_BYTES=str(MAX_BODY_BYTES),
        SERVE_BODY_TIMEOUT_S="3",
        LOG_QUEUE_MAX_BYTES=str(8 * MIB),
    ) as daemon:
        yield daemon
        assert not [line for line in daemon.lines if "Traceback" in line or "Exception" in line], daemon.lines


def append(
    daemon: ServedDirectory, topic: str, body: bytes, headers: Mapping[str, str], query: str = ""
) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    status, answer, found = daemon.ask("POST", f"/topics/{topic}/records{query}", body, headers)
    return status, json.loads(answer), found


def batch(number: int, epoch: int = 0, producer: str = "p") -> dict[str, str]:
    return {**LINES, "Producer-Id": producer, "Producer-Epoch": str(epoch), "Producer-Seq": str(number)}


def values_of(daemon: ServedDirectory, topic: str) -> list[str]:
    return [json.loads(line)["value"] for line in daemon.ask("GET", f"/topics/{topic}/records")[1].splitlines()]


def put(
    daemon: ServedDirectory, topic: str, body: Any, headers: Mapping[str, str] = MappingProxyType({}), query: str = ""
) -> tuple[int, dict[str, Any]]:
    """PUT one record. A body that is an iterator goes in chunks, without a length before it."""
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)) as connection:
        connection.request("PUT", f"/topics/{topic}/records{query}", body, dict(headers))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_a_put_appends_one_record_that_no_memory_holds(daemon: ServedDirectory) -> None:
    """The record is larger than a POST may be. Before its last byte, the daemon has it in a file."""
    value = bytes(range(256)) * (12 * MIB // 256)
    put(daemon, "large-first", value[:MIB])  # what the first one imports is no memory of a record
    before, grown = peak_bytes(daemon, "RssAnon"), 0

    def chunks() -> Iterator[bytes]:
        nonlocal grown
        for at in range(0, len(value) - 1, MIB):
            yield value[at : min(at + MIB, len(value) - 1)]
        grown = peak_bytes(daemon, "RssAnon") - before
        yield value[-1:]

    status, told = put(daemon, "large", chunks(), query="?tag=big")
    assert grown < 8 * MIB
    assert (status, told["first_seq"], told["last_seq"], told["appended"]) == (201, 1, 1, 1)
    assert put(daemon, "large", value, {"Idempotency-Key": "k"})[0] == 201
    status, told = put(daemon, "large", value, {"Idempotency-Key": "k"})
    assert (status, told["duplicate"], told["first_seq"], told["next_seq"]) == (200, True, 2, 3)
    assert put(daemon, "large", gzip.compress(b"small"), {"Content-Encoding": "gzip"})[0] == 201
    assert daemon.ask("GET", "/topics/large/records/2")[1] == value
    assert daemon.ask("GET", "/topics/large/records/3")[1] == b"small"


def test_a_put_that_breaks_off_or_is_too_large_leaves_nothing(daemon: ServedDirectory) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(3 * MIB)
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        put(daemon, "broken", broken())
    most = 16 * MIB  # log.max_record_bytes
    status, told = put(daemon, "broken", (bytes(MIB) for _ in range(17)))
    assert (status, told["title"]) == (413, "RecordTooLarge")
    with closing(socket.create_connection(("127.0.0.1", daemon.port))) as line:
        line.sendall(
            b"PUT /topics/broken/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % (most + 1)
        )
        assert line.recv(100).startswith(b"HTTP/1.1 413"), "before a byte of the body"
    assert put(daemon, "broken", b"x", query="?durability=maybe")[0] == 400
    assert put(daemon, "broken", b"x", query="?whole=1")[0] == 400
    assert put(daemon, "_streams", b"x")[0] == 409
    assert daemon.ask("GET", "/topics/broken/records")[0] == 404


def test_a_batch_that_is_repeated_is_there_once(daemon: ServedDirectory) -> None:
    first = append(daemon, "once", b"a\nb\n", batch(0))
    again = append(daemon, "once", b"a\nb\n", batch(0))
    assert (first[0], again[0]) == (201, 200)
    incarnation = first[2]["seglog-incarnation"]
    told = {"first_seq": 1, "last_seq": 2, "appended": 2, "next_seq": 3, "incarnation": incarnation}
    assert first[1] == {**told, "duplicate": False}
    assert again[1] == {**told, "duplicate": True}
    assert values_of(daemon, "once") == ["a", "b"]


ALL_OR_NONE: dict[str, tuple[bytes, dict[str, str], str]] = {
    "a whole body of several parts": (b"x" * 800 + b"\n", LINES, "?whole=1"),
    "a body of one part": (b"x\n", LINES, ""),
    "values": (encode_values([b"x"]), VALUES, ""),
    "lines of JSON": (b'{"value":"x"}\n', JSON_LINES, "?tag=eu"),
    "a head": (b"x\n", {**LINES, "seglog-if-head": "0"}, ""),
}


@pytest.mark.parametrize("name", ALL_OR_NONE)
def test_what_is_all_or_none_is_one_unit_of_the_wal(daemon: ServedDirectory, name: str) -> None:
    """So a crash within it leaves all of its records or none."""
    one, headers, query = ALL_OR_NONE[name]
    records = 3_000 if "whole" in query else 30
    topic = "unit-" + name.replace(" ", "-")
    assert append(daemon, topic, one * records, headers, query)[1]["appended"] == records
    newest, frames, offset = max((daemon.directory / "wal").glob("wal-*.log")).read_bytes(), list[Header](), 0
    while any(newest[offset : offset + 4]):
        frames.append(read_header(newest, offset))
        offset += frames[-1].frame_bytes
    kinds = [frame.type for frame in frames if frame.type != FrameType.SYNC_MARK]
    assert kinds[-records - 2 :] == [FrameType.TOPIC_CREATE, FrameType.UNIT, *[FrameType.APPEND] * records]


def test_a_fenced_producer_a_gap_and_an_old_batch_are_told_apart(daemon: ServedDirectory) -> None:
    assert append(daemon, "rules", b"a\n", batch(1))[0] == 409
    for number in range(7):
        assert append(daemon, "rules", b"%d\n" % number, batch(number))[0] == 201
    status, told, headers = append(daemon, "rules", b"a\n", batch(9))
    assert (status, told["title"], told["expected"], told["received"]) == (409, "ProducerGap", 7, 9)
    assert (headers["producer-expected-seq"], headers["producer-received-seq"]) == ("7", "9")
    status, told, _ = append(daemon, "rules", b"0\n", batch(0))
    assert (status, told["title"], told["newest"]) == (409, "BatchForgotten", 6)
    assert append(daemon, "rules", b"7\n", batch(0, epoch=3))[0] == 201
    status, told, headers = append(daemon, "rules", b"a\n", batch(7))
    assert (status, told["title"], told["epoch"], headers["producer-epoch"]) == (403, "ProducerFenced", 3, "3")
    assert headers["seglog-incarnation"]
    assert values_of(daemon, "rules") == [str(number) for number in range(8)]


def test_an_append_at_a_head_that_moved_is_refused(daemon: ServedDirectory) -> None:
    assert append(daemon, "head", b"one", BYTES | {"seglog-if-head": "0"})[0] == 201
    status, told, headers = append(daemon, "head", b"two", BYTES | {"seglog-if-head": "0"})
    assert (status, told["title"], told["head_seq"], headers["seglog-head"]) == (412, "HeadMoved", 1, "1")
    assert append(daemon, "head", b"two\n", batch(0) | {"seglog-if-head": "1"})[0] == 201
    assert append(daemon, "head", b"two\n", batch(0) | {"seglog-if-head": "1"})[0] == 200
    assert values_of(daemon, "head") == ["one", "two"]


def test_a_key_makes_an_append_repeatable(daemon: ServedDirectory) -> None:
    key = VALUES | {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
    body = encode_values([b"a", b"b"])
    first, again = append(daemon, "key", body, key), append(daemon, "key", body, key)
    assert (first[0], first[1]["duplicate"], again[0], again[1]["duplicate"]) == (201, False, 200, True)
    assert again[1]["first_seq"] == 1
    assert append(daemon, "key", encode_values([b"a", b"c"]), key)[:2][1]["title"] == "KeyReused"
    assert append(daemon, "key", encode_values([b"a", b"c"]), key)[0] == 422
    assert values_of(daemon, "key") == ["a", "b"]


@pytest.mark.parametrize(
    ("headers", "status", "title"),
    [
        (LINES | {"Producer-Id": "p"}, 400, "InvalidOption"),
        (LINES | {"Producer-Id": "p", "Producer-Epoch": "0"}, 400, "InvalidOption"),
        (batch(0) | {"Producer-Seq": "-1"}, 400, "InvalidOption"),
        (batch(0) | {"Producer-Epoch": "9223372036854775808"}, 400, "InvalidOption"),
        (batch(0) | {"Producer-Id": ""}, 400, "InvalidOption"),
        (batch(0) | {"Producer-Id": "p" * 257}, 400, "InvalidOption"),
        (batch(0) | {"Producer-Id": b"\xff".decode("latin-1")}, 400, "InvalidOption"),
        (batch(0) | {"Idempotency-Key": "k"}, 400, "InvalidOption"),
        (LINES | {"Idempotency-Key": "k" * 257}, 400, "InvalidOption"),
        (LINES | {"seglog-if-head": "head"}, 400, "InvalidOption"),
        (LINES | {"Content-Encoding": "br"}, 415, "Refused"),
        (LINES | {"Content-Encoding": "gzip"}, 400, "InvalidEncoding"),
        ({"Content-Type": "application/json"}, 415, "Refused"),
        ({}, 415, "Refused"),
    ],
)  # fmt: skip
def test_headers_that_do_not_fit_are_refused(
    daemon: ServedDirectory, headers: dict[str, str], status: int, title: str
) -> None:
    found, told, _ = append(daemon, "refused", b"a\n", headers)
    assert (found, told["title"]) == (status, title)
    assert daemon.ask("GET", "/topics/refused/records")[0] == 404


def test_a_batch_of_lines_with_different_labels_is_refused(daemon: ServedDirectory) -> None:
    lines = b'{"value": "a"}\n{"value": "b", "tag": "x"}\n'
    assert append(daemon, "labels", lines, batch(0) | JSON_LINES)[0] == 400
    assert append(daemon, "labels", lines, JSON_LINES, "?whole=1")[0] == 400
    assert append(daemon, "labels", lines, JSON_LINES)[1]["appended"] == 2


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def head_of(topic: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"POST /topics/{topic}/records HTTP/1.1", "Host: localhost", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def answer_on(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, json.loads(answer.read())


def connected(daemon: ServedDirectory) -> socket.socket:
    return socket.create_connection(("127.0.0.1", daemon.port), timeout=60)


LONG = b"".join(b'{"value": "%06d%s"}\n' % (number, b"." * 1000) for number in range(3_000))
CHUNKED = {"Transfer-Encoding": "chunked"}


@pytest.mark.parametrize("end", ["line", "half-close", "chunk", "slow"])
def test_a_body_that_breaks_off_is_answered_with_what_is_in(daemon: ServedDirectory, end: str) -> None:
    topic = f"broken-{end}"
    with closing(connected(daemon)) as connection:
        connection.sendall(head_of(topic, JSON_LINES | CHUNKED) + chunk(LONG))
        if end == "line":
            connection.sendall(chunk(b"{\n") + b"0\r\n\r\n")
        elif end == "half-close":
            connection.shutdown(socket.SHUT_WR)
        elif end == "chunk":
            connection.sendall(b"this is no chunk\r\n")
        status, told = answer_on(connection)
    title = {"line": "InvalidInput", "slow": "Refused"}.get(end, "BodyBroken")
    assert (status, told["title"]) == (408 if end == "slow" else 400, title)
    assert told["first_seq"] == 1
    assert 0 < told["appended"] == told["last_seq"] < 3_000
    assert f"send the rest of the body, from record {told['appended'] + 1} on" in told["hint"]
    assert "as a whole" not in told["hint"], "the records that are in would come twice"
    assert [value[:6] for value in values_of(daemon, topic)] == [f"{n:06d}" for n in range(told["appended"])]


@pytest.mark.parametrize("kind", ["value", "line"])
def test_a_record_that_is_too_large_behind_others_is_told_with_those_that_are_in(tmp_path: Path, kind: str) -> None:
    seglog.open(tmp_path / "data").close()
    small, long = [b"x" * 100] * 30_000, bytes(2 * MIB)
    if kind == "value":
        headers, body = VALUES, encode_values(small) + encode_values([long])
    else:
        headers, body = LINES, b"\n".join([*small, long, b""])
    with served(tmp_path / "data", "", LOG_MAX_RECORD_BYTES=str(MIB)) as own:
        status, told, _ = append(own, "t", body, headers)
        assert (status, told["title"]) == (413, "RecordTooLarge")
        assert 0 < told["appended"] == told["last_seq"] <= 30_000
        assert "nothing was appended" not in told["detail"]
        assert ("or more" in told["detail"]) == (kind == "line"), "the length of a line is known at its end"
        assert f"from record {told['appended'] + 1} on" in told["hint"]
        status, told, _ = append(own, "u", encode_values([long]), batch(0) | VALUES)
        assert (status, "nothing was appended" in told["detail"], "appended" in told) == (413, True, False)


def test_another_number_of_values_is_no_repetition(daemon: ServedDirectory) -> None:
    assert append(daemon, "other", b"a\n", batch(0))[0] == 201
    status, told, _ = append(daemon, "other", b"a\nb\n", batch(0))
    assert (status, told["title"], told["records"]) == (422, "BatchReused", 1)
    assert values_of(daemon, "other") == ["a"]


def test_a_body_whose_client_is_gone_leaves_whole_parts(daemon: ServedDirectory) -> None:
    before = refused(daemon)
    with closing(connected(daemon)) as connection:
        connection.sendall(head_of("gone", JSON_LINES | CHUNKED) + chunk(LONG))
        wait_until(lambda: daemon.ask("GET", "/topics/gone/records?limit=1")[0] == 200)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: refused(daemon) > before)
    values = values_of(daemon, "gone")
    assert [value[:6] for value in values] == [f"{number:06d}" for number in range(len(values))]


def refused(daemon: ServedDirectory) -> float:
    """Return how many requests for records the daemon has answered with 400."""
    lines = daemon.ask("GET", "/metrics")[1].decode().splitlines()
    wanted = ("seglog_http_requests_total{", 'route="/topics/{topic}/records"', 'status="400"')
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(part in line for part in wanted))


def metric(daemon: ServedDirectory, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", daemon.ask("GET", "/metrics")[1].decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.long
def test_mistakes_of_clients_are_a_line_in_the_log_and_no_traceback(daemon: ServedDirectory) -> None:
    """The fixture looks for tracebacks in the whole log of the daemon."""
    for path, body in (
        ("/topics/slow/records", b"x" * 7),
        ("/rpc/seal", b'{"topic"'),
        ("/topics/slow/rpc/truncate", b"{"),
    ):
        with closing(connected(daemon)) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode() + body)
            wait_until(lambda: daemon.ask("GET", "/healthz")[0] == 200)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with closing(connected(daemon)) as connection:
        connection.sendall(b"GARBAGE\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 400"
    for _ in range(12):
        assert append(daemon, "slow", bytes(1_000_000), BYTES)[0] == 201
    slow = metric(daemon, 'seglog_http_rejected_total{reason="slow"}')
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", daemon.port))
        connection.sendall(b"GET /topics/slow/records HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: metric(daemon, 'seglog_http_rejected_total{reason="slow"}') > slow)
    wait_until(lambda: any("took no byte of its answer" in line for line in daemon.lines))


@pytest.mark.long
@amounts(6, soak=24, part=2)
def test_many_large_bodies_at_once_take_little_memory(daemon: ServedDirectory, amount: int) -> None:
    size_bytes, count = 15 * MIB, amount
    line = b"x" * 1023 + b"\n"
    append(daemon, "crowd", line * 4096, LINES)
    before = peak_bytes(daemon)
    connections = [connected(daemon) for _ in range(count)]
    head = head_of("crowd", LINES | {"Content-Length": str(size_bytes)})

    def send(connection: socket.socket) -> tuple[int, dict[str, Any]]:
        with closing(connection):
            connection.sendall(head)
            for _ in range(size_bytes // len(line) // 64):
                connection.sendall(line * 64)
            return answer_on(connection)

    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(send, connections))
    assert [status for status, _ in answers] == [201] * count
    assert sum(told["appended"] for _, told in answers) == count * size_bytes // len(line)
    grown = peak_bytes(daemon) - before
    assert grown < (64 + 4 * count) * MIB  # a daemon that holds whole bodies grows by 30 MiB each
    tell(f"{count} bodies of 15 MiB at once: the daemon grows by {grown / MIB:.0f} MiB")


def test_a_short_body_is_all_or_none(daemon: ServedDirectory) -> None:
    assert append(daemon, "short", b"a\nb\nno line feed", LINES)[1]["title"] == "InvalidInput"
    assert append(daemon, "short", encode_values([b"a"]) + b"\x09\x00\x00\x00x", VALUES)[1]["appended"] == 0
    assert daemon.ask("GET", "/topics/short/records")[0] == 404


def test_only_a_body_that_is_taken_as_a_whole_is_bounded(daemon: ServedDirectory) -> None:
    body = b"x" * 999 + b"\n"
    long = body * (MAX_BODY_BYTES // 1000 + 1)
    assert append(daemon, "bounded", long, batch(0))[0] == 413
    assert append(daemon, "bounded", long, LINES, "?whole=1")[0] == 413
    assert append(daemon, "bounded", long, LINES | {"seglog-if-head": "0"})[0] == 413
    assert append(daemon, "bounded", long, BYTES)[0] == 413
    assert append(daemon, "bounded", long, LINES)[1]["appended"] == len(long) // 1000
    assert append(daemon, "bounded", long[: 3 * MIB // 1000 * 1000], batch(0))[0] == 201


@pytest.mark.parametrize("more", [{}, {"Content-Encoding": "gzip"}])
@pytest.mark.parametrize(("kind", "one"), [(VALUES, bytes(4)), (LINES, b"\n"), (JSON_LINES, b'{"value":""}\n')])
def test_a_whole_body_has_few_records_for_its_bound(
    daemon: ServedDirectory, kind: dict[str, str], one: bytes, more: dict[str, str]
) -> None:
    topic = f"few-{one[:1].hex()}-{len(more)}"
    encoded = gzip.compress if more else bytes
    status, told, _ = append(daemon, topic, encoded(one * (MAX_RECORDS + 1)), kind | more, "?whole=1")
    assert (status, told["title"]) == (413, "Refused")
    assert daemon.ask("GET", f"/topics/{topic}/records")[0] == 404
    assert append(daemon, topic, encoded(one * MAX_RECORDS), kind | more, "?whole=1")[1]["appended"] == MAX_RECORDS


def test_a_few_bytes_of_an_encoding_never_become_millions_of_records(daemon: ServedDirectory) -> None:
    bomb = gzip.compress(bytes(6 * MIB))  # 6 KB
    status, told, _ = append(daemon, "frames", bomb, VALUES | {"Content-Encoding": "gzip"})
    assert (status, told["title"]) == (413, "Refused")
    assert 0 <= told["appended"] <= MAX_RECORDS


def test_a_head_that_does_not_fit_is_refused_before_the_body(daemon: ServedDirectory) -> None:
    daemon.append("early", b"x")
    for more in (
        {"seglog-if-head": "7"},
        {"Content-Encoding": "br"},
        {"Producer-Id": "p"},
        {"Content-Length": "9" * 12},
    ):
        headers = VALUES | {"Expect": "100-continue", "Content-Length": "1000000", "seglog-if-head": "1"} | more
        with closing(connected(daemon)) as connection:
            connection.sendall(head_of("early", headers))
            assert connection.recv(12) in {b"HTTP/1.1 412", b"HTTP/1.1 415", b"HTTP/1.1 400", b"HTTP/1.1 413"}


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": functools.partial(gzip.compress, compresslevel=1),
    "zstd": zstandard.compress,
}


@pytest.mark.parametrize("encoding", ENCODERS)
def test_an_encoded_body_is_taken_like_the_plain_one(daemon: ServedDirectory, encoding: str) -> None:
    lines = b"".join(b"%07d\n" % number for number in range(60_000))
    encoded = ENCODERS[encoding](lines)
    headers = LINES | {"Content-Encoding": encoding}
    assert append(daemon, encoding, encoded, headers)[1]["appended"] == 60_000
    again = append(daemon, encoding, encoded, headers | {"Idempotency-Key": "k"})
    assert (again[0], again[1]["appended"], again[1]["next_seq"]) == (201, 60_000, 120_001)
    status, told, _ = append(daemon, encoding, encoded[:-1], headers)
    assert (status, told["title"]) == (400, "InvalidEncoding")
    assert append(daemon, encoding, encoded + b"x", headers | {"Idempotency-Key": "l"})[0] == 400


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_bomb_is_refused_before_it_takes_memory(daemon: ServedDirectory, encoding: str) -> None:
    bomb = ENCODERS[encoding](bytes(64 * MIB))
    headers = {"Content-Encoding": encoding}
    append(daemon, f"warm-{encoding}", ENCODERS[encoding](bytes(2 * MIB)), BYTES | headers)
    before = peak_bytes(daemon)
    for kind, more in ((BYTES, {}), (LINES, {}), (VALUES, {}), (VALUES, {"Idempotency-Key": "k"})):
        status, _, _ = append(daemon, f"bomb-{encoding}", bomb, {**kind, **headers, **more})
        assert status == 413
    assert peak_bytes(daemon) - before < 48 * MIB


def peak_bytes(daemon: ServedDirectory, kind: str = "VmHWM") -> int:
    """Return the largest memory that the daemon has had, or now has of a kind, without its worker processes."""
    text = Path(f"/proc/{daemon.process.pid}/status").read_text()
    found = re.search(rf"{kind}:\s+(\d+) kB", text)
    assert found
    return int(found[1]) * 1024
