from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seglog
from seglog import Files, LogClosed, LogSettings, Misuse, NotADataDirectory, TopicConfig, WarmStoreFailed
from seglog.engine.work_thread import InCaller
from seglog.tiers.segment_store import MemorySegmentStore
from tests.faults.files import CrashingFiles, Effects, PowerCutFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every

SETTINGS = LogSettings(segment_max_events=2, wal_file_bytes=4096)
VALUES = {"a": [b"1", b"2", b"3"], "b": [b"4"]}


def _fill(directory: Path, files: Files | None = None) -> None:
    with seglog.open(directory, files=files, settings=SETTINGS, upkeep=InCaller) as log:
        for name, values in VALUES.items():
            for value in values:
                log.topic(name).append([value])


def _remove(directory: Path, files: Files | None = None) -> None:
    with seglog.open(directory, files=files, settings=SETTINGS, upkeep=InCaller) as log:
        log.remove()


def _check_rest(directory: Path) -> None:
    """Check that each topic has all its records or does not exist. Then use the directory, and remove the log."""
    with seglog.open(directory, settings=SETTINGS) as log:
        for name in log.topics():
            assert [record.value for record in log.topic(name).read()] == VALUES[name]
        log.topic("new").append([b"x"])
    _remove(directory)
    assert not list(directory.glob("**/*.log"))


def test_nothing_of_the_log_is_left_and_the_directory_can_be_used_again(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    _fill(directory)
    (directory / "seglog.toml").write_text("")
    (directory / "theirs").write_text("x")
    _remove(directory)
    assert sorted(path.name for path in directory.iterdir()) == ["LOCK", "seglog.toml", "theirs"]
    with pytest.raises(NotADataDirectory):
        seglog.open(directory, create=False)
    _fill(directory)
    with seglog.open(directory) as log:
        assert [record.seq for record in log.topic("a").read()] == [1, 2, 3]


def test_a_removed_log_is_closed(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "d")
    log.remove()
    with pytest.raises(LogClosed):
        log.topic("t").append([b"x"])
    log.close()


def test_a_topic_that_an_archive_keeps_holds_all_of_it(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d") as log:
        log.create_topic("z", TopicConfig(keep_history=True))
        log.topic("a").append([b"1"])
        with pytest.raises(Misuse, match="keeps its history"):
            log.remove()
        assert log.topics() == ["a", "z"]


def test_what_is_in_a_cold_store_goes_too_and_a_store_that_keeps_it_is_told(tmp_path: Path) -> None:
    class Stubborn(MemorySegmentStore):
        keeps = True

        def delete(self, segment: seglog.tiers.segment_store.SegmentId) -> None:
            if self.keeps:
                raise OSError("it does not")
            super().delete(segment)

    store = Stubborn()
    settings = LogSettings(segment_max_events=2, hot_retain_segments=0)

    def reopen() -> seglog.Log:
        return seglog.open(tmp_path / "d", settings=settings, upkeep=InCaller, warm_stores=lambda _: store)

    with reopen() as log:
        log.topic("a").append([b"1", b"2", b"3", b"4"])
        log.topic("a").seal()
        assert store.list()
        with pytest.raises(WarmStoreFailed):
            log.remove()
    store.keeps = False
    with reopen() as log:
        log.remove()
    assert store.list() == []


@every(3, part=2)
@pytest.mark.parametrize("tear", [False, True], ids=["between", "within"])
def test_the_process_may_die_at_any_operation(tmp_path: Path, tear: bool, every: int) -> None:
    """Crash at each operation in the soak, and by default at every third one."""
    _fill(tmp_path / "whole")
    counter = Effects(UnsyncedFiles())
    shutil.copytree(tmp_path / "whole", tmp_path / "dry")
    _remove(tmp_path / "dry", counter)
    assert counter.effects > 20
    for at in range(1 + tear % every, counter.effects + 1, every):
        directory = tmp_path / str(at)
        shutil.copytree(tmp_path / "whole", directory)
        with pytest.raises(SimulatedCrash):
            _remove(directory, CrashingFiles(UnsyncedFiles(), at, tear=tear))
        _check_rest(directory)
        shutil.rmtree(directory)


@every(3, part=2)
@pytest.mark.parametrize("seed", [None, 1, 2], ids=["nothing unsynced", "some of it", "some other of it"])
def test_the_power_may_be_cut_at_any_operation(tmp_path: Path, seed: int | None, every: int) -> None:
    """By default, the three seeds together cut the power at each operation."""
    counter = Effects(UnsyncedFiles())
    _fill(tmp_path / "dry")
    _remove(tmp_path / "dry", counter)
    for at in range(1 + (seed or 0) % every, counter.effects + 1, every):
        base, left = tmp_path / str(at), tmp_path / f"{at}-left"
        base.mkdir()
        disk = PowerCutFiles(UnsyncedFiles(), base)
        _fill(base / "log", disk)
        with pytest.raises(SimulatedCrash):
            _remove(base / "log", CrashingFiles(disk, at))
        disk.after_power_cut(left, None if seed is None else seed * 1_000_003 + at)
        _check_rest(left / "log")
        shutil.rmtree(base)
        shutil.rmtree(left)
