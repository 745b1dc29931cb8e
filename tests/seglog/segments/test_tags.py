"""A delete by tag finds its records with the .tags files of sealed segments. The tests count its reads."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from pathlib import Path

import pytest

import seglog
from seglog import Log, LogSettings, Topic
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import OsFiles
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=4, reclaim_bytes_per_s=0)


class CountingFiles(OsFiles):
    """A file port that counts calls of pread in `reads`, by the suffix of the file."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self._suffixes: dict[int, str] = {}

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        self._suffixes[fd] = path.suffix
        return fd

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self.reads[self._suffixes[fd]] += 1
        return super().pread(fd, length, offset)


def _open(path: Path, files: OsFiles | None = None) -> Log:
    return seglog.open(path, files=files, settings=SETTINGS, clock=HandClock(1_000), upkeep=InCaller)


def _fill(topic: Topic) -> None:
    """Append 17 records. Tags of seqs 1-4: eu-1, none, eu-2, eu-1; 5-8: us; 9-12: none; 13-17: eu-1.

    A segment has room for four records, so a checkpoint puts seq 17 into the active segment.
    """
    for tags in (("eu-1", None, "eu-2", "eu-1"), ("us",) * 4, (None,) * 4, ("eu-1",) * 4):
        for tag in tags:
            topic.append([b"x" * 20], tag=tag)
    topic.append([b"active"], tag="eu-1")


def _live(topic: Topic) -> list[int]:
    return [record.seq for record in topic.read(1)]


def _tags(path: Path) -> list[str]:
    return sorted(file.name for file in path.rglob("*.tags"))


def test_a_segment_without_a_match_is_not_read_and_one_with_a_match_not_its_data(tmp_path: Path) -> None:
    files = CountingFiles()
    with _open(tmp_path, files) as log:
        topic = log.topic("t")
        _fill(topic)
        log.checkpoint()
        assert _tags(tmp_path) == [f"seg-{first:016d}.tags" for first in (1, 5, 13)]
        topic.append([b"in the WAL"], tag="us")
        topic.append([b"no tag"])
        log.checkpoint()
        files.reads.clear()
        topic.delete(tag="us", before=17)
        log.checkpoint()
        # One read for the record at the front, and one for the tags in the active segment.
        assert files.reads[".data"] <= 2
        assert files.reads[".tags"] == 4
        assert [segment.dead_records for segment in topic.inner.segments()] == [0, 4, 0, 0, 0]
        assert _live(topic) == [1, 2, 3, 4, *range(9, 20)]
        topic.delete(tag="eu-*")
        log.checkpoint()
        assert _live(topic) == [2, *range(9, 13), 18, 19]
        topic.delete(tag="us")
        log.checkpoint()
        assert _live(topic) == [2, *range(9, 13), 19]
    with _open(tmp_path) as log:
        assert _live(log.topic("t")) == [2, *range(9, 13), 19]


def test_a_hundred_sealed_segments_are_searched_without_their_data(tmp_path: Path) -> None:
    files = CountingFiles()
    with _open(tmp_path, files) as log:
        topic = log.topic("t")
        topic.append([b"first"])
        for number in range(400):
            topic.append([b"y"], tag="rare" if number == 200 else "often")
        topic.seal()
        log.checkpoint()
        files.reads.clear()
        topic.delete(tag="rare")
        log.checkpoint()
        assert files.reads[".data"] <= 1
        assert files.reads[".tags"] == 101 + 1
        assert files.reads[".idx"] <= 10
        assert [segment.first_seq for segment in topic.inner.segments() if segment.dead_records] == [201]


def test_the_front_goes_on_without_reading_what_is_deleted(tmp_path: Path) -> None:
    files = CountingFiles()
    with _open(tmp_path, files) as log:
        topic = log.topic("t")
        for number in range(40):
            topic.append([b"y"], tag="go" if number < 30 else "stay")
        topic.seal()
        files.reads.clear()
        topic.delete(tag="go")
        assert topic.earliest_seq == 31
        assert files.reads[".data"] <= 1


def test_exact_and_prefix_with_and_without_a_bound(tmp_path: Path) -> None:
    tags = ["eu", "eu-1", "e", "eu*", "us", "eu", None, ""]
    for number, (tag, before, gone) in enumerate(
        [
            ("eu", None, {1, 6}),
            ("eu", 6, {1}),
            ("eu*", None, {1, 2, 4, 6}),
            ("eu*", 3, {1, 2}),
            ("*", None, {1, 2, 3, 4, 5, 6, 8}),
            ("", None, {8}),
            ("none", None, set()),
        ]
    ):
        for is_sealed in (True, False):
            with _open(tmp_path / f"{number}{is_sealed}") as log:
                topic = log.topic("t")
                for each in tags:
                    topic.append([b"v"], tag=each)
                if is_sealed:
                    topic.seal()
                topic.delete(before=before, tag=tag)
                assert {*range(1, 9)} - {*_live(topic)} == gone
                topic.seal()
                assert {*range(1, 9)} - {*_live(topic)} == gone


@pytest.mark.parametrize("how", ["missing", "empty", "cut", "flipped", "of another segment"])
def test_a_file_that_cannot_be_trusted_is_made_anew(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "seglog.segments.tags")
    with _open(tmp_path) as log:
        _fill(log.topic("t"))
    path, other = (next(tmp_path.rglob(f"seg-{first:016d}.tags")) for first in (5, 13))
    whole = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "of another segment":
        shutil.copy(other, path)
    else:
        path.write_bytes({"empty": b"", "cut": whole[:-3], "flipped": whole[:-3] + b"?" + whole[-2:]}[how])
    assert not seglog.verify(tmp_path).damages
    with _open(tmp_path) as log:
        topic = log.topic("t")
        topic.delete(tag="us")
        log.checkpoint()
        assert _live(topic) == [1, 2, 3, 4, *range(9, 18)]
    assert path.read_bytes() == whole
    assert ("rebuilt" in caplog.text) == (how != "missing")


def test_tags_of_what_was_truncated_are_not_those_of_what_came_after(tmp_path: Path) -> None:
    with _open(tmp_path) as log:
        topic = log.topic("t")
        topic.append([b"old"] * 8, tag="old")
        log.checkpoint()
        assert len(_tags(tmp_path)) == 2
        topic.truncate(3)
        assert _tags(tmp_path) == []
        topic.append([b"new"] * 6, tag="new")
        log.checkpoint()
        topic.delete(tag="old")
        log.checkpoint()
        assert _live(topic) == [3, 4, 5, 6, 7, 8]
        topic.delete(tag="new", before=6)
        log.checkpoint()
        assert _live(topic) == [6, 7, 8]


def test_tags_go_with_their_segment(tmp_path: Path) -> None:
    with _open(tmp_path) as log:
        topic = log.topic("t")
        topic.append([b"x"] * 12, tag="a")
        log.checkpoint()
        topic.delete(before=9)
        log.checkpoint()
        assert _tags(tmp_path) == ["seg-0000000000000009.tags"]
        log.delete_topic("t")
        log.checkpoint()
        assert _tags(tmp_path) == []


def test_tags_do_not_stay_behind_when_their_segment_is_relocated(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    settings = LogSettings(segment_max_events=4, cold_dir=str(tmp_path / "cold"), hot_retain_segments=1)
    with seglog.open(tmp_path / "log", settings=settings, clock=HandClock(1_000), upkeep=InCaller) as log:
        log.topic("t").append([b"x"] * 12, tag="a")
        log.checkpoint()
        assert len(list((tmp_path / "cold").rglob("*.data"))) == 2
        assert _tags(tmp_path) == ["seg-0000000000000009.tags"]
