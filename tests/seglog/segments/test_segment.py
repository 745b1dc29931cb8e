from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import FileCorrupt, OffsetOverflow
from seglog.files.file_system import Files, OsFiles
from seglog.format.frame import DELETED, read_header
from seglog.format.index import ENTRY, encode_entries
from seglog.segments.batch import FRAME_BATCH_MAX_RECORDS
from seglog.segments.segment import SegmentCache, SegmentFiles, SegmentInfo, SegmentWriter, cut
from seglog.values.config import LogSettings
from seglog.values.layout import Layout
from tests.faults.disk import SimulatedDisk
from tests.seglog.frames import append_frames


class CountingFiles(OsFiles):
    def __init__(self) -> None:
        self.open_now: set[int] = set()
        self.reads = 0
        self.writes = 0

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self.reads += 1
        return super().pread(fd, length, offset)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        self.writes += 1
        super().pwrite(fd, data, offset)

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        self.writes += 1
        super().pwritev(fd, pieces, offset)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        self.open_now.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self.open_now.remove(fd)
        super().close(fd)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.topic(1).mkdir(parents=True)
    return layout


def _write(
    cache: SegmentCache, files: Files, first: int, values: list[bytes], info: SegmentInfo | None = None
) -> SegmentInfo:
    segment = cache.create(1, first) if info is None else cache.get(1, info)
    writer = SegmentWriter(files, segment, info)
    start = first if info is None else info.last_seq + 1
    frames = append_frames(1, start, 50 + start, values, tag=None, node=None, unterminated=False, durable=True)
    headers = [read_header(frame) for frame in frames]
    writer.add(
        b"".join(frames),
        np.array([header.frame_bytes for header in headers]),
        np.array([header.ts_ms for header in headers]),
        np.array([header.flags for header in headers]),
    )
    writer.sync()
    return writer.info(sealed=False)


def _values(segment: SegmentFiles, first: int, last: int) -> list[bytes]:
    values = []
    while first <= last:
        batch = segment.batch(first, last)
        values += [batch.record(index).value for index in range(len(batch.entries))]
        first = batch.last_seq + 1
    return values


def test_what_is_written_is_read_in_runs_of_any_shape(layout: Layout) -> None:
    files = OsFiles()
    cache = SegmentCache(files, layout)
    values = [b"%d" % number * (number % 7) for number in range(3000)] + [b"x" * 700_000] * 4
    info = _write(cache, files, 11, values)
    assert (info.first_seq, info.last_seq, info.records, info.min_ts_ms) == (11, 3014, 3004, 61)
    segment = cache.get(1, info)
    assert _values(segment, 11, 3014) == values
    assert _values(segment, 3000, 3012) == values[2989:3002]
    assert segment.info(info.records, sealed=False) == info


def test_a_run_costs_two_reads_and_a_mebibyte_two_writes(layout: Layout) -> None:
    files = CountingFiles()
    cache = SegmentCache(files, layout)
    info = _write(cache, files, 1, [b"x" * 200] * 5 * FRAME_BATCH_MAX_RECORDS)
    assert files.writes == 2
    assert len(_values(cache.get(1, info), 1, 5 * FRAME_BATCH_MAX_RECORDS)) == 5 * FRAME_BATCH_MAX_RECORDS
    assert files.reads == 2 * 5


def test_a_writer_goes_on_where_the_segment_ends_and_cuts_what_is_beyond(layout: Layout) -> None:
    files = OsFiles()
    cache = SegmentCache(files, layout)
    info = _write(cache, files, 1, [b"a", b"b"])
    _write(cache, files, 1, [b"never published"] * 3, info)
    more = _write(cache, files, 1, [b"c"], info)
    assert more.last_seq == 3
    assert layout.data(1, 1).stat().st_size == more.data_bytes
    assert layout.idx(1, 1).stat().st_size == 60
    assert _values(cache.get(1, more), 1, 3) == [b"a", b"b", b"c"]


def test_what_was_cut_off_does_not_come_back_with_a_power_cut() -> None:
    layout, disk = Layout(Path("/log")), SimulatedDisk()
    for folder in (layout.root, layout.topics, layout.topic(1)):
        disk.make_dir(folder)
    cache = SegmentCache(disk, layout)
    info = _write(cache, disk, 1, [b"a", b"b"])
    _write(cache, disk, 1, [b"never published"] * 3, info)
    for folder in (layout.root.parent, layout.root, layout.topics, layout.topic(1)):
        disk.sync_dir(folder)
    cut(cache.get(1, info), info.records, info.data_bytes)
    tree = disk.after_power_cut().tree
    assert [len(tree[str(path)] or b"") for path in (layout.data(1, 1), layout.idx(1, 1))] == [info.data_bytes, 40]


@pytest.mark.parametrize(("limit", "takes"), [(199, 2), (200, 2), (201, 3), (1, 1)])
def test_a_segment_that_is_full_to_the_byte_takes_no_more(layout: Layout, limit: int, takes: int) -> None:
    files = OsFiles()
    writer = SegmentWriter(files, SegmentCache(files, layout).create(1, 1), None)
    settings = LogSettings(segment_max_bytes=limit, max_store_overflow=1000)
    assert writer.room(np.array([100] * 5), settings) == takes


def test_flags_are_set_in_place(layout: Layout) -> None:
    files = OsFiles()
    cache = SegmentCache(files, layout)
    segment = cache.get(1, _write(cache, files, 1, [b"x"] * 10))
    segment.set_deleted(3, 8, [3, 5, 8])
    flags = segment.entries(1, 10)["flags"].tolist()
    assert [bool(flag & DELETED) for flag in flags] == [n in (3, 5, 8) for n in range(1, 11)]


def test_a_segment_that_is_shorter_than_it_was_is_reported(layout: Layout) -> None:
    files = OsFiles()
    cache = SegmentCache(files, layout)
    info = _write(cache, files, 1, [b"x"] * 10)
    layout.data(1, 1).write_bytes(layout.data(1, 1).read_bytes()[:-1])
    with pytest.raises(FileCorrupt, match="is cut short"):
        cache.get(1, info).batch(1, 10)
    with pytest.raises(FileCorrupt):
        SegmentWriter(files, cache.get(1, info), info)


def test_few_files_are_open_at_a_time_and_none_is_taken_from_a_reader(layout: Layout) -> None:
    files = CountingFiles()
    cache = SegmentCache(files, layout)
    infos = [_write(cache, files, first, [b"%d" % first]) for first in range(1, 101)]
    held = cache.get(1, infos[0])
    for first, info in enumerate(infos, 1):
        assert _values(cache.get(1, info), first, first) == [b"%d" % first]
    assert len(files.open_now) == 2 * (64 + 1)
    cache.remove(1, 1)
    assert _values(held, 1, 1) == [b"1"]
    del held
    cache.clear()
    assert files.open_now == set()


def test_offsets_past_32_bits_are_refused_before_anything_is_written(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seglog.segments.segment.OFFSET_END", 1000)
    files = CountingFiles()
    cache = SegmentCache(files, layout)
    with pytest.raises(OffsetOverflow) as caught:
        _write(cache, files, 1, [b"x" * 200] * 5)
    assert (caught.value.path, caught.value.limit_bytes) == (layout.data(1, 1), 1000)
    assert files.writes == 0
    assert _write(cache, files, 1, [b"x" * 200] * 4).data_bytes <= 1000


def test_an_entry_that_does_not_follow_the_one_before_is_damage(tmp_path: Path, layout: Layout) -> None:
    """Each entry is sound by itself. An .idx that mixes entries of two writes has such entries."""
    cache = SegmentCache(OsFiles(), layout)
    info = _write(cache, OsFiles(), 1, [b"x"] * 4)
    segment = cache.get(1, info)
    for seq, offset in ((3, 1), (3, 1000)):
        entry = segment.entries(seq, seq)
        astray = encode_entries(seq, offset, entry["length"], entry["ts_ms"], entry["flags"])
        segment.idx.write(astray, (seq - 1) * ENTRY.size)
        for first in (1, 2):
            with pytest.raises(FileCorrupt, match="does not follow") as caught:
                segment.entries(first, 4)
            assert (caught.value.path, caught.value.offset) == (segment.idx.path, (seq - 1) * ENTRY.size)
