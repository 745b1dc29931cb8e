"""The room on the disk: appends stop below `disk_reject_bytes`, and the ballast comes and goes.

tests/promises/test_full_disk.py has the disk that is really full.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import seglog
from seglog import AppendsHeld, DiskFull, Log, LogSettings, RecordTooLarge
from seglog.engine.work_thread import InCaller
from tests.faults.files import FailingFiles, UnsyncedFiles

_HUGE = 1 << 60
_SMALL = LogSettings(wal_file_bytes=64 * 1024)
_MIB = 1024 * 1024


def _ballast(path: Path) -> int | None:
    file = path / "meta" / "ballast"
    return file.stat().st_size if file.exists() else None


def _fill(log: Log, files: float) -> None:
    """Append so many WAL files, of 64 KiB each."""
    for _ in range(int(files * 64)):
        log.topic("t").append([bytes(1000)], durability="disk")


def test_below_the_bound_appends_are_refused_and_all_else_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with seglog.open(tmp_path) as log:
        log.topic("t").append([b"1", b"2", b"3"])
        log.disk_reject_bytes = _HUGE
        with pytest.raises(
            AppendsHeld, match=r"has only [\d.]+ .B left, and log\.disk_reject_bytes is [\d.]+ .B"
        ) as caught:
            log.topic("t").append([b"4"])
        assert "free some space" in str(caught.value.hint)
        log.topic("t").seal()
        log.topic("t").delete(before=2)
        log.topic("t").evict(before=3)
        log.topic("t").truncate(4)
        assert [record.value for record in log.topic("t").read(3)] == [b"3"]
        log.disk_reject_bytes = 0
        log.topic("t").append([b"4"])
    with seglog.open(tmp_path, settings=LogSettings(disk_reject_bytes=_HUGE)) as log, pytest.raises(AppendsHeld):
        log.topic("t").append([b"5"])
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]  # the errors have said it


def test_two_sizes_that_people_read_alike_are_told_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimpleNamespace(f_bavail=536_870, f_frsize=1_000)
    monkeypatch.setattr("seglog.engine.engine.os.statvfs", lambda _: disk)
    with seglog.open(tmp_path, settings=LogSettings(disk_reject_bytes=536_870_912)) as log:
        with pytest.raises(AppendsHeld, match=r"only 536,870,000 B left, and log\.disk_reject_bytes is 536,870,912 B"):
            log.topic("t").append([b"x"])
        log.disk_reject_bytes = 600_000_000
        with pytest.raises(AppendsHeld, match=r"only 536\.9 MB left, and log\.disk_reject_bytes is 600\.0 MB"):
            log.topic("t").append([b"x"])


def test_a_record_of_upkeep_goes_in_while_appends_are_held(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log:
        log.append_upkeep("t", b"1")
        log.disk_reject_bytes = _HUGE
        log.append_upkeep("t", b"2")
        log.hold_appends("a backup runs")
        log.append_upkeep("t", b"3")
        with pytest.raises(RecordTooLarge):
            log.append_upkeep("t", bytes(log.settings.max_record_bytes + 1))
    with seglog.open(tmp_path, read_only=True) as log:
        assert [record.value for record in log.topic("t").read()] == [b"1", b"2", b"3"]


def test_a_hold_of_a_caller_stays_whatever_the_disk_says(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log:
        log.hold_appends("a backup runs")
        log.disk_reject_bytes = _HUGE
        log.disk_reject_bytes = 0
        with pytest.raises(AppendsHeld, match="a backup runs") as caught:
            log.topic("t").append([b"x"])
        assert caught.value.hint is None
        log.disk_reject_bytes = _HUGE
        log.hold_appends(None)
        with pytest.raises(AppendsHeld, match="disk_reject_bytes"):
            log.topic("t").append([b"x"])


def test_the_ballast_comes_with_the_second_half_of_a_wal_file(tmp_path: Path) -> None:
    with seglog.open(tmp_path, settings=_SMALL, upkeep=InCaller) as log:
        _fill(log, 0.3)
        assert _ballast(tmp_path) is None
        _fill(log, 0.5)
        assert _ballast(tmp_path) == 96 * 1024 + _MIB
    with seglog.open(tmp_path, settings=_SMALL, upkeep=InCaller) as log:
        assert _ballast(tmp_path) == 96 * 1024 + _MIB
        log.remove()
    assert not (tmp_path / "meta").exists()


def test_a_log_of_a_mebibyte_keeps_a_small_ballast(tmp_path: Path) -> None:
    with seglog.open(tmp_path) as log:
        log.topic("t").append([bytes(_MIB)])
    assert _ballast(tmp_path) == _MIB


def test_no_ballast_is_made_in_the_room_that_appends_may_not_use(tmp_path: Path) -> None:
    with seglog.open(tmp_path, settings=_SMALL, upkeep=InCaller) as log:
        log.disk_reject_bytes = _HUGE
        log.disk_reject_bytes = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize - _MIB // 2
        assert _ballast(tmp_path) is None


def test_an_append_that_is_taken_never_looks_at_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, statvfs = [], os.statvfs

    def counted(path: Path) -> os.statvfs_result:
        looks.append(path)
        return statvfs(path)

    monkeypatch.setattr(os, "statvfs", counted)
    with seglog.open(
        tmp_path, settings=LogSettings(wal_file_bytes=_MIB), files=UnsyncedFiles(), upkeep=InCaller
    ) as log:
        at_opening = len(looks)
        for _ in range(3200):  # three WAL files, with the head of each frame
            log.topic("t").append([bytes(1000)], durability="disk")
        assert 3 <= len(looks) - at_opening <= 10


def test_upkeep_without_room_names_the_operation(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, for_good=True, only=("pwritev", "pwrite", "make_dir"))
    with seglog.open(tmp_path, files=files, upkeep=InCaller) as log:
        topic = log.topic("t")
        topic.append([b"x"] * 3)
        files.at = 1
        for name, call in {
            "seal": topic.seal,
            "checkpoint": log.checkpoint,
            "delete": lambda: topic.delete(before=2),
            "evict": lambda: topic.evict(before=2),
            "truncate": lambda: topic.truncate(2),
            "delete topic": lambda: log.delete_topic("t"),
            "create topic": lambda: log.create_topic("u"),
            "append upkeep": lambda: log.append_upkeep("t", b"y"),
            "append": lambda: topic.append([b"y"]),
        }.items():
            with pytest.raises(DiskFull, match=f"no space left to {name} in") as caught:
                call()
            assert caught.value.operation == name
            assert ("nothing was appended" in str(caught.value)) == (name == "append")
        files.at = 0
        assert [record.value for record in topic.read()] == [b"x"] * 3
