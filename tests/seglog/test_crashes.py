"""Crash at some file operations of a small life: the process, the power, and recovery itself.

The soak crashes at every operation.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seglog
from seglog.files.file_system import Files
from tests.faults.files import CrashingFiles, Effects, PowerCutFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every
from tests.seglog.workload import SETTINGS, Journal, check, live


def _effects(tmp_path: Path) -> int:
    counter = Effects(UnsyncedFiles())
    journal = Journal()
    live(tmp_path / "whole", counter, journal)
    heads = check(tmp_path / "whole", UnsyncedFiles(), journal)
    assert heads == {name: len(values) for name, values in journal.tried.items()}
    return counter.effects


def _crashed(directory: Path, files: Files, at: int, *, tear: bool = False) -> Journal:
    journal = Journal()
    with pytest.raises(SimulatedCrash):
        live(directory, CrashingFiles(files, at, tear=tear), journal)
    return journal


@every(151, part=2)
@pytest.mark.parametrize("tear", [False, True], ids=["between", "within"])
def test_the_process_may_die_at_any_operation(tmp_path: Path, tear: bool, every: int) -> None:
    for at in range(1 + tear % every, _effects(tmp_path) + 1, every):
        journal = _crashed(tmp_path / str(at), UnsyncedFiles(), at, tear=tear)
        check(tmp_path / str(at), UnsyncedFiles(), journal)


@every(151, part=2)
@pytest.mark.parametrize("seed", [None, 1], ids=["nothing unsynced", "some of it"])
def test_the_power_may_be_cut_at_any_operation(tmp_path: Path, seed: int | None, every: int) -> None:
    for at in range(1 + (seed or 0) % every, _effects(tmp_path) + 1, every):
        base, left = tmp_path / str(at), tmp_path / f"{at}-left"
        base.mkdir()
        disk = PowerCutFiles(UnsyncedFiles(), base)
        journal = _crashed(base / "log", disk, at)
        disk.after_power_cut(left, None if seed is None else seed * 1_000_003 + at)
        check(left / "log", UnsyncedFiles(), journal)
        shutil.rmtree(base)
        shutil.rmtree(left)


@pytest.mark.long
@every(41, part=2)
def test_recovery_may_crash_at_any_operation_and_begin_again(tmp_path: Path, every: int) -> None:
    effects = _effects(tmp_path)
    for at in range(effects // 6, effects, effects // 6):
        for again in range(1, 1000, every):
            directory = tmp_path / f"{at}-{again}"
            journal = _crashed(directory, UnsyncedFiles(), at, tear=True)
            try:
                seglog.open(
                    directory, files=CrashingFiles(UnsyncedFiles(), again, tear=True), settings=SETTINGS
                ).close()
            except SimulatedCrash:
                check(directory, UnsyncedFiles(), journal)
            else:
                break
        else:
            pytest.fail("recovery does not come to an end")
