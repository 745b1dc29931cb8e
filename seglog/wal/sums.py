"""Hashes of large pieces of WAL files, taken when the pieces were written.

A checkpoint reads the frames of the WAL back and verifies them. For a piece with a hash, one hash over all of its
bytes takes the place of one for each frame. If the bytes are the ones that were written, every frame is sound. If they
are not, the checkpoint verifies the frames one by one, and finds the damaged one.

The hashes are in memory only. After an opening, the records that recovery found have none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from seglog.files.open_file import OpenFile
from seglog.format.arrays import NDArray, np

__all__ = ["SUMMED_MIN_BYTES", "Sums"]

#: A smaller piece gets no hash: batches of a checkpoint would get small with it.
SUMMED_MIN_BYTES = 64 * 1024


class _Sum(NamedTuple):
    """The hash of the `size` bytes from `offset` of a WAL file on."""

    offset: int
    size: int
    digest: int


class Sums:
    """The hashes of one shard. One thread at a time adds them, and one other thread may look them up meanwhile."""

    __slots__ = ("_by_file",)

    def __init__(self) -> None:
        self._by_file: dict[OpenFile, list[_Sum]] = {}

    @property
    def is_empty(self) -> bool:
        return not any(self._by_file.values())

    def add(self, file: OpenFile, offset: int, pieces: Sequence[bytes]) -> None:
        """Take the hashes of the large ones of these pieces, which were written one after the other.

        After an interrupt the caller calls this again.
        """
        sums = self._by_file.setdefault(file, [])
        while sums and sums[-1].offset >= offset:
            sums.pop()
        for piece in pieces:
            if len(piece) >= SUMMED_MIN_BYTES:
                sums.append(_Sum(offset, len(piece), xxh3_64_intdigest(piece)))
            offset += len(piece)

    def drop(self, file: OpenFile) -> None:
        self._by_file.pop(file, None)

    def clear(self) -> None:
        self._by_file.clear()

    def fitting(self, file: OpenFile, entries: NDArray[Any]) -> int:
        """Return how many of the entries (ENTRIES) to verify together: all, or those of one piece, or those before it.

        The result is never less than half of the entries, because each batch has a cost of its own.
        """
        sums = self._by_file.get(file)
        begin = int(entries[0]["offset"])
        at = bisect_left(sums, begin, key=_offset_of) if sums else 0
        if not sums or at == len(sums):
            return len(entries)
        end = sums[at].offset + (sums[at].size if sums[at].offset == begin else 0)
        count = int(np.searchsorted(entries["offset"], end, "left"))
        return count if count * 2 >= len(entries) else len(entries)

    def is_as_written(self, file: OpenFile, offset: int, buffer: bytes) -> bool:
        """Return whether `buffer`, read from `offset` on, is a piece that was written there, unchanged."""
        sums = self._by_file.get(file, [])
        at = bisect_left(sums, offset, key=_offset_of)
        if at == len(sums) or sums[at][:2] != (offset, len(buffer)):
            return False
        return sums[at].digest == xxh3_64_intdigest(buffer)


def _offset_of(piece: _Sum) -> int:
    return piece.offset
