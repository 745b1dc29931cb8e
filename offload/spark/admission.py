"""The limits of a micro-batch: how far it goes in each topic. This module does no I/O.

ADMIT-1  Topics with little to read get all that they have. The others share the rest of the limit in equal parts.
    So no topic waits for another, if the limit is not below the number of topics.
ADMIT-2  `maxRecordsPerTrigger` counts seqs that a segment shows, deleted ones among them. No micro-batch has more.
ADMIT-3  `maxBytesPerTrigger` counts decompressed bytes: of whole segments by the commit, of a part by its chunks. A
    micro-batch ends behind a chunk. Each topic with records gets at least one chunk.
ADMIT-4  With both limits, each topic ends where the first of them ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from catalog.format.commit import SegmentView
from offload.format.block import ChunkRef

__all__ = ["Backlog", "admitted"]

ChunksOf = Callable[[SegmentView], Sequence[ChunkRef]]
"""Returns the chunk table of a segment, ascending."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """A topic's records for the stream: from the seq `first` up to and without `end`. `views` are ascending."""

    first: int
    end: int
    views: tuple[SegmentView, ...]

    @property
    def records(self) -> int:
        return sum(self.records_of(view) for view in self.views)

    @property
    def size_bytes(self) -> int:
        return sum(self.bytes_of(view) for view in self.views)

    def records_of(self, view: SegmentView) -> int:
        return max(0, view.last + 1 - max(view.first, self.first))

    def bytes_of(self, view: SegmentView) -> int:
        """Return the bytes of a view, as if all records of its segment were of one size."""
        ref = view.ref
        return ref.frame_bytes * self.records_of(view) // (ref.last_seq + 1 - ref.first_seq)


def admitted(
    backlogs: Sequence[Backlog], max_records: int | None, max_bytes: int | None, chunks_of: ChunksOf
) -> list[int]:
    """Return for each topic the seq that the next micro-batch begins with. Raises what `chunks_of` raises."""
    ends = [backlog.end for backlog in backlogs]
    if max_records is not None:
        shares = _shares(max_records, [backlog.records for backlog in backlogs])
        ends = [_end_by_records(*each) for each in zip(backlogs, shares, strict=True)]
    if max_bytes is not None:
        shares = _shares(max_bytes, [backlog.size_bytes for backlog in backlogs])
        by_bytes = [_end_by_bytes(*each, chunks_of) for each in zip(backlogs, shares, strict=True)]
        ends = [min(pair) for pair in zip(ends, by_bytes, strict=True)]
    return ends


def _shares(limit: int, sizes: Sequence[int]) -> list[int]:
    """Return each one's share of `limit`, the smallest first (ADMIT-1)."""
    found = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    for waiting, number in zip(range(len(order), 0, -1), order, strict=True):
        found[number] = min(sizes[number], limit // waiting)
        limit -= found[number]
    return found


def _end_by_records(backlog: Backlog, share: int) -> int:
    if not share and backlog.records:
        return backlog.first
    for view in backlog.views:
        if share < backlog.records_of(view):
            return max(view.first, backlog.first) + share
        share -= backlog.records_of(view)
    return backlog.end


def _end_by_bytes(backlog: Backlog, share: int, chunks_of: ChunksOf) -> int:
    end = backlog.first
    for view in backlog.views:
        size = backlog.bytes_of(view)
        if size <= share:
            end, share = view.last + 1, share - size
            continue
        for chunk in chunks_of(view):
            if chunk.last_seq < max(view.first, backlog.first) or chunk.first_seq > view.last:
                continue
            if chunk.raw_length > share and end > backlog.first:
                return end
            end, share = min(chunk.last_seq, view.last) + 1, share - chunk.raw_length
    return backlog.end
