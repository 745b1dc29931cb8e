"""How fast a cold topic of 1 KB records is read from the first record to the last, verified, against plain GETs.

Every reader is built on "chunks": fetched ahead and checked against their XXH3. "Records" are the output of
`Archive.read`: each record is checked too and becomes a Python object, and their figure shows that cost.

The plain GETs check nothing. They fetch 8 MiB, 16 at a time, like seglog's windows. On the store that is far away they
also run one at a time. Then they fetch 1 MiB, as Apache Pulsar reads, or 4 MiB, as plug-ins for Kafka do. The table
names the stores. All figures of a store are of the same bytes and the same server. The object is 8 times `--size`, so
that the start of a scan does not weigh too much.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

from benchmarks.cold_store import RECORD_BYTES, Cold, cold_topic, plain_gets, stores
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, in_turns
from catalog.objects.object_store import ObjectStore

__all__ = ["SUMMARY", "chunks", "run"]

SUMMARY = "cold scan: every chunk and every record, verified, against plain ranged GETs of the same object"

_MB = 1_000_000
_MIB = 1 << 20
_PLAIN = "8 MiB x 16"
_SERIAL_BYTES = 64 * _MIB  # more bytes do not change their rate
_SERIAL = {"1 MiB x 1": 1 * _MIB, "4 MiB x 1": 4 * _MIB}
_AIMS = (Aim(0.9, _PLAIN), Aim(15, "1 MiB x 1"), Aim(5, "4 MiB x 1"))


def run(options: Options) -> Report:
    place = options.directory.resolve() / "cold-scan"
    size_mib = options.size_mib if options.quick else 8 * options.size_mib
    cold = cold_topic(place, size_mib)
    rows: list[Row] = []
    with stores(cold) as found:
        for name, store in found.items():
            rows += _scans(options, name, store, cold)
    shutil.rmtree(place)
    measured = f"{SUMMARY}; {size_mib} MiB of {RECORD_BYTES} B"
    return Report("cold-scan", measured, tuple(rows), describe(options.directory), options.rounds)


def _scans(options: Options, name: str, store: ObjectStore, cold: Cold) -> list[Row]:
    length = cold.view.ref.data_length
    plain = {_PLAIN: lambda: plain_gets(store, cold, length, 8 * _MIB, 16)}
    if " ms" in name:
        plain |= {label: _serial(store, cold, size) for label, size in _SERIAL.items()}
    rows: list[Row] = []
    for what, scan in (("chunks", chunks), ("records", _records)):
        subjects = {"seglog": _timed(lambda scan=scan: scan(store, cold))}  # type: ignore[misc]
        subjects |= {label: _timed(work) for label, work in plain.items()}
        rounds = in_turns(subjects, rounds=options.rounds, label=f"{name}, {what}")
        aims = _AIMS if what == "chunks" else ()
        for label in plain:
            rows += compare(
                rounds,
                f"{what}, {name}",
                "MB/s",
                "mb_per_s",
                label,
                more_is_better=True,
                aims=tuple(aim for aim in aims if aim.yardstick == label),
            )
    return rows


def _serial(store: ObjectStore, cold: Cold, size_bytes: int) -> Callable[[], int]:
    return lambda: plain_gets(store, cold, min(cold.view.ref.data_length, _SERIAL_BYTES), size_bytes, 1)


def _timed(work: Callable[[], int]) -> Callable[[], Figures]:
    """Return a timed form of `work`, which returns how many bytes of the data object it covered."""

    def figures() -> Figures:
        start = time.perf_counter()
        return {"mb_per_s": work() / (time.perf_counter() - start) / _MB}

    return figures


def chunks(store: ObjectStore, cold: Cold) -> int:
    """Read each chunk, verified, and return how many bytes the data object has."""
    with cold.reader(store) as reader:
        found = sum(len(raw) for raw in reader.segment_chunks(cold.view))
        if found != sum(chunk.raw_length for chunk in reader.index(cold.view).chunks):
            raise RuntimeError("not every chunk was read: the figure would be wrong")
    return cold.view.ref.data_length


def _records(store: ObjectStore, cold: Cold) -> int:
    with cold.reader(store) as reader:
        found = sum(1 for _ in reader.segment_records(cold.view, cold.view.first, cold.view.last))
    if found != cold.count:
        raise RuntimeError("not every record was read: the figure would be wrong")
    return cold.view.ref.data_length
