"""Gets ranges of an object over HTTP, on some connections at once, and only counts their bytes.

Each connection is a plain socket with a thread, which receives into one buffer. So the client costs little beside the
server that is measured, and is the same for each of them.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

__all__ = ["get_all"]

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_PIECE_BYTES = 1 << 20


def get_all(port: int, path: str, ranges: Sequence[range], connections: int) -> int:
    """Get each range once. Return the bytes that came."""
    parts = [ranges[number::connections] for number in range(connections)]
    with ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(lambda part: _get(port, path, part), parts))


def _get(port: int, path: str, ranges: Sequence[range]) -> int:
    buffer, total = bytearray(_PIECE_BYTES), 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for each in ranges:
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={each.start}-{each.stop - 1}\r\n\r\n"
            connection.sendall(head.encode())
            total += _answer(connection, buffer, len(each))
    return total


def _answer(connection: socket.socket, buffer: bytearray, expected: int) -> int:
    got = b""
    while b"\r\n\r\n" not in got:
        piece = connection.recv(64 * 1024)
        if not piece:
            raise RuntimeError(f"no answer: {got[:200]!r}")
        got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    length = _LENGTH.search(head + b"\r\n")
    if not head.startswith(b"HTTP/1.1 206") or length is None or int(length[1]) != expected:
        raise RuntimeError(f"not the range: {head[:300]!r}")
    left = expected - len(body)
    while left:
        came = connection.recv_into(buffer, min(left, _PIECE_BYTES))
        if not came:
            raise RuntimeError("an answer breaks off")
        left -= came
    return expected
