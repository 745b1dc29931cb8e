"""The in-memory index of the records that are in the WAL only: 24 bytes a record, in arrays.

Earlier records are found through the .idx file of their segment. So memory grows with the records that no checkpoint
has absorbed yet, and not with the history. Not thread-safe: the caller holds the owner's lock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from seglog.format.arrays import NDArray, dtypes, np

__all__ = ["Tail"]

_NO_FILE = 0


class Tail:
    """The WAL file, offset, frame length and time of each record from `first_seq` on, without gaps.

    A record in no file (`lose`) has the file 0 and the length 0. The first record is in a file.
    """

    __slots__ = ("_count", "_files", "_lengths", "_offsets", "_times", "bytes", "first_seq")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.bytes = 0
        self._count = 0
        self._files = array("Q")
        self._offsets = array("I")
        self._lengths = array("I")
        self._times = array("Q")

    def __len__(self) -> int:
        return self._count

    @property
    def end_seq(self) -> int:
        """The seq of the next record."""
        return self.first_seq + self._count

    def extend(self, file: int, offset: int, lengths: Sequence[int], ts_ms: int) -> None:
        """Add records that lie one after the other from `offset` of a WAL file on. An interrupt leaves all or none."""
        count = len(lengths)
        if len(self._offsets) != self._count:
            self._trim()
        if count == 1:
            size = lengths[0]
            self._offsets.append(offset)
            self._lengths.append(size)
            self._files.append(file)
            self._times.append(ts_ms)
        else:
            ends = list(accumulate(lengths, initial=offset))
            size = ends.pop() - offset
            self._offsets.fromlist(ends)
            self._lengths.extend(lengths)
            self._files.extend(array("Q", (file,)) * count)
            self._times.extend(array("Q", (ts_ms,)) * count)
        self.bytes, self._count = self.bytes + size, self._count + count

    def take(
        self, file: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64], times: NDArray[np.uint64]
    ) -> None:
        """Add records that lie anywhere in a WAL file."""
        self._trim()
        self._offsets.frombytes(offsets.astype(np.uint32).tobytes())
        self._lengths.frombytes(lengths.astype(np.uint32).tobytes())
        self._files.extend(array("Q", [file]) * len(offsets))
        self._times.frombytes(times.astype(np.uint64).tobytes())
        self.bytes, self._count = self.bytes + int(lengths.sum()), self._count + len(offsets)

    def lose(self, count: int, ts_ms: int) -> None:
        """Add `count` records that are in no file. An empty tail begins after them instead."""
        if self._count:
            self.extend(_NO_FILE, 0, [0] * count, ts_ms)
        else:
            self.first_seq += count

    @property
    def kept_seq(self) -> int:
        """The last seq that is in a file; `first_seq - 1` if no seq is."""
        kept = np.flatnonzero(np.array(self._files[: self._count]))
        return self.first_seq + int(kept[-1]) if len(kept) else self.first_seq - 1

    def ts_ms(self, seq: int) -> int:
        return self._times[seq - self.first_seq]

    def first_seq_at(self, ts_ms: int) -> int:
        return self.first_seq + bisect_left(self._times, ts_ms, hi=self._count)

    def cut(self, seq: int) -> None:
        """Remove all records from `seq` on."""
        count = seq - self.first_seq
        size = sum(self._lengths[:count])
        self.bytes, self._count = size, count
        self._trim()

    def drop(self, count: int) -> None:
        """Remove the first `count` records, which are elsewhere now, and the records in no file right after them."""
        while count < self._count and self._files[count] == _NO_FILE:
            count += 1
        self.first_seq += count
        self.bytes -= int(np.array(self._lengths[:count]).sum(dtype=np.int64))
        for column in (self._files, self._offsets, self._lengths, self._times):
            del column[:count]
        self._count -= count

    def near(self, start: int, stop: int, gap_max: int, bytes_max: int) -> tuple[int, NDArray[Any]]:
        """Return the WAL file (0: none) and the entries (ENTRIES) of the records `start` to `stop` (exclusive).

        The result ends before the first record that is not near. Near records are in one file, with gaps of at most
        `gap_max` bytes, and within `bytes_max` bytes in all. The first record is in the result whatever its size.
        """
        entries = np.zeros(stop - start, dtypes.ENTRIES)
        entries["offset"], entries["length"] = self._offsets[start:stop], self._lengths[start:stop]
        entries["ts_ms"] = self._times[start:stop]
        offsets = entries["offset"].astype(np.int64)
        ends = offsets + entries["length"]
        is_far = np.array(self._files[start:stop]) != self._files[start]
        is_far |= ends - offsets[0] > bytes_max
        is_far[1:] |= offsets[1:] - ends[:-1] > gap_max
        is_far[0] = False
        count = int(is_far.argmax()) if is_far.any() else len(entries)
        return self._files[start], entries[:count]

    def _trim(self) -> None:
        """Remove the values that an interrupted `extend` has left."""
        for column in (self._lengths, self._files, self._times, self._offsets):
            del column[self._count :]
