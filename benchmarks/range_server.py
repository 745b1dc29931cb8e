"""Serves the directory of a `file://` remote as S3 does, for reads: like a store without costs, or one far away.

    python -m benchmarks.range_server DIRECTORY [FIRST_BYTE_MS MB_PER_S]

It answers GET with or without a range, HEAD and ListObjectsV2, and ignores signatures. A path is `/bucket/key`. With
the two numbers, each answer begins so many ms after its request. Each connection then gets so many MB a second,
independent of the other connections. The server prints its port, and ends when its standard input ends. It is a
separate process, so that its cost is not in the reader's figures. Each connection has a thread, which lets the kernel
send from the page cache.

The server counts its requests and the bytes of their bodies, and `taken` asks for both.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from benchmarks.shape import Shape

__all__ = ["Taken", "serving", "taken"]

_REQUEST = re.compile(rb"(GET|HEAD) /([^ ?]+)(?:\?([^ ]*))? HTTP/1\.1\r\n")
_RANGE = re.compile(rb"\r\n[Rr]ange: bytes=(\d+)-(\d+)")
_SLICE_BYTES = 256 * 1024


_MOST_KEYS = 1000
_COUNTS = "counts"


@dataclass(frozen=True, slots=True)
class Taken:
    """The requests to a server since the last call, by method and kind of key, and the bytes of their bodies."""

    requests: Counter[str]
    body_bytes: int


def taken(url: str) -> Taken:
    with urllib.request.urlopen(f"{url}/{_COUNTS}") as answer:  # noqa: S310 - our own server
        requests, body_bytes = json.load(answer)
    return Taken(Counter(requests), body_bytes)


@contextmanager
def serving(directory: Path, *shape: float) -> Iterator[str]:
    """Yield the URL of a server of `directory`. `shape` is empty, or ms to the first byte and MB/s of a connection."""
    command = [sys.executable, "-m", "benchmarks.range_server", str(directory), *map(str, shape)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


@dataclass(slots=True)
class _Origin:
    directory: Path
    shape: Shape
    requests: Counter[str] = field(default_factory=Counter[str])
    body_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, what: str, body_bytes: int) -> None:
        with self.lock:
            self.requests[what] += 1
            self.body_bytes += body_bytes

    def taken(self) -> bytes:
        with self.lock:
            counts = json.dumps([self.requests, self.body_bytes]).encode()
            self.requests, self.body_bytes = Counter(), 0
        return counts


def _serve(origin: _Origin) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer_all, args=(connection, origin), daemon=True).start()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def _answer_all(connection: socket.socket, origin: _Origin) -> None:
    waiting = b""
    with connection, suppress(OSError):
        while True:
            while b"\r\n\r\n" not in waiting:
                piece = connection.recv(65536)
                if not piece:
                    return
                waiting += piece
            head, _, waiting = waiting.partition(b"\r\n\r\n")
            _answer(connection, origin, head + b"\r\n")


def _answer(connection: socket.socket, origin: _Origin, head: bytes) -> None:
    since = time.perf_counter()
    request = _REQUEST.match(head)
    if request is None:
        connection.sendall(b"HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n")
        return
    method, path, query = request[1].decode(), request[2].decode(), parse_qs((request[3] or b"").decode())
    key = path.partition("/")[2]
    if path == _COUNTS:
        _send(connection, b"200 OK", origin.taken())
    elif "list-type" in query:
        body = _listing(origin.directory, query)
        origin.count(f"LIST {_kind(query.get('prefix', [''])[0])}", len(body))
        origin.shape.wait(since, 0)
        _send(connection, b"200 OK", body)
    else:
        _answer_object(connection, origin, method, key, _RANGE.search(head), since)


def _answer_object(
    connection: socket.socket, origin: _Origin, method: str, key: str, wanted: re.Match[bytes] | None, since: float
) -> None:
    path = origin.directory / key
    if not path.is_file() or ".." in path.parts:
        origin.count(f"{method} {_kind(key)}", 0)
        origin.shape.wait(since, 0)
        _send(connection, b"404 Not Found", b"" if method == "HEAD" else b"<Error><Code>NoSuchKey</Code></Error>")
        return
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start, end = (int(wanted[1]), min(int(wanted[2]) + 1, size)) if wanted else (0, size)
        answer = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\n" % (start, end - 1, size)
        answer = answer if wanted else b"HTTP/1.1 200 OK\r\n"
        answer += b'ETag: "1"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nContent-Length: %d\r\n\r\n' % (
            end - start
        )
        place = end if method == "HEAD" else start
        origin.count(f"{method} {_kind(key)}", end - place)
        origin.shape.wait(since, 0)
        connection.sendall(answer)
        while place < end:
            place += os.sendfile(connection.fileno(), file.fileno(), place, min(_SLICE_BYTES, end - place))
            origin.shape.wait(since, place - start)


def _send(connection: socket.socket, status: bytes, body: bytes) -> None:
    connection.sendall(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))


def _kind(key: str) -> str:
    """Return the kind of a key: the folder of a name, or the one below the volume."""
    first, _, rest = key.partition("/")
    return first if first in ("refs", "tags", "pins", "oplog") else rest.partition("/")[0]


def _listing(directory: Path, query: dict[str, list[str]]) -> bytes:
    prefix, after = query.get("prefix", [""])[0], query.get("start-after", query.get("continuation-token", [""]))[0]
    limit = min(_MOST_KEYS, int(query.get("max-keys", [_MOST_KEYS])[0]))
    keys = sorted(key for key in _keys(directory, prefix.rpartition("/")[0]) if key.startswith(prefix) and key > after)
    shown = keys[:limit]
    rows = [f"<Contents><Key>{escape(key)}</Key><Size>{(directory / key).stat().st_size}</Size></Contents>"
            for key in shown]  # fmt: skip
    more = "<IsTruncated>false</IsTruncated>"
    if len(keys) > limit:
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{shown[-1]}</NextContinuationToken>"
    return f"<ListBucketResult>{more}{''.join(rows)}</ListBucketResult>".encode()


def _keys(directory: Path, folder: str) -> Iterator[str]:
    """Yield the keys below a folder. The store's own files are in folders with a dot."""
    for place, folders, files in os.walk(directory / folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (str((Path(place) / name).relative_to(directory)) for name in files)


if __name__ == "__main__":
    first_byte_ms, mb_per_s = [float(text) for text in sys.argv[2:]] or [0.0, 0.0]
    _serve(_Origin(Path(sys.argv[1]), Shape(first_byte_ms / 1000, mb_per_s * 1_000_000)))
