"""Appends and hot reads while the cold store hangs or fails, against a log whose cold store gets no reads.

Four threads read cold segments from a `SegmentStore` with faults, and the relocator has a segment to put there. If the
store hangs, each thread waits in its call to the end of the run. If it fails, each thread tries again every 10 ms.
Meanwhile one thread appends at `fsync`, or reads the newest 1,000 records from hot segments. The logs differ only in
their cold store. The aim is a ratio of 1: no difference but noise.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import seglog
from benchmarks import ways
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, compare
from benchmarks.runner import Figures, Rounds
from benchmarks.slices import Open, Slice, in_slices, rate_and_percentiles
from seglog.engine.work_thread import InCaller
from seglog.tiers.segment_store import MemorySegmentStore, Part, SegmentId

__all__ = ["SUMMARY", "FaultySegments", "run"]

SUMMARY = "appends and hot reads while the cold store hangs or fails, against one that nobody asks"

READERS = 4
RECORDS = 10_000
HOT_READ = 1_000
SIZE_BYTES = 200
_RETRY_S = 0.01


class FaultySegments(MemorySegmentStore):
    """A segment store whose calls fail once `is_faulty` is set: at once, or after `release` if `hangs` is given."""

    def __init__(self, *, hangs: bool) -> None:
        super().__init__()
        self._hangs = hangs
        self.is_faulty = False
        self.release = threading.Event()

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self._trouble()
        super().put(segment, data, idx)

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        self._trouble()
        return super().read_range(segment, part, offset, length)

    def _trouble(self) -> None:
        if self.is_faulty and self._hangs:
            self.release.wait()
        if self.is_faulty:
            raise ConnectionError("the cold store does not answer")


def run(options: Options) -> Report:
    rows: list[Row] = []
    for what, work in (("append", _appends), ("hot read of 1,000", _hot_reads)):
        for trouble in ("hangs", "fails"):
            subjects = {"seglog": _subject(work, trouble), "without": _subject(work, None)}
            rounds = in_slices(options, f"{what}, cold store {trouble}", subjects)
            rows += _rows(rounds, f"{what}, cold store {trouble}")
    return Report("cold-trouble", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def _rows(rounds: Rounds, label: str) -> list[Row]:
    return [
        row
        for name, figure in (("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p999_us"))
        for row in compare(rounds, f"{label}, {name}", "us", figure, "without", more_is_better=False)
    ]


def _appends(topic: seglog.Topic) -> Slice:
    batches = [[line] for line in log_lines(1_000, SIZE_BYTES)]
    position = count()
    return lambda slice_s: ways.loop(topic.append, batches, position, slice_s)


def _hot_reads(topic: seglog.Topic) -> Slice:
    first = topic.head_seq - HOT_READ + 1

    def read(slice_s: float) -> Figures:
        clock = time.perf_counter
        times: list[float] = []
        begin = now = clock()
        while now - begin < slice_s:
            start = now
            if sum(1 for _ in topic.read(first, first + HOT_READ - 1)) != HOT_READ:
                raise RuntimeError("not every record was read: the figure would be wrong")
            now = clock()
            times.append(now - start)
        return rate_and_percentiles(HOT_READ * len(times), now - begin, times)

    return read


def _subject(work: Callable[[seglog.Topic], Slice], trouble: str | None) -> Open:
    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        store = FaultySegments(hangs=trouble != "fails")
        settings = seglog.LogSettings(hot_retain_segments=1)
        with seglog.open(directory / "data", settings=settings, warm_stores=lambda _: store, upkeep=InCaller) as log:
            for _ in range(2):
                log.topic("bench").append(log_lines(RECORDS, SIZE_BYTES))
                log.topic("bench").seal()
        store.is_faulty = True
        with seglog.open(directory / "data", settings=settings, warm_stores=lambda _: store) as log:
            topic = log.topic("bench")
            if trouble is not None:
                topic.append(log_lines(1, SIZE_BYTES))
                topic.seal()  # so that one more segment is due for relocation
            is_on, stop = threading.Event(), threading.Event()
            readers = [threading.Thread(target=_read_cold, args=(topic, is_on, stop)) for _ in range(READERS)]
            measure = work(topic)

            def in_trouble(slice_s: float) -> Figures:
                """Let the readers work during this subject's turn only."""
                if trouble is not None:
                    is_on.set()
                figures = measure(slice_s)
                is_on.clear()
                return figures

            for reader in readers:
                reader.start()
            try:
                yield in_trouble
            finally:
                for event in (stop, is_on, store.release):
                    event.set()
                for reader in readers:
                    reader.join()

    return open_subject


def _read_cold(topic: seglog.Topic, is_on: threading.Event, stop: threading.Event) -> None:
    while is_on.wait() and not stop.is_set():
        try:
            next(topic.read(1, 1))
        except seglog.Unavailable:
            stop.wait(_RETRY_S)
        else:
            raise RuntimeError("what is cold was read: the figure would be wrong")
