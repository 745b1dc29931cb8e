"""A log with producers: its batches, frames and records, and what a kill leaves of it."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import seglog
from seglog import Log, LogSettings, ProducerBatch
from seglog.engine.work_thread import InCaller
from seglog.format.frame import FrameType, read_header
from tests.faults.disk import Image, SimulatedDisk
from tests.faults.files import FailingFiles
from tests.seams.log import queue_of
from tests.waiting import wait_until
from tests.worlds.clock import HandClock

__all__ = ["SETTINGS", "WAL", "Gate", "frames_in", "killed", "of", "reopened", "values_in", "while_in_flight"]

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096)
WAL = "wal/wal-0000000000000001.log"


def of(number: int, epoch: int = 0, *, producer: str = "p", gaps: bool = False) -> ProducerBatch:
    return ProducerBatch(producer, epoch, number, gaps)


def values_in(log: Log, name: str = "t") -> list[bytes]:
    return [record.value for record in log.topic(name).read()]


def reopened(path: Path, settings: LogSettings = SETTINGS) -> Log:
    return seglog.open(path, settings=settings, upkeep=InCaller)


def killed(path: Path, log: Log) -> Path:
    """The directory as a killed process leaves it."""
    shutil.copytree(log.path, path)
    return path


class Gate(FailingFiles):
    """Holds the next write of the WAL until the gate opens, and then lets it through or fails it."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk, 0, errno.ENOSPC, only=("pwritev",))
        self.gate = threading.Event()
        self.gate.set()
        self.is_waiting = threading.Event()

    def pwritev(self, fd: int, pieces: object, offset: int) -> None:
        self.is_waiting.set()
        assert self.gate.wait(60)
        super().pwritev(fd, pieces, offset)  # type: ignore[arg-type]


def _batch(log: Log) -> range:
    return log.topic("t").append([b"a", b"b"], producer=of(0), durability="memory")


def while_in_flight(
    fails: bool,
    *then: Callable[[Log], object],
    first: Callable[[Log], object] = _batch,
    before: Callable[[Log], object] = lambda _: None,
) -> tuple[list[object], list[bytes], SimulatedDisk]:
    """Call `first` and hold its write. Meanwhile other threads make the calls of `then`. Return all results.

    `before` is called when there is one record, and no write is held.
    """
    disk = SimulatedDisk(Image({"/parent": None}))
    files = Gate(disk)
    log = seglog.open("/parent/log", files=files, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)
    log.topic("t").append([b"first"])
    before(log)
    results: list[object] = [None, *([None] * len(then))]

    def run(index: int, call: Callable[[Log], object]) -> None:
        try:
            results[index] = call(log)
        except Exception as error:
            results[index] = error

    files.gate.clear()
    files.is_waiting.clear()
    if fails:
        files.at = files.counted + 1
    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate((first, *then))]
    threads[0].start()
    assert files.is_waiting.wait(60)
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: len(queue_of(log)) + sum(not thread.is_alive() for thread in threads[1:]) == len(then))
    files.gate.set()
    for thread in threads:
        thread.join(60)
    values = values_in(log) if log.has_topic("t") else []
    image = disk.after_power_cut()
    log.close()
    return results, values, SimulatedDisk(image)


def frames_in(body: bytes) -> list[tuple[int, int, int]]:
    """The type, the offset and the end of each frame, without sync marks."""
    found, offset, written = [], 0, len(body.rstrip(b"\0"))
    while offset < written:
        header = read_header(body, offset)
        if header.type != FrameType.SYNC_MARK:
            found.append((header.type, offset, offset + header.frame_bytes))
        offset += header.frame_bytes
    return found
