"""Serves the files of a directory by ranged GET over HTTP, like a store without costs, or like a store far away.

    python -m benchmarks.range_server DIRECTORY [FIRST_BYTE_MS MB_PER_S]

A path is `/bucket/key`; the server ignores signatures. With the two numbers, each answer begins so many ms after its
request. Each connection then gets so many MB a second, independent of the other connections. The server prints its
port, and ends when its standard input ends. It is a separate process, so that its cost is not in the reader's figures.
Each connection has a thread, which lets the kernel send from the page cache.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.shape import Shape

__all__ = ["serving"]

_REQUEST = re.compile(rb"GET /([^ ?]+)[^ ]* HTTP/1\.1\r\n")
_RANGE = re.compile(rb"\r\n[Rr]ange: bytes=(\d+)-(\d+)")
_SLICE_BYTES = 256 * 1024


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


def _serve(directory: Path, shape: Shape) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer_all, args=(connection, directory, shape), daemon=True).start()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def _answer_all(connection: socket.socket, directory: Path, shape: Shape) -> None:
    waiting = b""
    with connection, suppress(OSError):
        while True:
            while b"\r\n\r\n" not in waiting:
                piece = connection.recv(65536)
                if not piece:
                    return
                waiting += piece
            head, _, waiting = waiting.partition(b"\r\n\r\n")
            _answer(connection, directory, head + b"\r\n", shape)


def _answer(connection: socket.socket, directory: Path, head: bytes, shape: Shape) -> None:
    since = time.perf_counter()
    request, wanted = _REQUEST.match(head), _RANGE.search(head)
    path = directory / request[1].decode().partition("/")[2] if request else directory
    if not path.is_file() or ".." in path.parts:
        body = b"<Error><Code>NoSuchKey</Code></Error>"
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        start, end = (int(wanted[1]), min(int(wanted[2]) + 1, size)) if wanted else (0, size)
        answer = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\n" % (start, end - 1, size)
        answer = answer if wanted else b"HTTP/1.1 200 OK\r\n"
        answer += b'ETag: "1"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nContent-Length: %d\r\n\r\n' % (
            end - start
        )
        shape.wait(since, 0)
        connection.sendall(answer)
        place = start
        while place < end:
            place += os.sendfile(connection.fileno(), file.fileno(), place, min(_SLICE_BYTES, end - place))
            shape.wait(since, place - start)


if __name__ == "__main__":
    first_byte_ms, mb_per_s = [float(text) for text in sys.argv[2:]] or [0.0, 0.0]
    _serve(Path(sys.argv[1]), Shape(first_byte_ms / 1000, mb_per_s * 1_000_000))
