"""An append of several records is one unit of the WAL: after a crash all of its records are there, or none."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import FileCorrupt, Log, ProducerBatch, aio
from seglog.format.batch_frame import encode_unit, read_unit
from seglog.format.frame import FrameType, data_of, encode_sync_mark, read_header
from seglog.values.append_key import PlainAppend
from tests.seams.log import engine_of, mark_secret_of
from tests.seglog.frames import append_frames
from tests.worlds.producing import SETTINGS, WAL, frames_in, killed, reopened, values_in


def _kinds(directory: Path) -> list[int]:
    return [kind for kind, *_ in frames_in((directory / WAL).read_bytes())]


def test_a_frame_in_front_counts_the_records(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"e"], durability="ephemeral")
        log.topic("t").append([b"a", b"", b"c"])
        body = (tmp_path / "log" / WAL).read_bytes()
        frames = frames_in(body)
    assert [kind for kind, *_ in frames] == [
        FrameType.TOPIC_CREATE,
        FrameType.HEAD_WATERMARK,
        FrameType.UNIT,
        *[FrameType.APPEND] * 3,
    ]
    assert all(end == begin for (_, _, end), (_, begin, _) in pairwise(frames[1:]))
    header = read_header(body, frames[2][1])
    assert read_unit(header, data_of(body, frames[2][1], header)) == PlainAppend(2, 3)


def test_a_lone_record_has_no_frame_in_front(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"a"])
        log.topic("t").append([b"a"], tag="x", durability="memory")
        log.topic("t").append([b"a"] * 50, durability="ephemeral")
        assert _kinds(tmp_path / "log") == [FrameType.TOPIC_CREATE, FrameType.APPEND, FrameType.APPEND]


def test_appends_of_tasks_that_are_merged_are_one_unit(tmp_path: Path) -> None:
    async def run() -> list[int]:
        async with aio.open(tmp_path / "log", settings=SETTINGS) as log:
            await log.topic("t").append([b"first"])
            await asyncio.gather(*[log.topic("t").append([b"%d" % number] * 2) for number in range(20)])
            return _kinds(tmp_path / "log")

    kinds = asyncio.run(run())
    assert kinds.count(FrameType.APPEND) == 41
    assert kinds.count(FrameType.UNIT) == 1


OPTIONS: dict[str, dict[str, Any]] = {
    "fsync": {},
    "memory": {"durability": "memory"},
    "if_head": {"if_head": 1},
    "labels": {"tag": "eu", "node": "n"},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("records", [2, 40])
def test_a_torn_append_is_cut_whole_wherever_it_is_torn(tmp_path: Path, options: dict[str, Any], records: int) -> None:
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"first"])
        log.topic("t").append([b"%d" % number * 20 for number in range(records)], **options)
        copy = killed(tmp_path / "crashed", log)
    body = (copy / WAL).read_bytes()
    frames = frames_in(body)
    begin, end = next(offset for kind, offset, _ in frames if kind == FrameType.UNIT), frames[-1][2]
    last = len(body[:end].rstrip(b"\0")) - 1  # a tear behind it would change nothing: a checksum may end with zeros
    for cut in [*range(begin + 1, last, (end - begin) // 6), frames[-1][1], last]:
        (copy / WAL).write_bytes(body[:cut] + bytes(len(body) - cut))
        report = seglog.verify(copy, settings=SETTINGS)
        assert report.is_sound, (cut, report.damages)
        assert any(f"a torn write begins at offset {begin}" in note for note in report.notes), cut
        with seglog.open(copy, settings=SETTINGS, read_only=True) as view:
            assert values_in(view) == [b"first"]
        shutil.rmtree(tmp_path / "torn", ignore_errors=True)
        shutil.copytree(copy, tmp_path / "torn")
        with reopened(tmp_path / "torn") as log:
            assert log.topic("t").append([b"a", b"b"]) == range(2, 4)
        with reopened(tmp_path / "torn") as log:
            assert values_in(log) == [b"first", b"a", b"b"]
    (copy / WAL).write_bytes(body)
    with reopened(copy) as log:
        assert log.topic("t").head_seq == records + 1


def test_an_append_that_is_larger_than_a_wal_file_is_cut_whole(tmp_path: Path) -> None:
    """A WAL file that is too small grows. So an append is never in two files."""
    large = [b"x" * 1000] * 40
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"first"])
        with engine_of(log).checkpoint_lock:  # or the rotation would make a checkpoint
            log.topic("t").append(large, durability="memory")
            copy = killed(tmp_path / "crashed", log)
    wal = max((copy / "wal").glob("wal-*.log"))
    body = wal.read_bytes()
    assert len(body) > 4 * SETTINGS.wal_file_bytes
    end = len(body.rstrip(b"\0"))
    for cut, wanted in ((end, [b"first", *large]), (end - 1, [b"first"]), (end // 2, [b"first"])):
        wal.write_bytes(body[:cut] + bytes(len(body) - cut))
        with seglog.open(copy, settings=SETTINGS, read_only=True) as view:
            assert values_in(view) == wanted


def test_a_unit_that_is_not_whole_is_damage_anywhere_else(tmp_path: Path) -> None:
    with reopened(tmp_path / "log") as log:
        log.topic("t").append([b"first"])
        log.topic("t").append([b"a" * 40, b"b" * 40, b"c" * 40])
        copy = killed(tmp_path / "crashed", log)
    body = (copy / WAL).read_bytes()
    frames = frames_in(body)
    begin, (_, third, end) = next(offset for kind, offset, _ in frames if kind == FrameType.UNIT), frames[-1]
    mark = encode_sync_mark(1, third, mark_secret_of(copy))
    damages = {
        "a hole before a sync mark": (body[:third] + bytes(end - third) + body[end:], third),
        "a sync mark inside": (body[:third] + mark, third),
        "a record of another seq inside": (body[:third] + append_frames(1, 9, 1_000, [b"x"])[0], third),
        "a unit inside": (body[:third] + encode_unit(1, 1_000, 4, 1), third),
        "a unit from another seq": (body[:begin] + encode_unit(1, 1_000, 9, 3), begin),
        "a unit of no topic": (body[:begin] + encode_unit(9, 1_000, 2, 3), begin),
        "a unit without records": (body[:begin] + encode_unit(1, 1_000, 2, 0), begin),
    }
    for name, (front, offset) in damages.items():
        (copy / WAL).write_bytes(front.ljust(len(body), b"\0"))
        with pytest.raises(FileCorrupt) as caught:
            reopened(copy)
        assert caught.value.offset == offset, name
        assert not seglog.verify(copy, settings=SETTINGS).is_sound, name


def _appends(log: Log, number: int) -> list[Callable[[], object]]:
    """Return one append of each kind, which has 1 to 6 records."""
    topic, values = log.topic(f"t{number % 2}"), [b"%d" % number] * (number % 6 + 1)
    return [
        lambda: topic.append(values, durability="memory"),
        lambda: topic.append(values, durability="memory", key=f"k{number}"),
        lambda: topic.append(values, durability="memory", producer=ProducerBatch("p", 0, number, gaps=True)),
    ]


def test_units_of_all_kinds_are_replayed_in_their_order(tmp_path: Path) -> None:
    settings = seglog.LogSettings(wal_file_bytes=8 * 1024 * 1024)
    with seglog.open(tmp_path / "log", settings=settings) as log:
        for number in range(300):
            for append in _appends(log, number) if number % 9 == 0 else _appends(log, number)[:1]:
                append()
        copy = killed(tmp_path / "crashed", log)
        wanted = {name: [record.value for record in log.topic(name).read()] for name in log.topics()}
    with seglog.open(copy, settings=settings) as log:
        assert {name: [record.value for record in log.topic(name).read()] for name in log.topics()} == wanted
