"""A segment: consecutive records of one topic in two files, .data (frames) and .idx (entries).

SEG-1  Records are dense. The entry of seq s is number s - first_seq. Frames lie one after the other from offset 0.
SEG-2  Only the newest segment of a topic, the active one, grows. In a sealed segment, only the flags of entries change.
    A rewrite replaces a sealed segment as a whole, to reclaim the bytes of deleted records (seglog.segments.rewrite).
SEG-3  The manifest says where the active segment ends (seglog.wal.manifest). The size of the file does not.
SEG-4  The manifest also has the records, bytes, times and number of deleted flags of each sealed segment. So opening a
    log opens no sealed segment. The first opening of a segment finds files that do not fit (seglog.segments.segment).
    Only an undelete removes flags. So an .idx from before a delete has fewer flags, and no deleted record comes back.

Both files are read with pread through the port, up to a MiB at a time, and are not mapped. A disk error is then an
`OSError` that a caller can handle. A disk error on a mapped page ends the process. A batch costs one system call for
each file.

Source: topics engine architecture, sections 3.1 and 3.3.

**The cache** of open segments checks a segment's files when it is first opened.

Recovery opens no sealed segment (SEG-4). So the first opening finds files that do not fit. Such a file was cut, is too
long, belongs to another segment of that name, or is from before a delete. The opening raises `FileCorrupt`, and nothing
of that segment is read. The log changes no file of a segment before this opening.

    .idx      has as many entries as the segment has records
    .data     ends where the last entry says, and the manifest says the same end. If the segment was rewritten and a
              crash came before the next manifest, .data is shorter by the bytes of the deleted records (REWRITE-5)
    times     of the first and the last entry are those in the manifest
    flags     are as many as the manifest counts, if it counts any. A delete that is only in the WAL allows more flags:
              a checkpoint may have begun to set them before a crash. Likewise, an undelete allows fewer

In the active segment, bytes past the manifest's lengths come from a checkpoint that did not finish.
While another process writes, a segment may have more flags and fewer bytes than the manifest says. A reader may also
open one file from before a rewrite and one from after it. So the cache checks the segment again before it raises.
"""

from __future__ import annotations

import contextlib
import os
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Collection
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

from seglog.errors import FileCorrupt, InvalidEntry, OffsetOverflow
from seglog.files.file_system import Files, OpenFile, Readable
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import DELETED
from seglog.format.index import (
    ENTRY,
    OFFSET_END,
    Entry,
    encode_entries,
    load_entries,
    mark_deleted,
    mark_live,
    read_entries,
)
from seglog.segments.batch import FRAME_BATCH_MAX_BYTES, FRAME_BATCH_MAX_RECORDS, FrameBatch
from seglog.segments.checked_frames import FewFrames
from seglog.values.config import LogSettings
from seglog.values.deletes import NO_DELETES, MergedDeletes
from seglog.values.layout import Layout
from seglog.values.seq_set import SeqSet

_ASTRAY = "it does not follow the entry before"
_FLUSH_BYTES = 1024 * 1024
_LOOK_RECORDS = 8192
_data_bytes = attrgetter("data_bytes")
_last_seq = attrgetter("last_seq")


class SegmentInfo(NamedTuple):
    """The facts that the log keeps about one segment. Times are in ms since the epoch.

    `warm_check` is the XXH3-64 of the .idx of a relocated segment, which is only in the warm store. None: it is hot.
    `dead_records` records have the deleted flag in the .idx. Their frames take `dead_bytes` of .data.
    A sealed segment may have been rewritten without these bytes while the manifest does not say so yet. Then .data has
    `data_bytes - dead_bytes` bytes (REWRITE-5). The class is a named tuple, because opening a log makes one for each
    segment.
    """

    first_seq: int
    last_seq: int
    data_bytes: int
    min_ts_ms: int
    max_ts_ms: int
    sealed: bool
    warm_check: int | None = None
    dead_records: int = 0
    dead_bytes: int = 0

    @property
    def is_hot(self) -> bool:
        return self.warm_check is None

    @property
    def records(self) -> int:
        return self.last_seq - self.first_seq + 1


class SegmentReader:
    """A reader of both parts of a segment, hot or warm. Safe for many threads."""

    __slots__ = ()

    topic_id: int
    first_seq: int
    data: Readable
    idx: Readable

    def entries(self, first: int, last: int) -> NDArray[Any]:
        """Return the entries of the records `first` to `last` (seqs), as ENTRIES. Raises `FileCorrupt`."""
        position = first - self.first_seq
        return self._checked(self._read_raw(position, last - first + 1), first)

    def batch(self, first: int, last: int, max_records: int = FRAME_BATCH_MAX_RECORDS) -> FrameBatch:
        """Return a batch of the records from `first` on, at least one.

        The batch ends at `last`, after `max_records`, or before the record that would exceed FRAME_BATCH_MAX_BYTES.
        Raises `FileCorrupt`.
        """
        raw = self._read_raw(first - self.first_seq, min(last - first + 1, max_records))
        # The lengths of unchecked entries tell how many records fit. Then only their entries are checked, because the
        # check is the slowest step.
        ends = np.cumsum(np.frombuffer(raw, dtypes.ENTRIES)["length"], dtype=np.int64)
        count = max(1, int(ends.searchsorted(FRAME_BATCH_MAX_BYTES, "right")))
        entries = self._checked(raw[: count * ENTRY.size], first)
        buffer = self.data.read_exactly(int(ends[count - 1]), int(entries[0]["offset"]))
        return FrameBatch(self.data.path, self.topic_id, first, entries, buffer)

    def few(self, first: int, last: int) -> FewFrames:
        """Return the records from `first` on, at least one, without the help of arrays.

        They end at `last`, or before the record that would exceed FRAME_BATCH_MAX_BYTES. Raises `FileCorrupt`.
        """
        entries = self._few_entries(first, last)
        start = end = entries[0].offset
        batch: list[Entry] = []
        for entry in entries:
            if batch and end + entry.length - start > FRAME_BATCH_MAX_BYTES:
                break
            if entry.offset != end:
                raise FileCorrupt(self.idx.path, (first - self.first_seq + len(batch)) * ENTRY.size, _ASTRAY)
            batch.append(entry)
            end += entry.length
        return FewFrames(self.data.path, self.topic_id, first, tuple(batch), self.data.read_exactly(end - start, start))

    def _few_entries(self, first: int, last: int) -> list[Entry]:
        position = first - self.first_seq
        try:
            return read_entries(self._read_raw(position, last - first + 1), first)
        except InvalidEntry as error:
            raise FileCorrupt(self.idx.path, (position + error.position) * ENTRY.size, error.reason) from error

    def _checked(self, raw: bytes, first: int) -> NDArray[Any]:
        """Decode and check entries, which begin with the entry of `first`. Raises `FileCorrupt`."""
        position = first - self.first_seq
        try:
            entries = load_entries(raw, first)
        except InvalidEntry as error:
            raise FileCorrupt(self.idx.path, (position + error.position) * ENTRY.size, error.reason) from error
        offsets = entries["offset"].astype(np.int64)
        is_astray = offsets[1:] != offsets[:-1] + entries["length"][:-1]
        if is_astray.any():
            index = int(is_astray.argmax()) + 1
            raise FileCorrupt(self.idx.path, (position + index) * ENTRY.size, _ASTRAY)
        return entries

    def info(self, records: int, *, sealed: bool) -> SegmentInfo:
        """Return the facts about the first `records` records, at least one. Raises `FileCorrupt`."""
        last_seq = self.first_seq + records - 1
        [first], [last] = (self._few_entries(seq, seq) for seq in (self.first_seq, last_seq))
        if first.offset:
            raise FileCorrupt(self.idx.path, 0, "the first entry is not at offset 0")
        return SegmentInfo(self.first_seq, last_seq, last.offset + last.length, first.ts_ms, last.ts_ms, sealed)

    def counted(self, info: SegmentInfo) -> SegmentInfo:
        """Return `info` with the bytes and the deleted records of the files. Raises `FileCorrupt`."""
        dead_records, dead_bytes = self.dead(info.records)
        data_bytes = self.info(info.records, sealed=info.sealed).data_bytes
        return info._replace(data_bytes=data_bytes, dead_records=dead_records, dead_bytes=dead_bytes)

    def dead(self, records: int) -> tuple[int, int]:
        """Count the deleted flags of the first `records` records, and the bytes of these records in .data."""
        count, size = 0, 0
        for start in range(0, records, _LOOK_RECORDS):
            first = self.first_seq + start
            entries = self.entries(first, first + min(records - start, _LOOK_RECORDS) - 1)
            is_dead = entries["flags"] & DELETED != 0
            count += int(is_dead.sum())
            size += int(entries["length"][is_dead].sum(dtype=np.int64))
        return count, size

    def _read_raw(self, position: int, count: int) -> bytes:
        """Return the bytes of `count` entries from number `position` on, unchecked."""
        return self.idx.read_exactly(count * ENTRY.size, position * ENTRY.size)


class SegmentFiles(SegmentReader):
    """The two open files of a hot segment. Many threads may read them, also while flags change."""

    __slots__ = ("_flags_lock", "data", "first_seq", "idx", "shown", "topic_id")

    def __init__(self, files: Files, layout: Layout, topic_id: int, first_seq: int, flags: int = os.O_RDWR) -> None:
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.data: OpenFile = OpenFile(files, layout.data(topic_id, first_seq), flags)
        self.idx: OpenFile = OpenFile(files, layout.idx(topic_id, first_seq), flags)
        # Reentrant: a call by a signal handler finds the flags from before or after the outer call.
        self._flags_lock = threading.RLock()
        #: Readers find the records of an undelete without the deleted flag, before it has gone from the file.
        self.shown: SeqSet | None = None

    def set_deleted(self, first: int, last: int, seqs: list[int]) -> None:
        """Set the deleted flag in the entries of `seqs`, all from `first` to `last`.

        The flags are durable after a datasync of `idx`.
        """
        position = first - self.first_seq
        with self._flags_lock:
            raw = bytearray(self.idx.read_exactly((last - first + 1) * ENTRY.size, position * ENTRY.size))
            for seq in seqs:
                mark_deleted(raw, seq - first, seq)
            self.idx.write(raw, position * ENTRY.size)

    def set_live(self, first: int, last: int, seqs: SeqSet) -> None:
        """Remove the deleted flag from the entries `first` to `last` of `seqs`, as durably as `set_deleted` sets it."""
        position = first - self.first_seq
        with self._flags_lock:
            raw = self.idx.read_exactly((last - first + 1) * ENTRY.size, position * ENTRY.size)
            self.idx.write(_live(raw, first, seqs), position * ENTRY.size)

    def _read_raw(self, position: int, count: int) -> bytes:
        with self._flags_lock:
            raw, shown = super()._read_raw(position, count), self.shown
        return raw if shown is None else bytes(_live(raw, self.first_seq + position, shown))


def _live(raw: bytes, first: int, seqs: SeqSet) -> bytearray:
    """Return the entries of the records from `first` on, without the deleted flag in those of `seqs`."""
    entries = bytearray(raw)
    for index in np.flatnonzero(np.frombuffer(raw, dtypes.ENTRIES)["flags"] & DELETED).tolist():
        if first + index in seqs:
            mark_live(entries, index, first + index)
    return entries


class SegmentWriter:
    """A writer that appends verified frames to a segment, byte for byte.

    The frames are durable after `sync`. The caller syncs the directory of a new segment.
    """

    __slots__ = (
        "_files",
        "_frames",
        "_index",
        "_pending_bytes",
        "data_bytes",
        "dead_bytes",
        "dead_records",
        "max_ts_ms",
        "min_ts_ms",
        "records",
        "segment",
    )

    def __init__(self, files: Files, segment: SegmentFiles, info: SegmentInfo | None) -> None:
        """Begin at the end of the segment that `info` gives. None: the segment is new.

        Bytes past that end come from an attempt that failed, and are cut.
        """
        self._files = files
        self.segment = segment
        self.records = 0 if info is None else info.records
        self.data_bytes = 0 if info is None else info.data_bytes
        self.min_ts_ms = 0 if info is None else info.min_ts_ms
        self.max_ts_ms = 0 if info is None else info.max_ts_ms
        self.dead_records = 0 if info is None else info.dead_records
        self.dead_bytes = 0 if info is None else info.dead_bytes
        self._frames: list[bytes] = []
        self._index: list[bytes] = []
        self._pending_bytes = 0
        cut(segment, self.records, self.data_bytes)

    def room(self, lengths: NDArray[Any], settings: LogSettings) -> int:
        """Return how many frames of these lengths fit. An empty segment takes one frame of any size."""
        ends = self.data_bytes + self._pending_bytes + np.cumsum(lengths, dtype=np.int64)
        limit = settings.segment_max_bytes
        begun = int((ends - lengths).searchsorted(limit, "left"))
        within = int(ends.searchsorted(min(limit + settings.max_store_overflow, OFFSET_END), "right"))
        fitting = max(min(begun, within), not self.records)
        return min(fitting, settings.segment_max_events - self.records)

    def add(self, frames: bytes, lengths: NDArray[Any], times: NDArray[Any], flags: NDArray[Any]) -> None:
        """Append frames, which `frames` holds one after the other.

        Raises `OffsetOverflow`, and then appends none of them.
        """
        offset = self.data_bytes + self._pending_bytes
        if offset + len(frames) > OFFSET_END:
            raise OffsetOverflow(self.segment.data.path, OFFSET_END)
        if not self.records:
            self.min_ts_ms = int(times[0])
        self._index.append(encode_entries(self.segment.first_seq + self.records, offset, lengths, times, flags))
        self._frames.append(frames)
        self._pending_bytes += len(frames)
        self.max_ts_ms = int(times[-1])
        is_dead = flags & DELETED != 0
        self.dead_records += int(is_dead.sum())
        self.dead_bytes += int(lengths[is_dead].sum(dtype=np.int64))
        self.records += len(lengths)
        if self._pending_bytes >= _FLUSH_BYTES:
            self.flush()

    def sync(self) -> None:
        self.flush()
        self.segment.data.datasync()
        self.segment.idx.datasync()

    def info(self, *, sealed: bool) -> SegmentInfo:
        first = self.segment.first_seq
        data_bytes = self.data_bytes + self._pending_bytes
        return SegmentInfo(
            first,
            first + self.records - 1,
            data_bytes,
            self.min_ts_ms,
            self.max_ts_ms,
            sealed,
            dead_records=self.dead_records,
            dead_bytes=self.dead_bytes,
        )

    def flush(self) -> None:
        """Write all frames and entries. A datasync of both files then makes them durable."""
        if not self._frames:
            return
        self._files.pwritev(self.segment.data.fd, self._frames, self.data_bytes)
        entries = b"".join(self._index)
        self.segment.idx.write(entries, self.records * ENTRY.size - len(entries))
        self.data_bytes += self._pending_bytes
        self._frames, self._index, self._pending_bytes = [], [], 0


def cut(segment: SegmentFiles, records: int, data_bytes: int) -> None:
    """Cut both files to these lengths, durably. Raises `FileCorrupt` if a file is shorter.

    After that the bytes behind the end can be written again, and the size of a file tells where it ends.
    """
    for file, length in ((segment.data, data_bytes), (segment.idx, records * ENTRY.size)):
        size = file.size()
        if size < length:
            raise FileCorrupt(file.path, size, f"the file is cut short: {length} bytes were durable")
        if size > length:
            file.truncate(length)
            file.datasync()


class Sizes:
    """The totals of `segments`, which are sealed and ascend. `warm` are the relocated segments among them."""

    __slots__ = ("_ends", "segments", "warm", "warm_bytes")

    def __init__(self, segments: tuple[SegmentInfo, ...] = (), warm: tuple[SegmentInfo, ...] = ()) -> None:
        self.segments = segments
        self.warm = warm
        self.warm_bytes: int = sum(map(_data_bytes, warm))
        self._ends: array[int] = array("Q", accumulate(map(_data_bytes, segments), initial=0))

    @property
    def hot_bytes(self) -> int:
        return self._ends[-1] - self.warm_bytes

    def bytes_from(self, seq: int) -> int:
        """Return the bytes of the segments that end at `seq` or later."""
        return self._ends[-1] - self._ends[self.index_of(seq)]

    def index_of(self, seq: int) -> int:
        """Return the index of the first segment that ends at `seq` or later. Without one, return their number."""
        return bisect_left(self.segments, seq, key=_last_seq)


_OPEN_MAX = 64


def open_first(
    files: Files,
    layout: Layout,
    topic_id: int,
    info: SegmentInfo,
    *,
    may_flag: bool,
    shown: SeqSet | None = None,
    is_shared: bool = False,
) -> SegmentFiles:
    """Open the files of a segment, and check that they fit the manifest, as described above.

    If `may_flag`, the .idx may have more deleted flags than the manifest counts. The flags of `shown` may be gone. If
    `is_shared`, another process writes.
    Raises `FileCorrupt`, and `FileNotFoundError` if the segment is gone.
    """
    segment = SegmentFiles(files, layout, topic_id, info.first_seq)
    _check_files(segment, info, may_flag=may_flag, shown=shown, is_shared=is_shared)
    segment.shown = shown
    if info.sealed and not is_shared and segment.data.size() != info.data_bytes:
        # The process that renamed the files may have been killed before the renames were durable. The next manifest
        # gives the new length, so the renames must be durable before that.
        files.sync_dir(layout.topic(topic_id))
    return segment


def _check_files(
    segment: SegmentFiles, info: SegmentInfo, *, may_flag: bool, shown: SeqSet | None, is_shared: bool
) -> None:
    """Raise `FileCorrupt` if the files do not fit `info`."""
    _check_idx_length(segment, info)
    actual = segment.info(info.records, sealed=info.sealed)
    size = segment.data.size()
    if size < actual.data_bytes or (info.sealed and size != actual.data_bytes):
        reason = f"its index says that it has {actual.data_bytes} bytes"
        raise FileCorrupt(segment.data.path, min(size, actual.data_bytes), reason)
    is_known = actual.data_bytes == info.data_bytes
    is_rewritten = info.sealed and actual.data_bytes == info.data_bytes - info.dead_bytes
    if not (is_known or is_rewritten or (is_shared and actual.data_bytes < info.data_bytes)):
        reason = f"it goes to byte {actual.data_bytes} of .data, and the manifest to {info.data_bytes}"
        raise FileCorrupt(segment.idx.path, 0, reason)
    if (actual.min_ts_ms, actual.max_ts_ms) != (info.min_ts_ms, info.max_ts_ms):
        raise FileCorrupt(segment.idx.path, 0, "the times of its first and last record are not those of the manifest")
    if info.dead_records:
        count, _ = segment.dead(info.records)
        least = info.dead_records - (0 if shown is None else len(shown.within(info.first_seq, info.last_seq)))
        if count < least or (count > info.dead_records and not (may_flag or is_shared)):
            reason = f"{count} records are flagged as deleted, and {info.dead_records} by the manifest"
            raise FileCorrupt(segment.idx.path, 0, reason)


def _check_idx_length(segment: SegmentFiles, info: SegmentInfo) -> None:
    size, expected = segment.idx.size(), info.records * ENTRY.size
    if size < expected:
        reason = f"the file is cut short: {info.records} entries were durable"
        raise FileCorrupt(segment.idx.path, size, reason)
    if info.sealed and size > expected:
        raise FileCorrupt(segment.idx.path, expected, f"the manifest counts {info.records} records")


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
        self._shown: dict[int, SeqSet] = {}
        self._checked: set[tuple[int, int]] = set()

    def expect_flags(self, topic_id: int, pending: MergedDeletes) -> None:
        """Tell the cache which deletes of a topic only the WAL has. Recovery found them."""
        self._pending[topic_id] = pending

    def show(self, topic_id: int, seqs: SeqSet | None) -> None:
        """Show these records of a topic as live, whatever their flags say; with None, as the flags say."""
        with self._lock:
            self._shown.pop(topic_id, None)
            if seqs is not None:
                self._shown[topic_id] = seqs
            for (of_topic, _), segment in (*self._open.items(), *self._kept.items()):
                if of_topic == topic_id:
                    segment.shown = seqs

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
                segment.shown = self._shown.get(topic_id)
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
                self._shown.pop(topic_id, None)

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
        files, layout, shown = self._files, self._layout, self._shown.get(topic_id)
        may_flag = self._pending.get(topic_id, NO_DELETES).may_reach(info.first_seq)
        try:
            return open_first(files, layout, topic_id, info, may_flag=may_flag, shown=shown, is_shared=self._is_shared)
        except FileCorrupt:
            if not self._is_shared:
                raise
            return open_first(files, layout, topic_id, info, may_flag=may_flag, shown=shown, is_shared=True)

    def _drop(self, topic_id: int, first_seq: int) -> None:
        self._open.pop((topic_id, first_seq), None)
        self._checked.discard((topic_id, first_seq))

    def _keep(self, key: tuple[int, int], segment: SegmentFiles) -> SegmentFiles:
        self._open[key] = segment
        while len(self._open) > _OPEN_MAX:
            self._open.popitem(last=False)
        return segment
