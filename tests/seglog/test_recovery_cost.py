"""What an opening costs: it follows what is not checkpointed, and the number of segments, not their records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import seglog
from seglog import LogSettings
from tests.faults.files import UnsyncedFiles

SETTINGS = LogSettings(segment_max_events=1)


class Counting(UnsyncedFiles):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.read_bytes = 0

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self.calls["open"] += 1
        return super().open(path, flags, mode)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self.calls["pread"] += 1
        self.read_bytes += length
        return super().pread(fd, length, offset)

    def size(self, fd: int) -> int:
        self.calls["size"] += 1
        return super().size(fd)


def _opened(directory: Path, *, read_only: bool = False) -> Counting:
    files = Counting()
    log = seglog.open(directory, files=files, settings=SETTINGS, read_only=read_only)
    counted = Counting()
    counted.calls.update(files.calls)
    log.close()
    return counted


@pytest.mark.parametrize("read_only", [False, True])
def test_a_sealed_segment_costs_at_most_two_opens_two_sizes_and_two_reads_of_an_entry(
    tmp_path: Path, read_only: bool
) -> None:
    costs: dict[int, Counter[str]] = {}
    with seglog.open(tmp_path / "data", files=UnsyncedFiles(), settings=SETTINGS) as log:
        log.topic("t").append([b"x"])
    have = 1
    for wanted in (10, 100, 1000):
        with seglog.open(tmp_path / "data", files=UnsyncedFiles(), settings=SETTINGS) as log:
            log.topic("t").append([b"x"] * (wanted - have))
            have = wanted
        costs[wanted] = _opened(tmp_path / "data", read_only=read_only).calls
    for fewer, more in ((10, 100), (100, 1000)):
        for call in ("open", "size", "pread"):
            assert costs[more][call] - costs[fewer][call] <= 2 * (more - fewer), (call, costs)
    assert costs[10]["open"] <= 2 * 10 + 10
    print({count: dict(calls) for count, calls in costs.items()})


def test_records_in_sealed_segments_cost_nothing(tmp_path: Path) -> None:
    costs = []
    for records in (10, 10_000):
        directory = tmp_path / str(records)
        with seglog.open(directory, files=UnsyncedFiles()) as log:
            log.topic("t").append([b"x"] * records)
            log.topic("t").seal()
        files = Counting()
        seglog.open(directory, files=files).close()
        costs.append(files.calls)
    assert costs[0] == costs[1]


def test_frames_that_are_checkpointed_are_not_read_again(tmp_path: Path) -> None:
    """Of the WAL, only what comes after the snapshot's place."""
    with seglog.open(tmp_path / "data", files=UnsyncedFiles()) as log:
        log.topic("t").append([b"x" * 1000] * 1000)
    files = Counting()
    seglog.open(tmp_path / "data", files=files).close()
    assert files.read_bytes < 100_000
