"""A log with many topics: a checkpoint after one topic changed, an open, and the status of all topics.

    checkpoint   one record was appended to one topic; CPU, since the disk's part is the same
    opening      `seglog.open` of a directory that was closed
    status       the calls of `seglog status` for each topic of an open log, per topic

Each topic has a record in an unsealed segment. The log's own encoders make the files. The yardstick is a log with 10
topics; for opening and status, one of its topics. "Calls" are function calls, Python's own included. Each checkpoint
writes the whole manifest: its bytes follow the number of topics.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import offload
import seglog
from benchmarks.calls import count_calls
from benchmarks.idle import Idle
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.recovery import make_segment
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, in_turns, settle_disk
from seglog.files.file_system import OsFiles
from seglog.values.layout import Layout
from seglog.wal.manifest import ActiveMeta, load, store

__all__ = ["SUMMARY", "make_topics", "run"]

SUMMARY = "a checkpoint with one changed topic, an opening, and the status of all, with 10 and with 10,000 topics"

FEW, MANY = 10, 10_000
_CHECKPOINTS = 5


def run(options: Options) -> Report:
    many = MANY // 100 if options.quick else MANY
    places = {topics: options.directory / f"topics-{topics}" for topics in (FEW, many)}
    for topics, place in places.items():
        shutil.rmtree(place, ignore_errors=True)
        make_topics(place, topics)
    few = f"{FEW} topics"
    subjects: dict[str, Callable[[], Figures]] = {
        few: partial(_figures, places[FEW], FEW),
        "seglog": partial(_figures, places[many], many),
    }
    rounds = in_turns(subjects, rounds=options.rounds, label="topics")
    for place in places.values():
        shutil.rmtree(place)
    one, label = (Aim(0.5, few),), f"of {MANY:,} topics"
    rows: list[Row] = [
        *compare(rounds, f"checkpoint, 1 {label} changed", "ms of CPU", "checkpoint_ms", few, more_is_better=False),
        *compare(rounds, f"checkpoint, 1 {label} changed, calls", "", "calls", few, more_is_better=False, aims=one),
        *compare(rounds, f"opening {label}", "ms", "open_ms", few, more_is_better=False),
        *compare(rounds, f"opening {label}, a topic", "us", "open_us", few, more_is_better=False, aims=one),
        *compare(rounds, f"status {label}, a topic", "us", "status_us", few, more_is_better=False, aims=one),
    ]
    return Report("topics", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _figures(place: Path, topics: int) -> Figures:
    settle_disk()
    start = time.perf_counter()
    log = seglog.open(place, upkeep=Idle)
    open_s = time.perf_counter() - start
    with log:
        names = log.topics()
        if len(names) != topics:
            raise RuntimeError("not every topic is there: the figure would be wrong")
        log.topic(names[0]).append([b"x"])
        log.checkpoint()
        start = time.process_time()
        for _ in range(_CHECKPOINTS):
            log.topic(names[0]).append([b"x"])
            log.checkpoint()
        checkpoint_s = (time.process_time() - start) / _CHECKPOINTS
        log.topic(names[0]).append([b"x"])
        calls = count_calls(log.checkpoint)
        with offload.attach(log, place.absolute().with_name("topics-remote").as_uri()) as archive:
            start = time.perf_counter()
            for name in names:
                archive.status.topic(name)
            status_s = time.perf_counter() - start
    return {
        "checkpoint_ms": checkpoint_s * 1e3,
        "calls": calls,
        "open_ms": open_s * 1e3,
        "open_us": open_s * 1e6 / topics,
        "status_us": status_s * 1e6 / topics,
    }


def make_topics(place: Path, topics: int) -> None:
    """Make a closed data directory with so many topics, each with a record in its active segment."""
    with seglog.open(place) as log:
        log.create_topic("topic-00001")
    files, layout = OsFiles(), Layout(place.absolute())
    number, manifest = load(files, layout)
    [topic] = manifest.topics
    made = []
    for topic_id in range(1, topics + 1):
        layout.topic(topic_id).mkdir(parents=True)
        info = make_segment(layout, topic_id, 1, 1)
        active = ActiveMeta(1, 1, info.data_bytes)
        name = f"topic-{topic_id:05}"
        made.append(replace(topic, topic_id=topic_id, name=name, active=active, head_seq=1, last_ts_ms=info.max_ts_ms))
    full = replace(manifest, topics=tuple(made), next_topic_id=topics + 1)
    store(files, layout, number + 1, full)
