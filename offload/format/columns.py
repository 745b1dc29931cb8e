"""The columns of a decoded chunk. A scan makes them for all its records at once.

    COLUMN-1  Every record is checked before any column is made: XXH3-64, place (entry id, seq, topic_id), lengths. A
        caller may leave out the XXH3-64.
    COLUMN-2  Only the checksum is computed record by record. The heads are gathered as one array. One Arrow `take` for
        each column copies the variable parts of the wanted rows out of the chunk, in order.
    COLUMN-3  Memory: the chunk, its heads, and the columns.

The module is made for whole chunks of about 1 MiB, because larger chunks fall out of the processor's cache.
offload.format.entry defines the layout. This module does no I/O.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from offload.errors import InvalidChunk
from offload.format.block import ChunkRef
from offload.format.entry import ENTRY, MIN_DATA_LENGTH, entry_head, entry_heads, entry_starts
from seglog.base.dataclasses import dataclass
from seglog.format.arrow import labels
from seglog.format.frame import CHECKSUM, HAS_NODE, HAS_TAG, FrameType

_PARTS = 5  # of an entry: head, node, tag, data, checksum
_NODE, _TAG, _DATA = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns, with one element for each record, deleted or not.

    The methods take the numbers of the wanted rows, in order.

    `key` and `offset` are the chunk's place, for errors.
    """

    key: str
    offset: int
    seq: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    flags: NDArray[np.uint8]
    parts: pa.BinaryArray

    # `node` and `tag` raise `InvalidChunk` if a text is not UTF-8.
    def node(self, rows: NDArray[np.int64]) -> pa.StringArray:
        return self._text(rows, _NODE, HAS_NODE)

    def tag(self, rows: NDArray[np.int64]) -> pa.StringArray:
        return self._text(rows, _TAG, HAS_TAG)

    def value(self, rows: NDArray[np.int64]) -> pa.BinaryArray:
        return self.parts.take(pa.array(rows * _PARTS + _DATA))

    def _text(self, rows: NDArray[np.int64], part: int, flag: int) -> pa.StringArray:
        try:
            return labels(self.parts, rows * _PARTS + part, self.flags[rows] & flag != 0)
        except pa.ArrowInvalid as error:
            raise InvalidChunk(self.key, self.offset, "a tag or node in it is not UTF-8") from error


def decode_columns(
    raw: bytes | memoryview,
    lengths: NDArray[np.uint32],
    chunk: ChunkRef,
    first_seq: int,
    topic_id: int,
    key: str,
    *,
    check_records: bool = True,
) -> Columns:
    """Return the records of a decoded chunk with these entry lengths, in an object that begins with `first_seq`.

    Without `check_records`, the XXH3 of the records is not compared. Their places and lengths are.

    Raises `InvalidChunk` if a record is not whole or not in its place.
    """
    starts = entry_starts(lengths)
    if int(starts[-1]) != len(raw) or len(lengths) != chunk.count or int(lengths.min()) < MIN_DATA_LENGTH:
        raise InvalidChunk(key, chunk.offset, f"{len(lengths)} entries do not make {len(raw)} bytes")
    heads = entry_heads(raw, starts[:-1])
    bounds = _bounds(heads, starts)
    _check_places(heads, lengths, bounds, chunk, first_seq, topic_id, key)
    if check_records:
        _check_sums(raw, bounds, chunk, key)
    offsets = pa.py_buffer(bounds.astype(np.int32))
    return Columns(
        key=key,
        offset=chunk.offset,
        seq=heads["seq"].astype(np.int64),
        ts_ms=heads["ts_ms"].astype(np.int64),
        flags=np.ascontiguousarray(heads["flags"]),
        parts=pa.BinaryArray.from_buffers(pa.binary(), len(bounds) - 1, [None, offsets, pa.py_buffer(raw)]),
    )


def _bounds(heads: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offsets of one Arrow array of all parts: where each part begins, and where the last one ends."""
    bounds = np.empty(_PARTS * len(heads) + 1, dtype=np.int64)
    bounds[0::_PARTS] = starts
    bounds[1::_PARTS] = starts[:-1] + entry_head().itemsize
    bounds[2::_PARTS] = bounds[1::_PARTS] + heads["node_len"]
    bounds[3::_PARTS] = bounds[2::_PARTS] + heads["tag_len"]
    bounds[4::_PARTS] = bounds[3::_PARTS] + heads["data_len"]
    return bounds


def _check_places(
    heads: NDArray[Any],
    lengths: NDArray[np.uint32],
    bounds: NDArray[np.int64],
    chunk: ChunkRef,
    first_seq: int,
    topic_id: int,
    key: str,
) -> None:
    seqs = np.arange(chunk.first_seq, chunk.last_seq + 1, dtype=np.uint64)
    checksum_starts, ends = bounds[4::_PARTS], bounds[_PARTS::_PARTS]
    for sound, reason in (
        (heads["length"] == lengths, "another entry length"),
        (checksum_starts + CHECKSUM.size == ends, "lengths that contradict each other"),
        (heads["seq"] == seqs, "another seq"),
        (heads["entry_id"] == seqs - np.uint64(first_seq), "another entry id"),
        (heads["topic_id"] == topic_id, "the id of another topic"),
        (heads["type"] == FrameType.APPEND, "another type than Append"),
    ):
        if not sound.all():
            raise InvalidChunk(key, chunk.offset, f"the record of seq {seqs[np.argmin(sound)]} has {reason}")


def _check_sums(raw: bytes | memoryview, bounds: NDArray[np.int64], chunk: ChunkRef, key: str) -> None:
    checksum_starts = bounds[4::_PARTS]
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(raw, dtype=np.uint8), CHECKSUM.size)
    expected = windows[checksum_starts].view("<u8")[:, 0]
    view = memoryview(raw)
    sums = [
        xxh3_64_intdigest(view[start:end])
        for start, end in zip((bounds[0:-1:_PARTS] + ENTRY.size).tolist(), checksum_starts.tolist(), strict=True)
    ]
    sound = expected == np.array(sums, dtype=np.uint64)
    if not sound.all():
        seq = chunk.first_seq + int(np.argmin(sound))
        raise InvalidChunk(key, chunk.offset, f"the record of seq {seq} does not match its checksum")
