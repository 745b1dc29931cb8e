"""How fast sealed segments are read, every byte verified, in each form that a caller can have; 200 B and 1 KB.

    records     `Topic.read`
    batches     `Topic.read_batches`
    lines       `Topic.read_arrays`, and the values as the lines that `seglog read` writes
    arrow       `Topic.read_arrow`
    frames      `Topic.inner.frame_batches`, which offloading and checkpoints use

The yardstick is `cat` of the same .data files to /dev/null: the cost of moving the bytes without a look at them. The
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
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, in_turns, settle_disk

__all__ = ["SUMMARY", "run"]

SUMMARY = "sequential reads of sealed segments, verified, against `cat` of the same files"

TOPIC = "bench"
RECORD_SIZES = (200, 1024)
_MB = 1_000_000
_AIM_MB_PER_S = 1_000
_AIMED = ("batches", "arrow")


def run(options: Options) -> Report:
    rows = [row for size_bytes in RECORD_SIZES for row in _reads(options, size_bytes)]
    measured = f"{SUMMARY}; {options.size_mib} MiB of records"
    return Report("read", measured, tuple(rows), describe(options.directory), options.rounds)


def _reads(options: Options, size_bytes: int) -> list[Row]:
    place = options.directory / f"read-{size_bytes}"
    shutil.rmtree(place, ignore_errors=True)
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
            "batches": lambda: sum(map(len, topic.read_batches())),
            "lines": lambda: sum(len(found) for found in topic.read_arrays() if found.lines()),
            "arrow": lambda: sum(map(len, topic.read_arrow())),
            "frames": lambda: sum(map(len, topic.inner.frame_batches(1, count))),
        }
        subjects = {way: partial(figures, work) for way, work in ways.items()}
        subjects["cat"] = partial(figures, partial(_cat, files, count))
        rounds = in_turns(subjects, rounds=options.rounds, label=f"read, {size_bytes} B")
    shutil.rmtree(place)
    rows: list[Row] = []
    for way in ways:
        is_aim = way in _AIMED and size_bytes == RECORD_SIZES[1]
        label, one = f"{way}, {size_bytes} B", rounds.called("seglog", way)
        rows += compare(one, label, "records/s", "records_per_s", "cat", more_is_better=True)
        aims = (Aim(_AIM_MB_PER_S),) if is_aim else ()
        rows += compare(one, label, "MB/s", "mb_per_s", "cat", more_is_better=True, aims=aims)
    return rows


def _cat(files: list[Path], count: int) -> int:
    subprocess.run(["cat", *files], stdout=subprocess.DEVNULL, check=True)
    return count
