"""Many short streams: a log with 100,000 topics of 20 records, and servers of streams with some of them.

    made       each topic is made, and gets its records with one append at `fsync`; 64 at a time
    opened     by another process; its memory and its open files after that
    idle       the CPU time of the background of a daemon, once it has looked at each topic
    offload    of some topics, by `archive.offload`, with the requests that the store gets

The part over HTTP makes fewer streams, by PUT and POST over 8 connections. "Restart" is the time from the start of the
server to its first answer about a stream. The yardstick is the reference server of Durable Streams on Node.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import offload
import seglog
from benchmarks.large_log import CountedStore
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone, compare
from benchmarks.runner import Figures, Rounds, settle_disk
from benchmarks.slices import Unavailable
from benchmarks.small_streams_http import daemon_figures, reference_figures
from offload.daemon.service import open_service
from offload.settings import read_settings
from offload.wiring import open_store
from seglog import aio

__all__ = ["SUMMARY", "run"]

SUMMARY = "100,000 streams of 20 records: made, opened, idle, offloaded, and some of them over HTTP"

STREAMS, RECORDS, RECORD_BYTES = 100_000, 20, 100
SERVED = 2_000
_OFFLOADED = 500
_AT_ONCE = 64
_IDLE_S = 10.0
_CHECKPOINTS = 3
_MIB = 2**20


def run(options: Options) -> Report:
    streams, served = (60, 20) if options.quick else (STREAMS, SERVED)
    idle_s = 0.2 if options.quick else _IDLE_S
    rows = [*_log_rows(options.directory / "small-streams", streams, idle_s), *_served_rows(options, served)]
    return Report("small-streams", SUMMARY, tuple(rows), describe(options.directory), 1)


def _log_rows(place: Path, streams: int, idle_s: float) -> list[Row]:
    data, remote = place / "data", place / "remote"
    shutil.rmtree(place, ignore_errors=True)
    rows = asyncio.run(_made(data, streams))
    settle_disk()
    rows += _apart(_opened, data)
    rows += _apart(partial(_idle, idle_s), data, remote)
    rows += _offloaded(data, remote, min(streams, _OFFLOADED))
    shutil.rmtree(place)
    return rows


async def _made(data: Path, streams: int) -> list[Row]:
    values, names = [os.urandom(RECORD_BYTES)] * RECORDS, iter(range(streams))
    async with aio.open(data) as log:

        async def make_some() -> None:
            for number in names:
                await log.topic(f"stream-{number:06}").append(values)

        begin = time.perf_counter()
        await asyncio.gather(*(make_some() for _ in range(_AT_ONCE)))
        made_s = time.perf_counter() - begin
        await log.checkpoint()
        all_s = time.perf_counter() - begin
        begin = time.perf_counter()
        for number in range(_CHECKPOINTS):
            await log.topic(f"stream-{number:06}").append(values[:1])
            await log.checkpoint()
        checkpoint_s = (time.perf_counter() - begin) / _CHECKPOINTS
    manifest = max((data / "meta").glob("snapshot.*.json"))
    return [
        alone("made, records acked", "us/stream", made_s * 1e6 / streams),
        alone("made, and in segments", "us/stream", all_s * 1e6 / streams),
        alone("checkpoint, 1 changed", "ms", checkpoint_s * 1e3),
        alone("manifest", "bytes/stream", manifest.stat().st_size / streams),
        *_sizes(data, streams),
    ]


def _sizes(data: Path, streams: int) -> list[Row]:
    files = [path.stat() for path in data.rglob("*") if path.is_file()]
    return [
        alone("files", "files/stream", len(files) / streams),
        alone("disk space", "KiB/stream", sum(each.st_blocks for each in files) / 2 / streams),
    ]


def _apart(work: Callable[..., list[Row]], *places: Path) -> list[Row]:
    """Return what the function returns in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *places).result()


def _opened(data: Path) -> list[Row]:
    before = _memory_bytes()
    begin = time.perf_counter()
    with seglog.open(data) as log:
        open_s = time.perf_counter() - begin
        held, streams = _memory_bytes() - before, len(log.topics())
        files = len(os.listdir("/proc/self/fd"))
    return [
        alone("opening", "s", open_s),
        alone("opening, a stream", "us", open_s * 1e6 / streams),
        alone("memory after opening", "KiB/stream", max(held, 1) / 1024 / streams),
        alone("open files", "files", files),
    ]


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _idle(idle_s: float, data: Path, remote: Path) -> list[Row]:
    return asyncio.run(_idle_daemon(idle_s, data, remote))


async def _idle_daemon(idle_s: float, data: Path, remote: Path) -> list[Row]:
    settings = read_settings(data / seglog.SETTINGS_FILE, {})
    service = await open_service(data, settings, remote=remote.absolute().as_uri())
    try:
        last = service.works.of(service.sync.topics()[-1])
        begin = time.process_time()
        service.start()
        while last.unsealed_since_ms is None:  # the first look at each topic is not over
            await asyncio.sleep(0.05)
        first_s = time.process_time() - begin
        await asyncio.sleep(idle_s / 4)
        begin = time.process_time()
        await asyncio.sleep(idle_s)
        share = (time.process_time() - begin) / idle_s
    finally:
        await service.close()
    return [
        alone("daemon, its first look at all, CPU", "s", first_s),
        alone("daemon, idle, CPU", "%", max(share * 100, 0.01)),
    ]


def _offloaded(data: Path, remote: Path, streams: int) -> list[Row]:
    store = CountedStore(open_store(remote.absolute().as_uri()))
    with seglog.open(data) as log, offload.attach(log, store=store) as archive:
        names = log.topics()[:streams]
        begin = time.perf_counter()
        log.seal(names)
        for name in names:
            archive.offload(name)
        each_s = (time.perf_counter() - begin) / streams
        objects = sum(1 for _ in store.inner.list(""))
    return [
        alone("offload", "ms/stream", each_s * 1e3),
        alone("offload, objects", "objects/stream", objects / streams),
        alone("offload, requests", "requests/stream", store.counts.total() / streams),
    ]


def _served_rows(options: Options, served: int) -> list[Row]:
    label = f"HTTP, {served:,} streams"
    found: dict[str, list[Figures]] = {}
    missing: dict[str, str] = {}
    for name, measure in (("seglog", daemon_figures), ("reference", reference_figures)):
        place = options.directory / f"small-streams-{name}"
        shutil.rmtree(place, ignore_errors=True)
        try:
            found[name] = [measure(place, served, RECORDS, RECORD_BYTES)]
        except Unavailable as reason:
            missing[name] = str(reason)
        shutil.rmtree(place, ignore_errors=True)
    rounds = Rounds(found, missing)
    return [
        row
        for what, unit, figure, more in (
            ("made", "streams/s", "made", True),
            ("restart", "ms", "restart_ms", False),
            ("memory after restart", "MiB", "memory_mib", False),
            ("files", "files/stream", "files", False),
            ("disk space", "KiB/stream", "disk_kib", False),
        )
        for row in compare(rounds, f"{label}, {what}", unit, figure, "reference", more_is_better=more)
    ]
