"""Read a WAL file: its consecutive frames, the units that they make, and the bytes after the last valid frame.

**Frames** are read and verified in stretches of up to a MiB.

    walk     from length to length, to the last whole frame in the buffer
    verify   the headers in one array, and one checksum for each frame (`read_any_headers`)

If a stretch has an invalid frame, iteration verifies its frames one by one. It yields the valid frames in front, then
`read_header` raises with the reason and the offset. Iteration also verifies a stretch of a few frames one by one, which
is faster.

**A unit** begins with a BATCH or a KEY frame. `OpenBatch` stands for it as long as a reader has not all of its records.
Recovery and the check of WAL files (`seglog verify`) both count the Append frames behind such a frame (BATCHFRAME-1).
If the frames end before the unit does, `begin` is the place where a torn write begins.

**The bytes after the last valid frame** are one of these. `seglog.wal.wal` looks for sync marks after them.

    whole     length and checksum fit, and the type or a flag is unknown: another version wrote the frame. No crash
              leaves such a frame. The type 0 is of no version: the sector with the header was lost, and a value may
              have the checksum
    cut       a frame begins there, by the rest of its header, and it extends past the end of the file. The size was
              durable before the frame was written (WAL-8). So no crash did that: somebody cut the file
    torn      anything else, if no sync mark follows

These checks miss one case: a file that was cut exactly after a frame, above the position that the manifest names.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from xxhash import xxh3_64_intdigest

from seglog.base.dataclasses import dataclass
from seglog.errors import FileCorrupt, FormatUnsupported, InvalidFrame
from seglog.files.file_system import OpenFile
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.batch_frame import RECORDS, UNIT_LENGTH, UNIT_TYPES, read_unit
from seglog.format.frame import (
    CHECKSUM,
    HEADER,
    KNOWN_FLAGS,
    LENGTH_BYTES,
    MIN_FRAME_BYTES,
    Buffer,
    FrameType,
    Header,
    data_of,
    read_header,
)
from seglog.format.frames import gathered, read_any_headers
from seglog.format.index import OFFSET_END
from seglog.values.append_key import Unit

# Up to this many frames, verifying one by one is faster than setting up the arrays.
_FEW = 32

_SCAN_BYTES = 1024 * 1024
_LENGTH = struct.Struct("<I")
_LEAST_LENGTH = MIN_FRAME_BYTES - _LENGTH.size
_APPEND = int(FrameType.APPEND)
_TYPES = frozenset(FrameType)


@dataclass(frozen=True, slots=True)
class Appends:
    """Records of one topic with consecutive seqs from `first_seq` on: offsets in the file, frame lengths, and times."""

    topic_id: int
    first_seq: int
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    times: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive frames. `buffer` holds the bytes of a WAL file from offset `base` on.

    `bounds` are the positions in `buffer` where frames begin, and the end of the last frame. `headers` (HEADERS) is an
    array if all frames are verified and valid. If `headers` is None, iteration verifies the frames.
    """

    base: int
    buffer: bytes
    bounds: list[int]
    headers: NDArray[Any] | None

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __iter__(self) -> Iterator[tuple[int, Header, int]]:
        """Yield the offset in the file, the header, and the position in the buffer of each frame.

        Raises `InvalidFrame` with the offset in the file.
        """
        base, buffer, headers = self.base, self.buffer, self.headers
        if headers is not None:
            for position, fields in zip(self.bounds, headers.tolist(), strict=False):
                yield base + position, Header._make(fields), position
            return
        for position in self.bounds[:-1]:
            yield base + position, _header(base, buffer, position), position

    @property
    def end(self) -> int:
        """The end of the last frame, as an offset in the file."""
        return self.base + self.bounds[-1]

    def parts(self) -> Iterator[Stretch]:
        """Split the stretch at frames that are not Append, UNIT or a sync mark, and yield the parts in order.

        Each such frame is a part of its own. So is a UNIT frame whose records go on behind the stretch.
        """
        headers, bounds = self.headers, self.bounds
        others = [] if headers is None else np.flatnonzero(dtypes.OTHERS[headers["type"]]).tolist()
        if headers is not None and len(units := np.flatnonzero(headers["type"] == FrameType.UNIT)[-1:]):
            others += units[_last_of(self.buffer, bounds, headers, units) >= len(self)].tolist()
        if headers is None or not others:
            yield self
            return
        cuts = sorted({0, *others, *(number + 1 for number in others), len(self)})
        for start, stop in pairwise(cuts):
            yield Stretch(self.base, self.buffer, bounds[start : stop + 1], headers[start:stop])

    def appends(self, file: int) -> list[Appends] | None:
        """Return the records by topic, or None if the caller must take the frames one by one.

        The method returns records only if all of these conditions hold:

        - The frames are verified and valid, and there are more than `_FEW` of them.
        - The stretch ends at or below `OFFSET_END`.
        - Every frame is an Append frame, a UNIT frame or a sync mark.
        - The records of every UNIT frame are there, right behind it.
        - Every sync mark names this file and its own offset.
        - The seqs of each topic have no gap.
        """
        headers = self.headers
        if headers is None or len(self) <= _FEW or self.end > OFFSET_END:
            return None
        bounds = np.array(self.bounds)
        offsets, lengths = bounds[:-1] + self.base, np.diff(bounds)
        is_append, is_mark = headers["type"] == FrameType.APPEND, headers["type"] == FrameType.SYNC_MARK
        if is_append.all():
            return _by_topic(headers, offsets, lengths)
        marks, units = headers[is_mark], np.flatnonzero(headers["type"] == FrameType.UNIT)
        last = _last_of(self.buffer, self.bounds, headers, units)
        if (is_append | is_mark).sum() + len(units) < len(headers) or not _are_whole(headers, units, last):
            return None
        if (marks["topic_id"] != file).any() or (marks["seq"] != offsets[is_mark]).any():
            return None
        headers, offsets, lengths = headers[is_append], offsets[is_append], lengths[is_append]
        return _by_topic(headers, offsets, lengths) if len(headers) else []


def _are_whole(headers: NDArray[Any], units: NDArray[np.intp], last: NDArray[np.int64]) -> bool:
    """Return whether the records of these UNIT frames are right behind them, up to the frames `last` (BATCHFRAME-1)."""
    if (last >= len(headers)).any() or (last == units).any():
        return False
    topic_ids = headers["topic_id"]
    # The numbers of the frames that do not go on with the unit of the frame before.
    breaks = np.flatnonzero((headers["type"][1:] != FrameType.APPEND) | (topic_ids[1:] != topic_ids[:-1])) + 1
    is_whole = np.searchsorted(breaks, units, "right") == np.searchsorted(breaks, last, "right")
    return bool((is_whole & (headers["seq"][units + 1] == headers["seq"][units])).all())


def _last_of(buffer: bytes, bounds: list[int], headers: NDArray[Any], units: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the number of the last frame of each unit. `units` are the numbers of the UNIT frames.

    For a UNIT frame without records, or with another body, that is the number of the frame itself.
    """
    is_fit = (headers["data_len"][units] == RECORDS.size) & (headers["length"][units] == UNIT_LENGTH)
    records = gathered(buffer, np.dtype("<u4"), np.array(bounds)[units] + HEADER.size)
    return units + np.where(is_fit, records, 0).astype(np.int64)


def _by_topic(headers: NDArray[Any], offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[Appends] | None:
    """Group the records by topic. Return None if the seqs of a topic have a gap."""
    topic_ids, seqs, times = headers["topic_id"], headers["seq"], headers["ts_ms"]
    if (topic_ids[1:] != topic_ids[:-1]).any():
        order = np.argsort(topic_ids, kind="stable")
        topic_ids, seqs, times = topic_ids[order], seqs[order], times[order]
        offsets, lengths = offsets[order], lengths[order]
    is_other = topic_ids[1:] != topic_ids[:-1]
    if (~is_other & (seqs[1:] != seqs[:-1] + np.uint64(1))).any():
        return None
    starts = [0, *(np.flatnonzero(is_other) + 1).tolist()]
    pieces = zip(starts, [*starts[1:], len(seqs)], topic_ids[starts].tolist(), seqs[starts].tolist(), strict=True)
    return [
        Appends(topic_id, seq, offsets[start:stop], lengths[start:stop], times[start:stop])
        for start, stop, topic_id, seq in pieces
    ]


def scan(file: OpenFile, start: int, end: int) -> Iterator[Stretch]:
    """Yield the frames in the bytes [start, end) as stretches. Raises `InvalidFrame` if the next bytes are no frame.

    The offset in this error, and in the errors of a stretch, is the offset in the file.
    """
    base, buffer, position = start, b"", 0
    while base + position < end:
        needed = _frame_bytes_at(buffer, position)
        base, position = base + position, 0
        buffer = file.read(min(max(needed, _SCAN_BYTES), end - base), base)
        if _frame_bytes_at(buffer, 0) > len(buffer):
            buffer = file.read(min(_frame_bytes_at(buffer, 0), end - base), base)
        bounds = _walk(buffer)
        position = bounds[-1]
        if position:
            yield Stretch(base, buffer, bounds, _headers(buffer, bounds))
        is_cut = _frame_bytes_at(buffer, position) > len(buffer) - position and base + len(buffer) < end
        if base + position < end and not (position and is_cut):
            _header(base, buffer, position)


def _walk(buffer: bytes) -> list[int]:
    """Return the positions where whole frames begin, by their lengths alone, and the end of the last one."""
    bounds = _run_of_one_length(buffer)
    position, end = bounds[-1], len(buffer)
    # Every further frame of a replay takes a turn of this loop, so it looks up no global.
    length_at, last, length_bytes, least = _LENGTH.unpack_from, end - MIN_FRAME_BYTES, _LENGTH.size, _LEAST_LENGTH
    while position <= last:
        (length,) = length_at(buffer, position)
        position += length + length_bytes
        if length < least or position > end:
            break
        bounds.append(position)
    return bounds


def _run_of_one_length(buffer: bytes) -> list[int]:
    """Return what `_walk` does for the whole frames in front that have the length of the first one."""
    step = _frame_bytes_at(buffer, 0)
    count = len(buffer) // step
    if step < MIN_FRAME_BYTES or count <= _FEW:
        return [0]
    different = np.flatnonzero(np.ndarray(count, "<u4", buffer, 0, (step,)) != step - _LENGTH.size)
    count = int(different[0]) if len(different) else count
    return [*range(0, count * step + 1, step)]


def _headers(buffer: bytes, bounds: list[int]) -> NDArray[Any] | None:
    if len(bounds) <= _FEW:
        return None
    places = np.array(bounds)
    return read_any_headers(buffer, places[:-1], places[1:])


def _header(base: int, buffer: bytes, position: int) -> Header:
    try:
        return read_header(buffer, position)
    except InvalidFrame as error:
        raise InvalidFrame(base + position, error.reason) from error


def _frame_bytes_at(buffer: bytes, position: int) -> int:
    """Return the length that the frame declares, or `MIN_FRAME_BYTES` if the buffer has fewer bytes of the frame."""
    if len(buffer) - position < MIN_FRAME_BYTES:
        return MIN_FRAME_BYTES
    return int.from_bytes(buffer[position : position + _LENGTH.size], "little") + _LENGTH.size


@dataclass(slots=True)
class OpenBatch:
    """A unit of which `left` records are not read yet. `begin` is the offset of its first frame in the file."""

    begin: int
    topic_id: int
    unit: Unit
    left: int

    def has(self, header: Header) -> bool:
        """Return whether a frame with this header is a record of the batch's topic."""
        return header.type == _APPEND and header.topic_id == self.topic_id

    def has_all(self, headers: NDArray[np.void]) -> bool:
        """Return whether the next frames are records of the batch's topic, as far as the batch goes."""
        own = headers[: self.left]
        return bool(((own["type"] == _APPEND) & (own["topic_id"] == self.topic_id)).all())

    def check_not_cut(self, file: OpenFile, end: int, size: int) -> None:
        """Raise `FileCorrupt` if the file has no room for the records that are left from the offset `end` on.

        The size was durable before the batch was written (WAL-8). So no crash did that: somebody cut the file.
        """
        if self.left * MIN_FRAME_BYTES > size - end:
            raise FileCorrupt(file.path, end, f"the file was cut: it ends at {size}, within the batch at {self.begin}")


def open_batch_after(
    batch: OpenBatch | None, offset: int, header: Header, buffer: Buffer, position: int
) -> OpenBatch | None:
    """Return the batch that is open behind this frame. `batch` is open before it.

    A frame that has no place there closes the batch, because recovery reports it.
    """
    if header.type in UNIT_TYPES:
        try:
            unit = read_unit(header, data_of(buffer, position, header))
        except InvalidFrame:
            return None
        return OpenBatch(offset, header.topic_id, unit, unit.records)
    if batch is None or not batch.has(header):
        return None
    batch.left -= 1
    return batch if batch.left else None


def check_known(file: OpenFile, error: InvalidFrame, size: int) -> None:
    """Raise `FormatUnsupported` if the frame at `error.offset` is whole and has an unknown type or flag."""
    length = int.from_bytes(file.read(LENGTH_BYTES, error.offset), "little")
    if not MIN_FRAME_BYTES <= length + LENGTH_BYTES <= size - error.offset:
        return
    frame = file.read(length + LENGTH_BYTES, error.offset)
    if len(frame) < length + LENGTH_BYTES:
        return  # while this view reads, the writer has truncated the reserved space
    header = Header._make(HEADER.unpack_from(frame))
    is_known = header.type == 0 or (header.type in _TYPES and not header.flags & ~KNOWN_FLAGS)
    body, checksum = frame[LENGTH_BYTES : -CHECKSUM.size], frame[-CHECKSUM.size :]
    if not is_known and checksum == CHECKSUM.pack(xxh3_64_intdigest(body)):
        raise FormatUnsupported(file.path, f"1 with frames of type {header.type} and flags {header.flags:#04x}")


def check_not_cut(file: OpenFile, error: InvalidFrame, size: int) -> None:
    """Raise `FileCorrupt` if the bytes at `error.offset` begin a frame and the file ends within that frame."""
    room = size - error.offset
    front = file.read(min(HEADER.size, room), error.offset)
    is_cut = room < MIN_FRAME_BYTES
    if len(front) > LENGTH_BYTES:
        is_cut &= front[LENGTH_BYTES] in _TYPES
    if len(front) == HEADER.size:
        length, kind, _, _, _, _, node_bytes, tag_bytes, data_bytes = HEADER.unpack(front)
        parts = MIN_FRAME_BYTES + node_bytes + tag_bytes + data_bytes
        is_cut = kind in _TYPES and length + LENGTH_BYTES == parts > room
    if is_cut:
        raise FileCorrupt(file.path, error.offset, f"the file was cut: it ends at {size}, within a frame") from error


def check_begin(file: OpenFile, begin: int, size: int) -> None:
    """Raise `FileCorrupt` if the file ends before `begin`, the offset that the manifest names."""
    if size < begin:
        raise FileCorrupt(file.path, size, f"the file was cut: the manifest was made when it had {begin} bytes")
