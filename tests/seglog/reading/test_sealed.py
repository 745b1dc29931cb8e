"""A process that has a sealed segment's files open reads its frames without the log, even after the segment is gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import seglog
from seglog import FileCorrupt, Log, LogClosed, LogSettings, NoSuchTopic, SeqOutOfRange, Topic, TopicConfig
from seglog.files.file_system import OsFiles
from seglog.reading.sealed import OpenedSegment, SealedPart

SETTINGS = LogSettings(segment_max_events=6, reclaim_bytes_per_s=0)


def opened(tmp_path: Path) -> Log:
    return seglog.open(tmp_path / "data", settings=SETTINGS)


def filled(log: Log, count: int = 18) -> Topic:
    topic = log.topic("t")
    topic.append([b"%02d " % number * 30 for number in range(1, count + 1)], tag="go")
    topic.seal()
    return topic


def received(part: SealedPart) -> OpenedSegment:
    """Return the segment as another process receives it, with its own descriptors."""
    data, idx = (os.dup(fd) for fd in part.fds)
    return OpenedSegment(OsFiles(), part.topic_id, part.first_seq, (data, idx), part.paths)


def frames_of(segment: OpenedSegment, first: int, last: int) -> list[bytes]:
    found = []
    for batch in segment.batches(first, last):
        frames = batch.apart()
        assert frames is not None
        found += list(frames)
    return found


def test_each_sealed_segment_is_a_part_and_the_rest_is_none(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        topic = filled(log)
        topic.append([b"unsealed"] * 2)
        files = topic.inner.sealed_files(1, 20)
        parts = [files.part(seq) for seq in range(1, 21)]
        assert [None if part is None else (part.first_seq, part.last_seq) for part in parts] == [
            *[(1, 6)] * 6, *[(7, 12)] * 6, *[(13, 18)] * 6, None, None
        ]  # fmt: skip
        for first, last in ((0, 3), (1, 21), (0, 0)):
            with pytest.raises(SeqOutOfRange):
                topic.inner.sealed_files(first, last)


def test_a_part_reads_as_the_log_does_also_when_its_segment_is_gone(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        topic = filled(log)
        frames = list(topic.inner.frames(1, 18))
        files = topic.inner.sealed_files(1, 18)
        part = files.part(8)
        assert part is not None
        segment = received(part)
        assert frames_of(segment, 8, 11) == frames[7:11]
        log.configure("t", TopicConfig(keep_history=True))
        topic.inner.release(12)
        assert not part.paths[0].exists()
        assert frames_of(segment, 7, 12) == frames[6:12]
        assert files.part(8) is None


def test_a_segment_written_anew_leaves_the_open_one_as_it_was(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        topic = filled(log)
        frames = list(topic.inner.frames(1, 18))
        part = topic.inner.sealed_files(1, 18).part(1)
        assert part is not None
        segment = received(part)
        topic.delete(before=3)
        log.checkpoint()
        [batch] = segment.batches(1, 6)
        assert batch.apart() is None, "a deleted record is the log's to decide on"
        log.reclaim()
        assert frames_of(segment, 3, 6) == frames[2:6]


def test_damage_is_found_by_who_reads(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        topic = filled(log)
        part = topic.inner.sealed_files(1, 18).part(1)
        assert part is not None
        segment = received(part)
        data, idx = part.paths
        with data.open("r+b") as file:
            file.seek(100)
            file.write(b"\xff")
        [batch] = segment.batches(1, 6)
        assert batch.apart() is None
        os.truncate(idx, 50)
        with pytest.raises(FileCorrupt):
            next(segment.batches(1, 6))


def test_a_topic_that_went_and_a_log_that_closed_are_told(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        files = filled(log).inner.sealed_files(1, 18)
        files.check()
        log.delete_topic("t")
        with pytest.raises(NoSuchTopic):
            files.check()
        with pytest.raises(NoSuchTopic):
            files.part(1)
    with pytest.raises(LogClosed):
        files.check()
