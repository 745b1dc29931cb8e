"""What a topic has in memory: an index of the records that are in the WAL only, and its ephemeral records.

**The tail** has 24 bytes a record, in one byte array. Earlier records are found through the .idx file of their segment.
So memory grows with the records that no checkpoint has absorbed yet, and not with the history. Not thread-safe: the
caller holds the owner's lock.

**Ephemeral records** of a topic are in memory only. Each one is a frame, as the WAL would have it.

    chunk   records of consecutive seqs: their frames one after the other, an index of them, their tags, deleted flags

EBUF-1  The log never writes these records. Segments and the tail list their seqs as lost.
    A reader looks here first. So a record is lost when it is gone from here.
EBUF-2  `Memory` counts the bytes of all chunks of a log, with their indexes. Eviction drops whole chunks.
EBUF-3  Seqs ascend from chunk to chunk. Written records may lie between two chunks.

No I/O.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate, repeat
from pathlib import Path
from typing import Any

from seglog.base.dataclasses import dataclass
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import DELETED
from seglog.segments.batch import FRAME_BATCH_MAX_BYTES, FRAME_BATCH_MAX_RECORDS, FrameBatch
from seglog.values.deletes import DeleteOp

_NO_FILE = 0
# The WAL file, the offset and length of the frame there, and the time of the record. `dtypes.ROWS` is the same.
_ROW = struct.Struct("<QIIQ")

# From this many rows on, numpy makes them faster than `struct`.
_MANY = 48
_SPARE_ROWS = 4


class Tail:
    """The rows of the records from `first_seq` to before `end_seq`, without gaps. `bytes` is the sum of their lengths.

    A record in no file (`lose`) has the file 0 and the length 0. The first record is in a file.
    Bytes behind the last row are room for the next rows, up to `_room_bytes` in all.
    """

    __slots__ = ("_room_bytes", "_rows", "bytes", "end_seq", "first_seq")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = self.end_seq = first_seq
        self.bytes = 0
        self._rows = bytearray()
        self._room_bytes = 0

    def __len__(self) -> int:
        return self.end_seq - self.first_seq

    def add(self, file: int, offset: int, length: int, ts_ms: int) -> None:
        """Add one record. An interrupt leaves it or nothing."""
        at = (self.end_seq - self.first_seq) * _ROW.size
        if at >= self._room_bytes:
            self._make_room(at)
        _ROW.pack_into(self._rows, at, file, offset, length, ts_ms)
        # One statement, because an interrupt hits only between calls.
        self.bytes, self.end_seq = self.bytes + length, self.end_seq + 1

    def extend(
        self, file: int, offset: int, lengths: Sequence[int], ts_ms: int, times: Sequence[int] | None = None
    ) -> None:
        """Add records that lie one after the other from `offset` of a WAL file on. An interrupt leaves all or none.

        Without `times`, all of them have the time `ts_ms`.
        """
        if len(lengths) < _MANY:
            offsets, each_ms = accumulate(lengths, initial=offset), repeat(ts_ms) if times is None else times
            self._append(b"".join(map(_ROW.pack, repeat(file), offsets, lengths, each_ms)), sum(lengths))
            return
        sizes = np.array(lengths, np.int64)
        ends = sizes.cumsum()
        rows = np.empty(len(sizes), dtypes.ROWS)
        rows["file"], rows["offset"], rows["length"] = file, ends - sizes + offset, sizes
        rows["ts_ms"] = ts_ms if times is None else times
        self._append(rows.tobytes(), int(ends[-1]))

    def take(
        self, file: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64], times: NDArray[np.uint64]
    ) -> None:
        """Add records that lie anywhere in a WAL file."""
        rows = np.empty(len(offsets), dtypes.ROWS)
        rows["file"], rows["offset"], rows["length"], rows["ts_ms"] = file, offsets, lengths, times
        self._append(rows.tobytes(), int(lengths.sum()))

    def lose(self, count: int, ts_ms: int) -> None:
        """Add `count` records that are in no file. An empty tail begins after them instead."""
        if len(self):
            self._append(_ROW.pack(_NO_FILE, 0, 0, ts_ms) * count, 0)
        else:
            self.first_seq = self.end_seq = self.end_seq + count

    @property
    def kept_seq(self) -> int:
        """The last seq that is in a file; `first_seq - 1` if no seq is."""
        in_file = np.flatnonzero(self.rows(0, len(self))["file"])
        return self.first_seq + int(in_file[-1]) if len(in_file) else self.first_seq - 1

    def lost_within(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the seqs from `first` to `last` that are in no file, as ranges of one."""
        start, stop = max(first, self.first_seq), min(last + 1, self.end_seq)
        if start >= stop:
            return []
        rows = self.rows(start - self.first_seq, stop - self.first_seq)
        return [(start + int(row), start + int(row)) for row in np.flatnonzero(rows["file"] == _NO_FILE)]

    def ts_ms(self, seq: int) -> int:
        return self._row(seq - self.first_seq)[3]

    def first_seq_at(self, ts_ms: int) -> int:
        return bisect_left(range(self.first_seq, self.end_seq), ts_ms, key=self.ts_ms) + self.first_seq

    def cut(self, seq: int) -> None:
        """Remove all records from `seq` on."""
        size = int(self.rows(0, seq - self.first_seq)["length"].sum(dtype=np.int64))
        self.bytes, self.end_seq = size, seq

    def drop(self, count: int) -> None:
        """Remove the first `count` records, which are elsewhere now, and the records in no file right after them."""
        while count < len(self) and self._row(count)[0] == _NO_FILE:
            count += 1
        size = int(self.rows(0, count)["length"].sum(dtype=np.int64))
        self._rows = self._rows[count * _ROW.size : len(self) * _ROW.size]
        self._room_bytes = (len(self) - count) * _ROW.size
        self.bytes, self.first_seq = self.bytes - size, self.first_seq + count

    def near(self, start: int, stop: int, gap_max: int, bytes_max: int) -> tuple[int, NDArray[Any]]:
        """Return the WAL file (0: none) and the entries (ENTRIES) of the records `start` to `stop` (exclusive).

        The result ends before the first record that is not near. Near records are in one file, with gaps of at most
        `gap_max` bytes, and within `bytes_max` bytes in all. The first record is in the result whatever its size.
        """
        rows = self.rows(start, stop)
        entries = np.zeros(len(rows), dtypes.ENTRIES)
        for name in ("offset", "length", "ts_ms"):
            entries[name] = rows[name]
        offsets = rows["offset"].astype(np.int64)
        ends = offsets + rows["length"]
        is_far = rows["file"] != rows["file"][0]
        is_far |= ends - offsets[0] > bytes_max
        is_far[1:] |= offsets[1:] - ends[:-1] > gap_max
        is_far[0] = False
        count = int(is_far.argmax()) if is_far.any() else len(entries)
        return int(rows["file"][0]), entries[:count]

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return a copy of the rows `start` to `stop` (exclusive), counted from `first_seq`, as dtypes.ROWS."""
        return np.frombuffer(self._rows[start * _ROW.size : stop * _ROW.size], dtypes.ROWS)

    def _row(self, position: int) -> tuple[int, int, int, int]:
        row: tuple[int, int, int, int] = _ROW.unpack_from(self._rows, position * _ROW.size)
        return row

    def _append(self, rows: bytes, size_bytes: int) -> None:
        at = (self.end_seq - self.first_seq) * _ROW.size
        count, room_bytes = len(rows) // _ROW.size, at + len(rows)
        # No calls in these statements, for the reason in `add`.
        del self._rows[at:]
        self._rows += rows
        self._room_bytes = room_bytes
        self.bytes, self.end_seq = self.bytes + size_bytes, self.end_seq + count

    def _make_room(self, end: int) -> None:
        """Make room for an eighth more rows behind the offset `end`, and for some rows at least."""
        spare = bytes(max(_SPARE_ROWS, end // _ROW.size // 8) * _ROW.size)
        room_bytes = end + len(spare)
        # No calls in these statements, for the reason in `add`.
        del self._rows[end:]
        self._rows += spare
        self._room_bytes = room_bytes


#: The path that errors give for ephemeral records.
MEMORY = Path("memory")

_CHUNK_MAX_BYTES = 256 * 1024
_CHUNKS_AT_LEAST = 8
_BYTES_OF_CHUNK = 1024
_BYTES_OF_RECORD = 40


@dataclass(slots=True, eq=False)
class Memory:
    """The memory of all ephemeral records of a log: its limit, and the bytes in use."""

    max_bytes: int
    used_bytes: int = 0

    @property
    def chunk_bytes(self) -> int:
        return min(_CHUNK_MAX_BYTES, self.max_bytes // _CHUNKS_AT_LEAST)


@dataclass(slots=True, eq=False)
class Chunk:
    """Records of consecutive seqs. `is_deleted` and `tags` have one item for each record.

    `counted_bytes` is the part of this chunk in the log's `Memory`, `counted_frames` its part in the topic's
    `frame_bytes`.
    """

    index: Tail
    frames: bytearray = field(default_factory=bytearray)
    is_deleted: bytearray = field(default_factory=bytearray)
    tags: list[str | None] = field(default_factory=list[str | None])
    counted_bytes: int = 0
    counted_frames: int = 0

    @property
    def first_seq(self) -> int:
        return self.index.first_seq

    @property
    def last_seq(self) -> int:
        return self.index.first_seq + len(self.index) - 1

    @property
    def max_ts_ms(self) -> int:
        return self.index.ts_ms(self.last_seq)

    @property
    def held_bytes(self) -> int:
        return held_bytes(len(self.frames), len(self.index))

    def trim(self) -> None:
        """Remove the frames, flags and tags of records that are not in the index."""
        count = len(self.index)
        del self.frames[self.index.bytes :], self.is_deleted[count:], self.tags[count:]


def held_bytes(frame_bytes: int, records: int) -> int:
    """Return the approximate memory of a chunk."""
    return frame_bytes + records * _BYTES_OF_RECORD + _BYTES_OF_CHUNK


class EphemeralBuffer:
    """The ephemeral records of one topic. `frame_bytes` is a running total of the chunks' frames."""

    __slots__ = ("_memory", "chunks", "frame_bytes")

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.frame_bytes = 0
        self._memory: Memory | None = None

    @property
    def held_bytes(self) -> int:
        return sum(chunk.held_bytes for chunk in self.chunks)

    def add(
        self, memory: Memory, first_seq: int, frames: bytes, lengths: Sequence[int], ts_ms: int, tag: str | None
    ) -> None:
        """Add records after all others. The caller has made room in `memory`.

        The index gets the records last. So an interrupt leaves all of them or none, and the caller may call again.
        """
        self._memory = memory
        self.cut(first_seq)
        last = self.chunks[-1] if self.chunks else None
        if last is None or last.last_seq + 1 != first_seq or len(last.frames) + len(frames) > memory.chunk_bytes:
            last = Chunk(Tail(first_seq))
            self.chunks.append(last)
        offset = len(last.frames)
        last.frames += frames
        last.is_deleted += bytes(len(lengths))
        last.tags += [tag] * len(lengths)
        last.index.extend(0, offset, lengths, ts_ms)
        self._count(last, last.held_bytes, len(last.frames))

    def first_from(self, seq: int) -> int | None:
        """Return the first seq here that is not below `seq`, or None."""
        chunk = self._chunk_from(seq)
        return None if chunk is None else max(chunk.first_seq, seq)

    def within(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of seqs from `first` to `last` that are here."""
        ranges = [(max(first, chunk.first_seq), min(last, chunk.last_seq)) for chunk in self.chunks]
        return [each for each in ranges if each[0] <= each[1]]

    def ts_ms_from(self, seq: int) -> int | None:
        """Return the time of the record that `first_from` finds, or None."""
        chunk = self._chunk_from(seq)
        return None if chunk is None else chunk.index.ts_ms(max(chunk.first_seq, seq))

    def first_seq_at(self, ts_ms: int) -> int | None:
        """Return the first seq here whose time is `ts_ms` or later, or None."""
        position = bisect_left(self.chunks, ts_ms, key=lambda chunk: chunk.max_ts_ms)
        return self.chunks[position].index.first_seq_at(ts_ms) if position < len(self.chunks) else None

    def batch(self, topic_id: int, first: int, last: int) -> FrameBatch | None:
        """Return the records from `first` to `last`, or as many as fit into a batch. None if `first` is not here."""
        chunk = self._chunk_from(first)
        if chunk is None or chunk.first_seq > first:
            return None
        start = first - chunk.first_seq
        stop = min(last - chunk.first_seq + 1, len(chunk.index), start + FRAME_BATCH_MAX_RECORDS)
        _, entries = chunk.index.near(start, stop, 0, FRAME_BATCH_MAX_BYTES)
        entries["flags"] = np.frombuffer(bytes(chunk.is_deleted[start : start + len(entries)]), np.uint8) * DELETED
        begin, end = int(entries[0]["offset"]), int(entries[-1]["offset"]) + int(entries[-1]["length"])
        return FrameBatch(MEMORY, topic_id, first, entries, bytes(chunk.frames[begin:end]))

    def delete(self, op: DeleteOp) -> None:
        for chunk in self.chunks:
            if not op.may_reach(chunk.first_seq):
                continue
            if op.is_prefix:
                count = min(op.below, chunk.last_seq + 1) - chunk.first_seq
                chunk.is_deleted[:count] = b"\1" * count
                continue
            for position, (seq, tag) in enumerate(zip(_seqs(chunk), chunk.tags, strict=True)):
                if op.reaches(seq, tag):
                    chunk.is_deleted[position] = True

    def drop_below(self, seq: int) -> None:
        """Drop the chunks whose records are all below `seq`."""
        while self.chunks and self.chunks[0].last_seq < seq:
            self.drop_oldest()

    def drop_oldest(self) -> Chunk:
        chunk = self.chunks[0]
        self._count(chunk, 0, 0)
        return self.chunks.pop(0)

    def cut(self, seq: int) -> None:
        """Remove all records from `seq` on."""
        while self.chunks and self.chunks[-1].first_seq >= seq:
            self._count(self.chunks[-1], 0, 0)
            self.chunks.pop()
        if not self.chunks:
            return
        chunk = self.chunks[-1]
        if chunk.last_seq >= seq:
            chunk.index.cut(seq)
        if len(chunk.tags) != len(chunk.index) or len(chunk.frames) != chunk.index.bytes:
            chunk.trim()
            self._count(chunk, chunk.held_bytes, len(chunk.frames))

    def clear(self) -> None:
        self.cut(0)

    def _chunk_from(self, seq: int) -> Chunk | None:
        """Return the chunk that holds `seq`, or else the first chunk after it."""
        position = bisect_right(self.chunks, seq, key=lambda chunk: chunk.first_seq)
        if position and self.chunks[position - 1].last_seq >= seq:
            return self.chunks[position - 1]
        return self.chunks[position] if position < len(self.chunks) else None

    def _count(self, chunk: Chunk, chunk_bytes: int, frames: int) -> None:
        memory = self._memory
        if memory is not None:
            used_bytes = memory.used_bytes + chunk_bytes - chunk.counted_bytes
            frame_bytes = self.frame_bytes + frames - chunk.counted_frames
            # No calls in these statements, because an interrupt hits only between calls.
            memory.used_bytes, chunk.counted_bytes = used_bytes, chunk_bytes
            self.frame_bytes, chunk.counted_frames = frame_bytes, frames


def _seqs(chunk: Chunk) -> range:
    return range(chunk.first_seq, chunk.last_seq + 1)
