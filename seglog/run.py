"""Consecutive records of a topic, read from one file at once, and verified one by one as they are taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seglog.errors import FileCorrupt, InvalidFrame
from seglog.frame import FrameType, Header, read_header, record_of
from seglog.index import Entry
from seglog.record import Record

__all__ = ["RUN_MAX_BYTES", "RUN_MAX_RECORDS", "Run"]

RUN_MAX_BYTES = 1024 * 1024
RUN_MAX_RECORDS = 1024


@dataclass(frozen=True, slots=True)
class Run:
    """`buffer` holds the bytes of `path` from the first entry's offset to the last one's end."""

    path: Path
    topic_id: int
    first_seq: int
    entries: list[Entry]
    buffer: bytes

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.entries) - 1

    def frames(self) -> Iterator[tuple[Entry, int, Header]]:
        """Entry, position of the frame in the buffer, and header, when frame and entry agree. Raises `FileCorrupt`."""
        for index in range(len(self.entries)):
            yield self.frame(index)

    def frame(self, index: int) -> tuple[Entry, int, Header]:
        entry = self.entries[index]
        position = entry.offset - self.entries[0].offset
        try:
            header = read_header(self.buffer, position)
        except InvalidFrame as error:
            raise FileCorrupt(self.path, entry.offset, error.reason) from error
        seq = self.first_seq + index
        found = (header.type, header.topic_id, header.seq, header.frame_bytes, header.ts_ms)
        wanted = (FrameType.APPEND, self.topic_id, seq, entry.length, entry.ts_ms)
        if found != wanted:
            raise FileCorrupt(self.path, entry.offset, f"the frame there is not that of seq {seq}")
        return entry, position, header

    def record(self, index: int) -> Record:
        """Raises `FileCorrupt`."""
        entry, position, header = self.frame(index)
        try:
            return record_of(self.buffer, position, header)
        except InvalidFrame as error:
            raise FileCorrupt(self.path, entry.offset, error.reason) from error
