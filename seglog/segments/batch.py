"""A batch: consecutive records of one topic that are read from one file at once, and verified at once.

If a frame of a batch is damaged, the batch is verified again frame by frame. Then the reader gets the records before
the damage, and the error names the place of the damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from seglog.base.dataclasses import dataclass
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import (
    DELETED,
    DURABLE,
    HAS_NODE,
    HAS_TAG,
    HEADER,
    LOST,
    UNTERMINATED,
    FrameType,
    Header,
    encode_lost,
)
from seglog.format.frames import Frames, gathered, picked_headers, read_frames, read_headers
from seglog.format.index import Entry
from seglog.segments.checked_frames import FEW, header_of, record_in
from seglog.values.deletes import MergedDeletes
from seglog.values.record import Gap, Record

if TYPE_CHECKING:
    from seglog.format.record_arrays import RecordArrays

FRAME_BATCH_MAX_BYTES = 1024 * 1024
FRAME_BATCH_MAX_RECORDS = 1024

_MORE_THAN_A_VALUE = HAS_TAG | HAS_NODE | UNTERMINATED
_Rest: TypeAlias = tuple[Iterable[str | None], Iterable[str | None], Iterable[bool]]
# The tags, nodes and unterminated flags of records that have only a value.
_PLAIN_REST: _Rest = (repeat(None), repeat(None), repeat(False))


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """A batch holds the entries (ENTRIES) of consecutive records, and the bytes of their frames.

    `buffer` holds the bytes of `path` from the first entry's offset to the last one's end.
    `deletes` are deletes that may reach the records and are not in the entries' flags. Relocated segments have such
    deletes, because their flags never change. None: there is no such delete.
    If the bytes of a deleted record were reclaimed, its frame is empty. The entry remains, and gives the header.
    `is_as_written` says that the buffer is unchanged since its frames were encoded. Then no frame is verified again.
    """

    path: Path
    topic_id: int
    first_seq: int
    entries: NDArray[Any]
    buffer: bytes
    deletes: MergedDeletes | None = None
    is_as_written: bool = False

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def last_seq(self) -> int:
        return self.first_seq + len(self.entries) - 1

    def lost_front(self) -> Gap | None:
        """Return the range of lost ephemeral records at the front. None: the first record is not lost."""
        if not self.entries["flags"][0] & LOST:
            return None
        not_lost = np.flatnonzero(self.entries["flags"] & LOST == 0)
        count = int(not_lost[0]) if len(not_lost) else len(self)
        return Gap(self.first_seq, self.first_seq + count - 1)

    def before_lost(self) -> FrameBatch:
        """Return the part of the batch before its first lost record. Without one, return the whole batch."""
        lost = np.flatnonzero(self.entries["flags"] & LOST)
        return replace(self, entries=self.entries[: int(lost[0])]) if len(lost) else self

    def starts(self) -> NDArray[np.int64]:
        """Return the position of each frame in the buffer."""
        starts: NDArray[np.int64] = self.entries["offset"].astype(np.int64)
        starts -= starts[0]
        return starts

    def headers(self) -> NDArray[Any] | None:
        """Return the headers of all frames (HEADERS). None: a frame is damaged or disagrees with its entry."""
        headers = self._headers()
        return headers if headers is not None and self._agrees(headers) else None

    def apart(self) -> Frames | None:
        """Return all frames.

        None: a frame is missing or damaged, disagrees with its entry, or may belong to a deleted record.
        """
        if self.deletes or (self.entries["flags"] & DELETED).any():
            return None
        starts = self.starts()
        frames = read_frames(self.buffer, starts, starts + self.entries["length"])
        return frames if frames is not None and self._agrees(frames.headers) else None

    def _agrees(self, headers: NDArray[Any]) -> bool:
        """Tell whether the headers have the topic, the seqs and the times of the entries."""
        agrees = (
            (headers["topic_id"] == self.topic_id)
            & (headers["seq"] == np.arange(len(self), dtype=np.uint64) + np.uint64(self.first_seq))
            & (headers["ts_ms"] == self.entries["ts_ms"])
        )
        return bool(agrees.all())

    def _headers(self) -> NDArray[Any] | None:
        """Return the headers of all frames, not compared with the entries. None: a frame is damaged or missing."""
        starts, lengths = self.starts(), self.entries["length"]
        is_there = lengths != 0
        if is_there.all():
            if self.is_as_written:
                return gathered(self.buffer, dtypes.HEADERS, starts)
            return read_headers(self.buffer, starts, starts + lengths)
        if (self.entries["flags"][~is_there] & DELETED == 0).any():
            return None
        headers = np.zeros(len(self), dtypes.HEADERS)
        headers["type"], headers["topic_id"] = FrameType.APPEND, self.topic_id
        headers["flags"] = self.entries["flags"] & (DURABLE | LOST) | DELETED
        headers["seq"] = np.arange(len(self), dtype=np.uint64) + np.uint64(self.first_seq)
        headers["ts_ms"] = self.entries["ts_ms"]
        if is_there.any():
            present = read_headers(self.buffer, starts[is_there], (starts + lengths)[is_there])
            if present is None:
                return None
            headers[is_there] = present
        return headers

    def verified(self) -> NDArray[Any]:
        """Return the headers of all frames. Raises `FileCorrupt` for the first damaged frame."""
        headers = self.headers()
        if headers is not None:
            return headers
        for index in range(len(self)):
            self.frame(index)
        raise AssertionError("one by one, every frame was sound")

    def frames(self) -> list[bytes]:
        """Return the bytes of each frame. Call `headers` first: this call verifies nothing."""
        starts = self.starts()
        ends = (starts + self.entries["length"]).tolist()
        buffer = self.buffer
        return [buffer[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]

    def piece(self, start: int, stop: int) -> bytes:
        """Return the bytes of the frames `start` to `stop` (exclusive), without the gaps between them.

        Call `headers` first: this call verifies nothing.
        """
        starts = self.starts()[start:stop]
        ends = starts + self.entries["length"][start:stop]
        cuts = np.flatnonzero(starts[1:] != ends[:-1])
        begins = [int(starts[0]), *starts[cuts + 1].tolist()]
        return b"".join(
            [self.buffer[begin:end] for begin, end in zip(begins, [*ends[cuts].tolist(), int(ends[-1])], strict=True)]
        )

    def frame(self, index: int) -> tuple[Entry, int, Header]:
        """Return the entry of a record, the position of its frame in the buffer, and the header.

        Raises `FileCorrupt` if the frame is damaged or disagrees with the entry.
        """
        entry = Entry(*self.entries[index].item()[:4])
        if not entry.length and entry.flags & DELETED:
            return entry, 0, self._reclaimed(index, entry)
        position = entry.offset - int(self.entries[0]["offset"])
        header = header_of(self.path, self.topic_id, self.first_seq + index, entry, position, self.buffer)
        return entry, position, header

    def _reclaimed(self, index: int, entry: Entry) -> Header:
        """Make a header from the entry of a record. The record is deleted, and its bytes were reclaimed."""
        flags = entry.flags & (DURABLE | LOST) | DELETED
        return Header(0, FrameType.APPEND, flags, self.topic_id, self.first_seq + index, entry.ts_ms, 0, 0, 0)

    def record(self, index: int) -> Record:
        """Return one record. Raises `FileCorrupt`."""
        _, position, header = self.frame(index)
        return self._record(position, header)

    def records(self, indices: NDArray[np.intp], deletes: Sequence[MergedDeletes] = ()) -> Iterator[Record]:
        """Return an iterator over the records at `indices` (ascending) that none of `deletes` reaches.

        The iterator raises `FileCorrupt` at the damaged record.
        """
        headers = self.headers() if len(indices) > FEW else None
        if headers is None:
            records = map(self.record, indices.tolist())
            return _unreached(records, deletes) if deletes else records
        starts, buffer = self.starts(), self.buffer
        if len(indices) < len(self):
            headers, starts = picked_headers(headers, indices), starts[indices]
        values_at = starts + HEADER.size
        labels = _PLAIN_REST
        if (headers["flags"] & _MORE_THAN_A_VALUE).any():
            try:
                labels = _labels(buffer, values_at, headers)
            except UnicodeDecodeError:
                records = map(self._record, starts.tolist(), map(Header._make, headers.tolist()))
                return _unreached(records, deletes) if deletes else records
            values_at += headers["node_len"]
            values_at += headers["tag_len"]
        # Values are cut out lazily. If the caller drops each value, the next one gets the same memory.
        places = map(slice, values_at.tolist(), (values_at + headers["data_len"]).tolist())
        values = map(buffer.__getitem__, places)
        seqs = (indices + self.first_seq).tolist()
        columns = zip(seqs, headers["ts_ms"].tolist(), values, *labels, strict=False)
        mask = _kept(seqs, labels[0], deletes) if deletes else None
        return map(tuple.__new__, repeat(Record), columns if mask is None else compress(columns, mask))

    def arrays(self) -> RecordArrays | None:
        """Return the records whose entries do not say that they are deleted. `deletes` are not applied.

        None: a frame is damaged, as in `headers`, or a node or tag is not UTF-8.
        """
        from seglog.format.record_arrays import RecordArrays  # imported late, because most commands need none

        headers = self.headers()
        if headers is None:
            return None
        rows = np.flatnonzero(self.entries["flags"] & DELETED == 0)
        arrays = RecordArrays(self.buffer, self.starts(), headers).at(rows)
        return arrays if arrays.labels_are_text() else None

    def _record(self, position: int, header: Header) -> Record:
        return record_in(self.path, int(self.entries[0]["offset"]) + position, header, position, self.buffer)


def _kept(seqs: Sequence[int], tags: Iterable[str | None], deletes: Sequence[MergedDeletes]) -> Iterable[bool] | None:
    """Tell for each record whether no delete reaches it. None: no delete reaches any of them."""
    listed = tags if isinstance(tags, list) else None
    masks = [mask for reach in deletes if (mask := reach.kept(seqs, listed)) is not None]
    if not masks:
        return None
    return masks[0] if len(masks) == 1 else map(all, zip(*masks, strict=True))


def _unreached(records: Iterator[Record], deletes: Sequence[MergedDeletes]) -> Iterator[Record]:
    for record in records:
        if not any(reach.reaches(record.seq, record.tag) for reach in deletes):
            yield record


def _labels(buffer: bytes, nodes_at: NDArray[np.int64], headers: NDArray[Any]) -> _Rest:
    """Return the tags, the nodes and the unterminated flags of records whose frames are sound."""
    flags = headers["flags"]
    tags_at = nodes_at + headers["node_len"]
    ends = tags_at + headers["tag_len"]
    nodes = _texts(buffer, nodes_at, tags_at, flags & HAS_NODE != 0)
    return _texts(buffer, tags_at, ends, flags & HAS_TAG != 0), nodes, (flags & UNTERMINATED != 0).tolist()


def _texts(
    buffer: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], is_there: NDArray[np.bool_]
) -> Iterable[str | None]:
    if not is_there.any():
        return repeat(None)
    columns = zip(starts.tolist(), ends.tolist(), is_there.tolist(), strict=True)
    return [buffer[start:end].decode() if has_text else None for start, end, has_text in columns]


def lost_batch(topic_id: int, first_seq: int, times: list[int]) -> FrameBatch:
    """Return a batch of frames that stand for ephemeral records with these times, in ms.

    Its callers need seqs without a gap.
    """
    frames = [encode_lost(topic_id, seq, ts_ms) for seq, ts_ms in enumerate(times, first_seq)]
    lengths = np.array([*map(len, frames)], np.int64)
    entries = np.zeros(len(frames), dtypes.ENTRIES)
    entries["offset"], entries["length"] = np.cumsum(lengths) - lengths, lengths
    entries["ts_ms"], entries["flags"] = times, DELETED | LOST
    return FrameBatch(Path("lost"), topic_id, first_seq, entries, b"".join(frames))
