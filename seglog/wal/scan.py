"""Read and verify consecutive frames of a WAL file, in stretches of up to a MiB.

    walk     from length to length, to the last whole frame in the buffer
    verify   the headers in one array, and one checksum for each frame (`read_any_headers`)

If a stretch has an invalid frame, iteration verifies its frames one by one. It yields the valid frames in front, then
`read_header` raises with the reason and the offset. Iteration also verifies a stretch of a few frames one by one, which
is faster.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from seglog.errors import InvalidFrame
from seglog.files.open_file import OpenFile
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.batch_frame import RECORDS, UNIT_LENGTH
from seglog.format.frame import HEADER, MIN_FRAME_BYTES, FrameType, Header, read_header
from seglog.format.frames import gathered, read_any_headers
from seglog.format.index import OFFSET_END

__all__ = ["Appends", "Stretch", "scan"]

# Up to this many frames, verifying one by one is faster than setting up the arrays.
_FEW = 32

_SCAN_BYTES = 1024 * 1024
_LENGTH = struct.Struct("<I")
_LEAST_LENGTH = MIN_FRAME_BYTES - _LENGTH.size


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
    others = np.flatnonzero(np.ndarray(count, "<u4", buffer, 0, (step,)) != step - _LENGTH.size)
    count = int(others[0]) if len(others) else count
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
