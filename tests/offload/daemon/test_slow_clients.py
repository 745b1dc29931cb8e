"""Hundreds of clients that send or take nothing leave the appends and reads of others alone, on a real daemon."""

from __future__ import annotations

import http.client
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import seglog
from tests.daemons import ServedDirectory, served
from tests.waiting import wait_until

_HALF = b"half of a value "
_TIMEOUT_S = 60


@pytest.mark.long
@pytest.mark.parametrize("clients", [40, pytest.param(200, marks=pytest.mark.long)])
def test_slow_senders_and_slow_readers_fail_no_request_of_others(tmp_path: Path, clients: int) -> None:
    """Counts, not times. The slow readers keep their places, and the slow senders have none (ROOM-1, ROOM-3)."""
    with seglog.open(tmp_path / "data") as log:
        log.topic("large").append([bytes(256 * 1024)] * 32)
    # No limit of time ends a slow client within the test.
    with served(tmp_path / "data", "", SERVE_BODY_TIMEOUT_S="3600") as daemon, ExitStack() as stack:
        senders = [_sender(stack, daemon, number) for number in range(clients)]
        for _ in range(clients):
            _reader(stack, daemon)
        wait_until(lambda: _running(daemon) >= clients)
        with ThreadPoolExecutor(8) as pool:
            appends = [pool.submit(_append, daemon, number) for number in range(clients)]
            reads = [pool.submit(daemon.ask, "GET", "/topics/large/records/7") for _ in range(20)]
            assert [each.result() for each in appends] == [201] * clients
            assert [each.result()[0] for each in reads] == [200] * 20
        assert _running(daemon) >= clients, "the slow readers still have their places"
        assert _head_seq(daemon, "others") == clients
        assert b"seglog_http_rejected_total{" not in daemon.ask("GET", "/metrics")[1]
        assert [_ended(each) for each in senders] == [201] * clients, "a slow sender was only slow"
        assert _head_seq(daemon, "slow") == clients


def _sender(stack: ExitStack, daemon: ServedDirectory, number: int) -> socket.socket:
    """Send the head and half of the body of an append, as a whole value or as a part of lines."""
    kind = ("octet-stream", "vnd.seglog.lines")[number % 2]
    head = (
        "POST /topics/slow/records HTTP/1.1", "Host: localhost",
        f"Content-Type: application/{kind}", f"Content-Length: {2 * len(_HALF) + 1}",
    )  # fmt: skip
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", daemon.port), timeout=_TIMEOUT_S))
    connection.sendall("\r\n".join((*head, "", "")).encode() + _HALF)
    return connection


def _ended(sender: socket.socket) -> int:
    """Send the rest of the body. Return the status of the answer."""
    sender.sendall(_HALF + b"\n")
    answer = http.client.HTTPResponse(sender)
    answer.begin()
    answer.read()
    return answer.status


def _reader(stack: ExitStack, daemon: ServedDirectory) -> None:
    """Ask for 8 MiB, and take the first byte alone."""
    connection = stack.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(_TIMEOUT_S)
    connection.connect(("127.0.0.1", daemon.port))
    accept = "Accept: application/vnd.seglog.values.seqs"
    connection.sendall(f"GET /topics/large/records HTTP/1.1\r\nHost: localhost\r\n{accept}\r\n\r\n".encode())
    assert connection.recv(1) == b"H"


def _append(daemon: ServedDirectory, number: int) -> int:
    headers = {"Content-Type": "application/octet-stream"}
    return daemon.ask("POST", "/topics/others/records", b"%d" % number, headers)[0]


def _running(daemon: ServedDirectory) -> float:
    found = re.search(rb"^seglog_http_requests_running (\S+)$", daemon.ask("GET", "/metrics")[1], re.MULTILINE)
    assert found is not None
    return float(found[1])


def _head_seq(daemon: ServedDirectory, topic: str) -> int:
    return int(json.loads(daemon.ask("GET", f"/topics/{topic}/index_bounds")[1])["head_seq"])
