"""The ephemeral records of a topic, which are in memory only. Each one is a frame, as the WAL would have it.

    chunk   records of consecutive seqs: their frames one after the other, an index of them, their tags, deleted flags

EBUF-1  The log never writes these records. Segments and the tail list their seqs as lost.
    A reader looks here first. So a record is lost when it is gone from here.
EBUF-2  `Memory` counts the bytes of all chunks of a log, with their indexes. Eviction drops whole chunks.
EBUF-3  Seqs ascend from chunk to chunk. Written records may lie between two chunks.

Not thread-safe: the caller holds the owner's lock. No I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seglog.engine.tail import Tail
from seglog.format.arrays import np
from seglog.format.frame import DELETED
from seglog.segments.batch import FRAME_BATCH_MAX_BYTES, FRAME_BATCH_MAX_RECORDS, FrameBatch
from seglog.values.deletes import DeleteOp

__all__ = ["MEMORY", "EphemeralBuffer", "Memory", "held_bytes"]

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
            if op.tag is None:
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

    def _count(self, chunk: Chunk, held: int, frames: int) -> None:
        memory = self._memory
        if memory is not None:
            used_bytes = memory.used_bytes + held - chunk.counted_bytes
            frame_bytes = self.frame_bytes + frames - chunk.counted_frames
            # No calls in these statements, because an interrupt hits only between calls.
            memory.used_bytes, chunk.counted_bytes = used_bytes, held
            self.frame_bytes, chunk.counted_frames = frame_bytes, frames


def _seqs(chunk: Chunk) -> range:
    return range(chunk.first_seq, chunk.last_seq + 1)
