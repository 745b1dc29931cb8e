"""How fast records of 1 KiB are acked at `fsync` over HTTP, on keep-alive connections to a daemon.

Yardsticks, in the same run on the same directory, slice by slice in turns (`benchmarks.slices`):

    call       `topic.append` in this process, from as many asyncio tasks as there are connections: the limit
    jetstream  NATS JetStream, sync_interval: always; its client publishes the records of a batch one by one
    streams    the reference server of Durable Streams on Node, a JSON array of so many messages an append
    plain      ours over HTTP without a producer, for the rows with a producer

Each server is a process of its own. The load comes from this process. "Producers in process" compares
`topic.append(values, producer=…)` with `topic.append(values)` of one appender.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import seglog
from benchmarks import daemon, ways
from benchmarks.http_load import Target, connected, post
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.slices import Open, Slice, in_slices
from benchmarks.stores import durable_streams, jetstream
from seglog import ProducerBatch, aio
from seglog.client.bodies import VALUES_TYPE, encode_values

__all__ = ["SUMMARY", "run"]

SUMMARY = "appends over HTTP acked at fsync, and appends with a producer"

SIZE_BYTES = 1024
CONNECTIONS = (1, 64)
BATCHES = (1, 64, 1_024)
#: JetStream syncs each record alone, so more records at once take it minutes.
_JETSTREAM_MOST = 4_096
_PATH = "/topics/bench/records"
_TYPE = f"Content-Type: {VALUES_TYPE}"
_JSON_TYPE = "Content-Type: application/json"


def run(options: Options) -> Report:
    rows = [row for connections in CONNECTIONS for batch in BATCHES for row in _rows(options, connections, batch)]
    rows += [row for batch in BATCHES[:2] for row in _in_process(options, batch)]
    return Report("http-append", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _rows(options: Options, connections: int, batch: int) -> list[Row]:
    values = log_lines(batch, SIZE_BYTES)
    subjects: dict[str, Open] = {
        "seglog": _ours(connections, values, with_producer=False),
        "producer": _ours(connections, values, with_producer=True),
        "call": _calls(connections, values),
        "jetstream": _jetstream(connections, values),
        "streams": _streams(connections, values),
    }
    others = ["call", "jetstream", "streams"]
    if connections * batch > _JETSTREAM_MOST:
        others.remove("jetstream")
        del subjects["jetstream"]
    of = "1 connection" if connections == 1 else f"{connections} connections"
    label = f"{of}, batches of {batch:,}" if batch > 1 else f"{of}, one record"
    rounds = in_slices(options, label, subjects)
    rates = (Aim(0.4, "call"), Aim(2, "jetstream")) if batch == BATCHES[1] else ()
    times = (Aim(0.2, "call"),) if (connections, batch) == (1, 1) else ()
    beside = rounds.called("plain", "seglog").called("seglog", "producer")
    almost = (Aim(0.95, "plain"),)
    return [
        *compare(rounds, label, "records/s", "records_per_s", *others, more_is_better=True, aims=rates),
        *compare(rounds, f"{label}, p50", "us", "p50_us", *others, more_is_better=False, aims=times),
        *compare(rounds, f"{label}, p99", "us", "p99_us", *others, more_is_better=False),
        *_beside_plain(beside, f"{label}, with a producer", almost),
    ]


def _beside_plain(rounds: Any, label: str, aims: tuple[Aim, ...]) -> list[Row]:
    return [
        *compare(rounds, label, "records/s", "records_per_s", "plain", more_is_better=True, aims=aims),
        *compare(rounds, f"{label}, p50", "us", "p50_us", "plain", more_is_better=False, aims=aims),
    ]


def _ours(connections: int, values: Sequence[bytes], *, with_producer: bool) -> Open:
    body = encode_values(values)
    plain = post(_PATH, body, _TYPE)

    def request(name: str, number: int) -> bytes:
        if not with_producer:
            return plain
        producer = (f"Producer-Id: {name}", "Producer-Epoch: 0", f"Producer-Seq: {number}")
        return post(_PATH, body, _TYPE, *producer)

    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with (
            daemon.running(directory / "data") as served,
            connected(Target(served.port, request, len(values)), connections) as work,
        ):
            yield work

    return open_subject


def _streams(connections: int, values: Sequence[bytes]) -> Open:
    body = json.dumps([value.decode() for value in values]).encode()
    whole = post(durable_streams.STREAM, body, _JSON_TYPE)

    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with (
            durable_streams.running(directory) as port,
            connected(Target(port, lambda _name, _number: whole, len(values)), connections) as work,
        ):
            yield work

    return open_subject


def _calls(connections: int, values: Sequence[bytes]) -> Open:
    @asynccontextmanager
    async def store(directory: Path) -> AsyncIterator[Callable[[bytes], Any]]:
        async with aio.open(directory / "data") as log:
            topic = log.topic("bench")
            yield lambda _value: topic.append(values)

    return _batched(ways.by_tasks(store, connections, [b""]), len(values))


def _jetstream(connections: int, values: Sequence[bytes]) -> Open:
    @asynccontextmanager
    async def store(directory: Path) -> AsyncIterator[Callable[[bytes], Any]]:
        with jetstream.running(directory) as address:
            async with jetstream.connected(address) as stream:
                yield lambda _value: asyncio.gather(
                    *(stream.publish(jetstream.SUBJECT, value, timeout=120) for value in values)
                )

    return _batched(ways.by_tasks(store, connections, [b""]), len(values))


def _batched(opened: Open, records: int) -> Open:
    """Return the subject with `records` records for each append that it counts."""

    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with opened(directory) as work:

            def times(slice_s: float) -> dict[str, float]:
                found = dict(work(slice_s))
                found["records_per_s"] *= records
                return found

            yield times

    return open_subject


def _in_process(options: Options, batch: int) -> list[Row]:
    values = log_lines(batch, SIZE_BYTES)

    def appender(*, with_producer: bool) -> Open:
        @contextmanager
        def open_subject(directory: Path) -> Iterator[Slice]:
            with seglog.open(directory / "data") as log:
                topic, numbers = log.topic("bench"), count()
                batches = [values]

                def append(given: Sequence[bytes]) -> object:
                    if with_producer:
                        return topic.append(given, producer=ProducerBatch("p", 0, next(numbers)))
                    return topic.append(given)

                yield lambda slice_s: ways.loop(append, batches, count(), slice_s)

        return open_subject

    label = f"producers in process, batches of {batch:,}" if batch > 1 else "producers in process, one record"
    subjects = {"seglog": appender(with_producer=True), "plain": appender(with_producer=False)}
    return _beside_plain(in_slices(options, label, subjects), label, (Aim(0.95, "plain"),))
