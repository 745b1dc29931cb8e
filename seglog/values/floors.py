"""The start of a topic: which seqs are live, and which range retention evicted.

    seq      1 ... evict_from ... evict_floor ... earliest_seq ... head
             |      |--- a Gap ---|                |--- live, or deleted among live ones
             |- deleted, or in the cold tier -|

FLOOR-1  1 <= evict_from <= evict_floor <= earliest_seq. Nothing below `earliest_seq` is live.
FLOOR-2  An eviction of live records raises `earliest_seq` and `evict_floor`. The first one also sets `evict_from`. A
    delete raises `earliest_seq` only. So a reader reports evicted records, and passes over deleted ones in silence.
FLOOR-3  All seqs from `evict_from` up to `evict_floor` count as lost, even seqs that a delete had reached before. One
    range cannot tell them apart, so it reports too many rather than too few.
FLOOR-4  While the cold tier has live records, `earliest_seq` may be lower than the first live one. The log does not
    look up deletes by tag in the cold tier.
FLOOR-5  The expiry floor of a ttl is not part of these floors. A reader adds it with `expired` until retention evicts
    the records (seglog.reading.times).

Source: topics engine architecture, sections 1.2 and 3.4; `evict_from` is ours. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from seglog.values.record import Gap

__all__ = ["Floors"]


@dataclass(frozen=True, slots=True)
class Floors:
    """The floors of a topic, replaced as one value. So a reader without a lock sees floors that belong together."""

    earliest_seq: int = 1
    evict_from: int = 1
    evict_floor: int = 1

    @property
    def is_fit(self) -> bool:
        """Return whether the floors are in order (FLOOR-1)."""
        return 1 <= self.evict_from <= self.evict_floor <= self.earliest_seq

    def gap(self, first: int, last: int) -> Gap | None:
        """Return the lost part of the seqs `first` to `last`; None if none of them was lost."""
        begin, end = max(first, self.evict_from), min(last, self.evict_floor - 1)
        return Gap(begin, end) if begin <= end else None

    def raised(self, earliest_seq: int) -> Floors:
        """Return the floors after all records below `earliest_seq` were deleted, or are known to be dead."""
        return self if earliest_seq <= self.earliest_seq else replace(self, earliest_seq=earliest_seq)

    def evicted(self, earliest_seq: int, lost: Gap | None) -> Floors:
        """Return the floors after all records below `earliest_seq` were evicted. Those in `lost` were live."""
        raised = self.raised(earliest_seq)
        if lost is None:
            return raised
        begin = self.evict_from if self.evict_from < self.evict_floor else lost.gap_from
        return replace(raised, evict_from=begin, evict_floor=max(self.evict_floor, lost.gap_to + 1))

    def expired(self, seq: int) -> Floors:
        """Return the floors if all records below `seq` are past the topic's ttl. They count as evicted."""
        return self if seq <= self.earliest_seq else self.evicted(seq, Gap(self.earliest_seq, seq - 1))

    def cut(self, seq: int) -> Floors:
        """Return the floors after a truncation at `seq`: no record is left from there on.

        `seq` is not below `evict_floor`.
        """
        return self if self.earliest_seq <= seq else replace(self, earliest_seq=seq)
