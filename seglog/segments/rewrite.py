"""A sealed segment, written anew without the bytes of its deleted records.

    1 copy    frames of live records to .data.new, all entries to .idx.new: a deleted one has length 0 there
    2 sync    both files, then the directory
    3 swap    both are renamed over the old ones, in any order; the directory is synced

N1  Both pairs show the same records. The new .data is shorter than the old one, and an .idx tells how long its .data
    is.
N2  So whatever of the renames a crash leaves, sizes tell which two files belong together, and `settle_rewrite` gives
    them their names. Before 3 the old pair is whole under its own; then what is new is unlinked.
N3  A segment that the newest snapshot has as the active one was truncated since: no swap came after, and its sizes, in
    the middle of the cut, tell nothing. What is new is unlinked.
N4  What is copied is verified, so damage is found while the old file is still there, and stays where it is.
N5  It changes how many bytes .data has, and the next snapshot says so. If a crash comes before that, the snapshot has
    the bytes of before: the file is shorter by just those of the deleted records that it counts. No delete flags
    anything in between without a snapshot. Whoever opens the segment takes the one or the other, and makes the renames
    durable if it is the shorter one (who made them may have been killed before); who has to know the bytes to the last
    one (a relocation, a checkpoint that flags) asks the file.

When and how fast: seglog.maintenance.reclaim.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import numpy as np

from seglog.errors import FileCorrupt, InvalidEntry
from seglog.files.open_file import OpenFile
from seglog.files.port import Files
from seglog.format.frame import DELETED
from seglog.format.index import ENTRY, encode_entries, read_entries
from seglog.segments.batch import Run
from seglog.segments.segment import SegmentFiles, SegmentInfo
from seglog.values.layout import Layout

__all__ = ["NEW", "discard_rewrite", "settle_rewrite", "write_anew"]

NEW = ("data.new", "idx.new")


def write_anew(
    files: Files, layout: Layout, segment: SegmentFiles, info: SegmentInfo, spent: Callable[[int], None]
) -> int:
    """Steps 1 and 2. Returns the bytes of the new .data. `spent` is told of bytes read and written, and may raise.

    Raises `FileCorrupt` for a live record that is damaged.
    """
    data, idx = (
        OpenFile(files, layout.part(kind, segment.topic_id, info.first_seq), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for kind in NEW
    )
    first, end, entries_end = info.first_seq, 0, 0
    while first <= info.last_seq:
        run = segment.run(first, info.last_seq)
        is_dead = run.entries["flags"] & DELETED != 0
        live = _live_bytes(run, np.flatnonzero(~is_dead).tolist())
        lengths = np.where(is_dead, 0, run.entries["length"])
        entries = encode_entries(first, end, lengths, run.entries["ts_ms"], run.entries["flags"])
        data.write(live, end)
        idx.write(entries, entries_end)
        end += len(live)
        entries_end += len(entries)
        first = run.last_seq + 1
        spent(len(run.buffer) + len(live))
    data.datasync()
    idx.datasync()
    files.sync_dir(layout.topic(segment.topic_id))
    return end


def _live_bytes(run: Run, live: list[int]) -> bytes:
    """Raises `FileCorrupt`."""
    if run.headers() is None:
        for index in live:
            run.frame(index)
    frames = run.frames()
    return b"".join([frames[index] for index in live])


def settle_rewrite(files: Files, layout: Layout, topic_id: int, first_seq: int, *, is_sealed: bool) -> None:
    """N2 and N3, after a crash. Where no two files fit, all stay as they are: that is damage, and others report it."""
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
    """Unlink what is new, as far as it is there."""
    for kind in NEW:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(layout.part(kind, topic_id, first_seq))


def _data_bytes(files: Files, layout: Layout, topic_id: int, first_seq: int, kind: str) -> int | None:
    """Of the .data that belongs to this .idx; None if it is not there or not whole."""
    try:
        file = OpenFile(files, layout.part(kind, topic_id, first_seq), os.O_RDONLY)
        records, rest = divmod(file.size(), ENTRY.size)
        if rest or not records:
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
