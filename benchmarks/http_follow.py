"""How soon followers over HTTP get a record: from the begin of its append to its receipt by each follower.

One connection appends a record at `fsync`. The next append begins when all followers have the record. The yardstick is
NATS JetStream with `sync_interval: always`: a stream keeps the subject, and each follower subscribes to it on a
connection of its own. The followers of both are the same plain sockets in this process. "Idle" is the CPU time of the
daemon while its followers get nothing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TypeAlias

from benchmarks import daemon
from benchmarks.http_load import post
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone, compare
from benchmarks.runner import Figures, percentiles
from benchmarks.slices import Open, Slice, in_slices
from benchmarks.stores import jetstream

__all__ = ["SUMMARY", "run"]

SUMMARY = "followers over HTTP: append to receipt, and the CPU time of idle ones"

FOLLOWERS = (1, 100, 1_000)
IDLE_S = 10.0
_AT_ONCE = 64
_TOKEN_BYTES = 16
_TYPE = "Content-Type: application/octet-stream"
_FOLLOW = b"GET /topics/bench/records?follow=1&from=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
_SUBSCRIBE = b"CONNECT {}\r\nSUB bench 1\r\n"

Publish: TypeAlias = Callable[[bytes], None]
Served: TypeAlias = AbstractAsyncContextManager[tuple[int, Publish]]


def run(options: Options) -> Report:
    rows = [row for followers in FOLLOWERS for row in _receipts(options, followers)]
    rows.append(_idle(options, FOLLOWERS[-1]))
    return Report("http-follow", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _receipts(options: Options, followers: int) -> list[Row]:
    subjects = {
        "seglog": _subject(_daemon, _FOLLOW, followers),
        "jetstream": _subject(_jetstream, _SUBSCRIBE, followers),
    }
    label = "1 follower" if followers == 1 else f"{followers:,} followers"
    rounds = in_slices(options, label, subjects)
    return [
        *compare(rounds, f"{label}, p50", "us", "p50_us", "jetstream", more_is_better=False),
        *compare(rounds, f"{label}, p99", "us", "p99_us", "jetstream", more_is_better=False),
    ]


def _idle(options: Options, followers: int) -> Row:
    idle_s = 0.2 if options.quick else IDLE_S
    place = options.directory / "follow-idle"
    with daemon.running(place) as served, asyncio.Runner() as runner:
        runner.run(_end(runner.run(_make_topic(served.port))))
        crowd = runner.run(_begin(served.port, _FOLLOW, followers))
        before = _cpu_s(served.process.pid)
        time.sleep(idle_s)
        share = (_cpu_s(served.process.pid) - before) / idle_s
        crowd.close()
    shutil.rmtree(place)
    return alone(f"{followers:,} idle followers, CPU of the daemon", "%", max(share * 100, 0.01))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _subject(serve: Callable[[Path], Served], opening: bytes, followers: int) -> Open:
    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with asyncio.Runner() as runner:
            served = serve(directory)
            port, publish = runner.run(served.__aenter__())
            try:
                crowd = runner.run(_begin(port, opening, followers))
                runner.run(crowd.receive(publish))  # until the first record is there, a follower may not have begun
                yield lambda slice_s: runner.run(_rounds(crowd, publish, slice_s))
                crowd.close()
            finally:
                runner.run(served.__aexit__(None, None, None))

    return open_subject


async def _rounds(crowd: _Crowd, publish: Publish, slice_s: float) -> Figures:
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < slice_s or not times:
        times += await crowd.receive(publish)
    return percentiles(times)


class _Crowd:
    """Followers that wait for one record at a time. The record has a token, which each of them looks for."""

    def __init__(self) -> None:
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

    def __init__(self, crowd: _Crowd, opening: bytes) -> None:
        self._crowd = crowd
        self._opening = opening
        self._rest = b""
        self.begun = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._opening)

    def data_received(self, data: bytes) -> None:
        text = self._rest + data
        if not self.begun.done():
            self.begun.set_result(data)
        if self._crowd.token and self._crowd.token in text:
            self._rest = b""
            self._crowd.got()
        else:
            self._rest = text[-_TOKEN_BYTES:]


async def _begin(port: int, opening: bytes, followers: int) -> _Crowd:
    """Connect the followers, some at a time. Raise `RuntimeError` if the server refuses one."""
    crowd, loop = _Crowd(), asyncio.get_running_loop()
    while len(crowd.followers) < followers:
        wave = range(min(_AT_ONCE, followers - len(crowd.followers)))
        made = [(await loop.create_connection(lambda: _Follower(crowd, opening), "127.0.0.1", port))[1] for _ in wave]
        for answer in await asyncio.gather(*(follower.begun for follower in made)):
            if not answer.startswith((b"HTTP/1.1 200", b"INFO")):
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
    with daemon.running(directory / "data") as served:
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
