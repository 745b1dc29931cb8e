"""A rewrite of a sealed segment, without the bytes of its deleted records.

    1 copy    The rewriter copies the frames of live records to .data.new, and all entries to .idx.new. The entry of a
              deleted record has length 0 there.
    2 sync    The rewriter syncs both files, then the directory.
    3 swap    The rewriter renames both files over the old ones, in any order, then syncs the directory.

REWRITE-1  Both pairs show the same records. The new .data is shorter than the old one. Each .idx tells the length of
    its .data.
REWRITE-2  After a crash, the sizes tell which two files belong together, whichever renames were made. `settle_rewrite`
    gives these two their names. After a crash before step 3, the old pair is whole under its own names, and
    `settle_rewrite` unlinks the new files.
REWRITE-3  If the newest manifest has the segment as the active one, a truncation came after the rewrite. No swap came
    after that. The files may be cut half-way, so their sizes tell nothing. `settle_rewrite` unlinks the new files.
REWRITE-4  The rewriter verifies each frame that it copies. So it finds damage while the old file is still there. The
    old file then stays in its place.
REWRITE-5  A rewrite changes the length of .data, and the next manifest says so. If a crash comes before that manifest,
    the newest manifest has the old length. Then .data is shorter by exactly the bytes of the deleted records that the
    manifest counts. A checkpoint that sets a flag also writes a manifest. The first opening of a segment accepts both
    lengths. If .data has the shorter one, the opening makes the renames durable. The rewriter may have been killed
    before it did. A relocation and a checkpoint that sets flags need the exact length. They ask the file.

seglog.maintenance.checkpoint decides when a segment is rewritten, and how fast.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from seglog.errors import FileCorrupt, InvalidEntry
from seglog.files.file_system import Files, OpenFile
from seglog.format.arrays import np
from seglog.format.frame import DELETED
from seglog.format.index import ENTRY, encode_entries, read_entries
from seglog.segments.batch import FrameBatch
from seglog.segments.segment import SegmentFiles, SegmentInfo
from seglog.values.layout import Layout

NEW = ("data.new", "idx.new")


def rewrite_segment(
    files: Files, layout: Layout, segment: SegmentFiles, info: SegmentInfo, spent: Callable[[int], None]
) -> int:
    """Write and sync the new files (steps 1 and 2). Return the bytes of the new .data.

    The rewriter calls `spent` with the number of bytes read and written. `spent` may raise.
    Raises `FileCorrupt` if a live record is damaged.
    """
    data, idx = (
        OpenFile(files, layout.part(kind, segment.topic_id, info.first_seq), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for kind in NEW
    )
    first, end, entries_end = info.first_seq, 0, 0
    while first <= info.last_seq:
        batch = segment.batch(first, info.last_seq)
        is_dead = batch.entries["flags"] & DELETED != 0
        live = _live_bytes(batch, np.flatnonzero(~is_dead).tolist())
        lengths = np.where(is_dead, 0, batch.entries["length"])
        entries = encode_entries(first, end, lengths, batch.entries["ts_ms"], batch.entries["flags"])
        data.write(live, end)
        idx.write(entries, entries_end)
        end += len(live)
        entries_end += len(entries)
        first = batch.last_seq + 1
        spent(len(batch.buffer) + len(live))
    data.datasync()
    idx.datasync()
    files.sync_dir(layout.topic(segment.topic_id))
    return end


def _live_bytes(batch: FrameBatch, live: list[int]) -> bytes:
    """Return the frames at the indices `live`, joined. Raises `FileCorrupt` if one is damaged."""
    if batch.headers() is None:
        for index in live:
            batch.frame(index)
    frames = batch.frames()
    return b"".join([frames[index] for index in live])


def settle_rewrite(files: Files, layout: Layout, topic_id: int, first_seq: int, *, is_sealed: bool) -> None:
    """Give the two files that belong together their names after a crash (REWRITE-2, REWRITE-3).

    If no two files fit, change nothing. That is damage, and the opening of the segment reports it.
    """
    if not is_sealed:
        discard_rewrite(files, layout, topic_id, first_seq)
        return
    data, idx, new_data, new_idx = (
        layout.part(kind, topic_id, first_seq) for kind in ("data", "idx", "data.new", "idx.new")
    )
    length = _data_bytes(files, layout, topic_id, first_seq, "idx")
    new_length = _data_bytes(files, layout, topic_id, first_seq, "idx.new")
    size, new_size = (_size(files, layout, topic_id, first_seq, kind) for kind in ("data", "data.new"))
    if size is None or size != length:
        if size is not None and size == new_length:
            files.rename(new_idx, idx)
        elif new_size is not None and new_size == length:
            files.rename(new_data, data)
        else:
            return
    files.sync_dir(layout.topic(topic_id))
    discard_rewrite(files, layout, topic_id, first_seq)


def discard_rewrite(files: Files, layout: Layout, topic_id: int, first_seq: int) -> None:
    """Unlink the new files that exist."""
    for kind in NEW:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(layout.part(kind, topic_id, first_seq))


def _data_bytes(files: Files, layout: Layout, topic_id: int, first_seq: int, kind: str) -> int | None:
    """Return the length of the .data that this .idx describes. None: the .idx is missing or not whole."""
    try:
        file = OpenFile(files, layout.part(kind, topic_id, first_seq), os.O_RDONLY)
        records, remainder = divmod(file.size(), ENTRY.size)
        if remainder or not records:
            return None
        raw = file.read_exactly(ENTRY.size, (records - 1) * ENTRY.size)
        [last] = read_entries(raw, first_seq + records - 1)
    except (FileNotFoundError, FileCorrupt, InvalidEntry):
        return None
    return last.offset + last.length


def _size(files: Files, layout: Layout, topic_id: int, first_seq: int, kind: str) -> int | None:
    try:
        return OpenFile(files, layout.part(kind, topic_id, first_seq), os.O_RDONLY).size()
    except FileNotFoundError:
        return None
