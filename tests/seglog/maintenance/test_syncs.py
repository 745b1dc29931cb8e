"""The upkeep syncs a segment while it writes the next one, and stores the manifest after the last sync."""

from __future__ import annotations

import errno
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

import seglog
from seglog import LogSettings, WriterPoisoned
from seglog.maintenance.absorb import Syncs
from seglog.segments.segment import SegmentWriter
from tests.faults.files import UnsyncedFiles
from tests.waiting import wait_until

_SETTINGS = LogSettings(wal_file_bytes=32 * 1024, segment_max_events=50)


class _SlowSyncs(UnsyncedFiles):
    """A file port whose syncs take long in the thread that syncs segments. It notes them and the manifests."""

    fails = False

    def __init__(self) -> None:
        self.events: list[str] = []

    def datasync(self, fd: int) -> None:
        if threading.current_thread().name == "seglog-sync":
            self.events.append("begin")
            time.sleep(0.01)
            if self.fails:
                raise OSError(errno.EIO, "the disk is gone")
            self.events.append("end")

    def rename(self, source: Path, target: Path) -> None:
        if "snapshot" in target.name:
            self.events.append("manifest")
        super().rename(source, target)


def test_the_manifest_comes_after_all_syncs(tmp_path: Path) -> None:
    files = _SlowSyncs()
    with seglog.open(tmp_path, settings=_SETTINGS, files=files) as log:
        files.events.clear()
        for _ in range(3):
            log.topic("t").append([b"x" * 100] * 150)
        wait_until(lambda: "manifest" in files.events)
        upto = files.events[: files.events.index("manifest")]
        assert upto == ["begin", "end"] * (len(upto) // 2)
        assert len(upto) >= 4
    assert not seglog.verify(tmp_path).damages


def test_a_sync_that_fails_poisons_the_writer(tmp_path: Path) -> None:
    files = _SlowSyncs()
    with seglog.open(tmp_path, settings=_SETTINGS, files=files) as log:
        files.fails = True
        for _ in range(3):
            log.topic("t").append([b"x" * 100] * 150)
        wait_until(lambda: log.is_poisoned)
        assert "manifest" not in files.events[files.events.index("begin") :]
        with pytest.raises(WriterPoisoned):
            log.topic("t").append([b"x"])


class _TwoFailures(UnsyncedFiles):
    """A file port whose first sync beside a copy fails, after the copy failed too. Then the disk is sound again."""

    def __init__(self, copy: int, sync: int) -> None:
        self.copy, self.sync = copy, sync
        self.begun, self.copy_failed, self.sync_failed = threading.Event(), threading.Event(), threading.Event()

    def datasync(self, fd: int) -> None:
        if threading.current_thread().name == "seglog-sync" and not self.sync_failed.is_set():
            self.begun.set()
            wait_until(self.copy_failed.is_set)
            self.sync_failed.set()
            raise OSError(self.sync, "the sync")

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        if threading.current_thread().name == "seglog-upkeep" and self.begun.is_set() and not self.copy_failed.is_set():
            self.copy_failed.set()
            raise OSError(self.copy, "the copy")
        return super().open(path, flags, mode)


@pytest.mark.parametrize(
    ("copy", "sync", "is_poisoned"),
    [
        (errno.EIO, errno.ENOSPC, True),
        (errno.EIO, errno.EMFILE, True),
        (errno.ENOSPC, errno.EIO, True),
        (errno.EIO, errno.EIO, True),
        (errno.ENOSPC, errno.ENOSPC, False),
    ],
)
def test_the_graver_of_two_failures_decides(tmp_path: Path, copy: int, sync: int, is_poisoned: bool) -> None:
    files = _TwoFailures(copy, sync)
    with seglog.open(tmp_path, settings=_SETTINGS, files=files) as log:
        with suppress(*[WriterPoisoned] * is_poisoned):  # the background may be faster than these
            for _ in range(3):
                log.topic("t").append([b"x" * 100] * 150)
        wait_until(files.sync_failed.is_set)
        if is_poisoned:
            wait_until(lambda: log.is_poisoned)
            return
        log.checkpoint()
        assert not log.is_poisoned
    assert not seglog.verify(tmp_path).damages


class _Writer:
    """A writer whose sync fails. It notes in which thread it syncs."""

    def __init__(self, error: int = errno.EIO) -> None:
        self.steps: list[str] = []
        self.error = error

    def flush(self) -> None:
        self.steps.append("flush")

    def sync(self) -> None:
        self.steps.append(threading.current_thread().name)
        raise OSError(self.error, "the disk is gone")


@pytest.mark.parametrize("error", [ValueError("damaged"), OSError(errno.EIO, "the copy")])
def test_a_full_disk_hides_no_error_of_the_copy(error: Exception) -> None:
    syncs = Syncs(is_beside=True)
    syncs.begin(cast("SegmentWriter", _Writer(errno.ENOSPC)))
    with pytest.raises(type(error)) as raised:
        syncs.finish_after(error)
    assert raised.value is error


def test_a_failed_sync_is_graver_than_damage() -> None:
    syncs = Syncs(is_beside=True)
    syncs.begin(cast("SegmentWriter", _Writer()))
    with pytest.raises(OSError, match="gone"):
        syncs.finish_after(ValueError("damaged"))


@pytest.mark.parametrize("is_last", [True, False])
def test_the_next_step_raises_what_a_sync_raised(is_last: bool) -> None:
    syncs, writer = Syncs(is_beside=True), _Writer()
    syncs.begin(cast("SegmentWriter", writer))
    with pytest.raises(OSError, match="gone"):
        syncs.finish() if is_last else syncs.begin(cast("SegmentWriter", writer))
    assert writer.steps == ["flush", "seglog-sync"]
    syncs.finish()


def test_a_process_without_room_for_a_thread_syncs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    writer = _Writer()
    with pytest.raises(OSError, match="gone"):
        Syncs(is_beside=True).begin(cast("SegmentWriter", writer))
    assert writer.steps == ["flush", threading.current_thread().name]
