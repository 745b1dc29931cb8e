"""Servers of streams for the benchmark `small-streams`: each makes short streams, stops, and starts again on them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks import daemon
from benchmarks.runner import Figures
from benchmarks.stores import durable_streams

__all__ = ["daemon_figures", "reference_figures"]

_CONNECTIONS = 8
_TRIES = 5
_JSON = "Content-Type: application/json"


def daemon_figures(place: Path, streams: int, records: int, record_bytes: int) -> Figures:
    """Return the figures of `seglog serve`."""

    def served() -> AbstractContextManager[tuple[int, int]]:
        return _Daemon(place)

    return _figures(served, "/streams/", place, streams, _body(records, record_bytes))


def reference_figures(place: Path, streams: int, records: int, record_bytes: int) -> Figures:
    """Return the figures of the reference server. Raises `Unavailable`."""
    place.mkdir(parents=True)
    return _figures(lambda: durable_streams.served(place), "/", place, streams, _body(records, record_bytes))


class _NotFound(RuntimeError):
    """The server knows no such stream."""


class _Daemon(AbstractContextManager[tuple[int, int]]):
    def __init__(self, place: Path) -> None:
        self._running = daemon.running(place)

    def __enter__(self) -> tuple[int, int]:
        found = self._running.__enter__()
        return found.port, found.process.pid

    def __exit__(self, *error: object) -> None:
        self._running.__exit__(None, None, None)


def _body(records: int, record_bytes: int) -> bytes:
    return json.dumps(["x" * (record_bytes - 2)] * records).encode()


def _figures(
    served: Callable[[], AbstractContextManager[tuple[int, int]]], root: str, place: Path, streams: int, body: bytes
) -> Figures:
    with served() as (port, _):
        begin = time.perf_counter()
        asyncio.run(_make(port, root, streams, body))
        made_s = time.perf_counter() - begin
    files = [path.stat() for path in place.rglob("*") if path.is_file()]
    begin = time.perf_counter()
    with served() as (port, pid):
        found = asyncio.run(_read(port, f"{root}s{streams - 1}?offset=-1"))
        restart_s = time.perf_counter() - begin
        wanted = json.loads(body)
        if json.loads(found)[: len(wanted)] != wanted:  # the reference server may have a repeated POST twice
            raise RuntimeError("a stream is not as it was made: the figure would be wrong")
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return {
        "made": streams / made_s,
        "restart_ms": restart_s * 1e3,
        "memory_mib": pages * os.sysconf("SC_PAGESIZE") / 2**20,
        "files": len(files) / streams,
        "disk_kib": sum(each.st_blocks for each in files) / 2 / streams,
    }


async def _make(port: int, root: str, streams: int, body: bytes) -> None:
    numbers = iter(range(streams))

    async def make_some() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in numbers:
            await _ask(reader, writer, "PUT", f"{root}s{number}", b"")
            for last in (False,) * _TRIES + (True,):
                try:
                    await _ask(reader, writer, "POST", f"{root}s{number}", body)
                    break
                except _NotFound:  # the reference server answers a PUT before it finds the stream
                    if last:
                        raise
        writer.close()

    await asyncio.gather(*(make_some() for _ in range(_CONNECTIONS)))


async def _read(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    found = await _ask(reader, writer, "GET", path, b"")
    writer.close()
    return found


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: bytes
) -> bytes:
    """Send a request, and return the body of its answer. Raise `RuntimeError` if it is no success."""
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", _JSON, f"Content-Length: {len(body)}")
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
    found = await reader.readexactly(int(length)) if length else b""
    if b"transfer-encoding" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            found += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    status = int(head[9:12])
    if not 200 <= status < 300:
        raise (_NotFound if status == 404 else RuntimeError)(f"{head!r}: {found[:500]!r}")
    return found
