"""If a process has no file descriptor left, the log works or refuses a call, and loses nothing."""

from __future__ import annotations

import errno
import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import seglog
from seglog import CalledWithin, DiskFull, Log, LogSettings, TooManyOpenFiles, WriterPoisoned
from seglog.engine.work_thread import InCaller
from seglog.journal.journal import Journal
from tests.faults.files import UnsyncedFiles

SETTINGS = LogSettings(wal_file_bytes=8192, segment_max_events=20)
VALUE = b"x" * 1000


class NoDescriptors(UnsyncedFiles):
    """A file port that raises EMFILE. While `is_exhausted`, every call that opens a file raises.

    Otherwise only call number `at` raises, counted from 1.
    """

    def __init__(self) -> None:
        self.is_exhausted = False
        self.at = 0
        self.count = 0
        self.refused: list[str] = []

    def _take(self, what: str) -> None:
        self.count += 1
        if self.is_exhausted or self.count == self.at:
            self.refused.append(what)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._take(f"open {path.name}")
        return super().open(path, flags, mode)

    def sync_dir(self, path: Path) -> None:
        self._take(f"sync_dir {path.name}")
        super().sync_dir(path)

    def list_dir(self, path: Path) -> list[str]:
        self._take(f"list_dir {path.name}")
        return super().list_dir(path)


def values(directory: Path) -> list[bytes]:
    with seglog.open(directory, settings=SETTINGS) as log:
        return [record.value for record in log.topic("t").read()]


def test_appends_go_on_in_the_active_file_and_the_next_one_begins_when_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = NoDescriptors()
    caplog.set_level(logging.WARNING)
    with seglog.open(tmp_path / "data", settings=SETTINGS, files=files, upkeep=InCaller) as log:
        topic = log.topic("t")
        topic.append([VALUE])
        files.is_exhausted = True
        for _ in range(30):
            topic.append([VALUE])
        assert not log.is_poisoned
        assert any("wal-" in what for what in files.refused)
        assert sum("the active file goes on" in record.message for record in caplog.records) == 1
        assert len(list((tmp_path / "data" / "wal").glob("wal-*.log"))) == 1
        files.is_exhausted = False
        for _ in range(30):
            topic.append([VALUE])
        assert not any("wal" in record.message and record.levelno > logging.WARNING for record in caplog.records)
    assert values(tmp_path / "data") == [VALUE] * 61
    assert not seglog.verify(tmp_path / "data").damages


class _ToTheLog(logging.Handler):
    """A logging handler that appends to the log. It does not catch `CalledWithin`."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.topic("t").append([record.getMessage().encode()])


def test_a_logging_handler_that_appends_stops_one_append_and_not_all_later_ones(tmp_path: Path) -> None:
    files = NoDescriptors()
    logger = logging.getLogger("seglog.wal.wal")
    refused = 0
    with seglog.open(tmp_path / "data", settings=SETTINGS, files=files, upkeep=InCaller) as log:
        log.create_topic("t")
        logger.addHandler(handler := _ToTheLog(log))
        try:
            files.is_exhausted = True
            for _ in range(30):
                try:
                    log.topic("t").append([VALUE])
                except CalledWithin:
                    refused += 1
        finally:
            logger.removeHandler(handler)
        files.is_exhausted = False
    assert refused == 1
    assert len(values(tmp_path / "data")) in (29, 30)


def test_what_was_acked_meanwhile_survives_a_kill(tmp_path: Path) -> None:
    files = NoDescriptors()
    log = seglog.open(tmp_path / "data", settings=SETTINGS, files=files, upkeep=InCaller)
    files.is_exhausted = True
    for _ in range(30):
        log.topic("t").append([VALUE])
    # The close fails, so the directory is as after a kill.
    with pytest.raises(TooManyOpenFiles):
        log.close()
    assert values(tmp_path / "data") == [VALUE] * 30


def _append(log: Log, count: int) -> None:
    for _ in range(count):
        log.topic("t").append([VALUE])


def test_the_active_file_goes_on_no_further_than_offsets_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seglog.wal.wal.OFFSET_END", 30_000)
    files = NoDescriptors()
    with seglog.open(tmp_path / "data", settings=SETTINGS, files=files, upkeep=InCaller) as log:
        files.is_exhausted = True
        with pytest.raises(TooManyOpenFiles):
            _append(log, 100)
        acked = log.topic("t").head_seq
        assert SETTINGS.wal_file_bytes < log.wal_bytes <= 30_000
        files.is_exhausted = False
        _append(log, 1)
    assert values(tmp_path / "data") == [VALUE] * (acked + 1)


def test_a_checkpoint_is_refused_and_may_be_tried_again(tmp_path: Path) -> None:
    files = NoDescriptors()
    with seglog.open(tmp_path / "data", settings=SETTINGS, files=files, upkeep=InCaller) as log:
        log.topic("t").append([VALUE])
        files.is_exhausted = True
        with pytest.raises(TooManyOpenFiles) as refused:
            log.checkpoint()
        assert "ulimit" in str(refused.value.hint)
        files.is_exhausted = False
        log.topic("t").append([VALUE])
        log.topic("t").seal()
    assert values(tmp_path / "data") == [VALUE] * 2


def live(directory: Path, files: NoDescriptors, at: int) -> tuple[int, bool]:
    """Run a life with rotations, checkpoints and seals, in which the port refuses descriptor number `at`.

    Return the number of acked records, and whether the log was poisoned.
    """
    acked = 0
    log = seglog.open(directory, settings=SETTINGS, files=files, upkeep=InCaller)
    files.count, files.at = 0, at
    for number in range(24):
        try:
            log.topic("t").append([VALUE])
            acked += 1
            if number % 8 == 7:
                log.topic("t").seal()
        except (TooManyOpenFiles, WriterPoisoned):
            continue
    is_poisoned = log.is_poisoned
    files.at = 0
    log.close()
    return acked, is_poisoned


def test_each_open_that_fails_alone_costs_nothing_that_was_acked(tmp_path: Path) -> None:
    files = NoDescriptors()
    assert live(tmp_path / "whole", files, 0) == (24, False)
    calls = files.count
    assert calls > 30
    for at in range(1, calls + 1):
        files = NoDescriptors()
        acked, is_poisoned = live(tmp_path / str(at), files, at)
        assert len(files.refused) == 1
        assert not is_poisoned, files.refused
        assert values(tmp_path / str(at)) == [VALUE] * acked
    print(f"{calls} descriptors were refused")


def test_an_opening_says_what_is_wrong(tmp_path: Path) -> None:
    files = NoDescriptors()
    files.is_exhausted = True
    with pytest.raises(TooManyOpenFiles):
        seglog.open(tmp_path / "data", files=files)


def test_a_journal_refuses_a_new_section_and_goes_on(tmp_path: Path) -> None:
    files = NoDescriptors()
    with Journal(tmp_path / "j", files=files) as journal:
        journal.append(1, b"a")
        files.is_exhausted = True
        with pytest.raises(TooManyOpenFiles):
            journal.append(2, b"b")
        with pytest.raises(TooManyOpenFiles):
            journal.sync(1)
        journal.append(1, b"c")
        files.is_exhausted = False
        journal.sync(1)
        journal.append(2, b"b")
    with Journal(tmp_path / "j") as journal:
        assert [item.data for item in journal.replay(concurrency=1)] == [b"a", b"c", b"b"]


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Lower the process's descriptor limit to the lowest free descriptor, so that no file can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_at_its_limit_appends_on(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SETTINGS, upkeep=InCaller) as log:
        log.topic("t").append([VALUE])
        with no_descriptor_left():
            for _ in range(30):
                log.topic("t").append([VALUE])
            with pytest.raises(TooManyOpenFiles):
                log.checkpoint()
        log.topic("t").append([VALUE])
    assert values(tmp_path / "data") == [VALUE] * 32


def test_a_full_disk_is_still_a_full_disk(tmp_path: Path) -> None:
    class Full(UnsyncedFiles):
        is_full = False

        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            if self.is_full and flags & os.O_CREAT:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().open(path, flags, mode)

    files = Full()
    with seglog.open(tmp_path / "data", settings=SETTINGS, files=files, upkeep=InCaller) as log:
        files.is_full = True
        for _ in range(7):  # the active file has room for seven
            log.topic("t").append([VALUE])
        with pytest.raises(DiskFull):
            log.topic("t").append([VALUE])
        files.is_full = False
        log.topic("t").append([VALUE])
