"""Appends to a capped topic, with few segments and with many.

Records go to the page cache only (`memory`), so that the disk does not hide the log's own work under its lock. The
appends never reach the caps: the benchmark times the check for them. The yardstick is a topic with 10 segments.
"Calls" are function calls, Python's own included, for one append.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import seglog
from benchmarks.calls import count_calls
from benchmarks.idle import Idle
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.recovery import make_sealed
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, in_turns, percentiles, settle_disk

__all__ = ["SUMMARY", "run"]

SUMMARY = "appends to a capped topic with 10 and with 5,000 segments"

FEW, MANY = 10, 5_000
_SEGMENT_RECORDS = 10
_APPENDS = 2_000
_CAPS = {
    "old": seglog.TopicConfig(durability="memory", cap_records=1 << 40, cap_bytes=1 << 50),
    "reject": seglog.TopicConfig(durability="memory", cap_records=1 << 40, cap_bytes=1 << 50, discard="reject"),
}


def run(options: Options) -> Report:
    many, appends = (MANY // 50, _APPENDS // 10) if options.quick else (MANY, _APPENDS)
    rows: list[Row] = []
    places = [options.directory / f"capped-{segments}" for segments in (FEW, many)]
    with ExitStack() as logs:
        made = zip(places, (FEW, many), strict=True)
        opened = [logs.enter_context(_made(place, segments)) for place, segments in made]
        for discard, config in _CAPS.items():
            subjects: dict[str, Callable[[], Figures]] = {
                name: partial(_appends, log, config, appends)
                for name, log in zip((f"{FEW} segments", "seglog"), opened, strict=True)
            }
            rounds = in_turns(subjects, rounds=options.rounds, label=f"capped, {discard}")
            label = f"append with {MANY:,} segments, discard {discard}"
            aims = (Aim(1 / 1.2, f"{FEW} segments"),)
            rows += compare(rounds, f"{label}, p50", "us", "p50_us", f"{FEW} segments", more_is_better=False, aims=aims)
            rows += compare(rounds, f"{label}, calls", "", "calls", f"{FEW} segments", more_is_better=False)
    for place in places:
        shutil.rmtree(place)
    return Report("capped", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _made(place: Path, segments: int) -> seglog.Log:
    shutil.rmtree(place, ignore_errors=True)
    make_sealed(place, segments * _SEGMENT_RECORDS, _SEGMENT_RECORDS)
    return seglog.open(place, upkeep=Idle)


def _appends(log: seglog.Log, config: seglog.TopicConfig, appends: int) -> Figures:
    log.configure("bench", config)
    topic = log.topic("bench")
    settle_disk()
    times = []
    for _ in range(appends):
        start = time.perf_counter()
        topic.append([b"x" * 200])
        times.append(time.perf_counter() - start)
    calls = count_calls(lambda: topic.append([b"x" * 200]))
    return {**percentiles(times), "calls": calls}
