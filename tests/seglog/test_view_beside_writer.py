"""A view beside a running writer logs real damage, and logs nothing about races with the writer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog import Log, LogSettings
from seglog.engine.work_thread import InCaller
from seglog.values.layout import Layout
from tests.faults.files import UnsyncedFiles

SETTINGS = LogSettings(segment_max_events=10, reclaim_bytes_per_s=0)


class BeforeOpening(UnsyncedFiles):
    """A file port that calls `then` before the first open of the file `name`."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name = name
        self.then: Callable[[], None] | None = then

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        if path.name == self.name and self.then is not None:
            then, self.then = self.then, None
            then()
        return super().open(path, flags, mode)


def queue(directory: Path) -> Log:
    """Open a log with three segments and a tag for each record.

    If a caller deletes the first record by its tag, a view searches for the first live record.
    """
    log = seglog.open(directory, settings=SETTINGS, upkeep=InCaller)
    topic = log.topic("t")
    for number in range(30):
        topic.append([b"%d" % number], tag=f"tag-{number}")
    topic.seal()
    return log


@pytest.mark.parametrize("part", ["idx", "data"])
def test_a_segment_that_the_writer_drops_while_a_view_looks_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    caplog.set_level(logging.INFO)
    with queue(tmp_path / "data") as log:
        topic = log.topic("t")
        topic.delete(tag="tag-0")

        def drop() -> None:
            topic.delete(before=21)
            log.checkpoint()

        files = BeforeOpening(Layout(tmp_path / "data").part(part, 1, 1).name, drop)
        caplog.clear()
        with seglog.open(tmp_path / "data", read_only=True, files=files) as view:
            assert files.then is None
            assert view.topic("t").earliest_seq == 21
            assert [record.seq for record in view.topic("t").read()] == list(range(21, 31))
    assert [record.message for record in caplog.records if "damaged" in record.message] == []
    assert [record.name for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_damage_is_still_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with queue(tmp_path / "data") as log:
        log.topic("t").delete(tag="tag-0")
    data = Layout(tmp_path / "data").data(1, 1)
    body = bytearray(data.read_bytes())
    body[: len(body) // 2] = bytes(len(body) // 2)
    data.write_bytes(body)
    caplog.clear()
    with seglog.open(tmp_path / "data", read_only=True):
        pass
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "the first live record stays unknown" in told[0]
    assert str(data) in told[0]


def test_a_view_makes_no_tags_and_says_nothing_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with queue(tmp_path / "data") as log:
        log.topic("t").delete(tag="tag-1*")
        log.topic("t").delete(before=2)
    for path in (tmp_path / "data").rglob("*.tags"):
        path.write_bytes(path.read_bytes()[:20])  # as if a writer were within its write
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*.tags")}
    caplog.clear()
    with seglog.open(tmp_path / "data", read_only=True) as view:
        assert view.topic("t").earliest_seq == 3
    assert {path: path.read_bytes() for path in (tmp_path / "data").rglob("*.tags")} == before
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_frame_that_is_being_written_is_no_torn_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("t").append([b"x"])
        [wal] = (tmp_path / "data").glob("wal/wal-*.log")
        used = len(wal.read_bytes().rstrip(b"\0"))
        with wal.open("r+b") as file:
            file.seek(used)
            file.write(b"\x40\0\0\0\x01")
        with seglog.open(tmp_path / "data", read_only=True) as view:
            assert view.topic("t").head_seq == 1
        with wal.open("r+b") as file:
            file.seek(used)
            file.write(bytes(5))
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
