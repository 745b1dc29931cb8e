"""Appends at `fsync` while seglog offloads segments at full speed, against the same log without offloads.

The offload reads, verifies, encodes and checksums as usual. A worker process does it, as in the daemon, or a thread of
the process that appends. The store accepts the parts and forgets them at once. So only this machine sets the pace. One
thread appends single records of 200 bytes.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TypeAlias

import seglog
from benchmarks import ways
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.offload import fill
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Figures
from benchmarks.slices import Open, Slice, in_slices
from catalog import Codec, Sid, Vid
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key
from catalog.objects import MemoryStore, PartTag
from offload import ColdSettings, OffloadSettings
from offload.read.cold_reader import ColdReader
from offload.worker import child
from offload.worker.pool import WorkerPool
from offload.write.segment_upload import LocalUploader, UploadJob
from offload.write.uploader import Uploader

__all__ = ["SUMMARY", "run"]

SUMMARY = "appends while segments are offloaded at full speed, against the same without"

SIZE_BYTES = 200
_P50_AIMS: tuple[Aim, ...] = ()
_P99_AIMS = (Aim(1 / 1.2, "without"),)
_PATIENCE_S = 60.0


def run(options: Options) -> Report:
    rows: list[Row] = []
    for codec in Codec:
        label = f"append, codec {codec.name.lower()}"
        subjects = {
            "process": _subject(options, codec, _by_process),
            "thread": _subject(options, codec, _by_thread),
            "without": _subject(options, codec, _by_nobody),
        }
        rounds = in_slices(options, label, subjects)
        for how in ("process", "thread"):
            for name, figure, aims in (("p50", "p50_us", _P50_AIMS), ("p99", "p99_us", _P99_AIMS)):
                rows += compare(
                    rounds.called("seglog", how), f"{label}, {how}, {name}", "us", figure, "without",
                    more_is_better=False, aims=aims if how == "process" else (),
                )  # fmt: skip
            rows.append(alone(f"{label}, {how}, offloaded", "MB/s", rounds.median(how, "offloaded_mb_per_s")))
    return Report("append-while-offloading", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


class _Forgetting(MemoryStore):
    """A store that no caller ever waits for."""

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:  # noqa: ARG002 - of the port
        return PartTag(number, "", len(body), Checksum.of(ChecksumKind.CRC32C, body))

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        pass


def main(descriptor: int) -> None:
    """Run the worker process."""
    child.main(descriptor, lambda _: _Forgetting())


class _NoLimits:
    def take(self, sent_bytes: int) -> None:
        pass

    def answered(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        pass


class _Ended(Exception):
    """The benchmark is over."""


class _Load:
    """Offloads one topic again and again while it is on."""

    def __init__(
        self, topic: seglog.Topic, codec: Codec, uploader: Uploader, pids: Callable[[], Sequence[int]]
    ) -> None:
        self._topic = topic
        self._codec = codec
        self._uploader = uploader
        self._pids = pids
        self._is_on, self._is_over, self._begun = threading.Event(), threading.Event(), threading.Event()
        self._taken_bytes, self._since = 0, 0.0
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def __enter__(self) -> None:
        self._begun.clear()
        self._taken_bytes, self._since = 0, time.perf_counter()
        self._is_on.set()
        self._signal(signal.SIGCONT)
        if not self._begun.wait(_PATIENCE_S):
            raise RuntimeError("nothing was offloaded: the figure would be wrong")

    def __exit__(self, *_: object) -> None:
        self._is_on.clear()
        self._signal(signal.SIGSTOP)

    @property
    def mb_per_s(self) -> float:
        """Return the rate since the load was switched on."""
        return self._taken_bytes / (time.perf_counter() - self._since) / 1e6

    def end(self) -> None:
        self._is_over.set()
        self._is_on.set()
        self._signal(signal.SIGCONT)
        self._thread.join()
        self._uploader.close()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids():
            os.kill(pid, number)

    def _work(self) -> None:
        with suppress(_Ended):
            while self._is_on.wait():
                self._take(0)
                now_ms = time.time_ns() // 1_000_000
                job = UploadJob(
                    self._topic.name,
                    Vid.new(1),
                    Sid.new(now_ms),
                    1,
                    self._topic.head_seq,
                    self._codec,
                    OffloadSettings(),
                )
                self._uploader.upload(job, self._topic, on_upload_id=lambda _: None, on_bytes=self._take)

    def _take(self, count: int) -> None:
        self._is_on.wait()
        if self._is_over.is_set():
            raise _Ended
        self._taken_bytes += count
        if count:
            self._begun.set()


_Start: TypeAlias = Callable[[seglog.Topic, Codec], _Load | None]


def _by_process(topic: seglog.Topic, codec: Codec) -> _Load:
    pool = WorkerPool("forgotten", ColdSettings(), OffloadSettings(), _NoLimits(), __name__)
    return _Load(topic, codec, pool, lambda: pool.pids)


def _by_thread(topic: seglog.Topic, codec: Codec) -> _Load:
    store = _Forgetting()
    return _Load(topic, codec, LocalUploader(store, ColdReader(store)), lambda: ())


def _by_nobody(_topic: seglog.Topic, _codec: Codec) -> None:
    return None


def _subject(options: Options, codec: Codec, start: _Start) -> Open:
    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with seglog.open(directory / "data") as log:
            fill(log, "old", SIZE_BYTES, options.size_mib << 20)
            position, batches = count(), [[line] for line in log_lines(1_000, SIZE_BYTES)]
            append = log.topic("new").append
            load = start(log.topic("old"), codec)

            def measured(slice_s: float) -> Figures:
                if load is None:
                    return ways.loop(append, batches, position, slice_s)
                with load:
                    figures = ways.loop(append, batches, position, slice_s)
                    return {**figures, "offloaded_mb_per_s": load.mb_per_s}

            try:
                yield measured
            finally:
                if load is not None:
                    load.end()

    return open_subject
