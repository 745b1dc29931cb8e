"""The in-memory index of the records that are in the WAL only: 24 bytes a record, in one byte array.

Earlier records are found through the .idx file of their segment. So memory grows with the records that no checkpoint
has absorbed yet, and not with the history. Not thread-safe: the caller holds the owner's lock.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import Any

from seglog.format.arrays import NDArray, dtypes, np

__all__ = ["Tail"]

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

    def extend(self, file: int, offset: int, lengths: Sequence[int], ts_ms: int) -> None:
        """Add records that lie one after the other from `offset` of a WAL file on. An interrupt leaves all or none."""
        if len(lengths) < _MANY:
            offsets = accumulate(lengths, initial=offset)
            self._append(b"".join(map(_ROW.pack, repeat(file), offsets, lengths, repeat(ts_ms))), sum(lengths))
            return
        sizes = np.array(lengths, np.int64)
        ends = sizes.cumsum()
        rows = np.empty(len(sizes), dtypes.ROWS)
        rows["file"], rows["offset"], rows["length"], rows["ts_ms"] = file, ends - sizes + offset, sizes, ts_ms
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
        kept = np.flatnonzero(self.rows(0, len(self))["file"])
        return self.first_seq + int(kept[-1]) if len(kept) else self.first_seq - 1

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
