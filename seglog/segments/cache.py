"""The segments that are open; and when one is opened first, whether its files are those that the snapshot speaks of.

Recovery opens no sealed segment (G4 of seglog.segments.segment). So here is where an .idx or .data is found that is
cut, too
long, of another life of the segment, or from before a delete: `FileCorrupt`, and nothing of that segment is read.
Nobody changes a segment's files before it was opened here.

    .idx      as many entries as it has records
    .data     ends where the last entry says; that is where the snapshot says too, or so many bytes before it as
              deleted records had: then it was written anew, and a crash came before a snapshot (N5 of
              seglog.segments.rewrite)
    times     of the first and the last entry
    flags     as many as the snapshot counts, if it counts any; more where a delete that is in the WAL only reaches,
              because a checkpoint may have begun to flag before it was cut short

Of the active one, what lies beyond is of a checkpoint that did not come to its end. While another process writes, all
may have gone on: more flags, fewer bytes; and files of before and after a rewrite may be met together, so whoever finds
something wrong looks twice.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict

from seglog.errors import FileCorrupt
from seglog.files.port import Files
from seglog.format.index import ENTRY
from seglog.segments.segment import SegmentFiles, SegmentInfo
from seglog.values.layout import Layout
from seglog.values.reach import NOTHING, Reach

__all__ = ["SegmentCache", "open_first"]

_OPEN_MAX = 64


def open_first(
    files: Files, layout: Layout, topic_id: int, info: SegmentInfo, *, may_flag: bool, is_shared: bool = False
) -> SegmentFiles:
    """See above. `may_flag`: there may be more flags; `is_shared`: another process writes.

    Raises `FileCorrupt`, and `FileNotFoundError` for a segment that is gone.
    """
    segment = SegmentFiles(files, layout, topic_id, info.first_seq)
    _check_files(segment, info, may_flag=may_flag, is_shared=is_shared)
    if info.sealed and not is_shared and segment.data.size() != info.data_bytes:
        # Who renamed the files may have been killed before that was durable; and now a snapshot will say so.
        files.sync_dir(layout.topic(topic_id))
    return segment


def _check_files(segment: SegmentFiles, info: SegmentInfo, *, may_flag: bool, is_shared: bool) -> None:
    _check_idx_length(segment, info)
    found = segment.info(info.records, sealed=info.sealed)
    size = segment.data.size()
    if size < found.data_bytes or (info.sealed and size != found.data_bytes):
        reason = f"its index says that it has {found.data_bytes} bytes"
        raise FileCorrupt(segment.data.path, min(size, found.data_bytes), reason)
    is_known = found.data_bytes == info.data_bytes
    is_anew = info.sealed and found.data_bytes == info.data_bytes - info.dead_bytes
    if not (is_known or is_anew or (is_shared and found.data_bytes < info.data_bytes)):
        reason = f"it goes to byte {found.data_bytes} of .data, and the snapshot to {info.data_bytes}"
        raise FileCorrupt(segment.idx.path, 0, reason)
    if (found.min_ts_ms, found.max_ts_ms) != (info.min_ts_ms, info.max_ts_ms):
        raise FileCorrupt(segment.idx.path, 0, "the times of its first and last record are not those of the snapshot")
    if info.dead_records:
        count, _ = segment.dead(info.records)
        if count < info.dead_records or (count > info.dead_records and not (may_flag or is_shared)):
            reason = f"{count} records are flagged as deleted, and {info.dead_records} by the snapshot"
            raise FileCorrupt(segment.idx.path, 0, reason)


def _check_idx_length(segment: SegmentFiles, info: SegmentInfo) -> None:
    size, wanted = segment.idx.size(), info.records * ENTRY.size
    if size < wanted:
        reason = f"the file ends before its time: {info.records} entries were durable"
        raise FileCorrupt(segment.idx.path, size, reason)
    if info.sealed and size > wanted:
        raise FileCorrupt(segment.idx.path, wanted, f"the snapshot counts {info.records} records")


class SegmentCache:
    """At most 64 segments are open beyond those in use at the moment. Safe for many threads.

    `is_shared`: another process may write.
    """

    def __init__(self, files: Files, layout: Layout, *, is_shared: bool = False) -> None:
        self._files = files
        self._layout = layout
        self._is_shared = is_shared
        # A call within a call of the same thread may change what is open between two steps of the other one.
        self._lock = threading.RLock()
        self._open: OrderedDict[tuple[int, int], SegmentFiles] = OrderedDict()
        self._kept: dict[tuple[int, int], SegmentFiles] = {}
        self._pending: dict[int, Reach] = {}
        self._checked: set[tuple[int, int]] = set()

    def expect_flags(self, topic_id: int, pending: Reach) -> None:
        """After recovery: of that topic, these deletes are in the WAL only."""
        self._pending[topic_id] = pending

    def get(self, topic_id: int, info: SegmentInfo) -> SegmentFiles:
        """Raises `FileNotFoundError` for a segment that is gone, `FileCorrupt` if its files are not those of `info`."""
        key = (topic_id, info.first_seq)
        with self._lock:
            segment = self._kept.get(key)
            if segment is not None:
                return segment
            segment = self._open.get(key)
            if segment is not None:
                self._open[key] = self._open.pop(key, segment)
                return segment
            if key in self._checked:
                segment = SegmentFiles(self._files, self._layout, topic_id, info.first_seq)
            else:
                segment = self._open_first(topic_id, info)
                self._checked.add(key)
            return self._keep(key, segment)

    def create(self, topic_id: int, first_seq: int) -> SegmentFiles:
        """New and empty; durable after `sync_dir` of the topic's directory."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        with self._lock:
            segment = SegmentFiles(self._files, self._layout, topic_id, first_seq, flags)
            self._checked.add((topic_id, first_seq))
            return self._keep((topic_id, first_seq), segment)

    def remove(self, topic_id: int, first_seq: int) -> None:
        """Unlink the files. Whoever reads them at the moment may go on."""
        with self._lock:
            self._drop(topic_id, first_seq)
            for path in (self._layout.idx(topic_id, first_seq), self._layout.data(topic_id, first_seq)):
                self._files.unlink(path)
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(self._layout.part("tags", topic_id, first_seq))

    def forget(self, topic_id: int, first_seq: int) -> None:
        """Another segment may take its name. Whoever reads it at the moment may go on."""
        with self._lock:
            self._drop(topic_id, first_seq)

    def swap(self, topic_id: int, first_seq: int, old: SegmentFiles) -> None:
        """The .new files of a segment take its names. If that fails half-way, readers go on with `old`."""
        with self._lock:
            self._open.pop((topic_id, first_seq), None)
            self._kept[topic_id, first_seq] = old
            for kind in ("idx", "data"):
                part = self._layout.part
                self._files.rename(part(f"{kind}.new", topic_id, first_seq), part(kind, topic_id, first_seq))
            del self._kept[topic_id, first_seq]

    def clear(self) -> None:
        with self._lock:
            self._open.clear()
            self._kept.clear()

    def _open_first(self, topic_id: int, info: SegmentInfo) -> SegmentFiles:
        may_flag = self._pending.get(topic_id, NOTHING).may_reach(info.first_seq)
        try:
            return open_first(self._files, self._layout, topic_id, info, may_flag=may_flag, is_shared=self._is_shared)
        except FileCorrupt:
            if not self._is_shared:
                raise
            return open_first(self._files, self._layout, topic_id, info, may_flag=may_flag, is_shared=True)

    def _drop(self, topic_id: int, first_seq: int) -> None:
        self._open.pop((topic_id, first_seq), None)
        self._checked.discard((topic_id, first_seq))

    def _keep(self, key: tuple[int, int], segment: SegmentFiles) -> SegmentFiles:
        self._open[key] = segment
        while len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)
        return segment
