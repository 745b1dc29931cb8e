"""Crash at file operations while a life truncates, evicts, deletes and recreates topics.

Each test crashes at some of the operations, and in the soak at all of them. The crash images of tests/promises cover
every operation.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seglog
from seglog.engine.work_thread import InCaller
from tests.faults.files import CrashingFiles, Effects, PowerCutFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every
from tests.seglog.topic_life import SETTINGS, SHARDED, TIERED, Shown, check, live
from tests.worlds.clock import HandClock

Life = tuple[list[Shown], int]
"""The states that a life without a crash shows, and the number of its effects."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Life:
    directory = tmp_path_factory.mktemp("whole") / "dry"
    counter = Effects(UnsyncedFiles())
    told: list[Shown | None] = []
    live(directory, counter, told, look=True)
    dry = [shown for shown in told if shown is not None]
    check(directory, UnsyncedFiles(), dry, len(dry))
    return dry, counter.effects


@every(211, part=2)
@pytest.mark.parametrize("tear", [False, True], ids=["between", "within"])
def test_the_process_may_die_at_any_operation(whole: Life, tmp_path: Path, tear: bool, every: int) -> None:
    dry, effects = whole
    for at in range(1 + 56 * tear % every, effects + 1, every):
        directory, told = tmp_path / str(at), []
        with pytest.raises(SimulatedCrash):
            live(directory, CrashingFiles(UnsyncedFiles(), at, tear=tear), told)
        check(directory, UnsyncedFiles(), dry, len(told))
        shutil.rmtree(directory)


@every(211, part=2)
@pytest.mark.parametrize("seed", [None, 1, 2], ids=["nothing unsynced", "some of it", "some other of it"])
def test_the_power_may_be_cut_at_any_operation(whole: Life, tmp_path: Path, seed: int | None, every: int) -> None:
    dry, effects = whole
    for at in range(1 + 17 * (seed or 0) % every, effects + 1, every):
        base, left, told = tmp_path / str(at), tmp_path / f"{at}-left", []
        base.mkdir()
        disk = PowerCutFiles(UnsyncedFiles(), base)
        with pytest.raises(SimulatedCrash):
            live(base / "log", CrashingFiles(disk, at), told)
        disk.after_power_cut(left, None if seed is None else seed * 1_000_003 + at)
        check(left / "log", UnsyncedFiles(), dry, len(told))
        shutil.rmtree(base)
        shutil.rmtree(left)


@pytest.fixture(scope="module")
def whole_tiered(whole: Life, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """Run the life with a warm store. Check that the log shows the same states as without one."""
    base = tmp_path_factory.mktemp("whole-tiered")
    (base / "cold").mkdir()
    counter = Effects(UnsyncedFiles())
    told: list[Shown | None] = []
    live(base / "log", counter, told, TIERED, look=True)
    assert [shown for shown in told if shown is not None] == whole[0]
    return whole[0], counter.effects


@pytest.mark.long
@every(401, part=2)
def test_the_process_may_die_at_any_operation_with_a_cold_store(whole_tiered: Life, tmp_path: Path, every: int) -> None:
    dry, effects = whole_tiered
    for at in range(1, effects + 1, every):
        base, told = tmp_path / str(at), []
        (base / "cold").mkdir(parents=True)
        with pytest.raises(SimulatedCrash):
            live(base / "log", CrashingFiles(UnsyncedFiles(), at, tear=True), told, TIERED)
        check(base / "log", UnsyncedFiles(), dry, len(told), TIERED)
        shutil.rmtree(base)


@pytest.mark.long
@every(401, part=2)
def test_the_power_may_be_cut_at_any_operation_with_a_cold_store(
    whole_tiered: Life, tmp_path: Path, every: int
) -> None:
    dry, effects = whole_tiered
    for at in range(min(99, every), effects + 1, every):
        base, left, told = tmp_path / str(at), tmp_path / f"{at}-left", []
        (base / "cold").mkdir(parents=True)
        disk = PowerCutFiles(UnsyncedFiles(), base)
        with pytest.raises(SimulatedCrash):
            live(base / "log", CrashingFiles(disk, at), told, TIERED)
        disk.after_power_cut(left, at)
        check(left / "log", UnsyncedFiles(), dry, len(told), TIERED)
        shutil.rmtree(base)
        shutil.rmtree(left)


@every(211, part=2)
def test_the_power_may_be_cut_at_any_operation_with_shards(whole: Life, tmp_path: Path, every: int) -> None:
    """A recreated topic lies in another shard. Most recoveries also change the number of shards."""
    dry, _ = whole
    counter = Effects(UnsyncedFiles())
    live(tmp_path / "sharded", counter, [], SHARDED)
    for at in range(1, counter.effects + 1, every):
        base, left, told = tmp_path / str(at), tmp_path / f"{at}-left", []
        base.mkdir()
        disk = PowerCutFiles(UnsyncedFiles(), base)
        with pytest.raises(SimulatedCrash):
            live(base / "log", CrashingFiles(disk, at), told, SHARDED)
        disk.after_power_cut(left, at if at % 3 else None)
        check(left / "log", UnsyncedFiles(), dry, len(told), SHARDED if at % 4 == 1 else SETTINGS)
        shutil.rmtree(base)
        shutil.rmtree(left)


@pytest.mark.long
@every(31, part=2)
def test_recovery_may_crash_at_any_operation_and_begin_again(whole: Life, tmp_path: Path, every: int) -> None:
    dry, effects = whole
    for number, at in enumerate(range(effects // 12, effects, effects // 12)):
        crashed, told = tmp_path / f"{at}", []
        with pytest.raises(SimulatedCrash):
            live(crashed, CrashingFiles(UnsyncedFiles(), at, tear=True), told)
        for again in range(1 + 3 * number % every, 1000, every):
            directory = tmp_path / f"{at}-{again}"
            shutil.copytree(crashed, directory)
            files = CrashingFiles(UnsyncedFiles(), again, tear=True)
            try:
                seglog.open(directory, upkeep=InCaller, files=files, settings=SETTINGS, clock=HandClock(1_000)).close()
            except SimulatedCrash:
                check(directory, UnsyncedFiles(), dry, len(told))
            else:
                break
            shutil.rmtree(directory)
        else:
            pytest.fail("recovery does not come to an end")
