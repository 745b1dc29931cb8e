"""The check of one segment, record by record: every entry, every frame, and that the two agree.

One damage does not hide the next.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seglog.errors import FileCorrupt, InvalidEntry, InvalidFrame
from seglog.files.file_system import Files, OpenFile, Readable, ReadAheadBuffer
from seglog.format.frame import (
    DELETED,
    HAS_NODE,
    HAS_TAG,
    HEADER,
    MIN_FRAME_BYTES,
    FrameType,
    Header,
    read_header,
    record_of,
)
from seglog.format.index import ENTRY, Entry, read_entries
from seglog.segments.segment import SegmentInfo
from seglog.segments.tags import listed_tags
from seglog.values.findings import Findings
from seglog.values.layout import Layout
from seglog.wal.manifest import ActiveMeta

_BATCH_ENTRIES = 4096


def check_segment(
    files: Files,
    layout: Layout,
    topic_id: int,
    first_seq: int,
    meta: SegmentInfo | ActiveMeta | None,
    findings: Findings,
) -> tuple[int, int]:
    """Check a hot segment. Return its number of records, and the bytes of both files, as its index gives them.

    `meta` is what the manifest says of the segment. None: the manifest does not name it. Then it is checked as a
    sealed one.
    """
    data_path, idx_path = layout.data(topic_id, first_seq), layout.idx(topic_id, first_seq)

    def check_tags(records: int, tags: dict[bytes, int]) -> None:
        if not isinstance(meta, ActiveMeta) and tags:
            _check_tags(files, layout, topic_id, first_seq, records, tags, findings)

    return check_parts(
        lambda: OpenFile(files, idx_path),
        lambda: OpenFile(files, data_path),
        (idx_path, data_path),
        topic_id,
        first_seq,
        meta,
        findings,
        check_tags,
    )


def check_parts(
    open_idx: Callable[[], Readable],
    open_data: Callable[[], Readable],
    paths: tuple[Path, Path],
    topic_id: int,
    first_seq: int,
    meta: SegmentInfo | ActiveMeta | None,
    findings: Findings,
    check_tags: Callable[[int, dict[bytes, int]], None] | None = None,
) -> tuple[int, int]:
    """Check the two parts of a segment, wherever they are, as `check_segment` does.

    `paths` name the .idx and the .data in damages. `check_tags` gets the number of records, and the tags of live
    records with their counts.
    """
    idx_path, data_path = paths
    records, size, before = 0, 0, len(findings.damages)
    with findings.reading(idx_path):
        idx = open_idx()
        records = _records(idx, meta, findings)
        size = records * ENTRY.size
        with findings.reading(data_path):
            data = open_data()
            is_bounded = meta is not None and not (isinstance(meta, SegmentInfo) and meta.is_hot)
            data_bytes = min(meta.data_bytes, data.size()) if meta is not None and is_bounded else data.size()
            size += data_bytes
            walk = _Walk(idx, data, topic_id, first_seq, data_bytes, findings)
            end = walk.run(records)
            if check_tags is not None:
                check_tags(records, walk.tags)
            if end is not None and not is_bounded and end != data_bytes:
                findings.damage(data_path, end, f"its index says that it has {end} bytes, and there are {data_bytes}")
            if end is not None and meta is not None:
                _check_known(idx_path, walk, end, meta, findings, is_sound=len(findings.damages) == before)
    return records, size


def _check_known(
    idx_path: Path, walk: _Walk, end: int, meta: SegmentInfo | ActiveMeta, findings: Findings, *, is_sound: bool
) -> None:
    """Compare the segment with the manifest, as seglog.segments.segment does.

    If the segment has other damage, report only missing flags: that damage explains the rest.
    """
    if walk.dead_records < meta.dead_records:
        reason = f"{walk.dead_records} records are flagged as deleted, and {meta.dead_records} by the manifest"
        findings.damage(idx_path, 0, reason)
    if not is_sound:
        return
    is_sealed = isinstance(meta, SegmentInfo)
    if end != meta.data_bytes and not (is_sealed and end == meta.data_bytes - meta.dead_bytes):
        findings.damage(idx_path, 0, f"it goes to byte {end} of .data, and the manifest to {meta.data_bytes}")
    if isinstance(meta, SegmentInfo) and walk.times not in (None, (meta.min_ts_ms, meta.max_ts_ms)):
        findings.damage(idx_path, 0, "the times of its first and last record are not those of the manifest")


def _check_tags(
    files: Files, layout: Layout, topic_id: int, first: int, records: int, tags: dict[bytes, int], findings: Findings
) -> None:
    """Check the .tags file. `tags` counts the live records of each tag.

    A wrong .tags file loses nothing, so it is a note and no damage.
    """
    path = layout.part("tags", topic_id, first)
    try:
        listed = listed_tags(files, layout, topic_id, first, records, lambda _: True)
        is_whole = all(len(listed.get(tag, [])) >= count for tag, count in tags.items())
        reason = None if is_whole else "it does not list every record"
    except FileNotFoundError:
        reason = "it is missing"
    except (InvalidEntry, FileCorrupt) as error:
        reason = str(error)
    if reason is not None:
        findings.notes.append(f"{path}: {reason}; it is rebuilt when it is needed")


def _records(idx: Readable, meta: SegmentInfo | ActiveMeta | None, findings: Findings) -> int:
    """Return how many entries to check. Report an .idx of the wrong length."""
    records, remainder = divmod(idx.size(), ENTRY.size)
    if meta is None:
        if remainder or not records:
            findings.damage(idx.path, records * ENTRY.size, "the file ends within an entry, or has none")
        return records
    if records < meta.records:
        findings.damage(idx.path, idx.size(), f"the file is cut short: {meta.records} entries were durable")
    elif isinstance(meta, SegmentInfo) and idx.size() > meta.records * ENTRY.size:
        findings.damage(idx.path, meta.records * ENTRY.size, f"the manifest counts {meta.records} records")
    return min(records, meta.records)


class _Walk:
    """A walk through the entries of a segment and their frames, in order."""

    def __init__(
        self, idx: Readable, data: Readable, topic_id: int, first_seq: int, data_bytes: int, findings: Findings
    ) -> None:
        self._idx = idx
        self._data = data
        self._topic_id = topic_id
        self._first_seq = first_seq
        self._data_bytes = data_bytes
        self._found = findings
        self._window = ReadAheadBuffer(data, data_bytes)
        self.dead_records = 0
        self._first_ts_ms: int | None = None
        self._last_ts_ms: int | None = None
        self.tags: dict[bytes, int] = {}

    @property
    def times(self) -> tuple[int, int] | None:
        """The times of the first and the last record. None: an entry is damaged, and that is reported."""
        if self._first_ts_ms is None or self._last_ts_ms is None:
            return None
        return self._first_ts_ms, self._last_ts_ms

    def run(self, records: int) -> int | None:
        """Check the records, and return where the last frame ends.

        None: the end is unknown because of damage that is reported.
        """
        end: int | None = 0
        for start in range(0, records, _BATCH_ENTRIES):
            for number, entry in enumerate(self._entries(start, min(_BATCH_ENTRIES, records - start)), start):
                begin = end if entry is None else entry.offset
                if begin is not None and begin + _least_bytes(entry) > self._data_bytes:
                    # This damage explains everything behind it.
                    self._found.damage(self._data.path, self._data_bytes, "the file is cut short")
                    return None
                end = self._check(number, entry, end)
        return end

    def _entries(self, start: int, count: int) -> list[Entry | None]:
        """Return `count` entries. A damaged entry is None, and is reported."""
        raw = self._idx.read_exactly(count * ENTRY.size, start * ENTRY.size)
        try:
            return [*read_entries(raw, self._first_seq + start)]
        except InvalidEntry:
            return [self._entry(raw, start, position) for position in range(count)]

    def _entry(self, raw: bytes, start: int, position: int) -> Entry | None:
        entry = raw[position * ENTRY.size : (position + 1) * ENTRY.size]
        try:
            return read_entries(entry, self._first_seq + start + position)[0]
        except InvalidEntry as error:
            self._found.damage(self._idx.path, (start + position) * ENTRY.size, error.reason)
            return None

    def _check(self, number: int, entry: Entry | None, end: int | None) -> int | None:
        """Check the frame of record `number`. The frame before it ends at `end`. Return where this one ends."""
        if entry is not None and end is not None and entry.offset != end:
            self._found.damage(self._idx.path, number * ENTRY.size, "it does not follow the entry before")
        if entry is not None and entry.flags & DELETED:
            self.dead_records += 1
        self._last_ts_ms = None if entry is None else entry.ts_ms
        if not number:
            self._first_ts_ms = self._last_ts_ms
        begin = end if entry is None else entry.offset
        if begin is None:
            return None
        if entry is not None and not entry.length and entry.flags & DELETED:
            return begin
        header = self._frame(begin, _least_bytes(entry), is_known=entry is not None)
        if header is not None and not self._fits(number, entry, header):
            seq = self._first_seq + number
            self._found.damage(self._data.path, begin, f"the frame there is not that of seq {seq}")
        if entry is not None and header is not None and header.flags & HAS_TAG and not entry.flags & DELETED:
            index = self._window.index(begin, entry.length) + HEADER.size + header.node_len
            tag = bytes(self._window.buffer[index : index + header.tag_len])
            self.tags[tag] = self.tags.get(tag, 0) + 1
        if entry is not None:
            return begin + entry.length
        return None if header is None else begin + header.frame_bytes

    def _frame(self, begin: int, length: int, *, is_known: bool) -> Header | None:
        """Return the header of the frame at `begin`. None: the frame is damaged, and that is reported.

        If no entry gives the length (`is_known` is False), the frame's own length field counts.
        """
        index = self._window.index(begin, length)
        if not is_known:
            own = int.from_bytes(self._window.buffer[index : index + 4], "little") + 4
            index = self._window.index(begin, min(own, self._data_bytes - begin))
        try:
            header = read_header(self._window.buffer, index)
            if header.flags & (HAS_TAG | HAS_NODE):
                record_of(self._window.buffer, index, header)
        except InvalidFrame as error:
            self._found.damage(self._data.path, begin, error.reason)
            return None
        return header

    def _fits(self, number: int, entry: Entry | None, header: Header) -> bool:
        if (header.type, header.topic_id, header.seq) != (FrameType.APPEND, self._topic_id, self._first_seq + number):
            return False
        if entry is None:
            return True
        # A delete sets its flag in the entry, and never in the frame.
        same_flags = (entry.flags ^ header.flags) & ~DELETED == 0
        return same_flags and (header.frame_bytes, header.ts_ms) == (entry.length, entry.ts_ms)


def _least_bytes(entry: Entry | None) -> int:
    return MIN_FRAME_BYTES if entry is None else entry.length
