"""Redis on loopback, `appendfsync always`, its file on the disk to measure. A queue is a stream with a
consumer group.

The connection speaks RESP itself, so that no client library stands between.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.s3_server import free_port
from benchmarks.slices import Unavailable

__all__ = ["Connection", "running"]

_START_LIMIT_S = 20.0


@contextmanager
def running(directory: Path) -> Iterator[int]:
    """Yield the port of a separate server, stopped at the end. Raises `Unavailable`."""
    beside = Path(sys.executable).with_name("redis-server")
    binary = str(beside) if beside.exists() else shutil.which("redis-server")
    if binary is None:
        raise Unavailable("redis-server is not installed")
    port = free_port()
    settings = {
        "port": port, "bind": "127.0.0.1", "dir": directory.resolve(), "save": "",
        "appendonly": "yes", "appendfsync": "always",
    }  # fmt: skip
    options = [str(each) for name, value in settings.items() for each in (f"--{name}", value)]
    server = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await_answer(port, server)
        yield port
    finally:
        server.terminate()
        server.wait()


class Connection:
    """A connection to the server. Commands that are sent together are answered together."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, *commands: tuple[str | bytes | int, ...]) -> list[Any]:
        """Send commands, and return their answers. Raise `RuntimeError` for an error."""
        self._writer.write(b"".join(map(_encoded, commands)))
        return [await self._answer() for _ in commands]

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def _answer(self) -> Any:
        line = (await self._reader.readuntil(b"\r\n"))[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        length = int(rest)
        if length < 0:
            return None
        if kind == b"*":
            return [await self._answer() for _ in range(length)]
        return (await self._reader.readexactly(length + 2))[:-2]


def _encoded(command: tuple[str | bytes | int, ...]) -> bytes:
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def _await_answer(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise Unavailable(f"redis-server ended with code {server.returncode}")
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(0.05)
    raise Unavailable(f"redis-server did not answer within {_START_LIMIT_S:.0f} s")
