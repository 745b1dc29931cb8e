"""An interrupt hits a thread that waits for a leader, and then leads a group with an entry of another thread.

first   It leads, and waits in its sync until the others are in the queue.
main    It waits behind `first`, then it leads `third`. The interrupt hits it at each point.
third   It waits behind `main`. It is acked, and its record is there.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import seglog
from seglog import Log, LogSettings
from tests.faults.disk import SimulatedDisk
from tests.faults.interrupts import interrupted
from tests.seams.log import queue_of

MODULES = (
    "seglog.wal.group_commit",
    "seglog.engine.entries",
    "seglog.engine.tail",
    "seglog.wal.wal",
    "seglog.writing.append",
)


class _GatedDisk(SimulatedDisk):
    """A disk whose first sync after `gate` is set waits for it."""

    gate: threading.Event | None = None
    is_waiting = threading.Event()

    def datasync(self, fd: int) -> None:
        if self.gate is not None:
            gate, self.gate = self.gate, None
            self.is_waiting.set()
            assert gate.wait(20)
        super().datasync(fd)


class _Appends:
    """Appends of other threads. `acked` has the seq of each value."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._threads: list[threading.Thread] = []
        self.acked: dict[bytes, int] = {}

    def begin(self, value: bytes) -> None:
        thread = threading.Thread(target=self.append, args=(value,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def append(self, value: bytes) -> None:
        [self.acked[value]] = self._log.topic("t").append([value])

    def wait(self) -> None:
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "another thread waits for ever"


def _until(queued: int, log: Log, is_over: threading.Event) -> None:
    while len(queue_of(log)) < queued and not is_over.is_set():
        time.sleep(0.0002)


def test_the_thread_behind_an_interrupted_leader_is_acked() -> None:
    led = 0
    for at in range(1, 1000):
        disk, gate, is_over = _GatedDisk(), threading.Event(), threading.Event()
        log = seglog.open(Path("/log"), files=disk, settings=LogSettings(wal_file_bytes=4096))
        log.create_topic("t")
        appends = _Appends(log)
        disk.is_waiting.clear()
        disk.gate = gate
        appends.begin(b"first")
        assert disk.is_waiting.wait(20)

        def queue_third(log: Log = log, appends: _Appends = appends, *events: threading.Event) -> None:
            is_over, gate = events
            _until(1, log, is_over)
            appends.begin(b"third")
            _until(2, log, is_over)
            gate.set()

        helper = threading.Thread(target=queue_third, args=(log, appends, is_over, gate), daemon=True)
        helper.start()
        was_hit = interrupted(lambda appends=appends: appends.append(b"main"), MODULES, at)  # type: ignore[misc]
        is_over.set()
        helper.join(20)
        appends.wait()
        found = {record.seq: record.value for record in log.topic("t").read()}
        assert {"first", "third"} <= {value.decode() for value in appends.acked}
        assert all(found[seq] == value for value, seq in appends.acked.items()), at
        led += was_hit and found[appends.acked[b"third"] - 1] == b"main"
        log.close()
        if not was_hit:
            break
    assert led > 20
