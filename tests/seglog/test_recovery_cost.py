"""The cost of an opening depends on the records that no checkpoint has covered.

Of sealed segments, the opening only lists the names of the files.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

import seglog
from benchmarks.calls import count_calls
from seglog import LogSettings
from seglog.engine.work_thread import InCaller
from tests.faults.files import UnsyncedFiles

SETTINGS = LogSettings(segment_max_events=1)


class Counting(UnsyncedFiles):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.read_bytes = 0
        self.offsets: list[int] = []

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self.calls["open"] += 1
        return super().open(path, flags, mode)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self.calls["pread"] += 1
        self.read_bytes += length
        self.offsets.append(offset)
        return super().pread(fd, length, offset)

    def size(self, fd: int) -> int:
        self.calls["size"] += 1
        return super().size(fd)

    def list_dir(self, path: Path) -> list[str]:
        self.calls[f"list_dir {path.name}"] += 1
        return super().list_dir(path)


def _grown(directory: Path, have: int, wanted: int, *, tag: str | None = None) -> None:
    """Append records and seal, until the topic has `wanted` sealed segments."""
    with seglog.open(directory, files=UnsyncedFiles(), settings=SETTINGS) as log:
        log.topic("t").append([b"x"] * (wanted - have), tag=tag)
        log.topic("t").seal()
        assert len(log.topic("t").inner.segments()) == wanted


def _opened(directory: Path, *, read_only: bool = False) -> Counter[str]:
    files = Counting()
    log = seglog.open(directory, files=files, settings=SETTINGS, read_only=read_only)
    calls = Counter(files.calls)
    log.close()
    return calls


@pytest.mark.parametrize("read_only", [False, True])
def test_however_many_segments_are_sealed_none_is_opened_and_each_directory_is_listed_once(
    tmp_path: Path, read_only: bool
) -> None:
    costs = []
    have = 0
    for wanted in (1, 10, 200):
        _grown(tmp_path / "data", have, wanted, tag="t")
        have = wanted
        costs.append(_opened(tmp_path / "data", read_only=read_only))
    assert costs[0] == costs[1] == costs[2]
    assert costs[0]["list_dir 00000001"] == 1
    assert costs[0]["open"] <= 10


def test_an_opening_makes_two_calls_at_most_for_each_sealed_segment(tmp_path: Path) -> None:
    calls = []
    for have, wanted in ((0, 10), (10, 210)):
        _grown(tmp_path, have, wanted)
        opened: list[seglog.Log] = []
        calls.append(count_calls(lambda opened=opened: opened.append(seglog.open(tmp_path, files=UnsyncedFiles()))))  # type: ignore[misc]
        opened[0].close()
    assert calls[1] - calls[0] < 2 * 200


def test_who_reads_opens_what_is_read(tmp_path: Path) -> None:
    _grown(tmp_path / "data", 0, 100)
    files = Counting()
    with seglog.open(tmp_path / "data", files=files, settings=SETTINGS) as log:
        before = files.calls["open"]
        assert [record.seq for record in log.topic("t").read(99)] == [99, 100]
        assert files.calls["open"] - before == 2 * 2


def test_a_checkpoint_of_one_topic_opens_nothing_of_the_sealed(tmp_path: Path) -> None:
    costs = []
    for wanted in (10, 200):
        _grown(tmp_path / str(wanted), 0, wanted)
        files = Counting()
        with seglog.open(tmp_path / str(wanted), files=files, settings=SETTINGS) as log:
            log.topic("t").append([b"x"])
            before = Counter(files.calls)
            log.checkpoint()
            costs.append(files.calls - before)
    assert costs[0] == costs[1]


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
    """The opening reads the WAL only from the manifest's position."""
    with seglog.open(tmp_path / "data", files=UnsyncedFiles()) as log:
        log.topic("t").append([b"x" * 1000] * 1000)
    files = Counting()
    seglog.open(tmp_path / "data", files=files).close()
    assert files.read_bytes < 100_000


class Idle(InCaller):
    """An upkeep that makes no checkpoint."""

    def wake(self) -> None:
        pass


def test_the_checkpoint_of_an_opening_copies_small_records_in_large_batches(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "data", files=UnsyncedFiles(), upkeep=Idle)
    topic = log.topic("t")
    for _ in range(160):
        topic.append([b"x" * 20] * 50, durability="memory")  # smaller pieces than those with a hash
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    log.close()
    files = Counting()
    with seglog.open(tmp_path / "killed", files=files) as again:
        assert again.topic("t").head_seq == 8_000
    # The replay reads the frames, and the checkpoint copies them.
    assert len([at for at in files.offsets if at < 8_000 * 50]) <= 4
