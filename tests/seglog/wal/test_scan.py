"""Reading and replaying frames in bulk gives the same state and the same errors as one by one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglog
import seglog.startup.recovery
import seglog.wal.scan
from benchmarks.calls import count_calls
from seglog import LogSettings, SeglogError, TopicConfig
from seglog.errors import InvalidFrame
from seglog.files.file_system import OpenFile, OsFiles, ReadOnlyFiles
from seglog.format.batch_frame import encode_unit
from seglog.format.frame import DELETED, LOST, FrameType, Header, data_of, encode, read_header
from seglog.format.frames import read_any_headers, read_headers
from seglog.startup.recovery import recover
from seglog.values.layout import Layout, WalFolder
from seglog.wal.scan import scan
from tests.faults.files import CrashingFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every
from tests.seams.limits import Limit, set_limit
from tests.seams.log import engine_of, note_replayed
from tests.seglog.frames import append_frames
from tests.seglog.workload import SETTINGS, SHARDED, Journal, live

WINDOW = 1024 * 1024
NAME = "wal-0000000000000001.log"
ALL_AT_ONCE, ONE_BY_ONE = 0, 1 << 40


@pytest.fixture
def folder(tmp_path: Path) -> WalFolder:
    (tmp_path / "wal").mkdir()
    return WalFolder(tmp_path / "wal")


def _frames(count: int, size: int = 10) -> list[bytes]:
    return append_frames(1, 1, 1, [b"x" * size] * count)


def _file(folder: WalFolder, body: bytes) -> OpenFile:
    folder.wal_file(1).write_bytes(body)
    return OpenFile(OsFiles(), folder.wal_file(1), os.O_RDWR)


def _found(file: OpenFile, found: list[bytes]) -> None:
    for stretch in scan(file, 0, file.size()):
        for offset, header, position in stretch:
            assert offset == stretch.base + position
            found.append(stretch.buffer[position : position + header.frame_bytes])


def test_frames_of_one_length_take_no_call_a_frame(folder: WalFolder) -> None:
    file = _file(folder, b"".join(_frames(20_000)))
    assert count_calls(lambda: list(scan(file, 0, file.size()))) < 2_000


@pytest.mark.parametrize("other", [0, 1, 40, 999])
def test_a_frame_of_another_length_ends_a_run(folder: WalFolder, other: int) -> None:
    frames = _frames(1_000)
    frames[other] = append_frames(1, other + 1, 1, [b"longer than the others"])[0]
    found: list[bytes] = []
    _found(_file(folder, b"".join(frames)), found)
    assert found == frames


@pytest.mark.parametrize("size", [1, WINDOW - 100, WINDOW, 3 * WINDOW])
@pytest.mark.parametrize("few", [3, 300])
def test_frames_of_any_size_are_found_across_windows(folder: WalFolder, size: int, few: int) -> None:
    frames = [*_frames(few, 100), *_frames(2, size), *_frames(few, 100)]
    found: list[bytes] = []
    _found(_file(folder, b"".join(frames)), found)
    assert found == frames


@pytest.mark.parametrize("count", [3, 300, 2 * WINDOW // 56])
def test_it_stops_where_no_frame_begins_and_says_where(folder: WalFolder, count: int) -> None:
    frames = _frames(count)
    for tail in (b"\0" * 100, b"\xff" * 100, frames[0][:-1], b"\x01"):
        found: list[bytes] = []
        with pytest.raises(InvalidFrame) as caught:
            _found(_file(folder, b"".join(frames) + tail), found)
        assert caught.value.offset == count * 56
        assert found == frames


def test_a_wal_is_read_once_a_mib_at_a_time(folder: WalFolder) -> None:
    reads: list[int] = []

    class Reading(OsFiles):
        def pread(self, fd: int, length: int, offset: int) -> bytes:
            reads.append(length)
            return super().pread(fd, length, offset)

    body = b"".join(_frames(5 * WINDOW // 1070, 1024))
    folder.wal_file(1).write_bytes(body + bytes(WINDOW))
    file = OpenFile(Reading(), folder.wal_file(1), os.O_RDWR)
    with pytest.raises(InvalidFrame):
        _found(file, [])
    assert max(reads) == WINDOW
    assert sum(reads) < len(body) + 2 * WINDOW
    assert len(reads) == 6


def test_headers_of_many_have_the_verdict_of_one() -> None:
    kinds = [encode(kind, topic_id=3, seq=9, ts_ms=7, data=b"{}") for kind in FrameType]
    odd = [
        encode(99, topic_id=1, seq=1, ts_ms=1),  # type: ignore[arg-type]
        encode(0, topic_id=1, seq=1, ts_ms=1),  # type: ignore[arg-type]
        encode(FrameType.APPEND, topic_id=1, seq=1, ts_ms=1, tag=b"no flag"),
        encode(FrameType.APPEND, topic_id=1, seq=1, ts_ms=1, node=b"no flag"),
        encode(FrameType.APPEND, topic_id=1, seq=1, ts_ms=1, flags=LOST),
        encode(FrameType.APPEND, topic_id=1, seq=1, ts_ms=1, flags=128 | DELETED),
    ]
    for frame in kinds:
        found = read_any_headers(frame, np.array([0]), np.array([len(frame)]))
        assert found is not None
        assert found[0].item() == read_header(frame)
        only_appends = read_headers(frame, np.array([0]), np.array([len(frame)]))
        assert (only_appends is None) == (read_header(frame).type != FrameType.APPEND)
    for frame in odd:
        assert read_any_headers(frame, np.array([0]), np.array([len(frame)])) is None
        with pytest.raises(InvalidFrame):
            read_header(frame)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """The data directory of a killed process: three topics in turns, small and large groups, control frames.

    All records are in the WAL, none in segments.
    """
    log = seglog.open(tmp_path / "live", settings=LogSettings(wal_file_bytes=1 << 16), files=UnsyncedFiles())
    assert engine_of(log).takes_checkpoint_lock()  # acts as a checkpoint that never ends
    for number in range(12):
        log.topic(f"t{number % 3}").append([b"%d" % number] * (number % 5 + 1), tag="eu" if number % 2 else None)
        log.topic("t0").append([b"x" * number] * 3, durability="memory")
    log.configure("t1", TopicConfig(ttl_ms=10**15))
    log.topic("t2").delete(tag="eu")
    log.topic("t1").append([b"e"] * 2, durability="ephemeral")
    for number in range(5):
        log.topic("t1").append([b"after"] * (number + 1))
    shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    engine_of(log).leave_checkpoint()
    log.close()
    return tmp_path / "crashed"


def _state(value: Any) -> Any:
    """Return the state that recovery found, as comparable values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # `changed` is the register of an open log. The opening gives each topic the register of its log.
        fields = [field.name for field in dataclasses.fields(value) if field.name != "changed"]
        return {name: _state(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return {key: _state(each) for key, each in value.items()}
    if isinstance(value, seglog.engine.tail.Tail):
        return [value.first_seq, value.end_seq, value.bytes, value.rows(0, len(value)).tolist()]
    if isinstance(value, seglog.engine.tail.EphemeralBuffer):
        return [*value.chunks]
    if isinstance(value, list | tuple):
        return [_state(each) for each in value]
    if value is not None and type(value).__eq__ is object.__eq__:
        names = {name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())}
        names |= getattr(value, "__dict__", {}).keys()
        return {name: _state(getattr(value, name)) for name in names if hasattr(value, name)}
    return value


def _verdict(monkeypatch: pytest.MonkeyPatch, directory: Path, few: int) -> Any:
    set_limit(monkeypatch, Limit.FRAMES_READ_ONE_BY_ONE, few)
    try:
        return _state(recover(ReadOnlyFiles(UnsyncedFiles()), Layout(directory)))
    except SeglogError as error:
        return type(error), str(error)


def _spoilt(body: bytes, chance: random.Random, every: int) -> Iterator[bytes]:
    """Yield the body with each mistake in the order of its frames, and with one in `every` of the flips and cuts."""
    starts = [0]
    while starts[-1] < len(body):
        starts.append(starts[-1] + 4 + int.from_bytes(body[starts[-1] : starts[-1] + 4], "little"))
    frames = [body[start:end] for start, end in pairwise(starts)]
    yield body
    for position in range(0, len(body), 7 * every):
        changed = bytearray(body)
        changed[position] ^= 1 << chance.randrange(8)
        yield bytes(changed)
    for length in range(0, len(body), 29 * every):
        yield body[:length]
    for number in range(len(frames)):
        other = chance.randrange(len(frames))
        yield b"".join(frames[:number] + frames[number + 1 :])
        yield b"".join([*frames[:number], frames[other], *frames[number:]])
        swapped = frames.copy()
        swapped[number], swapped[other] = swapped[other], swapped[number]
        yield b"".join(swapped)
        header = read_header(frames[number])
        if header.type == FrameType.UNIT and chance.random() < 0.2:
            records = int.from_bytes(data_of(frames[number], 0, header), "little")
            for topic_id, seq, count in _other_units(header, records):
                unit = encode_unit(topic_id, header.ts_ms, seq, count)
                yield b"".join([*frames[:number], unit, *frames[number + 1 :]])
            for data in (b"", b"\1\0\0", records.to_bytes(5, "little")):
                odd = encode(FrameType.UNIT, topic_id=header.topic_id, seq=header.seq, ts_ms=1, data=data)
                yield b"".join([*frames[:number], odd, *frames[number + 1 :]])


def _other_units(header: Header, records: int) -> Iterator[tuple[int, int, int]]:
    """Yield the topic, the first seq and the number of records of units that are wrong at the place of this one."""
    for count in (0, 1, records - 1, records + 1, records + 40, 2**32 - 1):
        yield header.topic_id, header.seq, count
    for topic_id in (header.topic_id - 1, header.topic_id + 1, 99):
        yield topic_id, header.seq, records
    for seq in (0, header.seq - 1, header.seq + 1):
        yield header.topic_id, seq, records


@pytest.mark.long
@every(6, part=2)
def test_whatever_is_wrong_with_a_wal_the_verdict_is_that_of_one_by_one(
    crashed: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    wal = crashed / "wal" / NAME
    body = wal.read_bytes().rstrip(b"\0")
    kinds: set[Any] = set()
    for spoilt in _spoilt(body, random.Random(4), every):
        wal.write_bytes(spoilt)
        at_once = _verdict(monkeypatch, crashed, ALL_AT_ONCE)
        assert at_once == _verdict(monkeypatch, crashed, ONE_BY_ONE)
        kinds.add(at_once[1].partition("offset")[2] if isinstance(at_once, tuple) else "sound")
    assert len(kinds) > 50


def test_only_control_frames_are_replayed_one_by_one(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with seglog.open(crashed, files=UnsyncedFiles(), settings=LogSettings(wal_file_bytes=1 << 20)) as log:
        log.checkpoint()
        for number in range(300):
            log.topic(f"t{number % 3}").append([b"many"] * (number % 7 + 1))
        one_by_one = note_replayed(monkeypatch)
        with seglog.open(crashed, read_only=True) as view:
            assert [view.topic(f"t{number}").head_seq for number in range(3)] == [
                log.topic(f"t{number}").head_seq for number in range(3)
            ]
            assert one_by_one == []
            log.configure("t1", TopicConfig())
            log.topic("t1").append([b"more"] * 100)
        with seglog.open(crashed, read_only=True) as view:
            assert view.topic("t1").head_seq == log.topic("t1").head_seq
    assert one_by_one == [FrameType.CONFIG_UPDATE]


@pytest.mark.parametrize("settings", [SETTINGS, SHARDED[3]])
def test_any_crash_of_a_life_is_recovered_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: LogSettings
) -> None:
    replayed = 0
    for at in range(60, 600, 60):
        directory = tmp_path / str(at)
        with contextlib.suppress(SimulatedCrash):
            live(directory, CrashingFiles(UnsyncedFiles(), at), Journal(), settings)
        at_once = _verdict(monkeypatch, directory, ALL_AT_ONCE)
        assert at_once == _verdict(monkeypatch, directory, ONE_BY_ONE)
        replayed += at_once["wal_ends"] != at_once["checkpointed"]
    assert replayed
