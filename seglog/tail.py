"""The in-memory index of the records that are in the WAL only: 24 bytes a record, in arrays.

Records below it are found by their segment's .idx file, so memory follows the part that no checkpoint has absorbed yet,
not the history. Not thread-safe: the owner's lock is held around every call.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, repeat

from seglog.index import Entry

__all__ = ["Tail"]


class Tail:
    """Of the records from `first_seq` on, without gaps: WAL file, offset in it, length of the frame, time."""

    __slots__ = ("_files", "_lengths", "_offsets", "_times", "bytes", "first_seq")

    def __init__(self, first_seq: int) -> None:
        self.first_seq = first_seq
        self.bytes = 0
        self._files = array("Q")
        self._offsets = array("I")
        self._lengths = array("I")
        self._times = array("Q")

    def __len__(self) -> int:
        return len(self._lengths)

    def extend(self, file: int, offset: int, lengths: Sequence[int], ts_ms: int) -> None:
        """Records that lie one after the other from `offset` of a WAL file on."""
        count = len(lengths)
        ends = list(accumulate(lengths, initial=offset))
        self.bytes += ends.pop() - offset
        self._offsets.extend(ends)
        self._lengths.extend(lengths)
        self._files.extend(repeat(file, count))
        self._times.extend(repeat(ts_ms, count))

    def ts_ms(self, seq: int) -> int:
        return self._times[seq - self.first_seq]

    def first_seq_at(self, ts_ms: int) -> int:
        return self.first_seq + bisect_left(self._times, ts_ms)

    def cut(self, seq: int) -> None:
        """There is nothing from `seq` on any more."""
        count = seq - self.first_seq
        self.bytes -= sum(self._lengths[count:])
        for column in (self._files, self._offsets, self._lengths, self._times):
            del column[count:]

    def drop(self, count: int) -> None:
        """The first `count` are elsewhere now."""
        self.first_seq += count
        self.bytes -= sum(self._lengths[:count])
        for column in (self._files, self._offsets, self._lengths, self._times):
            del column[:count]

    def near(self, start: int, stop: int, gap_max: int, bytes_max: int) -> tuple[int, list[Entry]]:
        """WAL file and entries of the records `start` to `stop` (exclusive), as far as they lie near each other.

        Near is: in one file, gaps of at most `gap_max` bytes, `bytes_max` in all; the first comes whatever its size.
        """
        file, begin = self._files[start], self._offsets[start]
        entries: list[Entry] = []
        end = begin
        for position in range(start, stop):
            offset, length = self._offsets[position], self._lengths[position]
            is_near = self._files[position] == file and offset - end <= gap_max and offset + length - begin <= bytes_max
            if entries and not is_near:
                break
            entries.append(Entry(offset, length, self._times[position], 0))
            end = offset + length
        return file, entries
