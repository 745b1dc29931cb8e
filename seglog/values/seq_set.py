"""A set of seqs, as ranges: what a delete of single records reaches.

    seqs = SeqSet.of([(5, 9), (12, 12)])     5 to 9, and 12
    7 in seqs                                True
    seqs.end                                 13

The set is one array of bounds that ascend: 5, 10, 12, 13. A seq is in the set if an odd number of bounds is not above
it, so a look-up is one binary search, however many ranges there are. No I/O.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import lt

from seglog.base.arguments import WHOLE_MAX

SEQ_RANGES_MAX = 1_000_000
"""The ranges that one delete may have. Its frame then has about 10 MB."""

_FEW = 64


class SeqSet:
    """An immutable set of seqs from 1 on."""

    __slots__ = ("_bounds",)

    def __init__(self, bounds: array[int]) -> None:
        self._bounds = bounds

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> SeqSet:
        """Return the union of ranges, in any order. Both ends of a range are in it."""
        bounds = array("q")
        for first, last in sorted(ranges):
            _add(bounds, first, last + 1)
        return cls(bounds)

    @classmethod
    def of_seqs(cls, seqs: Iterable[int]) -> SeqSet:
        """Return the set of these seqs, which do not descend."""
        bounds = array("q", [-1])  # no seq, so that the loop needs no case for the first one
        for seq in seqs:
            if bounds[-1] == seq:
                bounds[-1] = seq + 1
            elif bounds[-1] < seq:
                bounds.extend((seq, seq + 1))
        del bounds[0]
        return cls(bounds)

    def __contains__(self, seq: int) -> bool:
        return bisect_right(self._bounds, seq) & 1 == 1

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __len__(self) -> int:
        """Return the number of seqs."""
        return sum(self._bounds[1::2]) - sum(self._bounds[::2])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeqSet) and self._bounds == other._bounds

    def __hash__(self) -> int:
        return hash((len(self._bounds), self.first, self.end))

    def __repr__(self) -> str:
        shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in self.ranges()]
        more = len(shown) - 5
        return f"SeqSet({', '.join(shown[:5])}{f', and {more} ranges' if more > 0 else ''})"

    def __or__(self, other: SeqSet) -> SeqSet:
        return self.with_ranges([*other.ranges()])

    def __sub__(self, other: SeqSet) -> SeqSet:
        begins = [1, *(last + 1 for _, last in other.ranges())]
        ends = [*(first - 1 for first, _ in other.ranges()), WHOLE_MAX]
        return SeqSet.of(part for gap in zip(begins, ends, strict=True) for part in self.within(*gap).ranges())

    @classmethod
    def union(cls, sets: Iterable[SeqSet]) -> SeqSet:
        """Return the union of many sets. If all but one are small, the time is that of a copy of the large one."""
        *others, largest = sorted(sets, key=lambda each: each.range_count)
        return largest.with_ranges([pair for each in others for pair in each.ranges()])

    def with_ranges(self, ranges: Sequence[tuple[int, int]]) -> SeqSet:
        """Return the union of the set with these ranges."""
        if len(ranges) > _FEW:
            return SeqSet.of([*self.ranges(), *ranges])
        bounds = self._bounds[:]
        for first, last in ranges:
            _add(bounds, first, last + 1)
        return SeqSet(bounds)

    @property
    def first(self) -> int:
        """Return the lowest seq, or 0 if the set is empty."""
        return self._bounds[0] if self._bounds else 0

    @property
    def end(self) -> int:
        """Return the seq behind the highest one, or 0 if the set is empty."""
        return self._bounds[-1] if self._bounds else 0

    @property
    def range_count(self) -> int:
        return len(self._bounds) // 2

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last seq of each range, ascending. No two ranges touch."""
        bounds = self._bounds
        for at in range(0, len(bounds), 2):
            yield bounds[at], bounds[at + 1] - 1

    def shifted(self, by: int) -> SeqSet:
        """Return the set with each seq lower by so much. Seqs that would be below 1 are left out."""
        return SeqSet.of((max(first - by, 1), last - by) for first, last in self.ranges())

    def within(self, first: int, last: int) -> SeqSet:
        """Return the seqs from `first` to `last`."""
        bounds = self._bounds
        if first > last or not bounds:
            return SeqSet(array("q"))
        begin, stop = bisect_right(bounds, first), bisect_left(bounds, last + 1)
        inner = bounds[begin:stop]
        if begin & 1:
            inner.insert(0, first)
        if stop & 1:
            inner.append(last + 1)
        return SeqSet(inner)

    def holds(self, seqs: Sequence[int]) -> list[bool] | None:
        """Return for each of these seqs, which ascend, whether the set has it; None if it has none of them."""
        bounds = self._bounds
        begin, stop = bisect_right(bounds, seqs[0]), bisect_right(bounds, seqs[-1])
        if begin == stop:
            return [True] * len(seqs) if begin & 1 else None
        start = seqs[0]
        if seqs[-1] - start >= len(seqs):  # not one behind the other
            return [bisect_right(bounds, seq, begin, stop) & 1 == 1 for seq in seqs]
        flags = [False] * len(seqs)
        inner = self.within(start, seqs[-1])._bounds  # noqa: SLF001 - the same class
        for at in range(0, len(inner), 2):
            flags[inner[at] - start : inner[at + 1] - start] = [True] * (inner[at + 1] - inner[at])
        return flags

    def to_json(self) -> list[int]:
        """Return the distance of each bound from the one before, which is 0 for the first one: [5, 5, 2, 1]."""
        return [*self._bounds[:1], *(after - before for before, after in pairwise(self._bounds))]

    @classmethod
    def from_json(cls, distances: Sequence[int]) -> SeqSet:
        """Return the set that `to_json` wrote. Raise `ValueError` for any other list of whole numbers."""
        bounds = [*accumulate(distances)]
        if len(bounds) % 2 or not all(map(lt, [0, *bounds], bounds)) or (bounds and bounds[-1] > WHOLE_MAX):
            raise ValueError("these are no ranges of seqs")
        return cls(array("q", bounds))


def seq_set(seqs: SeqSet | Iterable[int] | None) -> SeqSet | None:
    """Return the set of these seqs, in any order; None without any argument."""
    return seqs if seqs is None or isinstance(seqs, SeqSet) else SeqSet.of_seqs(sorted(seqs))


def _add(bounds: array[int], first: int, end: int) -> None:
    """Join the range from `first` up to `end` to the ranges that it meets or touches."""
    begin, stop = bisect_left(bounds, first), bisect_right(bounds, end)
    if first < end:
        bounds[begin:stop] = array("q", [first] * (begin % 2 == 0) + [end] * (stop % 2 == 0))
