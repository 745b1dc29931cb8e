"""Records of a topic that are in memory only: the ephemeral ones, as the frames that a WAL would have got.

    chunk   records of consecutive seqs: their frames one after the other, an index of them, and what deletes ask for

M1  Nothing here is ever written. In a segment and in the tail the seqs of these records are lost ones; whoever reads
    looks here first, so they are lost when they are gone from here.
M2  `Memory` counts what all chunks of a log hold, with their indexes. A chunk goes as a whole.
M3  Seqs ascend from chunk to chunk. Between two there may be records that were written.

Not thread-safe: the owner's lock is held around every call. No I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from seglog.engine.tail import Tail
from seglog.format.frame import DELETED
from seglog.segments.batch import RUN_MAX_BYTES, RUN_MAX_RECORDS, Run
from seglog.values.deletes import DeleteOp

__all__ = ["MEMORY", "Memory", "Resident", "held_bytes"]

#: Where such records are, in errors.
MEMORY = Path("memory")

_CHUNK_MAX_BYTES = 256 * 1024
_CHUNKS_AT_LEAST = 8
_BYTES_OF_CHUNK = 1024
_BYTES_OF_RECORD = 40


@dataclass(slots=True, eq=False)
class Memory:
    """Of a log: how much there may be, and is."""

    max_bytes: int
    used_bytes: int = 0

    @property
    def chunk_bytes(self) -> int:
        return min(_CHUNK_MAX_BYTES, self.max_bytes // _CHUNKS_AT_LEAST)


@dataclass(slots=True, eq=False)
class Chunk:
    """`is_deleted` and `tags` have one item a record.

    `counted_bytes` is what the log's `Memory` has of it, `counted_frames` what the topic's `frame_bytes` has.
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
        """What the index does not have."""
        count = len(self.index)
        del self.frames[self.index.bytes :], self.is_deleted[count:], self.tags[count:]


def held_bytes(frame_bytes: int, records: int) -> int:
    """What a chunk takes, about."""
    return frame_bytes + records * _BYTES_OF_RECORD + _BYTES_OF_CHUNK


class Resident:
    """Of one topic. `frame_bytes` is a running total of the chunks' frames."""

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
        """Above all that is there. The caller has made room in `memory`.

        The index is the last to have them, so after an interrupt it is all or nothing, and may be called again.
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
        """The first one that is here, of those from `seq` on."""
        chunk = self._chunk_from(seq)
        return None if chunk is None else max(chunk.first_seq, seq)

    def ts_ms_from(self, seq: int) -> int | None:
        """Its time."""
        chunk = self._chunk_from(seq)
        return None if chunk is None else chunk.index.ts_ms(max(chunk.first_seq, seq))

    def first_seq_at(self, ts_ms: int) -> int | None:
        """The first one that is here, of those whose time is `ts_ms` or later."""
        position = bisect_left(self.chunks, ts_ms, key=lambda chunk: chunk.max_ts_ms)
        return self.chunks[position].index.first_seq_at(ts_ms) if position < len(self.chunks) else None

    def run(self, topic_id: int, first: int, last: int) -> Run | None:
        """The records from `first` on, to `last` or as many as a run takes; None if `first` is not here."""
        chunk = self._chunk_from(first)
        if chunk is None or chunk.first_seq > first:
            return None
        start = first - chunk.first_seq
        stop = min(last - chunk.first_seq + 1, len(chunk.index), start + RUN_MAX_RECORDS)
        _, entries = chunk.index.near(start, stop, 0, RUN_MAX_BYTES)
        entries["flags"] = np.frombuffer(bytes(chunk.is_deleted[start : start + len(entries)]), np.uint8) * DELETED
        begin, end = int(entries[0]["offset"]), int(entries[-1]["offset"]) + int(entries[-1]["length"])
        return Run(MEMORY, topic_id, first, entries, bytes(chunk.frames[begin:end]))

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
        """Chunks whose records are all below go."""
        while self.chunks and self.chunks[0].last_seq < seq:
            self.drop_oldest()

    def drop_oldest(self) -> Chunk:
        chunk = self.chunks[0]
        self._count(chunk, 0, 0)
        return self.chunks.pop(0)

    def cut(self, seq: int) -> None:
        """There is nothing from `seq` on any more."""
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
        """The one that holds `seq`, or the first one after it."""
        position = bisect_right(self.chunks, seq, key=lambda chunk: chunk.first_seq)
        if position and self.chunks[position - 1].last_seq >= seq:
            return self.chunks[position - 1]
        return self.chunks[position] if position < len(self.chunks) else None

    def _count(self, chunk: Chunk, held: int, frames: int) -> None:
        memory = self._memory
        if memory is not None:
            used_bytes = memory.used_bytes + held - chunk.counted_bytes
            frame_bytes = self.frame_bytes + frames - chunk.counted_frames
            # Together: an interrupt comes between calls only.
            memory.used_bytes, chunk.counted_bytes = used_bytes, held
            self.frame_bytes, chunk.counted_frames = frame_bytes, frames


def _seqs(chunk: Chunk) -> range:
    return range(chunk.first_seq, chunk.last_seq + 1)
