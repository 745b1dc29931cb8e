"""The encoder of a data object. It takes frames in order, and gives each block when the block is full.

    ENCODER-1  Memory: the chunks of one block, the frames of one chunk, and the values for the index.
    ENCODER-2  Frames come verified and taken apart (seglog.format.frames). The encoder makes a chunk by one join of
        their bodies, and does the rest on arrays. It looks only at tags one by one.
    ENCODER-3  A chunk ends before the entry that would take it over `chunk_bytes`. One entry makes a chunk, however
        large.
    ENCODER-4  The same frames with the same settings and the same zstd give the same bytes.

offload.format.block and offload.format.entry define the layout. This module does no I/O.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from blake3 import blake3
from pyroaring import BitMap
from xxhash import xxh3_64_intdigest

from catalog.format.commit import Codec
from offload.errors import OffloadError
from offload.format.block import BlockBuilder, ChunkRef, largest_entry, raw_capacity
from offload.format.codec import chunk_encoder
from offload.format.entry import ENTRY, entry_starts
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Corrupt, Misuse
from seglog.format.arrays import NDArray, np
from seglog.format.frame import CHECKSUM, DELETED, HAS_TAG, HEADER, LENGTH_BYTES
from seglog.format.frames import Frames, joined_headers, scatter

CHUNK_BYTES = 1 << 20
MAX_TAGS = 4096

_GROWTH = ENTRY.size - LENGTH_BYTES  # an entry is longer than its frame by this
_LABELS_AT = HEADER.size - LENGTH_BYTES  # in a body


class FrameMismatch(Corrupt, OffloadError):
    """A frame handed over for offload is not the next one. The encoder writes nothing for it."""

    seq: int
    reason: str
    message = "the frame for seq {seq} cannot be offloaded: {reason}"


class EntryTooLarge(Misuse, OffloadError):
    """The entry does not fit an empty block. Sizes in bytes."""

    size_bytes: int
    limit_bytes: int
    message = "an entry of {size_bytes} bytes does not fit into a block, which holds at most {limit_bytes}"
    hint = "raise block_size in the [offload] section of seglog.toml"


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A description of a data object, complete with its last block. Lengths in bytes, bitmaps as portable Roaring.

    `entry_lengths` has an array for each chunk. `tags` maps a tag to the bitmap of its entry ids, ascending by tag;
    None if there were more than `MAX_TAGS`. `live` holds the ids of entries whose frame is not marked deleted.
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
    live_records: int
    tags: Mapping[str, bytes] | None

    @property
    def count(self) -> int:
        return self.last_seq - self.first_seq + 1


class SegmentEncoder:
    """Makes one data object: `add` the frames in seq order, then `finish`. After an error, discard the encoder."""

    def __init__(
        self,
        *,
        block_size: int,
        codec: Codec,
        chunk_bytes: int = CHUNK_BYTES,
        zstd_level: int = 3,
        spare: deque[bytearray] | None = None,
    ) -> None:
        """Accept any `block_size` that takes an entry. The settings check the limits of a store.

        If the caller puts a block that it no longer needs into `spare`, the encoder uses it for a later block.
        """
        self._block_size = block_size
        self._codec = codec
        self._largest_entry = largest_entry(block_size, codec)
        self._chunk_limit = min(chunk_bytes, raw_capacity(block_size, codec))
        self._encode_chunk = chunk_encoder(codec, zstd_level)
        self._hasher = blake3()

        self._waiting: list[Frames] = []  # frames of the open chunk
        self._room = 0  # bytes left in the open chunk
        self._block = BlockBuilder(codec, block_size, spare)  # the open block
        self._block_first_id = 0

        self._topic_id = 0
        self._data_length = 0  # of the finished blocks
        self._frame_bytes = 0
        self._chunks: list[ChunkRef] = []
        self._entry_lengths: list[NDArray[np.uint32]] = []
        self._live = BitMap()
        self._tags: dict[str, BitMap] | None = {}

    def add(self, frames: Frames) -> Iterator[bytearray]:
        """Take the next frames, and yield each block that they fill.

        Raises `EntryTooLarge`. Raises `FrameMismatch`, at the latest in `finish`, if a frame is not the next one of the
        same topic.
        """
        sizes = frames.headers["length"].astype(np.int64) + ENTRY.size
        ends = np.cumsum(sizes)
        start = taken_bytes = 0
        while start < len(frames):
            stop = int(ends.searchsorted(taken_bytes + self._room, "right"))
            if stop > start:
                self._waiting.append(frames.part(start, stop))
                self._room -= int(ends[stop - 1]) - taken_bytes
                start, taken_bytes = stop, int(ends[stop - 1])
                continue
            yield from self._begin_chunk(int(sizes[start]))

    def finish(self) -> tuple[tuple[bytearray, ...], SegmentSummary]:
        """Return the remaining blocks, one or two, and the summary. The caller must have added a frame."""
        blocks = [*self._end_chunk(), *self._end_block(last=True)]
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
            live_records=len(self._live),
            tags=None if self._tags is None else {tag: _serialized(self._tags[tag]) for tag in sorted(self._tags)},
        )
        return tuple(blocks), summary

    def _begin_chunk(self, size: int) -> Iterator[bytearray]:
        """Make room for an entry of `size` bytes that does not fit the open chunk."""
        if size - ENTRY.size > self._largest_entry:
            raise EntryTooLarge(size - ENTRY.size, self._largest_entry)
        yield from self._end_chunk()
        limit = self._chunk_limit
        if self._codec is Codec.NONE:
            # The stored size is the raw size, so it is known now: fill the block to its last entry, as PIP-17 asks.
            if self._block.used + size > self._block_size:
                yield from self._end_block(last=False)
            limit = min(limit, self._block_size - self._block.used)
        self._room = max(size, limit)

    def _end_chunk(self) -> Iterator[bytearray]:
        """Store the waiting frames, if any, as a chunk. If they do not fit the open block, yield that block first."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        heads = joined_headers(waiting)
        bodies = [body for frames in waiting for body in frames.bodies]
        first_seq = self._check(heads)
        first_id = first_seq - (self._chunks[0].first_seq if self._chunks else first_seq)
        self._note_live(heads, first_id)
        self._note_tags(heads, bodies, first_id)

        raw = _entries(first_id, heads["length"], bodies, np.concatenate([frames.checksums for frames in waiting]))
        stored = self._encode_chunk(raw)
        if self._block.used + len(stored) > self._block_size:
            yield from self._end_block(last=False)
        if self._block.is_empty:
            self._block_first_id = first_id
        self._chunks.append(
            ChunkRef(
                offset=self._data_length + self._block.used,
                stored_length=len(stored),
                raw_length=len(raw),
                first_seq=first_seq,
                last_seq=first_seq + len(heads) - 1,
                min_ts_ms=int(heads["ts_ms"].min()),
                max_ts_ms=int(heads["ts_ms"].max()),
                xxh3=xxh3_64_intdigest(stored),
            )
        )
        self._entry_lengths.append(heads["length"].astype(np.uint32))
        self._frame_bytes += len(raw) - _GROWTH * len(heads)
        self._block.add(stored)

    def _end_block(self, *, last: bool) -> Iterator[bytearray]:
        if self._block.is_empty:
            return
        block = self._block.end(self._block_first_id, last=last)
        self._hasher.update(block)
        self._data_length += len(block)
        yield block

    def _check(self, heads: NDArray[Any]) -> int:
        """Check that these frames are the next ones, and return the first seq."""
        if not self._chunks:
            self._topic_id = int(heads["topic_id"][0])
        first_seq = self._chunks[-1].last_seq + 1 if self._chunks else int(heads["seq"][0])
        expected = np.arange(first_seq, first_seq + len(heads), dtype=np.uint64)
        for sound, reason in (
            (heads["topic_id"] == self._topic_id, "it belongs to another topic"),
            (heads["seq"] == expected, "it carries another seq"),
        ):
            if not sound.all():
                raise FrameMismatch(int(expected[np.argmin(sound)]), reason)
        return first_seq

    def _note_live(self, heads: NDArray[Any], first_id: int) -> None:
        live = heads["flags"] & DELETED == 0
        if live.all():
            self._live.add_range(first_id, first_id + len(heads))
        else:
            self._live.update((np.flatnonzero(live) + first_id).tolist())

    def _note_tags(self, heads: NDArray[Any], bodies: Sequence[bytes | memoryview], first_id: int) -> None:
        if self._tags is None:
            return
        tagged = np.flatnonzero(heads["flags"] & HAS_TAG)
        tag_starts = _LABELS_AT + heads["node_len"][tagged].astype(np.int64)
        tag_ends = tag_starts + heads["tag_len"][tagged]
        ids_of: dict[bytes, list[int]] = {}
        for number, start, end in zip(tagged.tolist(), tag_starts.tolist(), tag_ends.tolist(), strict=True):
            ids_of.setdefault(bytes(bodies[number][start:end]), []).append(first_id + number)
        for tag, ids in ids_of.items():
            try:
                name = tag.decode()
            except UnicodeDecodeError:
                raise FrameMismatch(int(heads["seq"][ids[0] - first_id]), "its tag is not UTF-8") from None
            self._tags.setdefault(name, BitMap()).update(ids)
        if len(self._tags) > MAX_TAGS:
            self._tags = None


def _entries(
    first_id: int, lengths: NDArray[Any], bodies: Sequence[bytes | memoryview], checksums: NDArray[np.uint64]
) -> memoryview:
    """Return bodies of frames as entries, one after the other.

    Between two bodies lie the checksum of the first frame and the head of the second entry. The function joins the
    bodies with gaps for both, and then fills all gaps at once. Behind bodies of one length, it fills them in place.
    """
    count = len(bodies)
    gap = _gap()
    joined = bytearray(gap.itemsize).join([b"", *bodies, b""])
    has_one_length = bool((lengths == lengths[0]).all())
    step = ENTRY.size + int(lengths[0])
    gaps = np.ndarray(count + 1, gap, joined, 0, (step,)) if has_one_length else np.zeros(count + 1, gap)
    gaps["checksum"][1:] = checksums
    gaps["length"][:-1] = lengths
    gaps["entry_id"][:-1] = np.arange(first_id, first_id + count)
    if not has_one_length:
        scatter(gaps, joined, entry_starts(lengths))
    return memoryview(joined)[CHECKSUM.size : -ENTRY.size]


@functools.cache
def _gap() -> np.dtype[Any]:
    """Return the dtype of what lies between one frame's body and the next."""
    return np.dtype([("checksum", "<u8"), ("length", ">u4"), ("entry_id", ">u8")])


def _serialized(bitmap: BitMap) -> bytes:
    bitmap.run_optimize()
    return bytes(bitmap.serialize())
