"""What followers of many topics get under load: records a second, a stuck follower's harm, a low band's wait, and acks.

row                    what happens
100 followers          each follows four topics on one connection. A batch of 100 records of 100 B goes to each
                       topic; the next ones begin when all followers have all four. JetStream: the same subjects
a stuck follower       ten followers of one topic, and one more that reads nothing of 64 MiB that wait for it. The
                       yardstick is the same daemon before it came
a B1 topic             gets a record at a time, while 16 topics of priority 800 with 4 followers each get batches
                       of 100 records of 1 KiB without a pause. The figure is the longest time to its follower
acks                   durable acks of a cursor, each after the answer to the one before. JetStream: `ack_sync` of a
                       pull consumer's messages, `sync_interval: always`; of a hundred, the last one acks all
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import daemon
from benchmarks.http_follow import Crowd, Way, begin_crowd, crowded, received
from benchmarks.http_load import post
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Figures, Rounds
from benchmarks.slices import Open, Slice, in_slices
from benchmarks.stores import jetstream
from seglog.client.bodies import VALUES_TYPE, encode_values

__all__ = ["SUMMARY", "run"]

SUMMARY = "many topics to many followers, a stuck follower, a low band, and durable acks"

TOPICS = tuple(f"bench{number}" for number in range(4))
FOLLOWERS = 100
BATCH = 100
ACKS = (1, 100)
_MOST_ACKS = 10_000
_TYPE = f"Content-Type: {VALUES_TYPE}"
_JSON = "Content-Type: application/json"
_STUCK_BYTES = 64 << 20
_LOAD_TOPICS, _LOAD_FOLLOWERS, _PRIORITY = 16, 4, 800


def run(options: Options) -> Report:
    rows = [*_fan_out(options), *_stuck(options), _low_band(options)]
    for count in ACKS:
        rows += _acks(options, count)
    return Report("delivery", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


class _Connection:
    """A keep-alive connection to a daemon, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> _Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, path: str, body: bytes, *headers: str) -> bytes:
        """Send a POST, and return the body of its answer. Raise `RuntimeError` for a refusal."""
        self.writer.write(post(path, body, *headers))
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answer = await self._reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"{path}: {answer[:300]!r}")
        return answer

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    async def append(self, topic: str, values: Sequence[bytes]) -> None:
        await self.ask(f"/topics/{topic}/records", encode_values(values), _TYPE)


def _events(*topics: str) -> Way:
    query = "&".join(f"topic={topic}" for topic in topics)
    return Way(f"GET /events?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


# ---------------------------------------------------------------- 100 followers of four topics


def _fan_out(options: Options) -> list[Row]:
    followers = 3 if options.quick else FOLLOWERS
    subscribe = b"CONNECT {}\r\n" + b"".join(
        b"SUB %s %d\r\n" % (topic.encode(), at) for at, topic in enumerate(TOPICS, 1)
    )
    subjects = {
        "seglog": crowded(_ours, _events(*TOPICS), followers, _delivered, each=len(TOPICS)),
        "jetstream": crowded(_theirs, Way(subscribe), followers, _delivered, each=len(TOPICS)),
    }
    label = f"{followers} followers of {len(TOPICS)} topics"
    rounds = in_slices(options, label, subjects)
    return compare(rounds, label, "records/s", "records_per_s", "jetstream", more_is_better=True)


async def _delivered(crowd: Crowd, publish: Callable[[bytes], None], slice_s: float) -> Figures:
    begin, rounds = time.perf_counter(), 0
    while time.perf_counter() - begin < slice_s or not rounds:
        await crowd.receive(publish)
        rounds += 1
    return {"records_per_s": rounds * len(crowd.followers) * len(TOPICS) * BATCH / (time.perf_counter() - begin)}


def _batch(token: bytes) -> list[bytes]:
    """Return the values of one batch, of which the last one has the token."""
    return [b"x" * 100] * (BATCH - 1) + [token + b"x" * (100 - len(token))]


@asynccontextmanager
async def _ours(directory: Path) -> AsyncIterator[tuple[int, Callable[[bytes], None]]]:
    with daemon.running(directory / "data", SERVE_HEADER_TIMEOUT_S="3600") as served:
        connections = {topic: await _Connection.to(served.port) for topic in TOPICS}
        for topic, connection in connections.items():
            await connection.append(topic, [b"makes the topic"])

        def publish(token: bytes) -> None:
            body = encode_values(_batch(token))
            for topic, connection in connections.items():
                connection.writer.write(post(f"/topics/{topic}/records", body, _TYPE))

        yield served.port, publish
        for connection in connections.values():
            await connection.close()


@asynccontextmanager
async def _theirs(directory: Path) -> AsyncIterator[tuple[int, Callable[[bytes], None]]]:
    with jetstream.running(directory) as address:
        async with jetstream.connected(address, *TOPICS) as stream:
            running = set[asyncio.Task[object]]()

            def publish(token: bytes) -> None:
                for topic in TOPICS:
                    for value in _batch(token):
                        task = asyncio.ensure_future(stream.publish(topic, value))
                        running.add(task)
                        task.add_done_callback(running.discard)

            yield int(address.rpartition(":")[2]), publish
            await asyncio.gather(*running)


# ---------------------------------------------------------------- a stuck follower


def _stuck(options: Options) -> list[Row]:
    followers, size = (2, 1 << 20) if options.quick else (10, _STUCK_BYTES)
    place = options.directory / "stuck"
    shutil.rmtree(place, ignore_errors=True)
    with daemon.running(place, SERVE_HEADER_TIMEOUT_S="3600") as served, asyncio.Runner() as runner:
        connection = runner.run(_Connection.to(served.port))
        for _ in range(size >> 20):
            runner.run(connection.append("bench", [os.urandom(1 << 10)] * 1024))
        crowd = runner.run(begin_crowd(served.port, _events("bench"), followers))

        def publish(token: bytes) -> None:
            connection.writer.write(post("/topics/bench/records", token, "Content-Type: application/octet-stream"))

        def measure() -> Figures:
            return runner.run(received(crowd, publish, options.slice_s))

        before, during = [], []
        measure()
        for _ in range(options.rounds):
            before.append(measure())
            stuck = runner.run(_silent(served.port))
            during.append(measure())
            stuck.close()
        crowd.close()
        runner.run(connection.close())
    shutil.rmtree(place)
    rounds = Rounds({"seglog": during, "without": before})
    label = f"{followers} followers beside a stuck one, p99"
    return compare(rounds, label, "us", "p99_us", "without", more_is_better=False, aims=(Aim(1 / 1.1, "without"),))


async def _silent(port: int) -> asyncio.WriteTransport:
    """Return the connection of a follower from the first record on that never reads."""
    transport, _ = await asyncio.get_running_loop().create_connection(_Silent, "127.0.0.1", port)
    transport.write(_events("bench:1").opening)
    await asyncio.sleep(0.2)
    return transport


class _Silent(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()


# ---------------------------------------------------------------- a low band


def _low_band(options: Options) -> Row:
    topics, seconds = (2, 0.2) if options.quick else (_LOAD_TOPICS, 10.0)
    place = options.directory / "bands"
    shutil.rmtree(place, ignore_errors=True)
    with daemon.running(place, SERVE_HEADER_TIMEOUT_S="3600") as served, asyncio.Runner() as runner:
        longest_s = runner.run(_longest_wait(served.port, topics, seconds))
    shutil.rmtree(place)
    return alone(f"a B1 topic beside {topics} of B4 under load, longest wait", "ms", longest_s * 1000)


async def _longest_wait(port: int, topics: int, seconds: float) -> float:
    names = [f"busy{number}" for number in range(topics)]
    connections = [await _Connection.to(port) for _ in names]
    for name in names:
        await asyncio.to_thread(daemon.command, port, "topic/create", topic=name, priority=_PRIORITY)
    own = await _Connection.to(port)
    await own.append("calm", [b"makes the topic"])
    busy = [await begin_crowd(port, _events(name), _LOAD_FOLLOWERS) for name in names]
    calm = await begin_crowd(port, _events("calm"), 1)

    async def load(name: str, connection: _Connection) -> None:
        while True:
            await connection.append(name, [b"x" * 1024] * 100)

    def publish(token: bytes) -> None:
        own.writer.write(post("/topics/calm/records", token, "Content-Type: application/octet-stream"))

    loads = [asyncio.create_task(load(*each)) for each in zip(names, connections, strict=True)]
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        times += await calm.receive(publish)
    for task in loads:
        task.cancel()
    await asyncio.gather(*loads, return_exceptions=True)
    for crowd in (*busy, calm):
        crowd.close()
    for connection in (*connections, own):
        await connection.close()
    return max(times)


# ---------------------------------------------------------------- durable acks


def _acks(options: Options, count: int) -> list[Row]:
    subjects = {"seglog": _acked(_cursor, count), "jetstream": _acked(_consumer, count)}
    label = "acks, one at a time" if count == 1 else f"acks, {count} at a time"
    rounds = in_slices(options, label, subjects)
    return compare(rounds, label, "acks/s", "acks_per_s", "jetstream", more_is_better=True)


def _acked(serve: Callable[[Path, int], Any], count: int) -> Open:
    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with asyncio.Runner() as runner:
            served = serve(directory, count)
            ack = runner.run(served.__aenter__())
            try:
                yield lambda slice_s: runner.run(_acks_in(ack, count, slice_s))
            finally:
                runner.run(served.__aexit__(None, None, None))

    return open_subject


async def _acks_in(ack: Callable[[], Any], count: int, slice_s: float) -> Figures:
    """Return the rate of acks. `ack` prepares what it acks, and returns the seconds of the acks alone.

    JetStream syncs each message that it prepares, which takes 100 times as long as the acks. So a slice ends early.
    """
    spent_s, calls = 0.0, 0
    while not calls or (spent_s < slice_s and calls * count < _MOST_ACKS):
        spent_s += await ack()
        calls += 1
    return {"acks_per_s": calls * count / spent_s}


@asynccontextmanager
async def _cursor(directory: Path, count: int) -> AsyncIterator[Callable[[], Any]]:
    with daemon.running(directory / "data", SERVE_HEADER_TIMEOUT_S="3600") as served:
        connection = await _Connection.to(served.port)
        await connection.append("bench", [b"x" * 100])
        await asyncio.to_thread(
            daemon.command, served.port, "cursor/create", topic="bench", name="billing", at="earliest"
        )
        head = 1
        acked = 0

        async def ack() -> float:
            nonlocal head, acked
            if acked + count > head:
                await connection.append("bench", [b"x" * 100] * 10_000)
                head += 10_000
            seqs = list(range(acked + 1, acked + count + 1))
            body = json.dumps({"seqs": seqs, "epoch": epoch}).encode()
            begin = time.perf_counter()
            await connection.ask("/topics/bench/cursors/billing/acks", body, _JSON)
            acked += count
            return time.perf_counter() - begin

        epoch = await _epoch(served.port)
        yield ack
        await connection.close()


async def _epoch(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"HEAD /topics/bench/records HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head = (await reader.read()).lower()
    writer.close()
    await writer.wait_closed()
    return int(head.partition(b"seglog-epoch: ")[2].partition(b"\r\n")[0])


@asynccontextmanager
async def _consumer(directory: Path, count: int) -> AsyncIterator[Callable[[], Any]]:
    with jetstream.running(directory) as address:
        from nats.js.api import AckPolicy, ConsumerConfig  # there if `running` did not refuse

        async with jetstream.connected(address) as stream:
            policy = AckPolicy.EXPLICIT if count == 1 else AckPolicy.ALL
            settings = ConsumerConfig(ack_policy=policy, max_ack_pending=-1)
            pulled = await stream.pull_subscribe(jetstream.SUBJECT, durable="billing", config=settings)

            async def ack() -> float:
                await asyncio.gather(*(stream.publish(jetstream.SUBJECT, b"x" * 100) for _ in range(count)))
                messages: list[Any] = []
                while len(messages) < count:
                    messages += await pulled.fetch(count - len(messages))
                begin = time.perf_counter()
                await messages[-1].ack_sync()
                return time.perf_counter() - begin

            yield ack
