"""Crash at file operations of a small life of a journal: a killed process, a power cut, a crash in the opening.

Each test crashes at some of the operations, each seed at others, and in the soak at all of them.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seglog.errors import Misuse
from seglog.files.file_system import Files
from seglog.journal.journal import Journal
from tests.faults.files import CrashingFiles, Effects, PowerCutFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every


@dataclass
class Told:
    """The items appended to each section, the number of them that a sync acked, and the prunes tried and acked."""

    tried: dict[int, list[bytes]] = field(default_factory=dict)
    acked: dict[int, int] = field(default_factory=dict)
    prune_tried: int = 0
    prune_acked: int = 0

    def append(self, journal: Journal, section: int, size: int) -> None:
        items = self.tried.setdefault(section, [])
        data = bytes([section, len(items)]) * (size // 2)
        items.append(data)
        journal.append(section, data)

    def sync(self, journal: Journal, section: int) -> None:
        count = len(self.tried.get(section, []))
        journal.sync(section)
        self.acked[section] = count

    def prune(self, journal: Journal, min_section: int) -> None:
        self.prune_tried = min_section
        journal.prune(min_section)
        self.prune_acked = min_section


def live(directory: Path, files: Files, told: Told) -> None:
    """Append items of many sizes over two lives, with syncs, a prune, and unsynced items at the end of sections."""
    with Journal(directory, files=files) as journal:
        for size in (4, 0, 8, 600, 1400):
            told.append(journal, 1, size)
        told.sync(journal, 1)
        told.append(journal, 2, 100)
        told.append(journal, 1, 50)
        told.append(journal, 1, 0)
        told.append(journal, 3, 0)
    told.acked.update({section: len(items) for section, items in told.tried.items()})
    with Journal(directory, files=files) as journal:
        told.append(journal, 2, 2000)
        told.append(journal, 2, 10)
        told.sync(journal, 2)
        told.prune(journal, 2)
        told.append(journal, 3, 30)
        told.append(journal, 4, 30)
        told.sync(journal, 4)
        told.append(journal, 4, 700)
    told.acked.update({section: len(items) for section, items in told.tried.items()})


def check(directory: Path, told: Told) -> None:
    """Check that the journal has every acked item, and only items that were appended, in order. Then append more."""
    if not directory.exists():
        assert not any(told.acked.values())
        return
    found: dict[int, list[bytes]] = {}
    with Journal(directory, files=UnsyncedFiles()) as journal:
        assert all(section >= told.prune_acked for section in journal.sections)
        below = {section for section in told.acked if section < told.prune_tried}
        # A prune that did not return took effect as a whole, or not at all.
        assert below.intersection(journal.sections) in (set(), below)
        if told.prune_acked:
            with pytest.raises(Misuse, match="is pruned"):
                journal.append(told.prune_acked - 1, b"below")
        for section in journal.sections:
            found[section] = [item.data for item in journal.replay([section])]
            assert found[section] == told.tried[section][: len(found[section])]
        for section, count in told.acked.items():
            if section >= told.prune_tried:
                assert len(found.get(section, [])) >= count
        for section in found:
            journal.append(section, b"next")
    with Journal(directory, files=UnsyncedFiles()) as journal:
        for section, items in found.items():
            assert [item.data for item in journal.replay([section])] == [*items, b"next"]


def effects(tmp_path: Path) -> int:
    counter, told = Effects(UnsyncedFiles()), Told()
    live(tmp_path / "whole", counter, told)
    check(tmp_path / "whole", told)
    return counter.effects


def crashed(directory: Path, files: Files, at: int, *, tear: bool = False) -> Told:
    told = Told()
    with pytest.raises(SimulatedCrash):
        live(directory, CrashingFiles(files, at, tear=tear), told)
    return told


@every(5, part=2)
@pytest.mark.parametrize("tear", [False, True], ids=["between", "within"])
def test_the_process_may_die_at_any_operation(tmp_path: Path, tear: bool, every: int) -> None:
    for at in range(1 + 2 * tear % every, effects(tmp_path) + 1, every):
        told = crashed(tmp_path / str(at), UnsyncedFiles(), at, tear=tear)
        check(tmp_path / str(at), told)


@every(9, part=2)
@pytest.mark.parametrize("seed", [None, *range(8)])
def test_the_power_may_be_cut_at_any_operation(tmp_path: Path, seed: int | None, every: int) -> None:
    """The nine seeds together cut the power at every operation."""
    for at in range(1 + (0 if seed is None else 1 + seed) % every, effects(tmp_path) + 1, every):
        base, left = tmp_path / str(at), tmp_path / f"{at}-left"
        base.mkdir()
        disk = PowerCutFiles(UnsyncedFiles(), base)
        told = crashed(base / "j", disk, at)
        disk.after_power_cut(left, None if seed is None else seed * 1_000_003 + at)
        check(left / "j", told)
        shutil.rmtree(base)
        shutil.rmtree(left)


@every(6, part=2)
@pytest.mark.parametrize("tear", [False, True], ids=["between", "within"])
def test_opening_may_crash_at_any_operation_and_begin_again(tmp_path: Path, tear: bool, every: int) -> None:
    count = effects(tmp_path)
    for at in range(1 + 3 * tear % every, count, every):
        for again in range(1, 100):
            directory = tmp_path / f"{at}-{again}"
            told = crashed(directory, UnsyncedFiles(), at, tear=True)
            try:
                Journal(directory, files=CrashingFiles(UnsyncedFiles(), again, tear=tear)).close()
            except SimulatedCrash:
                check(directory, told)
                shutil.rmtree(directory, ignore_errors=True)
            else:
                break
        else:
            pytest.fail("opening does not come to an end")


@every(7, part=2)
def test_the_power_may_be_cut_while_it_is_opened_after_a_power_cut(tmp_path: Path, every: int) -> None:
    for at in range(1, effects(tmp_path) + 1, every):
        base, left, last = tmp_path / str(at), tmp_path / f"{at}-left", tmp_path / f"{at}-last"
        base.mkdir()
        disk = PowerCutFiles(UnsyncedFiles(), base)
        told = crashed(base / "j", disk, at)
        disk.after_power_cut(left, at)
        if (left / "j").exists():
            for again in range(1, 100):
                copy = tmp_path / f"{at}-copy"
                shutil.copytree(left, copy)
                second = PowerCutFiles(UnsyncedFiles(), copy)
                try:
                    Journal(copy / "j", files=CrashingFiles(second, again)).close()
                    break
                except SimulatedCrash:
                    second.after_power_cut(last, at * 100 + again)
                    check(last / "j", told)
                    shutil.rmtree(last)
                finally:
                    shutil.rmtree(copy)
        shutil.rmtree(base)
        shutil.rmtree(left)


@every(3, part=2)
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_the_power_may_be_cut_in_the_life_after_a_crash(tmp_path: Path, seed: int | None, every: int) -> None:
    """The second life does not rely on unsynced work of the first life, such as an unsynced directory entry."""
    for at in range(1 + (seed or 0) % every, effects(tmp_path) + 1, every):
        base, left = tmp_path / str(at), tmp_path / f"{at}-left"
        base.mkdir()
        disk = PowerCutFiles(UnsyncedFiles(), base)
        told = crashed(base / "j", disk, at, tear=True)
        with Journal(base / "j", files=disk) as journal:
            sections = [*journal.sections, 9]
            for section in sections:
                told.tried[section] = [item.data for item in journal.replay([section])] if section != 9 else []
                told.append(journal, section, 20)
                told.sync(journal, section)
            disk.after_power_cut(left, None if seed is None else seed * 1_000_003 + at)
        check(left / "j", told)
        shutil.rmtree(base)
        shutil.rmtree(left)
