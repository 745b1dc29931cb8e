from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType as StackFrame

import pytest

import seglog
from seglog import Log
from seglog.files import OsFiles


class GatedFiles(OsFiles):
    """A datasync waits for the gate, and is counted."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.syncs = 0

    def datasync(self, fd: int) -> None:
        self.waiting.set()
        assert self.gate.wait(60)
        self.syncs += 1
        super().datasync(fd)


@pytest.fixture
def files() -> GatedFiles:
    return GatedFiles()


@pytest.fixture
def log(tmp_path: Path, files: GatedFiles) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", files=files) as log:
        log.create_topic("t")
        yield log
        files.gate.set()


def _start_one_that_waits_in_its_sync(log: Log, files: GatedFiles) -> threading.Thread:
    files.gate.clear()
    files.waiting.clear()
    leader = threading.Thread(target=log.topic("t").append, args=([b"first"],))
    leader.start()
    assert files.waiting.wait(60)
    files.syncs = 0
    return leader


def _wait_for_queue(log: Log, length: int) -> None:
    while len(log._engine.committer._queue) < length:
        threading.Event().wait(0.001)


def test_those_who_come_while_one_syncs_share_the_next_sync(log: Log, files: GatedFiles) -> None:
    leader = _start_one_that_waits_in_its_sync(log, files)
    others = [threading.Thread(target=log.topic("t").append, args=([b"%d" % n],)) for n in range(10)]
    for thread in others:
        thread.start()
    _wait_for_queue(log, 10)
    assert log.topic("t").head_seq == 0
    files.gate.set()
    for thread in (leader, *others):
        thread.join()
    assert files.syncs == 2
    values = [record.value for record in log.topic("t").read()]
    assert values[0] == b"first"
    assert sorted(values[1:]) == [b"%d" % n for n in range(10)]


def test_no_sync_is_paid_for_what_does_not_ask_for_one(log: Log, files: GatedFiles) -> None:
    files.syncs = 0
    log.topic("t").append([b"x"], durability="disk")
    log.topic("t").append([b"x"], durability="memory")
    assert files.syncs == 0
    log.topic("t").append([b"x"])
    assert files.syncs == 1


def test_an_interrupt_while_waiting_leaves_the_others_in_peace(log: Log, files: GatedFiles) -> None:
    def interrupt(_number: int, _frame: StackFrame | None) -> None:
        raise KeyboardInterrupt

    leader = _start_one_that_waits_in_its_sync(log, files)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            log.topic("t").append([b"interrupted"])
    finally:
        signal.signal(signal.SIGALRM, before)
    follower = threading.Thread(target=log.topic("t").append, args=([b"after"],))
    follower.start()
    _wait_for_queue(log, 2)
    files.gate.set()
    leader.join()
    follower.join()
    assert [record.value for record in log.topic("t").read()] == [b"first", b"interrupted", b"after"]


def test_close_waits_for_appends_on_their_way(log: Log, files: GatedFiles) -> None:
    leader = _start_one_that_waits_in_its_sync(log, files)
    closer = threading.Thread(target=log.close)
    closer.start()
    _wait_for_queue(log, 1)
    with pytest.raises(seglog.LogClosed):
        log.topic("t").append([b"late"])
    files.gate.set()
    leader.join()
    closer.join()
    with seglog.open(log.path) as again:
        assert [record.value for record in again.topic("t").read()] == [b"first"]
