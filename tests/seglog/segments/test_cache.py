"""The checks of a segment's files at their first opening."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from seglog.errors import FileCorrupt
from seglog.files.file_system import OsFiles
from seglog.format.frame import DELETED, read_header
from seglog.format.index import ENTRY, encode_entry
from seglog.segments.rewrite import rewrite_segment
from seglog.segments.segment import SegmentCache, SegmentInfo, SegmentWriter
from seglog.values.deletes import DeleteOp, MergedDeletes
from seglog.values.layout import Layout
from tests.seglog.frames import append_frames

DEAD = [2, 7, 8]


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path)
    layout.topic(1).mkdir(parents=True)
    return layout


def _written(layout: Layout, *, sealed: bool = True, ts_ms: int = 50) -> SegmentInfo:
    """Write a segment of ten records. The records in DEAD are flagged as deleted."""
    files = OsFiles()
    cache = SegmentCache(files, layout)
    writer = SegmentWriter(files, cache.create(1, 1), None)
    for seq in range(1, 11):
        [frame] = append_frames(
            1, seq, ts_ms + seq, [b"x" * seq], tag=None, node=None, unterminated=False, durable=True
        )
        header = read_header(frame)
        flags = header.flags | (DELETED if seq in DEAD else 0)
        writer.add(frame, np.array([len(frame)]), np.array([header.ts_ms]), np.array([flags]))
    writer.sync()
    return writer.info(sealed=sealed)


def _found(layout: Layout, info: SegmentInfo, *, is_shared: bool = False, pending: bool = False) -> FileCorrupt | None:
    cache = SegmentCache(OsFiles(), layout, is_shared=is_shared)
    if pending:
        cache.expect_flags(1, MergedDeletes([DeleteOp(1, 9, 0, None, "any")]))
    try:
        assert cache.get(1, info).entries(1, info.last_seq)["flags"].any()
    except FileCorrupt as error:
        # Each further look raises the same error.
        with pytest.raises(FileCorrupt, match=error.reason):
            cache.get(1, info)
        return error
    return None


def test_files_that_are_what_the_snapshot_says_are_opened(layout: Layout) -> None:
    info = _written(layout)
    assert (info.dead_records, info.min_ts_ms, info.max_ts_ms) == (3, 51, 60)
    assert _found(layout, info) is None


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("kind", ["data", "idx"])
def test_a_file_that_is_cut_is_found_with_its_place(layout: Layout, kind: str, sealed: bool) -> None:
    info = _written(layout, sealed=sealed)
    path = layout.part(kind, 1, 1)
    body = path.read_bytes()
    for length in range(len(body)):
        path.write_bytes(body[:length])
        error = _found(layout, info)
        assert error is not None
        assert (error.path, error.offset) == (path, length)


def test_what_lies_beyond_is_damage_of_a_sealed_one_and_nothing_of_the_active_one(layout: Layout) -> None:
    for kind in ("data", "idx"):
        info = _written(layout)
        path = layout.part(kind, 1, 1)
        size = path.stat().st_size
        with path.open("ab") as file:
            file.write(bytes(ENTRY.size))
        error = _found(layout, info)
        assert error is not None
        assert (error.path, error.offset) == (path, size)
        assert _found(layout, info._replace(sealed=False)) is None


def test_a_sound_segment_that_is_another_one_is_found(layout: Layout) -> None:
    info = _written(layout)
    _written(layout, ts_ms=51)
    error = _found(layout, info)
    assert error is not None
    assert "times" in error.reason
    info = _written(layout)
    for records, what in ((9, "counts 9 records"), (11, "is cut short")):
        error = _found(layout, info._replace(last_seq=records))
        assert error is not None
        assert what in error.reason
    for data_bytes in (info.data_bytes - 1, info.data_bytes + 1):
        error = _found(layout, info._replace(data_bytes=data_bytes))
        assert error is not None
        assert (error.path, f"manifest to {data_bytes}" in error.reason) == (layout.idx(1, 1), True)


@pytest.mark.parametrize(
    ("counted", "pending", "is_shared", "is_sound"),
    [
        (3, False, False, True),
        (4, False, False, False),
        (4, True, False, False),
        (4, False, True, False),
        (2, False, False, False),
        (2, True, False, True),
        (2, False, True, True),
    ],
)
def test_flags_are_those_that_were_counted_or_more_where_a_delete_is_on_its_way(
    layout: Layout, counted: int, pending: bool, is_shared: bool, is_sound: bool
) -> None:
    info = _written(layout)._replace(dead_records=counted)
    error = _found(layout, info, pending=pending, is_shared=is_shared)
    assert (error is None) == is_sound
    assert error is None or (error.path, "flagged as deleted" in error.reason) == (layout.idx(1, 1), True)


def test_one_that_was_written_anew_is_taken_for_what_it_is(layout: Layout) -> None:
    """The cache accepts a rewritten segment with the old or the new manifest. It refuses any other length."""
    files = OsFiles()
    before = _written(layout)
    cache = SegmentCache(files, layout)
    segment = cache.get(1, before)
    size = rewrite_segment(files, layout, segment, before, lambda _: None)
    cache.swap(1, 1, segment)
    after = before._replace(data_bytes=size, dead_bytes=0)
    assert _found(layout, before) is None
    assert _found(layout, after) is None
    assert SegmentCache(files, layout).get(1, before).counted(before) == after
    assert _found(layout, before._replace(dead_bytes=before.dead_bytes - 1)) is not None
    assert _found(layout, before._replace(dead_bytes=0), is_shared=True) is None


def test_a_damaged_entry_is_found_where_it_is(layout: Layout) -> None:
    info = _written(layout)
    path = layout.idx(1, 1)
    body = path.read_bytes()
    path.write_bytes(body[:-3] + b"\xff" + body[-2:])
    error = _found(layout, info)
    assert error is not None
    assert (error.path, error.offset) == (path, 9 * ENTRY.size)
    path.write_bytes(encode_entry(1, 1, 47, 51, 0) + body[ENTRY.size :])
    error = _found(layout, info)
    assert error is not None
    assert "not at offset 0" in error.reason


def test_who_looks_beside_a_writer_may_meet_two_files_that_do_not_belong_together(layout: Layout) -> None:
    """The reader opens .data from before a rewrite and .idx from after it. It then opens both again."""
    info = _written(layout)

    class Swapping(OsFiles):
        opened = 0

        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            self.opened += 1
            if self.opened == 2:
                cache = SegmentCache(OsFiles(), layout)
                segment = cache.get(1, info)
                rewrite_segment(OsFiles(), layout, segment, info, lambda _: None)
                cache.swap(1, 1, segment)
            return super().open(path, flags, mode)

    cache = SegmentCache(Swapping(), layout, is_shared=True)
    assert cache.get(1, info).data.size() == info.data_bytes - info.dead_bytes


def test_a_segment_is_looked_at_once(layout: Layout) -> None:
    info = _written(layout)
    reads = []

    class Watching(OsFiles):
        def pread(self, fd: int, length: int, offset: int) -> bytes:
            reads.append(length)
            return super().pread(fd, length, offset)

    cache = SegmentCache(Watching(), layout)
    cache.get(1, info)
    assert reads == [ENTRY.size, ENTRY.size, 10 * ENTRY.size]
    cache.clear()
    cache.get(1, info)
    assert len(reads) == 3
    cache.forget(1, 1)
    os.truncate(layout.data(1, 1), 0)
    with pytest.raises(FileCorrupt):
        cache.get(1, info)
