"""Appends at `fsync` while segments are offloaded at full speed by the same process, beside the same log left alone.

What is offloaded is read, verified, encoded and given its checksums as ever; the store takes the parts and forgets
them, at once, so that nothing but this process sets the pace. One thread appends single records of 200 bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import seglog
from benchmarks import ways
from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.offload import fill
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures
from benchmarks.slices import Open, Slice, in_slices
from catalog import Codec, Sid, Vid
from catalog.checksum import Checksum, ChecksumKind
from catalog.keys import Key
from catalog.objects import MemoryStore, PartTag
from offload import OffloadSettings
from offload.ledger_offloader import LedgerOffloader
from offload.segment_upload import FrameRun
from seglog.frames import Frames

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
        subjects = {"seglog": _subject(options, codec), "without": _subject(options, None)}
        rounds = in_slices(options, label, subjects)
        for name, figure, aims in (("p50", "p50_us", _P50_AIMS), ("p99", "p99_us", _P99_AIMS)):
            rows += compare(rounds, f"{label}, {name}", "us", figure, "without", more_is_better=False, aims=aims)
    return Report("append-while-offloading", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


class _Forgetting(MemoryStore):
    """A store that is never what is waited for."""

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:  # noqa: ARG002 - of the port
        return PartTag(number, "", len(body), Checksum.of(ChecksumKind.CRC32C, body))

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        pass


def _subject(options: Options, codec: Codec | None) -> Open:
    @contextmanager
    def open_subject(directory: Path) -> Iterator[Slice]:
        with seglog.open(directory / "data") as log:
            fill(log, "old", SIZE_BYTES, options.size_mib << 20)
            position, batches = count(), [[line] for line in log_lines(1_000, SIZE_BYTES)]
            topic = log.topic("new")
            is_on, stop, begun = threading.Event(), threading.Event(), threading.Event()

            def offload() -> None:
                while is_on.wait() and not stop.is_set():
                    _offload(log.topic("old"), codec or Codec.NONE, is_on, begun)

            worker = threading.Thread(target=offload)

            def measured(slice_s: float) -> Figures:
                """The worker works while it is this subject's turn."""
                if codec is not None:
                    begun.clear()
                    is_on.set()
                    if not begun.wait(_PATIENCE_S):
                        raise RuntimeError("nothing was offloaded: the figure would be wrong")
                figures = ways.loop(topic.append, batches, position, slice_s)
                is_on.clear()
                return figures

            worker.start()
            try:
                yield measured
            finally:
                stop.set()
                is_on.set()
                worker.join()

    return open_subject


def _offload(topic: seglog.Topic, codec: Codec, is_on: threading.Event, begun: threading.Event) -> None:
    def batches() -> Iterator[Frames]:
        for frames in topic.frame_batches(1, topic.head_seq):
            is_on.wait()
            begun.set()
            yield frames

    run = FrameRun(topic.name, 1, topic.head_seq, batches())
    offloader = LedgerOffloader(_Forgetting(), Vid.new(1), OffloadSettings())
    offloader.offload(run, Sid.new(time.time_ns() // 1_000_000), codec=codec)
