"""A few records that are read one by one are those of a batch, and their damage is told in the same words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import seglog
from seglog.errors import FileCorrupt
from seglog.files.file_system import OsFiles
from seglog.format.frame import DELETED, LOST
from seglog.format.index import Entry
from seglog.segments.batch import FRAME_BATCH_MAX_BYTES
from seglog.segments.checked_frames import FEW, FewFrames
from seglog.segments.segment import SegmentFiles
from seglog.values.deletes import NO_DELETES
from seglog.values.layout import Layout
from seglog.values.record import Gap, Record

LAST = 6


@pytest.fixture
def segment(tmp_path: Path) -> SegmentFiles:
    """A sealed segment of six records with tags. The fourth is deleted."""
    with seglog.open(tmp_path / "log") as log:
        topic = log.topic("t")
        for number in range(1, LAST + 1):
            topic.append([b"%d" % number * number], tag="odd" if number % 2 else None, node="n")
        topic.append([b"next"])
        topic.delete(before=5)
        topic.delete(tag="never")
        topic.seal()
        log.checkpoint()
        topic_id = topic.inner.topic_id
    return SegmentFiles(OsFiles(), Layout(tmp_path / "log"), topic_id, 1)


def _few(segment: SegmentFiles, first: int, last: int) -> tuple[list[Record], str]:
    found: list[Record] = []
    try:
        found.extend(segment.few(first, last).live(NO_DELETES))
    except FileCorrupt as damage:
        return found, str(damage)
    return found, ""


def _batch(segment: SegmentFiles, first: int, last: int) -> tuple[list[Record], str]:
    found: list[Record] = []
    try:
        batch = segment.batch(first, last)
        found.extend(batch.records(np.flatnonzero(batch.entries["flags"] & DELETED == 0)))
    except FileCorrupt as damage:
        return found, str(damage)
    return found, ""


def test_a_few_records_are_those_of_a_batch(segment: SegmentFiles) -> None:
    for first in range(1, LAST + 1):
        for last in range(first, LAST + 1):
            few, batch = segment.few(first, last), segment.batch(first, last)
            assert (few.first_seq, few.last_seq) == (batch.first_seq, batch.last_seq) == (first, last)
            assert _few(segment, first, last) == _batch(segment, first, last)
            assert (few.lost_front(), few.before_lost()) == (batch.lost_front(), few)
    assert [record.seq for record in _few(segment, 1, LAST)[0]] == [5, 6]


@pytest.mark.parametrize("part", ["data", "idx"])
def test_each_damage_is_told_as_in_a_batch(segment: SegmentFiles, part: str) -> None:
    path = segment.data.path if part == "data" else segment.idx.path
    body = path.read_bytes()
    told = set()
    for at in range(len(body)):
        path.write_bytes(body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :])
        for first, last in ((1, LAST), (5, LAST), (6, 6)):
            few = _few(segment, first, last)
            # If an entry is damaged, the reader loads a batch, which may end before it.
            assert few == _batch(segment, first, last) or (part == "idx" and not few[0])
            told.add(few[1])
    assert len(told) > 5


def test_lost_records_end_a_few_and_begin_a_gap() -> None:
    entries = [Entry(0, 10, 1, flags) for flags in (LOST | DELETED, LOST | DELETED, 0, LOST | DELETED, 0)]
    few = FewFrames(Path("file"), 1, 11, tuple(entries), b"")
    assert few.lost_front() == Gap(11, 12)
    assert FewFrames(Path("file"), 1, 11, tuple(entries[:2]), b"").lost_front() == Gap(11, 12)
    kept = FewFrames(Path("file"), 1, 13, tuple(entries[2:]), b"")
    assert kept.lost_front() is None
    assert (kept.before_lost().first_seq, kept.before_lost().last_seq) == (13, 13)


def test_a_few_large_records_come_in_parts(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "log") as log:
        topic = log.topic("t")
        topic.append([bytes(FRAME_BATCH_MAX_BYTES // 2)] * 3)
        topic.seal()
        log.checkpoint()
        assert [len(record.value) for record in topic.read(1, 3)] == [FRAME_BATCH_MAX_BYTES // 2] * 3
        segment = SegmentFiles(OsFiles(), Layout(tmp_path / "log"), topic.inner.topic_id, 1)
        assert [segment.few(first, 3).last_seq for first in (1, 2, 3)] == [1, 2, 3]


def test_a_read_of_a_few_records_takes_two_reads_of_files(tmp_path: Path) -> None:
    class Counting(seglog.OsFiles):
        reads = 0

        def pread(self, fd: int, length: int, offset: int) -> bytes:
            self.reads += 1
            return super().pread(fd, length, offset)

    files = Counting()
    with seglog.open(tmp_path / "log", files=files) as log:
        topic = log.topic("t")
        topic.append([b"x"] * 100)
        topic.seal()
        log.checkpoint()
        for first, last in ((7, 7), (7, 7 + FEW - 1), (7, 7 + FEW)):
            files.reads = 0
            assert [record.seq for record in topic.read(first, last)] == [*range(first, last + 1)]
            assert files.reads == 2


def test_a_delete_that_no_flag_has_yet_reaches_a_few_records(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "log") as log:
        topic = log.topic("t")
        for tag in ("x", "y", "x"):
            topic.append([b"value"], tag=tag)
        topic.seal()
        log.checkpoint()
        topic.delete(tag="x")
        assert [record.seq for record in topic.read(1, 3)] == [2]
        assert list(topic.read(3, 3)) == []


def test_a_few_records_have_those_that_are_in_memory_only(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "log") as log:
        topic = log.topic("t")
        for value, durability in ((b"a", "memory"), (b"b", "ephemeral"), (b"c", "memory")):
            topic.append([value], durability=durability)
        topic.seal()
        log.checkpoint()
        assert [record.value for record in topic.read(1, 3)] == [b"a", b"b", b"c"]
        assert [record.value for record in topic.read(2, 2)] == [b"b"]
