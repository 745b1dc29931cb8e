"""How long a point read of a cold topic takes, against a bare GET.

The index is in memory, and the disk cache is empty. The bare GET asks for the same chunk of the same object through the
same client, and checks nothing. Both take turns, read by read, in a random order, so that the server and the machine
are the same for both.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time

from benchmarks.cold_store import RECORD_BYTES, Cold, cold_topic, stores
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, Rounds
from catalog.objects.object_store import ObjectStore

__all__ = ["SUMMARY", "run"]

SUMMARY = "cold point reads against a bare ranged GET of the same chunk"

_READS = 200
_AIM = Aim(1 / 1.3, "bare GET")


def run(options: Options) -> Report:
    place = options.directory.resolve() / "cold-point"
    cold = cold_topic(place, options.size_mib)
    rows: list[Row] = []
    with stores(cold) as found:
        for name, store in found.items():
            rounds = _rounds(options, store, cold)
            for figure in ("p50", "p99"):
                rows += compare(
                    rounds, f"{figure}, {name}", "ms", figure, "bare GET", more_is_better=False, aims=(_AIM,)
                )
    shutil.rmtree(place)
    measured = f"{SUMMARY}; {RECORD_BYTES} B records in chunks of 1 MiB, {_READS} reads a round"
    return Report("cold-point", measured, tuple(rows), describe(options.directory), options.rounds)


def _rounds(options: Options, store: ObjectStore, cold: Cold) -> Rounds:
    drawn = random.Random(1)
    reads = 10 if options.quick else _READS
    _round(store, cold, drawn, reads)  # a warm-up
    rounds = [_round(store, cold, drawn, reads) for _ in range(options.rounds)]
    return Rounds({name: [one[name] for one in rounds] for name in ("seglog", "bare GET")})


def _round(store: ObjectStore, cold: Cold, drawn: random.Random, reads: int) -> dict[str, Figures]:
    times: dict[str, list[float]] = {"seglog": [], "bare GET": []}
    with cold.reader(store) as reader:
        chunks = reader.index(cold.view).chunks
        for _ in range(reads):
            seq = drawn.randint(cold.view.first, cold.view.last)
            chunk = next(chunk for chunk in chunks if chunk.last_seq >= seq)
            for name in drawn.sample(sorted(times), 2):
                start = time.perf_counter()
                if name == "seglog":
                    [record] = reader.segment_records(cold.view, seq, seq)
                    assert record.seq == seq
                else:
                    store.get_range(cold.key, chunk.offset, chunk.stored_length)
                times[name].append((time.perf_counter() - start) * 1000)
    return {name: _percentiles(found) for name, found in times.items()}


def _percentiles(times_ms: list[float]) -> Figures:
    hundredths = statistics.quantiles(times_ms, n=100)
    return {"p50": hundredths[49], "p99": hundredths[98]}
