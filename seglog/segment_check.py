"""A segment, record by record: every entry, every frame, and that the two agree. One damage does not hide the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seglog.damage import Findings
from seglog.errors import FileCorrupt, InvalidEntry, InvalidFrame
from seglog.files import Files
from seglog.frame import DELETED, HAS_NODE, HAS_TAG, HEADER, MIN_FRAME_BYTES, FrameType, Header, read_header, record_of
from seglog.index import ENTRY, Entry, read_entries
from seglog.layout import Layout
from seglog.open_file import OpenFile, Readable
from seglog.tags import listed_tags
from seglog.window import Window

__all__ = ["check_parts", "check_segment"]

_BATCH_ENTRIES = 4096


def check_segment(
    files: Files,
    layout: Layout,
    topic_id: int,
    first_seq: int,
    extent: tuple[int, int] | None,
    dead_records: int,
    found: Findings,
) -> tuple[int, int]:
    """`extent` is how many records and bytes of data it has; None: it is sealed, and its files say so.

    At least `dead_records` of them have the deleted flag, or the .idx is an older one.

    Returns the records, and bytes of both files, that it has by its index.
    """
    data_path, idx_path = layout.data(topic_id, first_seq), layout.idx(topic_id, first_seq)

    def check_tags(records: int, tags: dict[bytes, int]) -> None:
        if extent is None and tags:
            _check_tags(files, layout, topic_id, first_seq, records, tags, found)

    return check_parts(
        lambda: OpenFile(files, idx_path),
        lambda: OpenFile(files, data_path),
        (idx_path, data_path),
        topic_id,
        first_seq,
        extent,
        found,
        dead_records,
        check_tags,
    )


def check_parts(
    open_idx: Callable[[], Readable],
    open_data: Callable[[], Readable],
    paths: tuple[Path, Path],
    topic_id: int,
    first_seq: int,
    extent: tuple[int, int] | None,
    found: Findings,
    dead_records: int = 0,
    check_tags: Callable[[int, dict[bytes, int]], None] | None = None,
) -> tuple[int, int]:
    """`check_segment` of parts that are anywhere; `paths` name them. `check_tags` is told what live records have."""
    idx_path, data_path = paths
    records, size = 0, 0
    with found.reading(idx_path):
        idx = open_idx()
        records = _records(idx, extent, found)
        size = records * ENTRY.size
        with found.reading(data_path):
            data = open_data()
            data_bytes = data.size() if extent is None else min(extent[1], data.size())
            size += data_bytes
            walk = _Walk(idx, data, topic_id, first_seq, data_bytes, found)
            end = walk.run(records)
            if check_tags is not None:
                check_tags(records, walk.tags)
            if end is not None and walk.dead_records < dead_records:
                reason = f"{walk.dead_records} records are flagged as deleted, and {dead_records} by the snapshot"
                found.damage(idx_path, 0, reason)
            if end is not None and extent is None and end != data_bytes:
                found.damage(data_path, end, f"its index says that it has {end} bytes, and there are {data_bytes}")
            if end is not None and extent is not None and end != extent[1]:
                found.damage(idx_path, 0, f"it goes to byte {end} of .data, and the snapshot to {extent[1]}")
    return records, size


def _check_tags(
    files: Files, layout: Layout, topic_id: int, first_seq: int, records: int, tags: dict[bytes, int], found: Findings
) -> None:
    """`tags` are those of live records, and how many each has. What is wrong is no loss, and a note."""
    path = layout.part("tags", topic_id, first_seq)
    try:
        listed = listed_tags(files, layout, topic_id, first_seq, records, lambda _: True)
        is_whole = all(len(listed.get(tag, [])) >= count for tag, count in tags.items())
        reason = None if is_whole else "it does not list every record"
    except FileNotFoundError:
        reason = "it is missing"
    except (InvalidEntry, FileCorrupt) as error:
        reason = str(error)
    if reason is not None:
        found.notes.append(f"{path}: {reason}; it is made anew when it is needed")


def _records(idx: Readable, extent: tuple[int, int] | None, found: Findings) -> int:
    records, rest = divmod(idx.size(), ENTRY.size)
    if extent is None:
        if rest or not records:
            found.damage(idx.path, records * ENTRY.size, "the file ends within an entry, or has none")
        return records
    if records < extent[0]:
        found.damage(idx.path, idx.size(), f"the file ends before its time: {extent[0]} entries were durable")
    return min(records, extent[0])


class _Walk:
    def __init__(
        self, idx: Readable, data: Readable, topic_id: int, first_seq: int, data_bytes: int, found: Findings
    ) -> None:
        self._idx = idx
        self._data = data
        self._topic_id = topic_id
        self._first_seq = first_seq
        self._data_bytes = data_bytes
        self._found = found
        self._window = Window(data, data_bytes)
        self.dead_records = 0
        self.tags: dict[bytes, int] = {}

    def run(self, records: int) -> int | None:
        """Where the last frame ends; None if nothing tells, for damage that has been told."""
        end: int | None = 0
        for start in range(0, records, _BATCH_ENTRIES):
            for number, entry in enumerate(self._entries(start, min(_BATCH_ENTRIES, records - start)), start):
                begin = end if entry is None else entry.offset
                if begin is not None and begin + _least_bytes(entry) > self._data_bytes:
                    # Of whatever lies behind, this is the reason.
                    self._found.damage(self._data.path, self._data_bytes, "the file ends before its time")
                    return None
                end = self._check(number, entry, end)
        return end

    def _entries(self, start: int, count: int) -> list[Entry | None]:
        """None for one that is damaged."""
        raw = self._idx.read_exactly(count * ENTRY.size, start * ENTRY.size)
        try:
            return [*read_entries(raw, self._first_seq + start)]
        except InvalidEntry:
            return [self._entry(raw, start, position) for position in range(count)]

    def _entry(self, raw: bytes, start: int, position: int) -> Entry | None:
        one = raw[position * ENTRY.size : (position + 1) * ENTRY.size]
        try:
            return read_entries(one, self._first_seq + start + position)[0]
        except InvalidEntry as error:
            self._found.damage(self._idx.path, (start + position) * ENTRY.size, error.reason)
            return None

    def _check(self, number: int, entry: Entry | None, end: int | None) -> int | None:
        """The frame of record `number`, which the one before it lets begin at `end`. Returns where it ends."""
        if entry is not None and end is not None and entry.offset != end:
            self._found.damage(self._idx.path, number * ENTRY.size, "it does not follow the entry before")
        if entry is not None and entry.flags & DELETED:
            self.dead_records += 1
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
        """None for one that is damaged. Its own word for the length is taken only where no entry gives one."""
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
