"""A checkpoint verifies a large piece of the WAL by one hash, and still finds each damaged frame."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from benchmarks.calls import count_calls
from benchmarks.idle import Idle
from seglog import FileCorrupt, LogSettings
from seglog.files.file_system import OpenFile, OsFiles
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import MIN_FRAME_BYTES
from seglog.wal.wal import SUMMED_MIN_BYTES, Sums
from tests.seams.log import engine_of

_LARGE = SUMMED_MIN_BYTES
_VALUES = [b"%04d " % number * 40 for number in range(3_000)]  # the space: no value is in the end of another one


@pytest.fixture
def file(tmp_path: Path) -> OpenFile:
    return OpenFile(OsFiles(), tmp_path / "wal", os.O_RDWR | os.O_CREAT)


def _entries(offset: int, count: int, length: int) -> NDArray[Any]:
    entries = np.zeros(count, dtypes.ENTRIES)
    entries["offset"], entries["length"] = offset + np.arange(count) * length, length
    return entries


def _opened_files() -> Iterator[os.stat_result]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # such as the descriptor of this listing
            yield os.fstat(int(name))


def test_entries_are_verified_with_the_piece_that_they_are(file: OpenFile) -> None:
    sums = Sums()
    sums.add(file, 100, [b"x" * 50, b"a" * _LARGE, b"b" * 2 * _LARGE])
    first, second = 150, 150 + _LARGE
    length = _LARGE // 64
    assert sums.fitting(file, _entries(first, 100, length)) == 64
    assert sums.fitting(file, _entries(first, 64, length)) == 64
    assert sums.fitting(file, _entries(first, 63, length)) == 63
    assert sums.fitting(file, _entries(second, 129, length)) == 128
    assert sums.is_as_written(file, first, b"a" * _LARGE)
    assert sums.is_as_written(file, second, b"b" * 2 * _LARGE)
    for offset, buffer in ((first, b"a" * (_LARGE - 1) + b"b"), (first, b"a" * (_LARGE - 1)), (100, b"x" * 50)):
        assert not sums.is_as_written(file, offset, buffer)


def test_entries_before_a_piece_end_there_unless_most_of_them_are_behind(file: OpenFile) -> None:
    sums = Sums()
    sums.add(file, 1_000, [b"a" * _LARGE])
    assert sums.fitting(file, _entries(0, 15, 100)) == 10
    assert sums.fitting(file, _entries(0, 20, 100)) == 10
    assert sums.fitting(file, _entries(0, 21, 100)) == 21
    assert sums.fitting(file, _entries(1_000, 2 * _LARGE // 8 + 1, 8)) == 2 * _LARGE // 8 + 1
    assert sums.fitting(file, _entries(1_000 + _LARGE, 5, 100)) == 5


def test_the_last_write_of_a_place_counts_and_a_file_that_is_gone_has_nothing(file: OpenFile) -> None:
    sums = Sums()
    sums.add(file, 0, [b"x" * _LARGE, b"y" * _LARGE])
    for _ in range(2):
        sums.add(file, 0, [b"a" * _LARGE, b"b" * _LARGE])
    assert sums.is_as_written(file, 0, b"a" * _LARGE)
    assert sums.is_as_written(file, _LARGE, b"b" * _LARGE)
    assert not sums.is_as_written(file, 0, b"x" * _LARGE)
    sums.drop(file)
    assert not sums.is_as_written(file, 0, b"a" * _LARGE)
    assert sums.fitting(file, _entries(0, 3, 100)) == 3


def test_a_checkpoint_makes_no_call_for_each_record_of_a_large_append(tmp_path: Path) -> None:
    with seglog.open(tmp_path, upkeep=Idle) as log:
        log.topic("t").append(_VALUES)
        assert count_calls(log.checkpoint) < len(_VALUES) * 0.7
        assert [record.value for record in log.topic("t").read()] == _VALUES
    assert not seglog.verify(tmp_path).damages


@pytest.mark.parametrize("number", [0, 1, 998, 999, 1_000, 1_500, 2_999])
@pytest.mark.parametrize("at", [20, -1])
def test_a_checkpoint_names_the_frame_that_is_damaged(tmp_path: Path, number: int, at: int) -> None:
    with seglog.open(tmp_path, upkeep=Idle) as log:
        log.topic("t").append([b"before"])
        log.topic("t").append(_VALUES)
        [wal] = (tmp_path / "wal").glob("wal-*")
        raw = wal.read_bytes()
        value_at = raw.index(_VALUES[number])
        begin, end = value_at - 38, value_at + len(_VALUES[number]) + 8
        with wal.open("r+b") as opened:
            place = begin + at if at > 0 else end + at
            opened.seek(place)
            opened.write(bytes([raw[place] ^ 1]))
        with pytest.raises(FileCorrupt) as failed:
            log.checkpoint()
        assert (failed.value.path, failed.value.offset) == (wal, begin)
        wal.write_bytes(raw)


def test_the_hashes_of_a_file_go_with_it(tmp_path: Path) -> None:
    with seglog.open(tmp_path, settings=LogSettings(wal_file_bytes=_LARGE), upkeep=Idle) as log:
        log.topic("t").append([b"a" * _LARGE])
        wal = engine_of(log).wals.each[0]
        file = wal.file(wal.number)
        (offset,) = (entry["offset"] for entry in engine_of(log).topics["t"].tail.near(0, 1, 0, 1)[1])
        written = file.read(_LARGE + MIN_FRAME_BYTES, int(offset))
        assert wal.sums.is_as_written(file, int(offset), written)
        log.topic("t").append([b"b" * _LARGE])
        log.checkpoint()
        assert not wal.sums.is_as_written(file, int(offset), written)


def test_a_closed_log_keeps_no_file_open_for_its_hashes(tmp_path: Path) -> None:
    def are_open() -> list[bool]:
        files = {(found.st_dev, found.st_ino) for found in map(Path.stat, (tmp_path / "wal").glob("wal-*"))}
        return [(found.st_dev, found.st_ino) in files for found in _opened_files()]

    log = seglog.open(tmp_path, upkeep=Idle)
    log.topic("t").append([b"a" * _LARGE])
    assert any(are_open())
    log.close()
    assert not any(are_open())
