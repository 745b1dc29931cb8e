"""How fast sealed segments are read, every byte verified: record by record, and whole frames in bulk; 200 B and 1 KB.

The yardstick is `cat` of the same .data files to /dev/null: what moving the bytes costs, without looking at them. The
files are in the page cache for both.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import seglog
from benchmarks.machine import describe
from benchmarks.offload import fill
from benchmarks.options import Options
from benchmarks.report import Report, Row, compare
from benchmarks.runner import Figures, in_turns, settle_disk

__all__ = ["SUMMARY", "run"]

SUMMARY = "sequential reads of sealed segments, verified, against `cat` of the same files"

TOPIC = "bench"
RECORD_SIZES = (200, 1024)
_MB = 1_000_000


def run(options: Options) -> Report:
    rows = [row for size_bytes in RECORD_SIZES for row in _reads(options, size_bytes)]
    return Report("read", f"{SUMMARY}; {options.size_mib} MiB of records", tuple(rows), describe(options.directory))


def _reads(options: Options, size_bytes: int) -> list[Row]:
    place = options.directory / f"read-{size_bytes}"
    shutil.rmtree(place, ignore_errors=True)
    rows: list[Row] = []
    with seglog.open(place) as log:
        count = fill(log, TOPIC, size_bytes, options.size_mib << 20)
        topic = log.topic(TOPIC)
        files = sorted((place / "topics").rglob("*.data"))
        stored_bytes = sum(file.stat().st_size for file in files)

        def figures(work: Callable[[], int]) -> Figures:
            settle_disk()
            start = time.perf_counter()
            if work() != count:
                raise RuntimeError("not every record was read: the figure would be wrong")
            elapsed = time.perf_counter() - start
            return {"records_per_s": count / elapsed, "mb_per_s": stored_bytes / elapsed / _MB}

        ways: dict[str, Callable[[], int]] = {
            "records": lambda: sum(1 for _ in topic.read()),
            "frames in bulk": lambda: sum(map(len, topic.frame_batches(1, count))),
        }
        for way, work in ways.items():
            label = f"{way}, {size_bytes} B"
            subjects = {"seglog": partial(figures, work), "cat": partial(figures, partial(_cat, files, count))}
            rounds = in_turns(subjects, rounds=options.rounds, label=label)
            rows += compare(rounds, label, "records/s", "records_per_s", "cat", more_is_better=True)
            rows += compare(rounds, label, "MB/s", "mb_per_s", "cat", more_is_better=True)
    shutil.rmtree(place)
    return rows


def _cat(files: list[Path], count: int) -> int:
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    return count
