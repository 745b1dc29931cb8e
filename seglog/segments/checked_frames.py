"""A few consecutive records of one segment, verified one by one.

A batch (seglog.segments.batch) sets up arrays. A process that reads one record needs none, and the import of numpy
takes longer than the rest of its read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from seglog.base.dataclasses import dataclass
from seglog.errors import FileCorrupt, InvalidFrame
from seglog.format.frame import DELETED, LOST, FrameType, Header, read_header, record_of
from seglog.format.index import Entry
from seglog.values.deletes import MergedDeletes
from seglog.values.record import Gap, Record

# Up to this number, verifying records one by one is faster than setting up numpy arrays.
FEW = 8


def header_of(path: Path, topic_id: int, seq: int, entry: Entry, position: int, buffer: bytes) -> Header:
    """Return the header of the frame at a position of the buffer.

    Raises `FileCorrupt` if the frame is damaged or disagrees with its entry.
    """
    try:
        header = read_header(buffer, position)
    except InvalidFrame as error:
        raise FileCorrupt(path, entry.offset, error.reason) from error
    fields = (header.type, header.topic_id, header.seq, header.frame_bytes, header.ts_ms)
    if fields != (FrameType.APPEND, topic_id, seq, entry.length, entry.ts_ms):
        raise FileCorrupt(path, entry.offset, f"the frame there is not that of seq {seq}")
    return header


def record_in(path: Path, offset: int, header: Header, position: int, buffer: bytes) -> Record:
    """Return the record of the frame at a position of the buffer, which is at `offset` of the file.

    Raises `FileCorrupt` if its node or tag is no text.
    """
    try:
        return record_of(buffer, position, header)
    except InvalidFrame as error:
        raise FileCorrupt(path, offset, error.reason) from error


@dataclass(frozen=True, slots=True)
class FewFrames:
    """The entries of consecutive records, and the bytes of `path` from the first frame to the end of the last one."""

    path: Path
    topic_id: int
    first_seq: int
    entries: tuple[Entry, ...]
    buffer: bytes

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.entries) - 1

    def lost_front(self) -> Gap | None:
        """Return the range of lost ephemeral records at the front. None: the first record is not lost."""
        count = next((at for at, entry in enumerate(self.entries) if not entry.flags & LOST), len(self.entries))
        return Gap(self.first_seq, self.first_seq + count - 1) if count else None

    def before_lost(self) -> FewFrames:
        """Return the part before the first lost record. Without one, return the whole."""
        lost = next((at for at, entry in enumerate(self.entries) if entry.flags & LOST), None)
        return self if lost is None else replace(self, entries=self.entries[:lost])

    def live(self, pending: MergedDeletes) -> Iterator[Record]:
        """Yield the records that no delete reaches: neither a flag nor `pending`. Raises `FileCorrupt`."""
        start = self.entries[0].offset
        may_reach = pending.may_reach(self.first_seq)
        for seq, entry in enumerate(self.entries, self.first_seq):
            if entry.flags & DELETED:
                continue
            position = entry.offset - start
            header = header_of(self.path, self.topic_id, seq, entry, position, self.buffer)
            record = record_in(self.path, entry.offset, header, position, self.buffer)
            if not (may_reach and pending.reaches(record.seq, record.tag)):
                yield record
