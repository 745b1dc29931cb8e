"""Where a topic begins, and what of it was lost against nobody's wish: two floors and a lower end.

    seq      1 ... evict_from ... evict_floor ... earliest_seq ... head
             |      |--- a Gap ---|                |--- live, or deleted among live ones
             |- deleted, or in the cold tier -|

L1  1 <= evict_from <= evict_floor <= earliest_seq. Nothing below `earliest_seq` is live.
L2  Eviction of live records raises all of it, a delete raises `earliest_seq` only: so what a delete took is passed over
    in silence, and what retention took is reported.
L3  Between `evict_from` and `evict_floor` all counts as lost, also what a delete had taken there before: one range
    says it, and errs on the side of telling.
L4  While the cold tier has live records, `earliest_seq` may be lower than the first one: deletes by tag are not looked
    up there.

L5  The expiry floor of a ttl is no part of it: a reader adds it (`expired`) for as long as retention has not taken the
    records (seglog.reading.expiry).

Source: topics engine architecture, sections 1.2 and 3.4; `evict_from` is ours. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from seglog.values.record import Gap

__all__ = ["Floors"]


@dataclass(frozen=True, slots=True)
class Floors:
    """One value, replaced as a whole: whoever reads it without a lock sees floors that belong together."""

    earliest_seq: int = 1
    evict_from: int = 1
    evict_floor: int = 1

    @property
    def is_fit(self) -> bool:
        """L1."""
        return 1 <= self.evict_from <= self.evict_floor <= self.earliest_seq

    def gap(self, first: int, last: int) -> Gap | None:
        """What of the seqs `first` to `last` was lost."""
        begin, end = max(first, self.evict_from), min(last, self.evict_floor - 1)
        return Gap(begin, end) if begin <= end else None

    def raised(self, earliest_seq: int) -> Floors:
        """All below `earliest_seq` was deleted, or is known to be dead."""
        return self if earliest_seq <= self.earliest_seq else replace(self, earliest_seq=earliest_seq)

    def evicted(self, earliest_seq: int, lost: Gap | None) -> Floors:
        """All below `earliest_seq` was evicted; of that the records of `lost` were live."""
        raised = self.raised(earliest_seq)
        if lost is None:
            return raised
        begin = self.evict_from if self.evict_from < self.evict_floor else lost.gap_from
        return replace(raised, evict_from=begin, evict_floor=max(self.evict_floor, lost.gap_to + 1))

    def expired(self, seq: int) -> Floors:
        """All below `seq` is past the topic's ttl: lost, as if it were evicted."""
        return self if seq <= self.earliest_seq else self.evicted(seq, Gap(self.earliest_seq, seq - 1))

    def cut(self, seq: int) -> Floors:
        """There is nothing at or above `seq` any more; it is not below `evict_floor`."""
        return self if self.earliest_seq <= seq else replace(self, earliest_seq=seq)
