"""An interrupt that hits an ephemeral append at any point takes no later record of the topic away."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog import Log, LogSettings
from tests.faults.disk import SimulatedDisk
from tests.faults.interrupts import interrupted

DIRECTORY = Path("/log")
MODULES = (
    "seglog.engine.entries",
    "seglog.engine.tail",
    "seglog.engine.state",
    "seglog.engine.tail",
    "seglog.wal.group_commit",
    "seglog.writing.append",
)


def _open(disk: SimulatedDisk) -> Log:
    return seglog.open(DIRECTORY, files=disk, settings=LogSettings(segment_max_events=5, wal_file_bytes=4096))


def _append_and_read(log: Log) -> int:
    [seq] = log.topic("t").append([b"after"])
    _read(log, seq)
    return seq


def _read(log: Log, seq: int) -> None:
    assert [record.value for record in log.topic("t").read(seq, seq)] == [b"after"]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_later_record_is_read_before_and_after_a_reopen(is_sealed: bool) -> None:
    for at in range(1, 1000):
        disk = SimulatedDisk()
        log = _open(disk)
        topic = log.topic("t")
        topic.append([b"before"])
        if is_sealed:
            topic.seal()
        was_hit = interrupted(lambda topic=topic: topic.append([b"x"] * 2, durability="ephemeral"), MODULES, at)  # type: ignore[misc]
        try:
            seqs = [_append_and_read(log), _append_and_read(log)]
            assert seqs[1] == seqs[0] + 1
            log.close()
            with _open(disk) as again:
                for seq in seqs:
                    _read(again, seq)
        except BaseException as problem:
            problem.add_note(f"interrupted at point {at}")
            raise
        if not was_hit:
            break
    assert at > 20
