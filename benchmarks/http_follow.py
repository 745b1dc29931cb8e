"""How soon followers over HTTP get a record: from the begin of its append to its receipt by each follower.

One connection appends a record at `fsync`. The next append begins when all followers have the record. The yardstick is
NATS JetStream with `sync_interval: always`: a stream keeps the subject, and each follower subscribes to it on a
connection of its own. The followers of both are the same plain sockets in this process. "Idle" is the CPU time of the
daemon while its followers get nothing, and the memory that each of them costs it.

    way       what a follower asks for
    lines     GET /topics/bench/records?follow=1, as JSON lines
    events    GET /events?topic=bench, as server-sent events
    ws        a subscription on a WebSocket
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks import daemon
from benchmarks.http_load import post
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone, compare
from benchmarks.runner import Figures, percentiles
from benchmarks.slices import Open, Slice, in_slices
from benchmarks.stores import jetstream

__all__ = ["SUMMARY", "Crowd", "Way", "begin_crowd", "crowded", "received", "run"]

SUMMARY = "followers over HTTP: append to receipt, and the CPU time of idle ones"

FOLLOWERS = (1, 100, 1_000)
IDLE_S = 10.0
_AT_ONCE = 64
_TOKEN_BYTES = 16
_TYPE = "Content-Type: application/octet-stream"
_PING, _PONG = b"\x89\x04", b"\x8a\x84\0\0\0\0"
_HOST = b"HTTP/1.1\r\nHost: localhost\r\n"
_SUBSCRIBE = b"CONNECT {}\r\nSUB bench 1\r\n"


def masked(message: bytes) -> bytes:
    """Return a text frame of a WebSocket's client, with an empty mask (RFC 6455, 5.2). It has 125 bytes at most."""
    return bytes((0x81, 0x80 | len(message), 0, 0, 0, 0)) + message


@dataclass(frozen=True, slots=True)
class Way:
    """What a follower sends: at first, and once the server has answered that."""

    opening: bytes
    then: bytes = b""


WAYS = {
    "lines": Way(b"GET /topics/bench/records?follow=1&from=1 " + _HOST + b"\r\n"),
    "events": Way(b"GET /events?topic=bench:1 " + _HOST + b"\r\n"),
    "ws": Way(
        b"GET /ws " + _HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        masked(b'{"do": "subscribe", "id": 1, "topic": "bench", "from": 1}'),
    ),
}

Publish: TypeAlias = Callable[[bytes], None]
Served: TypeAlias = AbstractAsyncContextManager[tuple[int, Publish]]
Measure: TypeAlias = Callable[["Crowd", Publish, float], Coroutine[Any, Any, Figures]]


def run(options: Options) -> Report:
    rows = [row for followers in FOLLOWERS for row in _receipts(options, followers)]
    for name, way in WAYS.items():
        rows += _idle(options, FOLLOWERS[-1], name, way)
    return Report("http-follow", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _receipts(options: Options, followers: int) -> list[Row]:
    subjects = {name: crowded(_daemon, way, followers, received) for name, way in WAYS.items()}
    subjects["jetstream"] = crowded(_jetstream, Way(_SUBSCRIBE), followers, received)
    label = "1 follower" if followers == 1 else f"{followers:,} followers"
    rounds = in_slices(options, label, subjects)
    rows: list[Row] = []
    for name in WAYS:
        called, of = rounds.called("seglog", name), "" if name == "lines" else f", {name}"
        rows += compare(called, f"{label}{of}, p50", "us", "p50_us", "jetstream", more_is_better=False)
        rows += compare(called, f"{label}{of}, p99", "us", "p99_us", "jetstream", more_is_better=False)
    return rows


def _idle(options: Options, followers: int, name: str, way: Way) -> list[Row]:
    idle_s = 0.2 if options.quick else IDLE_S
    place = options.directory / "follow-idle"
    with daemon.running(place) as served, asyncio.Runner() as runner:
        runner.run(_end(runner.run(_make_topic(served.port))))
        few = runner.run(begin_crowd(served.port, way, 1))  # the first one imports what all of them need
        before_bytes = _memory_bytes(served.process.pid)
        crowd = runner.run(begin_crowd(served.port, way, followers))
        each_kib = (_memory_bytes(served.process.pid) - before_bytes) / followers / 1024
        before = _cpu_s(served.process.pid)
        time.sleep(idle_s)
        share = (_cpu_s(served.process.pid) - before) / idle_s
        few.close()
        crowd.close()
    shutil.rmtree(place)
    label = f"{followers:,} idle followers, {name}"
    return [
        alone(f"{label}, CPU of the daemon", "%", max(share * 100, 0.01)),
        alone(f"{label}, memory for each", "KiB", max(each_kib, 0.01)),
    ]


def _memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def crowded(serve: Callable[[Path], Served], way: Way, followers: int, measure: Measure, each: int = 1) -> Open:
    """Return a subject whose followers wait for `each` copies of a token. `measure` is what its slices do."""

    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with asyncio.Runner() as runner:
            served = serve(directory)
            port, publish = runner.run(served.__aenter__())
            try:
                crowd = runner.run(begin_crowd(port, way, followers, each))
                runner.run(crowd.receive(publish))  # until the first record is there, a follower may not have begun
                yield lambda slice_s: runner.run(measure(crowd, publish, slice_s))
                crowd.close()
            finally:
                runner.run(served.__aexit__(None, None, None))

    return open_subject


async def received(crowd: Crowd, publish: Publish, slice_s: float) -> Figures:
    """Publish one record after the other, and return the percentiles of the times to each follower."""
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < slice_s or not times:
        times += await crowd.receive(publish)
    return percentiles(times)


class Crowd:
    """Followers that wait for one record at a time, or for `each`. They have a token, which each follower looks for."""

    def __init__(self, each: int = 1) -> None:
        self.each = each
        self.followers: list[_Follower] = []
        self.token = b""
        self.times: list[float] = []
        self._all = asyncio.Event()

    async def receive(self, publish: Publish) -> list[float]:
        """Publish a record, and return how long it took to each follower."""
        self.token, self.times = os.urandom(_TOKEN_BYTES // 2).hex().encode(), []
        self._all.clear()
        begin = time.perf_counter()
        publish(self.token)
        await self._all.wait()
        return [at - begin for at in self.times]

    def got(self) -> None:
        self.times.append(time.perf_counter())
        if len(self.times) == len(self.followers):
            self._all.set()

    def close(self) -> None:
        for follower in self.followers:
            follower.transport.close()


class _Follower(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, crowd: Crowd, way: Way) -> None:
        self._crowd = crowd
        self._way = way
        self._rest = b""
        self._seen = 0
        self.begun = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._way.opening)

    def data_received(self, data: bytes) -> None:
        if data.startswith(_PING):
            self.transport.write(_PONG + data[2:6])
        text = self._rest + data
        if not self.begun.done():
            self.begun.set_result(data)
            self.transport.write(self._way.then)
        found = text.count(self._crowd.token) if self._crowd.token else 0
        self._rest = text[1 - _TOKEN_BYTES :]
        if found:
            self._seen += found
            self._rest = text[max(text.rindex(self._crowd.token) + _TOKEN_BYTES, len(text) - _TOKEN_BYTES + 1) :]
        if self._seen == self._crowd.each:
            self._seen = 0
            self._crowd.got()


async def begin_crowd(port: int, way: Way, followers: int, each: int = 1) -> Crowd:
    """Connect the followers, some at a time. Raise `RuntimeError` if the server refuses one.

    Each of them gets `each` copies of a token.
    """
    crowd, loop = Crowd(each), asyncio.get_running_loop()
    while len(crowd.followers) < followers:
        wave = range(min(_AT_ONCE, followers - len(crowd.followers)))
        made = [(await loop.create_connection(lambda: _Follower(crowd, way), "127.0.0.1", port))[1] for _ in wave]
        for answer in await asyncio.gather(*(follower.begun for follower in made)):
            if not answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 101", b"INFO")):
                raise RuntimeError(f"no follower: {answer[:200]!r}")
        crowd.followers += made
    await asyncio.sleep(0.2)
    return crowd


async def _make_topic(port: int) -> asyncio.StreamWriter:
    """Append a record, and return the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post("/topics/bench/records", b"makes the topic", _TYPE))
    await reader.readuntil(b"}")
    return writer


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


@asynccontextmanager
async def _daemon(directory: Path) -> AsyncIterator[tuple[int, Publish]]:
    # The connection that appends is idle while the followers connect.
    with daemon.running(directory / "data", SERVE_HEADER_TIMEOUT_S="3600") as served:
        writer = await _make_topic(served.port)
        yield served.port, lambda value: writer.write(post("/topics/bench/records", value, _TYPE))
        await _end(writer)


@asynccontextmanager
async def _jetstream(directory: Path) -> AsyncIterator[tuple[int, Publish]]:
    with jetstream.running(directory) as address:
        async with jetstream.connected(address) as stream:
            running = set[asyncio.Task[object]]()

            def publish(value: bytes) -> None:
                task = asyncio.ensure_future(stream.publish(jetstream.SUBJECT, value))
                running.add(task)
                task.add_done_callback(running.discard)

            yield int(address.rpartition(":")[2]), publish
            await asyncio.gather(*running)
