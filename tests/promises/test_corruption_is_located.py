"""No byte reaches a user unverified. A damaged byte anywhere raises an error with its place and exit code 5."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import InvalidObject
from offload.errors import InvalidChunk, InvalidIndex
from offload.read.inspection import inspect_bytes
from seglog import Log, LogSettings
from seglog.errors import FileCorrupt
from tests.seams.archive import context_of

SETTINGS = LogSettings(wal_file_bytes=1 << 20, segment_max_events=50)
VALUES = [b"record %d of the test" % number for number in range(100)]


def _flip(path: Path, offset: int) -> None:
    body = bytearray(path.read_bytes())
    body[offset] ^= 0x40
    path.write_bytes(body)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A data directory as a crash leaves it: a hundred acked records in the WAL, in a hundred groups."""
    with seglog.open(tmp_path / "live", settings=SETTINGS) as log:
        for value in VALUES:
            log.topic("t").append([value])
        shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    return tmp_path / "crashed"


def _wal(directory: Path) -> Path:
    [path] = (directory / "wal").glob("wal-*.log")
    return path


def test_a_byte_in_the_middle_of_the_wal(crashed: Path) -> None:
    wal = _wal(crashed)
    place = wal.read_bytes().index(VALUES[50])
    _flip(wal, place)
    with pytest.raises(FileCorrupt) as caught:
        seglog.open(crashed, settings=SETTINGS)
    assert caught.value.path == wal
    assert 0 < place - caught.value.offset < 200
    assert caught.value.exit_code == 5
    _flip(wal, place)
    with seglog.open(crashed, settings=SETTINGS) as log:  # recovery cut nothing
        assert [record.value for record in log.topic("t").read()] == VALUES


def test_a_torn_tail_of_the_wal_is_cut_and_logged(crashed: Path, caplog: pytest.LogCaptureFixture) -> None:
    wal = _wal(crashed)
    body = bytearray(wal.read_bytes())
    place = body.index(VALUES[99])
    body[place + 5 :] = bytes(len(body) - place - 5)
    wal.write_bytes(body)
    with caplog.at_level(logging.WARNING, "seglog.startup.recovery"), seglog.open(crashed, settings=SETTINGS) as log:
        assert [record.value for record in log.topic("t").read()] == VALUES[:99]
        assert log.topic("t").append([b"next"]) == range(100, 101)
    [message] = caplog.messages
    assert wal.name in message


@pytest.fixture
def sealed(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        log.topic("t").append(VALUES)
        log.topic("t").seal()
        yield log


def test_a_byte_of_a_segment(sealed: Log) -> None:
    data = sorted(sealed.path.glob("topics/*/*.data"))[1]
    _flip(data, data.read_bytes().index(VALUES[70]))
    records = sealed.topic("t").read()
    assert [next(records).value for _ in range(70)] == VALUES[:70]
    with pytest.raises(FileCorrupt) as caught:
        next(records)
    assert caught.value.path == data
    assert [record.value for record in sealed.topic("t").read(72)] == VALUES[71:]


def test_a_byte_of_an_idx(sealed: Log) -> None:
    index = sorted(sealed.path.glob("topics/*/*.idx"))[1]
    _flip(index, 20 * 20 + 3)
    with pytest.raises(FileCorrupt) as caught:
        list(sealed.topic("t").read())
    assert caught.value.path == index


def test_a_damaged_segment_is_never_offloaded(sealed: Log, tmp_path: Path) -> None:
    data = sorted(sealed.path.glob("topics/*/*.data"))[1]
    _flip(data, data.read_bytes().index(VALUES[70]))
    with offload.attach(sealed, f"file://{tmp_path}/archive") as archive, pytest.raises(FileCorrupt):
        archive.offload("t", drop_hot=True)
    assert not list((tmp_path / "archive").glob("*/log/*"))
    assert sealed.topic("t").inner.hot_floor == 1


@pytest.fixture
def cold(sealed: Log, tmp_path: Path) -> Path:
    """The directory of the archive, after the hot copies were deleted."""
    sealed.topic("t").append(VALUES)
    sealed.topic("t").seal()
    with offload.attach(sealed, f"file://{tmp_path}/archive") as archive:
        archive.offload("t", drop_hot=True)
    return tmp_path / "archive"


def _read_cold(log: Log, archive: Path) -> list[bytes]:
    (log.path / "catalog.db").unlink()  # otherwise the commits come from this directory's own cache
    with offload.attach(log, f"file://{archive}") as attached:
        return [record.value for record in context_of(attached).reader.records(attached.history.snapshot("t"), 1, 200)]


@pytest.mark.parametrize("part", ["data", "index", "commit", "control", "ref"])
def test_a_byte_of_any_remote_object(part: str, cold: Path, sealed: Log) -> None:
    [path] = {
        "data": [path for path in cold.glob("*/segments/*") if path.suffix != ".index"],
        "index": list(cold.glob("*/segments/*.index")),
        "commit": list(cold.glob("*/log/*")),
        "control": list(cold.glob("*/control")),
        "ref": list(cold.glob("refs/t/main")),
    }[part]
    whole = path.read_bytes()
    expected = {"data": InvalidChunk, "index": InvalidIndex}.get(part, InvalidObject)
    # Readers use the index, not block headers. Only Spark reads the index object's trailer (tests/offload).
    start = 128 if part == "data" else 0
    end = inspect_bytes(whole, "")["head_bytes"] if part == "index" else len(whole)
    for offset in range(start, end, max(1, (end - start) // 40)):
        _flip(path, offset)
        with pytest.raises(expected) as caught:
            _read_cold(sealed, cold)
        assert caught.value.exit_code == 5
        assert path.relative_to(cold).as_posix() in str(caught.value)
        path.write_bytes(whole)
    assert _read_cold(sealed, cold) == VALUES + VALUES
