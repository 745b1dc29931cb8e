"""The cache of open segments, and the check of a segment's files when it is first opened.

Recovery opens no sealed segment (SEG-4). So the first opening finds files that do not fit. Such a file was cut, is too
long, belongs to another segment of that name, or is from before a delete. The opening raises `FileCorrupt`, and nothing
of that segment is read. The log changes no file of a segment before this opening.

    .idx      has as many entries as the segment has records
    .data     ends where the last entry says, and the manifest says the same end. If the segment was rewritten and a
              crash came before the next manifest, .data is shorter by the bytes of the deleted records (REWRITE-5)
    times     of the first and the last entry are those in the manifest
    flags     are as many as the manifest counts, if it counts any. A delete that is only in the WAL allows more flags:
              a checkpoint may have begun to set them before a crash

In the active segment, bytes past the manifest's lengths come from a checkpoint that did not finish.
While another process writes, a segment may have more flags and fewer bytes than the manifest says. A reader may also
open one file from before a rewrite and one from after it. So the cache checks the segment again before it raises.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Collection

from seglog.errors import FileCorrupt
from seglog.files.port import Files
from seglog.format.index import ENTRY
from seglog.segments.segment import SegmentFiles, SegmentInfo
from seglog.values.deletes import NO_DELETES, MergedDeletes
from seglog.values.layout import Layout

__all__ = ["SegmentCache", "open_first"]

_OPEN_MAX = 64


def open_first(
    files: Files, layout: Layout, topic_id: int, info: SegmentInfo, *, may_flag: bool, is_shared: bool = False
) -> SegmentFiles:
    """Open the files of a segment, and check that they fit the manifest, as described above.

    If `may_flag`, the .idx may have more deleted flags than the manifest counts. If `is_shared`, another process
    writes.
    Raises `FileCorrupt`, and `FileNotFoundError` if the segment is gone.
    """
    segment = SegmentFiles(files, layout, topic_id, info.first_seq)
    _check_files(segment, info, may_flag=may_flag, is_shared=is_shared)
    if info.sealed and not is_shared and segment.data.size() != info.data_bytes:
        # The process that renamed the files may have been killed before the renames were durable. The next manifest
        # gives the new length, so the renames must be durable before that.
        files.sync_dir(layout.topic(topic_id))
    return segment


def _check_files(segment: SegmentFiles, info: SegmentInfo, *, may_flag: bool, is_shared: bool) -> None:
    """Raise `FileCorrupt` if the files do not fit `info`."""
    _check_idx_length(segment, info)
    found = segment.info(info.records, sealed=info.sealed)
    size = segment.data.size()
    if size < found.data_bytes or (info.sealed and size != found.data_bytes):
        reason = f"its index says that it has {found.data_bytes} bytes"
        raise FileCorrupt(segment.data.path, min(size, found.data_bytes), reason)
    is_known = found.data_bytes == info.data_bytes
    is_rewritten = info.sealed and found.data_bytes == info.data_bytes - info.dead_bytes
    if not (is_known or is_rewritten or (is_shared and found.data_bytes < info.data_bytes)):
        reason = f"it goes to byte {found.data_bytes} of .data, and the manifest to {info.data_bytes}"
        raise FileCorrupt(segment.idx.path, 0, reason)
    if (found.min_ts_ms, found.max_ts_ms) != (info.min_ts_ms, info.max_ts_ms):
        raise FileCorrupt(segment.idx.path, 0, "the times of its first and last record are not those of the manifest")
    if info.dead_records:
        count, _ = segment.dead(info.records)
        if count < info.dead_records or (count > info.dead_records and not (may_flag or is_shared)):
            reason = f"{count} records are flagged as deleted, and {info.dead_records} by the manifest"
            raise FileCorrupt(segment.idx.path, 0, reason)


def _check_idx_length(segment: SegmentFiles, info: SegmentInfo) -> None:
    size, wanted = segment.idx.size(), info.records * ENTRY.size
    if size < wanted:
        reason = f"the file is cut short: {info.records} entries were durable"
        raise FileCorrupt(segment.idx.path, size, reason)
    if info.sealed and size > wanted:
        raise FileCorrupt(segment.idx.path, wanted, f"the manifest counts {info.records} records")


class SegmentCache:
    """A cache that keeps at most 64 segments open, in addition to those in use. Safe for many threads.

    `is_shared`: another process may write.
    """

    def __init__(self, files: Files, layout: Layout, *, is_shared: bool = False) -> None:
        self._files = files
        self._layout = layout
        self._is_shared = is_shared
        # Reentrant: a signal handler may call the cache between two steps of its thread, and change what is open.
        self._lock = threading.RLock()
        self._open: OrderedDict[tuple[int, int], SegmentFiles] = OrderedDict()
        self._kept: dict[tuple[int, int], SegmentFiles] = {}
        self._pending: dict[int, MergedDeletes] = {}
        self._checked: set[tuple[int, int]] = set()

    def expect_flags(self, topic_id: int, pending: MergedDeletes) -> None:
        """Tell the cache which deletes of a topic only the WAL has. Recovery found them."""
        self._pending[topic_id] = pending

    def get(self, topic_id: int, info: SegmentInfo) -> SegmentFiles:
        """Return the open segment.

        Raises `FileNotFoundError` if the segment is gone, and `FileCorrupt` if its files do not fit `info`.
        """
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
        """Create a new, empty segment, which is durable after `sync_dir` of the topic's directory."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        with self._lock:
            segment = SegmentFiles(self._files, self._layout, topic_id, first_seq, flags)
            self._checked.add((topic_id, first_seq))
            return self._keep((topic_id, first_seq), segment)

    def remove(self, topic_id: int, first_seq: int) -> None:
        """Unlink the files. A reader that has them open can still read them."""
        with self._lock:
            self._drop(topic_id, first_seq)
            for path in (self._layout.idx(topic_id, first_seq), self._layout.data(topic_id, first_seq)):
                self._files.unlink(path)
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(self._layout.part("tags", topic_id, first_seq))

    def forget(self, topic_id: int, first_seq: int) -> None:
        """Drop the segment: another one may take its name. A reader that has it open can still read it."""
        with self._lock:
            self._drop(topic_id, first_seq)

    def forget_topics(self, topic_ids: Collection[int]) -> None:
        """Drop all segments of deleted topics. A reader that has one open can still read it."""
        with self._lock:
            for key in [key for key in self._checked if key[0] in topic_ids]:
                self._drop(*key)
            for topic_id in topic_ids:
                self._pending.pop(topic_id, None)

    def swap(self, topic_id: int, first_seq: int, old: SegmentFiles) -> None:
        """Rename the .new files of a segment over its files.

        If a rename fails, later reads use `old`.
        """
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
        may_flag = self._pending.get(topic_id, NO_DELETES).may_reach(info.first_seq)
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
