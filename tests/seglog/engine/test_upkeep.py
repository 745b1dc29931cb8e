"""Checkpoints run in the background. An append waits for a checkpoint only if too many WAL files wait for it."""

from __future__ import annotations

import errno
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import seglog
from seglog import DiskFull, Log, LogSettings, WriterPoisoned
from seglog.engine.work_thread import Background, InCaller
from seglog.files.file_system import OsFiles
from tests.faults.files import FailingFiles, UnsyncedFiles
from tests.seams.log import engine_of, has_spare_file
from tests.waiting import wait_until

#: What `threading.Thread.start` calls.
_STARTER = "start_joinable_thread" if sys.version_info >= (3, 13) else "start_new_thread"
SMALL = LogSettings(segment_max_events=10, wal_file_bytes=4096)


class GatedFiles(UnsyncedFiles):
    """A file port whose writes to segments wait for the gate. A write sets `is_waiting` before it waits."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.is_waiting = threading.Event()
        self._segments: set[int] = set()

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        if path.suffix == ".data":
            self._segments.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._segments.discard(fd)
        super().close(fd)

    def pwritev(self, fd: int, pieces: object, offset: int) -> None:
        if fd in self._segments:
            self.is_waiting.set()
            assert self.gate.wait(60)
        super().pwritev(fd, pieces, offset)  # type: ignore[arg-type]


def _fill_a_file(log: Log) -> None:
    number = engine_of(log).wals.each[0].end.file
    while engine_of(log).wals.each[0].end.file == number:
        log.topic("a").append([b"x" * 500])


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_wakes_while_the_work_is_done_are_one_more_turn() -> None:
    turns: list[str] = []
    begun, gate = threading.Event(), threading.Event()

    def work() -> None:
        turns.append(threading.current_thread().name)
        begun.set()
        assert gate.wait(60)

    upkeep = Background(work)
    upkeep.wake()
    assert begun.wait(60)
    for _ in range(5):
        upkeep.wake()
    gate.set()
    wait_until(lambda: len(turns) >= 2)
    upkeep.close()
    upkeep.close()
    upkeep.wake()
    assert turns == ["seglog-upkeep"] * 2


def test_there_is_no_thread_before_there_is_work(tmp_path: Path) -> None:
    others = {*threading.enumerate()}  # one of an earlier test may end meanwhile
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        log.topic("a").append([b"x"])
        assert {*threading.enumerate()} <= others
        _fill_a_file(log)
        assert len({*threading.enumerate()} - others) == 1
    assert {*threading.enumerate()} <= others


def test_in_the_caller_the_work_is_done_at_once() -> None:
    turns: list[int] = []
    upkeep = InCaller(lambda: turns.append(1))
    upkeep.wake()
    upkeep.wake()
    upkeep.close()
    upkeep.wake()
    assert turns == [1, 1]


def test_what_is_to_be_done_later_is_done_once_and_not_after_the_close() -> None:
    done = threading.Semaphore(0)
    upkeep = Background(done.release)
    upkeep.wake_later(0.001)
    upkeep.wake_later(3600)
    assert done.acquire(timeout=60)
    upkeep.wake_later(3600)
    upkeep.close()
    upkeep.wake_later(0)
    assert not done.acquire(blocking=False)


def test_work_at_once_does_not_wait_for_what_is_to_come_later() -> None:
    done = threading.Semaphore(0)
    upkeep = Background(done.release)
    upkeep.wake_later(3600)
    upkeep.wake()
    assert done.acquire(timeout=60)
    upkeep.close()


@pytest.mark.parametrize("cut", [_STARTER, "wait", "__enter__"])
def test_an_interrupt_in_the_start_of_the_thread_costs_no_turn(cut: str) -> None:
    done = threading.Semaphore(0)
    upkeep = Background(done.release)
    is_within_start = False

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        nonlocal is_within_start
        name = frame.f_code.co_name if event in ("call", "return") else getattr(argument, "__name__", "")
        is_within_start |= event == "call" and name == "start"
        if is_within_start and event in ("call", "c_return") and name == cut:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    with pytest.raises(KeyboardInterrupt):
        upkeep.wake()
    upkeep.wake()
    assert done.acquire(timeout=60)
    upkeep.close()
    upkeep.wake()


def test_appends_and_reads_go_on_while_a_checkpoint_is_made(tmp_path: Path) -> None:
    files = GatedFiles()
    with seglog.open(tmp_path / "data", settings=SMALL, files=files) as log:
        _fill_a_file(log)
        assert files.is_waiting.wait(60)
        before = log.topic("a").head_seq
        log.topic("a").append([b"y"] * 3)
        assert len(list(log.topic("a").read())) == before + 3
        files.gate.set()
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        assert log.topic("a").head_seq == before + 3


def test_appends_wait_when_too_many_files_do(tmp_path: Path) -> None:
    files = GatedFiles()
    settings = LogSettings(segment_max_events=10, wal_file_bytes=4096, wal_max_files=2)
    with seglog.open(tmp_path / "data", settings=settings, files=files) as log:
        _fill_a_file(log)
        _fill_a_file(log)
        assert files.is_waiting.wait(60)
        head = log.topic("a").head_seq
        waiting = _in_thread(lambda: log.topic("a").append([b"late"]))
        waiting.join(0.1)
        assert waiting.is_alive()
        assert log.topic("a").head_seq == head
        files.gate.set()
        waiting.join()
        assert engine_of(log).wals.older_files < 2
        assert [record.value for record in log.topic("a").read(head + 1)] == [b"late"]


class Idle(InCaller):
    def wake(self) -> None:
        pass


def test_an_append_makes_the_checkpoint_itself_when_nobody_does(tmp_path: Path) -> None:
    settings = LogSettings(segment_max_events=10, wal_file_bytes=4096, wal_max_files=2)
    with seglog.open(tmp_path / "data", settings=settings, upkeep=Idle) as log:
        for files in (1, 2):
            _fill_a_file(log)
            assert engine_of(log).wals.older_files == files
        log.topic("a").append([b"late"])
        assert engine_of(log).wals.older_files == 0


def test_with_a_full_disk_appends_go_on_until_they_have_to_wait_and_then_say_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "seglog.maintenance.checkpoint")
    files = FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, for_good=True, only=("make_dir",))
    settings = LogSettings(segment_max_events=10, wal_file_bytes=4096, wal_max_files=3)
    with seglog.open(tmp_path / "data", settings=settings, files=files) as log:
        files.at = 1
        for _ in range(3):
            _fill_a_file(log)
        head = log.topic("a").head_seq
        for _ in range(2):
            with pytest.raises(DiskFull):
                log.topic("a").append([b"refused"])
        assert len(list(log.topic("a").read())) == head
        files.at = 0
        assert log.topic("a").append([b"z"]) == range(head + 1, head + 2)
    with seglog.open(tmp_path / "data", settings=settings) as log:
        assert len(list(log.topic("a").read())) == head + 1


def test_a_failure_in_the_background_stops_the_writer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "seglog.maintenance.checkpoint")
    files = FailingFiles(UnsyncedFiles(), 0, errno.EIO, for_good=True, only=("make_dir",))
    with seglog.open(tmp_path / "data", settings=SMALL, files=files) as log:
        files.at = 1
        _fill_a_file(log)
        wait_until(lambda: log.is_poisoned)
        with pytest.raises(WriterPoisoned):
            log.topic("a").append([b"refused"])
        assert len(list(log.topic("a").read())) == log.topic("a").head_seq
    [message] = caplog.messages
    assert "a checkpoint failed" in message


def test_what_nobody_foresaw_in_the_background_stops_the_writer_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(UnsyncedFiles):
        def make_dir(self, path: Path) -> None:
            if path.parent.name == "topics":
                raise MemoryError
            super().make_dir(path)

    with seglog.open(tmp_path / "data", settings=SMALL, files=Broken()) as log:
        _fill_a_file(log)
        wait_until(lambda: log.is_poisoned)
        with pytest.raises(WriterPoisoned, match="MemoryError"):
            log.topic("a").append([b"refused"])
    assert caplog.messages == ["a checkpoint failed"]


def test_close_waits_for_the_checkpoint_on_its_way(tmp_path: Path) -> None:
    files = GatedFiles()
    log = seglog.open(tmp_path / "data", settings=SMALL, files=files)
    _fill_a_file(log)
    assert files.is_waiting.wait(60)
    closing = _in_thread(log.close)
    closing.join(0.1)
    assert closing.is_alive()
    files.gate.set()
    closing.join()
    assert len(list((tmp_path / "data" / "wal").iterdir())) == 2


def test_the_next_file_is_there_before_it_is_needed_and_gone_after_close(tmp_path: Path) -> None:
    class Counting(OsFiles):
        def __init__(self) -> None:
            self.allocated_in: list[str] = []

        def allocate(self, fd: int, length: int) -> None:
            self.allocated_in.append(threading.current_thread().name)
            super().allocate(fd, length)

    files = Counting()
    spare = tmp_path / "data" / "wal" / "next.log"
    with seglog.open(tmp_path / "data", settings=SMALL, files=files) as log:
        for _ in range(4):
            log.topic("a").append([b"x" * 600])
        for _ in range(3):
            while not has_spare_file(engine_of(log).wals.each[0]):
                threading.Event().wait(0.001)
            assert spare.read_bytes() == bytes(4096)
            _fill_a_file(log)
        while engine_of(log).wals.needs_upkeep:
            threading.Event().wait(0.001)
        assert files.allocated_in[0] == "MainThread"
        assert set(files.allocated_in[1:]) == {"seglog-upkeep"}
    assert not spare.exists()


def test_a_next_file_that_a_crash_left_is_in_nobodys_way(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        log.topic("a").append([b"x"])
    (tmp_path / "data" / "wal" / "next.log").write_bytes(b"left")
    with seglog.open(tmp_path / "data", settings=SMALL, upkeep=InCaller) as log:
        for _ in range(3):
            _fill_a_file(log)
        count = log.topic("a").head_seq
    assert not (tmp_path / "data" / "wal" / "next.log").exists()
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        assert len(list(log.topic("a").read())) == count
