"""Frames to a data object: takes frames as they come, gives a block whenever one is full.

    N1  Memory: the chunks of one block and the frames of one chunk, and what the index will say of them.
    N2  Work per frame is to take its length; everything else is done by the chunk, on arrays.
    N3  A chunk ends before the entry that would take it over `chunk_bytes`; one entry makes a chunk, however large.
    N4  The same frames with the same settings and the same zstd give the same bytes.

The layout is that of offload.block and offload.entry. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray
from pyroaring import BitMap
from xxhash import xxh3_64_intdigest

from catalog.commit import Codec
from offload.block import BlockBuilder, ChunkRef, largest_entry, raw_capacity
from offload.codec import chunk_encoder
from offload.entry import (
    ENTRY,
    ENTRY_HEAD,
    MIN_DATA_LENGTH,
    entry_heads,
    entry_starts,
)
from offload.errors import EntryTooLarge, FrameMismatch
from seglog.frame import DELETED, HAS_TAG, FrameType

__all__ = ["CHUNK_BYTES", "MAX_TAGS", "SegmentEncoder", "SegmentSummary"]

CHUNK_BYTES = 1 << 20
MAX_TAGS = 4096

_FRAME_LEN_BYTES = 4
_GROWTH = ENTRY.size - _FRAME_LEN_BYTES  # an entry is longer than its frame by this


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """What is known of a data object once its last block is out. Lengths in bytes, bitmaps as portable Roaring.

    `entry_lengths` has an array for each chunk. `tags` maps a tag to the bitmap of its entry ids, ascending by tag;
    None when there were more than `MAX_TAGS`. `live` holds the ids of entries whose frame is not marked deleted.
    """

    topic_id: int
    first_seq: int
    last_seq: int
    min_ts_ms: int
    max_ts_ms: int
    codec: Codec
    block_size: int
    data_length: int
    data_hash: bytes
    frame_bytes: int
    chunks: tuple[ChunkRef, ...]
    entry_lengths: tuple[NDArray[np.uint32], ...]
    live: bytes
    tags: Mapping[str, bytes] | None

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1


class SegmentEncoder:
    """Makes one data object. `add` or `add_many` the frames in seq order, then `finish`; after an error it is of no
    more use.
    """

    def __init__(self, *, block_size: int, codec: Codec, chunk_bytes: int = CHUNK_BYTES, zstd_level: int = 3) -> None:
        """Any `block_size` that takes an entry will do here; what a store demands is checked where one is known."""
        self._block_size = block_size
        self._codec = codec
        self._largest_entry = largest_entry(block_size, codec)
        self._chunk_limit = min(chunk_bytes, raw_capacity(block_size, codec))
        self._encode_chunk = chunk_encoder(codec, zstd_level)
        self._hasher = blake3()

        self._frames: list[bytes] = []  # of the chunk that is being filled
        self._room = 0  # in that chunk
        self._block = BlockBuilder(codec, block_size)  # that is being filled
        self._block_first_id = 0

        self._topic_id = 0
        self._data_length = 0  # of the blocks that are out
        self._frame_bytes = 0
        self._chunks: list[ChunkRef] = []
        self._entry_lengths: list[NDArray[np.uint32]] = []
        self._live = BitMap()
        self._tags: dict[str, BitMap] | None = {}

    def add(self, frame: bytes) -> bytes | None:
        """Take the next frame, whole as the log has it; returns a block when that filled one.

        Raises `EntryTooLarge`, and `FrameMismatch` (at the latest in `finish`) for a frame that is not the next one
        of the same topic.
        """
        return next(iter(list(self.add_many((frame,)))), None)

    def add_many(self, frames: Sequence[bytes]) -> Iterator[bytes]:
        """`add` for each: they are taken as the blocks that they fill are."""
        sizes = np.fromiter(map(len, frames), np.int64, len(frames)) + _GROWTH
        ends = np.cumsum(sizes)
        start = taken = 0
        while start < len(frames):
            stop = int(ends.searchsorted(taken + self._room, "right"))
            if stop > start:
                self._frames += frames[start:stop]
                self._room -= int(ends[stop - 1]) - taken
                start, taken = stop, int(ends[stop - 1])
                continue
            block = self._begin_chunk(int(sizes[start]))
            if block is not None:
                yield block

    def finish(self) -> tuple[tuple[bytes, ...], SegmentSummary]:
        """The blocks that are left, one or two, and the summary. At least one frame must have been added."""
        blocks = [block for block in (self._end_chunk(), self._end_block(last=True)) if block is not None]
        first, last = self._chunks[0], self._chunks[-1]
        summary = SegmentSummary(
            topic_id=self._topic_id,
            first_seq=first.first_seq,
            last_seq=last.last_seq,
            min_ts_ms=min(chunk.min_ts_ms for chunk in self._chunks),
            max_ts_ms=max(chunk.max_ts_ms for chunk in self._chunks),
            codec=self._codec,
            block_size=self._block_size,
            data_length=self._data_length,
            data_hash=self._hasher.digest(),
            frame_bytes=self._frame_bytes,
            chunks=tuple(self._chunks),
            entry_lengths=tuple(self._entry_lengths),
            live=_serialized(self._live),
            tags=_serialized_tags(self._tags),
        )
        return tuple(blocks), summary

    def _begin_chunk(self, size: int) -> bytes | None:
        """Make room for an entry of `size` bytes that the open chunk does not take."""
        if size - ENTRY.size > self._largest_entry:
            raise EntryTooLarge(size - ENTRY.size, self._largest_entry)
        block = self._end_chunk()
        limit = self._chunk_limit
        if self._codec is Codec.NONE:
            # Stored as it is, so how much fits is known before: fill the block to its last entry, as PIP-17 asks.
            if self._block.used + size > self._block_size:
                block = self._end_block(last=False)
            limit = min(limit, self._block_size - self._block.used)
        self._room = max(size, limit)
        return block

    def _end_chunk(self) -> bytes | None:
        """Store the frames that wait, if any. Returns the block before when they needed a new one."""
        if not self._frames:
            return None
        raw, lengths, heads = self._entries()
        first_seq = int(heads["seq"][0])
        stored = self._encode_chunk(raw)
        block = self._end_block(last=False) if self._block.used + len(stored) > self._block_size else None
        if self._block.is_empty:
            self._block_first_id = int(heads["entry_id"][0])
        self._chunks.append(
            ChunkRef(
                offset=self._data_length + self._block.used,
                stored_length=len(stored),
                raw_length=len(raw),
                first_seq=first_seq,
                last_seq=first_seq + len(lengths) - 1,
                min_ts_ms=int(heads["ts_ms"].min()),
                max_ts_ms=int(heads["ts_ms"].max()),
                xxh3=xxh3_64_intdigest(stored),
            )
        )
        self._entry_lengths.append(lengths)
        self._block.add(stored)
        self._frames.clear()
        return block

    def _end_block(self, *, last: bool) -> bytes | None:
        if self._block.is_empty:
            return None
        block = self._block.end(self._block_first_id, last=last)
        self._hasher.update(block)
        self._data_length += len(block)
        return block

    def _entries(self) -> tuple[bytearray, NDArray[np.uint32], NDArray[Any]]:
        """The waiting frames as entries: their bytes, lengths and heads.

        Joined with eight bytes before each frame, a frame is an entry but for the first twelve bytes, which are then
        written for all of them at once.
        """
        frames = self._frames
        raw = bytearray(_GROWTH).join([b"", *frames])
        lengths = np.fromiter(map(len, frames), dtype=np.int64, count=len(frames)) - _FRAME_LEN_BYTES
        starts = entry_starts(lengths)
        first_seq = self._chunks[-1].last_seq + 1 if self._chunks else _seq_of(frames[0])
        cut = lengths < MIN_DATA_LENGTH
        if cut.any():
            raise FrameMismatch(first_seq + int(np.argmax(cut)), "it is cut")
        heads = entry_heads(raw, starts[:-1])
        if not self._chunks:
            self._topic_id = int(heads["topic_id"][0])
        self._check(heads, lengths, _frame_lens(raw, starts[:-1]), first_seq)

        object_first = self._chunks[0].first_seq if self._chunks else first_seq
        heads["length"] = lengths
        heads["entry_id"] = heads["seq"] - np.uint64(object_first)
        windows = np.lib.stride_tricks.sliding_window_view(
            np.frombuffer(raw, dtype=np.uint8), ENTRY.size, writeable=True
        )
        windows[starts[:-1]] = heads.view(np.uint8).reshape(len(heads), ENTRY_HEAD.itemsize)[:, : ENTRY.size]
        self._frame_bytes += int(lengths.sum()) + _FRAME_LEN_BYTES * len(frames)
        self._note_live(heads)
        self._note_tags(raw, starts, heads)
        return raw, lengths.astype(np.uint32), heads

    def _check(self, heads: NDArray[Any], lengths: NDArray[np.int64], frame_lens: NDArray[Any], first_seq: int) -> None:
        parts = heads["node_len"].astype(np.int64) + heads["tag_len"] + heads["data_len"] + MIN_DATA_LENGTH
        expected = np.arange(first_seq, first_seq + len(heads), dtype=np.uint64)
        for sound, reason in (
            ((lengths == frame_lens) & (lengths == parts), "its lengths contradict each other"),
            (heads["type"] == FrameType.APPEND, "it is not an Append"),
            (heads["topic_id"] == self._topic_id, "it belongs to another topic"),
            (heads["seq"] == expected, "it carries another seq"),
        ):
            if not sound.all():
                raise FrameMismatch(int(expected[np.argmin(sound)]), reason)

    def _note_live(self, heads: NDArray[Any]) -> None:
        live = heads["flags"] & DELETED == 0
        first_id = int(heads["entry_id"][0])
        if live.all():
            self._live.add_range(first_id, first_id + len(heads))
        else:
            self._live.update((np.flatnonzero(live) + first_id).tolist())

    def _note_tags(self, raw: bytearray, starts: NDArray[np.int64], heads: NDArray[Any]) -> None:
        if self._tags is None:
            return
        tagged = np.flatnonzero(heads["flags"] & HAS_TAG)
        tag_starts = starts[tagged] + ENTRY_HEAD.itemsize + heads["node_len"][tagged]
        tag_ends = tag_starts + heads["tag_len"][tagged]
        ids_of: dict[bytes, list[int]] = {}
        first_id = int(heads["entry_id"][0])
        for number, start, end in zip(tagged.tolist(), tag_starts.tolist(), tag_ends.tolist(), strict=True):
            ids_of.setdefault(bytes(raw[start:end]), []).append(first_id + number)
        for tag, ids in ids_of.items():
            try:
                name = tag.decode()
            except UnicodeDecodeError:
                raise FrameMismatch(int(heads["seq"][ids[0] - first_id]), "its tag is not UTF-8") from None
            self._tags.setdefault(name, BitMap()).update(ids)
        if len(self._tags) > MAX_TAGS:
            self._tags = None


def _seq_of(frame: bytes) -> int:
    return int.from_bytes(frame[14:22], "little")


def _frame_lens(raw: bytearray, starts: NDArray[np.int64]) -> NDArray[Any]:
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(raw, dtype=np.uint8), _FRAME_LEN_BYTES)
    lens: NDArray[Any] = windows[starts + _GROWTH].view("<u4")[:, 0]
    return lens


def _serialized(bitmap: BitMap) -> bytes:
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def _serialized_tags(tags: Mapping[str, BitMap] | None) -> Mapping[str, bytes] | None:
    return None if tags is None else {tag: _serialized(tags[tag]) for tag in sorted(tags)}
