"""Jobs of queues over HTTP beside JetStream and Redis, a million jobs in flight, and a million acks that delete.

row                    what happens
claimed, acked         a worker claims so many jobs of 100 B at a time, and acks them. The figure of a claim is the time
                       until the jobs are here, that of an ack the time until its answer. Ours go through
                       `seglog.connect`, each call in a thread, and an ack is on the disk before its answer. JetStream
                       (`sync_interval: always`): `fetch` of a pull consumer, and `ack_sync` of each message, all sent
                       together. Redis (`appendfsync always`): `XREADGROUP`, and one `XACK` of all
8 workers              the same by 8 workers at a time; the figure is of jobs claimed and acked
in flight              a queue with a million jobs in flight, claimed 100 or 1 at a time: how much a process grows that
                       opens the log and loads the queue, and how long that takes
acks that delete       100 rounds of 10,000 jobs, one in a hundred of which is acked a round later. Each round ends
                       with an offload to a `file://` store, as `--on-ack delete` has it: with one delete before it. The
                       yardstick is a queue that keeps its records

A slice is a number of jobs, which are appended before it begins.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import offload
import seglog
from benchmarks import daemon
from benchmarks.idle import Idle
from benchmarks.large_log import CountedStore
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Figures, Rounds, settle_disk
from benchmarks.slices import Open, Slice, in_slices
from benchmarks.stores import jetstream, redis
from offload.operations.queue import TOPIC, delete_acked, loaded_states
from offload.wiring import open_store
from seglog.delivery.cursor import Cursor
from seglog.delivery.queue import Event, Kind, Queue, QueueSettings
from seglog.delivery.queue_states import QueueStates

__all__ = ["SUMMARY", "run"]

SUMMARY = "claims and acks of jobs, a million jobs in flight, and a million acks that delete"

JOBS = {1: 500, 10: 2_000, 100: 5_000}
"""The jobs of a slice, by how many a call has."""
WORKERS = 8
IN_FLIGHT = 1_000_000
ROUNDS, ROUND_JOBS = 100, 10_000
_VALUE = b"x" * 100
_KEY = "bench/billing"
_WAIT_S = 10
_LATE = 100  # one job of so many is acked a round later


def run(options: Options) -> Report:
    rows: list[Row] = []
    for count in JOBS:
        rows += _worked(options, count, 1)
    rows += _worked(options, 10, WORKERS)
    for count in (100, 1):
        rows += _in_flight(options, count)
    rows += _deleting(options)
    return Report("queues", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


# ---------------------------------------------------------------- claims and acks


class _Worker(NamedTuple):
    """`claim` returns as many jobs as a call may have, and `ack` takes them."""

    claim: Callable[[int], Awaitable[Any]]
    ack: Callable[[Any], Awaitable[Any]]


class _Broker(NamedTuple):
    append: Callable[[int], Awaitable[None]]
    workers: list[_Worker]


_Serve = Callable[[Path, int], AbstractAsyncContextManager[_Broker]]


def _worked(options: Options, count: int, workers: int) -> list[Row]:
    jobs = 2 * count * workers if options.quick else JOBS[count] // (count * workers) * count * workers
    brokers: dict[str, _Serve] = {"seglog": _ours, "jetstream": _jetstream, "redis": _redis}
    label = f"{count} at a time" + (f", {workers} workers" if workers > 1 else "")
    rounds = in_slices(options, label, {name: _working(serve, count, workers, jobs) for name, serve in brokers.items()})
    if workers > 1:
        return compare(rounds, f"jobs, {label}", "jobs/s", "jobs_per_s", "jetstream", "redis", more_is_better=True)
    aims = (Aim(1.0, "jetstream"),) if count == 10 else ()
    return [
        *compare(
            rounds, f"claimed, {label}", "jobs/s", "claimed_per_s", "jetstream", "redis", more_is_better=True
        ),
        *compare(
            rounds, f"acked, {label}", "jobs/s", "acked_per_s", "jetstream", "redis", more_is_better=True, aims=aims
        ),
    ]  # fmt: skip


def _working(serve: _Serve, count: int, workers: int, jobs: int) -> Open:
    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with asyncio.Runner() as runner:
            served = serve(directory, workers)
            broker = runner.run(served.__aenter__())
            try:
                yield lambda _: runner.run(_work_off(broker, count, jobs))
            finally:
                runner.run(served.__aexit__(None, None, None))

    return open_subject


async def _work_off(broker: _Broker, count: int, jobs: int) -> Figures:
    await broker.append(jobs)
    claim_s, ack_s = 0.0, 0.0

    async def work(worker: _Worker) -> None:
        nonlocal claim_s, ack_s
        for _ in range(jobs // count // len(broker.workers)):
            begin = time.perf_counter()
            claimed = await worker.claim(count)
            middle = time.perf_counter()
            await worker.ack(claimed)
            claim_s += middle - begin
            ack_s += time.perf_counter() - middle

    begin = time.perf_counter()
    await asyncio.gather(*map(work, broker.workers))
    elapsed_s = time.perf_counter() - begin
    return {"jobs_per_s": jobs / elapsed_s, "claimed_per_s": jobs / claim_s, "acked_per_s": jobs / ack_s}


@asynccontextmanager
async def _ours(directory: Path, workers: int) -> AsyncIterator[_Broker]:
    with daemon.running(directory / "data") as served:
        await asyncio.to_thread(daemon.command, served.port, "topic/create", topic="bench")
        await asyncio.to_thread(daemon.command, served.port, "queue/create", topic="bench", name="billing")
        with seglog.connect(f"http://127.0.0.1:{served.port}") as client:
            topic, queue = client.topic("bench"), client.queue("bench", "billing")

            async def append(jobs: int) -> None:
                await asyncio.to_thread(topic.append, [_VALUE] * jobs)

            async def claim(count: int) -> list[Any]:
                found: list[Any] = []
                while len(found) < count:
                    jobs = await asyncio.to_thread(queue.claim, count - len(found), wait_s=_WAIT_S)
                    if not jobs:
                        raise RuntimeError(f"no job came within {_WAIT_S} s")
                    found += jobs
                return found

            async def ack(jobs: list[Any]) -> None:
                await asyncio.to_thread(queue.ack, *jobs)

            yield _Broker(append, [_Worker(claim, ack)] * workers)


@asynccontextmanager
async def _jetstream(directory: Path, workers: int) -> AsyncIterator[_Broker]:
    with jetstream.running(directory) as address:
        from nats.js.api import AckPolicy, ConsumerConfig  # there if `running` did not refuse

        async with jetstream.connected(address) as stream:
            settings = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, max_ack_pending=-1)

            async def append(jobs: int) -> None:
                for first in range(0, jobs, 500):
                    each = range(first, min(first + 500, jobs))
                    await asyncio.gather(*(stream.publish(jetstream.SUBJECT, _VALUE) for _ in each))

            async def worker() -> _Worker:
                pulled = await stream.pull_subscribe(jetstream.SUBJECT, durable="billing", config=settings)

                async def claim(count: int) -> list[Any]:
                    messages: list[Any] = []
                    while len(messages) < count:
                        messages += await pulled.fetch(count - len(messages), timeout=_WAIT_S)
                    return messages

                return _Worker(claim, ack)

            async def ack(messages: list[Any]) -> None:
                await asyncio.gather(*(each.ack_sync() for each in messages))

            yield _Broker(append, [await worker() for _ in range(workers)])


@asynccontextmanager
async def _redis(directory: Path, workers: int) -> AsyncIterator[_Broker]:
    with redis.running(directory) as port:
        async with AsyncExitStack() as stack:

            async def connected() -> redis.Connection:
                connection = await redis.Connection.to(port)
                stack.push_async_callback(connection.close)
                return connection

            own = await connected()
            await own.ask(("XGROUP", "CREATE", "bench", "billing", "0", "MKSTREAM"))

            async def append(jobs: int) -> None:
                await own.ask(*[("XADD", "bench", "*", "value", _VALUE)] * jobs)

            async def worker(name: str) -> _Worker:
                connection = await connected()

                async def claim(count: int) -> list[bytes]:
                    found: list[bytes] = []
                    while len(found) < count:
                        most = ("COUNT", count - len(found), "BLOCK", _WAIT_S * 1000)
                        [answer] = await connection.ask(
                            ("XREADGROUP", "GROUP", "billing", name, *most, "STREAMS", "bench", ">")
                        )
                        if answer is None:
                            raise RuntimeError(f"no job came within {_WAIT_S} s")
                        found += [place for place, _ in answer[0][1]]
                    return found

                async def ack(places: list[bytes]) -> None:
                    await connection.ask(("XACK", "bench", "billing", *places))

                return _Worker(claim, ack)

            yield _Broker(append, [await worker(f"w{number}") for number in range(workers)])


# ---------------------------------------------------------------- a million jobs in flight


def _in_flight(options: Options, count: int) -> list[Row]:
    jobs = IN_FLIGHT // 1000 if options.quick else IN_FLIGHT
    place = options.directory / "in-flight"
    shutil.rmtree(place, ignore_errors=True)
    with seglog.open(place, upkeep=Idle) as log:
        states = _queue_of(log, "keep")
        for first in range(1, jobs + 1, 10_000):
            last = min(first + 9_999, jobs)
            log.topic("bench").append([_VALUE] * (last + 1 - first), durability="memory")
            claims = (range(seq, min(seq + count, last + 1)) for seq in range(first, last + 1, count))
            _tell(log, states, *(Event(Kind.CLAIMED, seqs, seqs[0], 1, 2**50, "ada") for seqs in claims))
    settle_disk()
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        rows = process.submit(_opened, place, jobs, count).result()
    shutil.rmtree(place)
    return rows


def _opened(place: Path, jobs: int, count: int) -> list[Row]:
    label = f"{jobs:,} in flight, claimed {count} at a time"
    with seglog.open(place, upkeep=Idle) as log:
        before, begin = _memory_bytes(), time.perf_counter()
        [queue] = loaded_states(log, None).all()
        loaded_s, held = time.perf_counter() - begin, _memory_bytes() - before
        if len(queue.jobs) != jobs:
            raise RuntimeError(f"{len(queue.jobs)} jobs are in flight, and not {jobs}")
    return [
        alone(f"{label}, memory", "bytes/job", max(held, 1) / jobs),
        alone(f"{label}, loaded in", "s", loaded_s),
    ]


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _queue_of(log: seglog.Log, on_ack: str) -> QueueStates:
    """Make the topic and its queue, as `queue create` does. Return the queues of the log."""
    log.create_topic("bench")
    topic, states = log.topic("bench"), loaded_states(log, None)
    with states.claimed(_KEY):
        cursor = Cursor("bench", "billing", topic.incarnation(), topic.epoch, 0)
        states.put(Queue(cursor, QueueSettings(on_ack=on_ack), 1))
    return states


def _tell(log: seglog.Log, states: QueueStates, *events: Event) -> None:
    """Let events count, and append each as a record without a sync, as the daemon appends a claim."""
    with states.claimed(_KEY):
        queue = states.begin("bench", "billing")
        values: list[bytes] = []
        for event in events:
            queue.apply(event)
            values += states.records(queue, [event])
        seqs = log.topic(TOPIC).append(values, tag=_KEY, durability="memory")
        states.appended(queue, len(events), seqs.start)


# ---------------------------------------------------------------- a million acks that delete


def _deleting(options: Options) -> list[Row]:
    rounds, jobs = (3, 200) if options.quick else (ROUNDS, ROUND_JOBS)
    subjects = {"seglog": "delete", "keep": "keep"}
    found = Rounds({name: [_deleted(options.directory / "acks", on, rounds, jobs)] for name, on in subjects.items()})
    label = f"{rounds * jobs:,} acks in {rounds} rounds"
    return [
        *compare(found, f"{label}, commits", "", "commits", "keep", more_is_better=False),
        *compare(found, f"{label}, requests", "", "requests", "keep", more_is_better=False),
        *compare(found, f"{label}, a round", "ms", "round_ms", "keep", more_is_better=False),
    ]


def _deleted(place: Path, on_ack: str, rounds: int, jobs: int) -> Figures:
    shutil.rmtree(place, ignore_errors=True)
    store = CountedStore(open_store((place / "remote").absolute().as_uri()))
    spent_s, commits, late = 0.0, 0, list[int]()
    with seglog.open(place / "data", upkeep=Idle) as log, offload.attach(log, store=store) as archive:
        states, topic = _queue_of(log, on_ack), log.topic("bench")
        store.taken()
        for _ in range(rounds):
            seqs = topic.append([_VALUE] * jobs, durability="memory")
            _tell(log, states, Event(Kind.CLAIMED, seqs, 1, 1, 2**50, "ada"))
            acked = sorted({*seqs, *late} - {*(late := [*seqs[::_LATE]])})
            _tell(log, states, Event(Kind.ACKED, acked))
            topic.seal()
            begin = time.perf_counter()
            if (delete_acked(log, archive, "bench") > 0) != (on_ack == "delete"):
                raise RuntimeError("acks delete where they must not, or not where they must")
            commits = archive.offload("bench").published[-1].lsn
            spent_s += time.perf_counter() - begin
        requests = store.taken().total()
    shutil.rmtree(place)
    return {"commits": commits, "requests": requests, "round_ms": spent_s / rounds * 1e3}
