"""A checkpoint: changes that arrive while it runs, the segments that it seals, and the files that it removes."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog import DiskFull, Log, LogSettings, TopicConfig
from seglog.engine.work_thread import InCaller
from tests.faults.files import UnsyncedFiles
from tests.seams.log import engine_of
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=6, reclaim_bytes_per_s=0)


class Meanwhile(UnsyncedFiles):
    """A file port that runs `act` in another thread, right before the rename of the next manifest."""

    act: Callable[[], object] | None = None

    def rename(self, source: Path, target: Path) -> None:
        act, self.act = self.act, None if "snapshot" in target.name else self.act
        if act is not None and "snapshot" in target.name:
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
        super().rename(source, target)


def _opened(tmp_path: Path, files: UnsyncedFiles | None = None, clock: HandClock | None = None) -> Log:
    return seglog.open(
        tmp_path / "data",
        settings=SETTINGS,
        files=files or UnsyncedFiles(),
        clock=clock or HandClock(1_000),
        upkeep=InCaller,
    )


@pytest.mark.parametrize(("before", "tag", "live"), [(None, "b", [6]), (4, None, [4, 6])])
def test_a_delete_that_comes_meanwhile_is_listed_and_flagged(
    tmp_path: Path, before: int | None, tag: str | None, live: list[int]
) -> None:
    """The delete arrives while the archive settles an earlier delete."""
    files = Meanwhile()
    with _opened(tmp_path, files) as log:
        topic = log.create_topic("t", TopicConfig(keep_history=True))
        for each in ("a", "b", "a", "b", "a", "c"):
            topic.append([b"x"], tag=each)
        topic.delete(tag="a")
        files.act = lambda: topic.delete(before=before, tag=tag)
        topic.inner.settle_deletes(1)
        assert files.act is None
        assert [op.op for op in topic.inner.delete_ops()] == [2]
        log.checkpoint()
        assert topic.inner.segments()[0].dead_records == 6 - len(live)
    with _opened(tmp_path) as log:
        assert [op.op for op in log.topic("t").inner.delete_ops()] == [2]
        assert [record.seq for record in log.topic("t").read()] == live


def test_what_is_appended_meanwhile_is_in_the_next_one(tmp_path: Path) -> None:
    files = Meanwhile()
    with _opened(tmp_path, files) as log:
        topic = log.topic("t")
        topic.append([b"1", b"2"])
        files.act = lambda: topic.append([b"3"])
        log.checkpoint()
        assert [info.last_seq for info in topic.inner.segments()] == [2]
        log.checkpoint()
        assert [info.last_seq for info in topic.inner.segments()] == [3]
        assert [record.value for record in topic.read()] == [b"1", b"2", b"3"]


def test_the_checkpoint_that_fills_a_segment_seals_it(tmp_path: Path) -> None:
    with _opened(tmp_path) as log:
        topic = log.topic("t")
        topic.append([b"x"] * SETTINGS.segment_max_events)
        log.checkpoint()
        assert topic.inner.sealed_seq == SETTINGS.segment_max_events


class NoRoomForSnapshots(UnsyncedFiles):
    is_full = False

    def rename(self, source: Path, target: Path) -> None:
        if self.is_full and "snapshot" in target.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().rename(source, target)

    def truncate(self, fd: int, length: int) -> None:
        if self.is_full:  # what the checkpoint wrote cannot be given back
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().truncate(fd, length)


def test_a_sealed_segment_has_nothing_of_a_checkpoint_that_failed(tmp_path: Path) -> None:
    """The failed checkpoint wrote a record to the segment. A truncation cuts it, and no other record follows."""
    files = NoRoomForSnapshots()
    with _opened(tmp_path, files) as log:
        topic = log.topic("t")
        topic.append([b"1", b"2"])
        log.checkpoint()
        topic.append([b"3"])
        files.is_full = True
        with pytest.raises(DiskFull):
            log.checkpoint()
        files.is_full = False
        topic.truncate(3)
        topic.seal()
    assert seglog.verify(tmp_path / "data").is_sound
    with _opened(tmp_path) as log:
        assert [record.value for record in log.topic("t").read()] == [b"1", b"2"]


def test_the_files_of_a_deleted_topic_go_with_the_next_checkpoint(tmp_path: Path) -> None:
    with _opened(tmp_path) as log:
        log.topic("t").append([b"x"])
        log.checkpoint()
        assert list((log.path / "topics").iterdir())
        log.delete_topic("t")
        log.checkpoint()
        assert list((log.path / "topics").iterdir()) == []
        assert engine_of(log).deleted == ()


def test_the_next_checkpoint_drops_a_segment_that_was_dead_when_it_was_sealed(tmp_path: Path) -> None:
    with _opened(tmp_path) as log:
        topic = log.topic("t")
        topic.append([b"x"], tag="us")
        topic.delete(tag="us")
        log.checkpoint()
        topic.seal()
        log.checkpoint()
        assert (topic.inner.segments(), topic.inner.hot_floor) == ((), 2)
