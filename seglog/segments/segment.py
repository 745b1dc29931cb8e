"""A segment: consecutive records of one topic in two files, .data (frames) and .idx (entries).

SEG-1  Records are dense. The entry of seq s is number s - first_seq. Frames lie one after the other from offset 0.
SEG-2  Only the newest segment of a topic, the active one, grows. In a sealed segment, only the flags of entries change.
    A rewrite replaces a sealed segment as a whole, to reclaim the bytes of deleted records (seglog.segments.rewrite).
SEG-3  The manifest says where the active segment ends (seglog.wal.manifest). The size of the file does not.
SEG-4  The manifest also has the records, bytes, times and number of deleted flags of each sealed segment. So opening a
    log opens no sealed segment. The first opening of a segment finds files that do not fit (seglog.segments.cache).
    Flags are only ever set. So an .idx from before a delete has fewer flags, and no deleted record comes back.

Both files are read with pread through the port, up to a MiB at a time, and are not mapped. A disk error is then an
`OSError` that a caller can handle. A disk error on a mapped page ends the process. A batch costs one system call for
each file.

Source: topics engine architecture, sections 3.1 and 3.3.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_left
from itertools import accumulate
from operator import attrgetter
from typing import Any, NamedTuple

from seglog.errors import FileCorrupt, InvalidEntry, OffsetOverflow
from seglog.files.open_file import OpenFile, Readable
from seglog.files.port import Files
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import DELETED
from seglog.format.index import ENTRY, OFFSET_END, Entry, encode_entries, load_entries, mark_deleted, read_entries
from seglog.segments.batch import FRAME_BATCH_MAX_BYTES, FRAME_BATCH_MAX_RECORDS, FrameBatch
from seglog.segments.few import FewFrames
from seglog.values.config import LogSettings
from seglog.values.layout import Layout

__all__ = ["SegmentFiles", "SegmentInfo", "SegmentReader", "SegmentWriter", "Sizes", "cut"]

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
        taken: list[Entry] = []
        for entry in entries:
            if taken and end + entry.length - start > FRAME_BATCH_MAX_BYTES:
                break
            if entry.offset != end:
                raise FileCorrupt(self.idx.path, (first - self.first_seq + len(taken)) * ENTRY.size, _ASTRAY)
            taken.append(entry)
            end += entry.length
        return FewFrames(self.data.path, self.topic_id, first, tuple(taken), self.data.read_exactly(end - start, start))

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

    __slots__ = ("_flags_lock", "data", "first_seq", "idx", "topic_id")

    def __init__(self, files: Files, layout: Layout, topic_id: int, first_seq: int, flags: int = os.O_RDWR) -> None:
        self.topic_id = topic_id
        self.first_seq = first_seq
        self.data: OpenFile = OpenFile(files, layout.data(topic_id, first_seq), flags)
        self.idx: OpenFile = OpenFile(files, layout.idx(topic_id, first_seq), flags)
        # Reentrant: a call by a signal handler finds the flags from before or after the outer call.
        self._flags_lock = threading.RLock()

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

    def _read_raw(self, position: int, count: int) -> bytes:
        with self._flags_lock:
            return super()._read_raw(position, count)


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
