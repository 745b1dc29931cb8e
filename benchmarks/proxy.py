"""What a proxy spares the store, and how fast it is: requests and bytes as exact counts, then scans beside the clock.

The store is `benchmarks.range_server`: the directory of a remote, served as S3 does. It counts its requests and bytes.
The proxy is `seglog serve --proxy` in a process of its own, on loopback like all others.

replicas    what 100 of them ask of the store in an hour, with and without a proxy (benchmarks.proxy_replicas)
cold        8 readers at once scan a topic through a proxy that has cached nothing. The store is far away: 30 ms to the
            first byte, 85 MB/s a connection. The yardstick is one reader at that store
warm        1 MiB ranges of the data object from a proxy that has cached them all, as bytes that nobody looks at. The
            yardstick is nginx with `slice 1m`, in front of the same store

The readers of a cold scan are threads of this process. "Chunks" read as seglog does, 8 MiB at a time and 16 at once,
and verify each chunk. "GETs" read 4 MiB, one after the other, and look at nothing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from benchmarks import daemon
from benchmarks.cold_scan import chunks
from benchmarks.cold_store import BUCKET, FIRST_BYTE_MS, MB_PER_S, Cold, at_endpoint, cold_topic, plain_gets
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.proxy_replicas import Crowd, rows
from benchmarks.range_server import serving, taken
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Figures, Rounds, in_turns
from benchmarks.slices import Unavailable
from benchmarks.stores import nginx
from benchmarks.warm_ranges import get_all
from catalog.format.keys import index_key
from catalog.objects.object_store import ObjectStore
from offload.wiring import open_store

__all__ = ["SUMMARY", "run"]

SUMMARY = "a proxy for many readers: requests and bytes of the store, cold and warm scans, beside the store and nginx"

READERS = 8
CONNECTIONS = (1, 8)
_MB = 1_000_000
_MIB = 1 << 20
_SLOWER = 1.2
_OVERHEAD = 1.02
_AS_NGINX = 0.5
_ALONE = "one at the store"
_Read = Callable[[ObjectStore, Cold], int]


def run(options: Options) -> Report:
    place = options.directory.resolve() / "proxy"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        found = rows(place / "replicas", Crowd(3, 2, 3, 20, 1) if options.quick else Crowd())
        size_mib = options.size_mib if options.quick else 4 * options.size_mib
        cold = cold_topic(place / "scans", size_mib)
        for what, read in (("chunks", chunks), ("GETs", _gets)):
            found += _cold_scans(options, place / what, what, read, cold)
        found += _warm_scans(options, place / "warm", cold)
    finally:
        shutil.rmtree(place)
    return Report(
        "proxy", f"{SUMMARY}; scans of {size_mib} MiB", tuple(found), describe(options.directory), options.rounds
    )


def _cold_scans(options: Options, place: Path, what: str, read: _Read, cold: Cold) -> list[Row]:
    objects = (cold.key, index_key(cold.view.vid, cold.view.ref.sid))
    data_bytes = sum((cold.directory / key).stat().st_size for key in objects)
    most, number = 0, 0
    with serving(cold.directory, FIRST_BYTE_MS, MB_PER_S) as origin, at_endpoint(origin):

        def through_proxy() -> Figures:
            nonlocal most, number
            number += 1
            with _proxy(place / str(number)) as port:
                taken(origin)
                elapsed_s = _timed(lambda: _at_once(port, read, cold))
                most = max(most, taken(origin).body_bytes)
            return {"s": elapsed_s}

        def at_store() -> Figures:
            with closing(open_store(f"s3://{BUCKET}")) as store:
                return {"s": _timed(lambda: read(store, cold))}

        label = f"cold scan by {READERS} at once, {what}"
        rounds = in_turns({"seglog": through_proxy, _ALONE: at_store}, rounds=options.rounds, label=label)
    aims = (Aim(round(1 / _SLOWER, 2), _ALONE),)
    return [
        alone(f"{label}, bytes of the store / the data", "x", most / data_bytes, at_most=_OVERHEAD),
        *compare(rounds, label, "s", "s", _ALONE, more_is_better=False, aims=aims),
    ]


@contextmanager
def _proxy(directory: Path) -> Iterator[int]:
    """Yield the port of a proxy that has cached nothing. It has room for all of the data."""
    with daemon.running(directory, proxy=f"s3://{BUCKET}", COLD_CACHE_BYTES=str(8 << 30)) as served:
        yield served.port


def _at_once(port: int, read: _Read, cold: Cold) -> None:
    def one(_: int) -> int:
        with closing(open_store(f"http://127.0.0.1:{port}")) as store:
            return read(store, cold)

    with ThreadPoolExecutor(READERS) as pool:
        if sum(pool.map(one, range(READERS))) != READERS * cold.view.ref.data_length:
            raise RuntimeError("not all bytes were read: the figure would be wrong")


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _gets(store: ObjectStore, cold: Cold) -> int:
    return plain_gets(store, cold, cold.view.ref.data_length, 4 * _MIB, 1)


def _warm_scans(options: Options, place: Path, cold: Cold) -> list[Row]:
    length = cold.view.ref.data_length
    ranges = [range(start, min(start + _MIB, length)) for start in range(0, length, _MIB)]
    missing: dict[str, str] = {}
    found: list[Row] = []
    with ExitStack() as stack:
        origin = stack.enter_context(serving(cold.directory))
        stack.enter_context(at_endpoint(origin))
        place.mkdir()
        servers = {"seglog": (stack.enter_context(_proxy(place / "proxy")), f"/objects/{cold.key}")}
        try:
            servers["nginx"] = stack.enter_context(nginx.running(place / "nginx", origin)), f"/{BUCKET}/{cold.key}"
        except Unavailable as reason:
            missing["nginx"] = str(reason)
        for connections in CONNECTIONS:
            label = f"warm scan, {connections} connection{'s' if connections > 1 else ''}"
            subjects = {
                name: partial(_warm_scan, port, path, ranges, connections) for name, (port, path) in servers.items()
            }
            rounds = in_turns(subjects, rounds=options.rounds, label=label)
            named, aims = Rounds(rounds.by_subject, missing), (Aim(_AS_NGINX, "nginx"),)
            found += compare(named, label, "MB/s", "mb_per_s", "nginx", more_is_better=True, aims=aims)
        if taken(origin).requests["GET segments"] > len(servers) * len(ranges):
            raise RuntimeError("a scan was not warm: the figure would be wrong")
    return found


def _warm_scan(port: int, path: str, ranges: list[range], connections: int) -> Figures:
    elapsed_s = _timed(lambda: get_all(port, path, ranges, connections))
    return {"mb_per_s": sum(map(len, ranges)) / elapsed_s / _MB}
