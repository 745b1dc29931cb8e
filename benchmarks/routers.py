"""What routers cost an append, and how fast one copies.

row                    what happens
append, p99            one record of 1 KiB at a time, acked at `fsync` over HTTP, to a topic that 10 routers copy. The
                       yardstick is the same daemon without a router. A slice ends once all is copied
one router             copies a topic of records of 1 KiB to another one. The yardstick is the plain appends of as many
                       records in batches of 512, over one connection
"""

from __future__ import annotations

import http.client
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from benchmarks import daemon
from benchmarks.http_load import Target, connected, post
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, in_turns, settle_disk
from benchmarks.slices import Open, Slice, in_slices
from seglog.client.bodies import VALUES_TYPE, encode_values

__all__ = ["SUMMARY", "run"]

SUMMARY = "appends to a topic that routers copy, and the copies of one router"

ROUTERS = 10
SIZE_BYTES = 1024
BATCH = 512
RECORDS = 400 * BATCH
_TYPE = f"Content-Type: {VALUES_TYPE}"


def run(options: Options) -> Report:
    rows = [*_appends(options), *_copies(options)]
    return Report("routers", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _settle(port: int) -> None:
    """Wait until all routers are at the head of their source."""
    while not all(router["lag_records"] == 0 for router in daemon.command(port, "router/list")):
        time.sleep(0.01)


# ---------------------------------------------------------------- appends beside routers


def _appends(options: Options) -> list[Row]:
    routers = 2 if options.quick else ROUTERS
    label = f"append, {routers} routers copy it"
    rounds = in_slices(options, label, {"seglog": _appending(routers), "without": _appending(0)})
    return [
        *compare(rounds, f"{label}, p50", "us", "p50_us", "without", more_is_better=False),
        *compare(
            rounds, f"{label}, p99", "us", "p99_us", "without", more_is_better=False, aims=(Aim(1 / 1.1, "without"),)
        ),
    ]


def _appending(routers: int) -> Open:
    request = post("/topics/bench/records", encode_values(log_lines(1, SIZE_BYTES)), _TYPE)

    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with daemon.running(directory / "data", SERVE_HEADER_TIMEOUT_S="3600") as served:
            daemon.command(served.port, "topic/create", topic="bench")
            for number in range(routers):
                given = {"name": f"r{number}", "source": "bench", "destination": f"copy{number}"}
                daemon.command(served.port, "router/create", **given)
            with connected(Target(served.port, lambda _name, _number: request, 1), 1) as work:

                def measure(slice_s: float) -> Figures:
                    figures = work(slice_s)
                    _settle(served.port)
                    return figures

                yield measure

    return open_subject


# ---------------------------------------------------------------- one router


def _copies(options: Options) -> list[Row]:
    records = 2 * BATCH if options.quick else RECORDS
    subjects = {
        "seglog": lambda: _copied(options.directory / "routers", records),
        "appends": lambda: _appended(options.directory / "appends", records),
    }
    rounds = in_turns(subjects, rounds=options.rounds, label="one router")
    return compare(rounds, "one router", "records/s", "records_per_s", "appends", more_is_better=True)


def _copied(place: Path, records: int) -> Figures:
    with _filled(place, records) as (port, _):
        settle_disk()
        begin = time.perf_counter()
        daemon.command(port, "router/create", name="r", source="bench", destination="copy")
        _settle(port)
        return {"records_per_s": records / (time.perf_counter() - begin)}


def _appended(place: Path, records: int) -> Figures:
    with _filled(place, records) as (_, spent_s):
        return {"records_per_s": records / spent_s}


@contextmanager
def _filled(place: Path, records: int) -> Iterator[tuple[int, float]]:
    """Serve a topic of so many records. Yield the port, and the seconds that the appends took."""
    shutil.rmtree(place, ignore_errors=True)
    body = encode_values(log_lines(BATCH, SIZE_BYTES))
    with daemon.running(place, SERVE_HEADER_TIMEOUT_S="3600") as served:
        settle_disk()
        begin = time.perf_counter()
        with closing(http.client.HTTPConnection("127.0.0.1", served.port)) as connection:
            for _ in range(records // BATCH):
                connection.request("POST", "/topics/bench/records", body, {"Content-Type": VALUES_TYPE})
                answer = connection.getresponse()
                answer.read()
                if answer.status != 201:
                    raise RuntimeError(f"an append got {answer.status}")
        yield served.port, time.perf_counter() - begin
    shutil.rmtree(place)
