"""The memory of a daemon that takes one long body, and the time of its stop under load.

body    one POST of values of 1 KiB, without a producer. The daemon's peak memory before and after it
stop    clients append one record after the other, when SIGTERM comes. Each request gets an answer, until the
        daemon takes no more connections
"""

from __future__ import annotations

import http.client
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks import daemon
from benchmarks.http_load import post
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone
from seglog import LogSettings
from seglog.client.bodies import VALUES_TYPE, encode_values

__all__ = ["SUMMARY", "run"]

SUMMARY = "the daemon's memory under one long body, and its stop under load"

BODY_MIB = 1_024
CLIENTS = 16
LOAD_S = 1.0
_MIB = 1 << 20
_MOST_MIB = LogSettings().queue_max_bytes // _MIB + 32
_BYTES = {"Content-Type": "application/octet-stream"}
_REQUEST = post("/topics/bench/records", b"x" * 1_024, "Content-Type: application/octet-stream")


def run(options: Options) -> Report:
    place = options.directory / "http-body"
    rows = [*_body(place, 4 if options.quick else BODY_MIB), *_stop(place, 0.2 if options.quick else LOAD_S)]
    return Report("http-body", SUMMARY, tuple(rows), describe(options.directory), 1)


def _body(place: Path, size_mib: int) -> list[Row]:
    piece = encode_values(log_lines(1_024, 1_020))
    with daemon.running(place) as served:
        _answer_to(served.port, iter([_REQUEST]))
        before, begin = _peak_mib(served.process.pid), time.perf_counter()
        _answer_to(served.port, _long(piece, size_mib))
        elapsed, after = time.perf_counter() - begin, _peak_mib(served.process.pid)
    shutil.rmtree(place)
    label = f"a body of {size_mib:,} MiB"
    return [
        alone(f"{label}, growth of the daemon's memory", "MiB", max(after - before, 0.01), at_most=_MOST_MIB),
        alone(label, "MB/s", size_mib * len(piece) / elapsed / 1e6),
    ]


def _long(piece: bytes, times: int) -> Iterator[bytes]:
    yield post("/topics/bench/records", b"", f"Content-Type: {VALUES_TYPE}").replace(
        b"Content-Length: 0", b"Content-Length: %d" % (times * len(piece))
    )
    for _ in range(times):
        yield piece


def _answer_to(port: int, pieces: Iterator[bytes]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = connection.recv(4_096)
    if not answer.startswith(b"HTTP/1.1 201"):
        raise RuntimeError(f"no append: {answer[:300]!r}")


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@dataclass(slots=True)
class _Client:
    answered: int = 0
    lost: int = 0


def _stop(place: Path, load_s: float) -> list[Row]:
    clients = [_Client() for _ in range(CLIENTS)]
    with daemon.running(place) as served:
        threads = [threading.Thread(target=_load, args=(client, served.port)) for client in clients]
        for thread in threads:
            thread.start()
        time.sleep(load_s)
        begin = time.perf_counter()
        served.process.send_signal(signal.SIGTERM)
        served.process.wait()
        elapsed_ms = (time.perf_counter() - begin) * 1e3
        for thread in threads:
            thread.join()
    shutil.rmtree(place)
    answered = sum(client.answered for client in clients)
    lost = sum(client.lost for client in clients)
    return [
        alone(f"stop under {CLIENTS} clients", "ms", elapsed_ms),
        alone("requests before it", "requests", answered),
        alone("requests with an answer", "%", 100 * answered / (answered + lost), at_least=100),
    ]


def _load(client: _Client, port: int) -> None:
    """Append until the daemon takes no more connections. Count the requests with and without an answer.

    The standard library has the client. It opens a new connection after an answer with `Connection: close`.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port)
    with closing(connection):
        while True:
            try:
                if connection.sock is None:
                    connection.connect()
            except ConnectionRefusedError:
                return
            try:
                connection.request("POST", "/topics/bench/records", b"x" * 1_024, _BYTES)
                connection.getresponse().read()
                client.answered += 1
            except (ConnectionError, http.client.HTTPException):
                client.lost += 1
                connection.close()
