"""The filters of a query as ranges and sets, and the part of a segment that passes them. This module does no I/O.

COND-1  All filters hold at once. A filter on a null is false, except `isnull`.
COND-2  Times of filters are in microseconds, as Spark has them. Times of records are in milliseconds.
SELECT-1  The commit narrows by seq, time and LSN, then the index head narrows by seq, time and tag to chunks.
SELECT-2  `shown` is exact, except for the filters that a chunk still has. A chunk without filters shows exactly the
    entries that are in `shown`.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from pyroaring import BitMap

from catalog.format import keys
from catalog.format.commit import Codec, SegmentView
from offload.format.metadata import SegmentIndex, decode_bitmap
from offload.spark.task import Change, Filter, Needs, NumberedChunk, Op, is_removal
from seglog.base.dataclasses import dataclass

_INT64_MAX = 2**63 - 1
_ORDERS: Mapping[Op, Callable[[int, int], bool]] = {
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """The ranges and sets that a record has to be in. Bounds are inclusive.

    `seqs` and `moments_ms` are None if any number will do.
    """

    topics: tuple[Filter, ...] = ()
    lsns: tuple[Filter, ...] = ()
    tags: tuple[Filter, ...] = ()
    first_seq: int = 1
    last_seq: int = _INT64_MAX
    seqs: frozenset[int] | None = None
    first_ms: int = -_INT64_MAX
    last_ms: int = _INT64_MAX
    moments_ms: frozenset[int] | None = None
    is_never: bool = False

    def time_filters(self, min_ms: int, max_ms: int) -> tuple[Filter, ...] | None:
        """Return the filters on the time that records from `min_ms` to `max_ms` still need.

        None means that no record can pass. A filter is the same for each range that needs it.
        """
        if max_ms < self.first_ms or min_ms > self.last_ms:
            return None
        filters: list[Filter] = []
        if self.moments_ms is not None:
            if not any(min_ms <= ms <= max_ms for ms in self.moments_ms):
                return None
            if min_ms < max_ms:
                filters.append(Filter("timestamp", Op.IN, tuple(sorted(ms * 1000 for ms in self.moments_ms))))
        if min_ms < self.first_ms:
            filters.append(Filter("timestamp", Op.GE, (self.first_ms * 1000,)))
        if max_ms > self.last_ms:
            filters.append(Filter("timestamp", Op.LE, (self.last_ms * 1000,)))
        return tuple(filters)


def conditions_of(filters: Iterable[Filter]) -> Conditions:
    """Return what `filters` mean together."""
    by_column: dict[str, list[Filter]] = {}
    for condition in filters:
        by_column.setdefault(condition.column, []).append(condition)
    seqs, times = _Range(1, _INT64_MAX), _Range(-_INT64_MAX * 1000, _INT64_MAX * 1000)
    for condition in by_column.get("seq", ()):
        seqs.narrow(condition)
    for condition in by_column.get("timestamp", ()):
        times.narrow(condition)
    moments = None if times.only is None else frozenset(micros // 1000 for micros in times.only if micros % 1000 == 0)
    return Conditions(
        topics=tuple(by_column.get("topic", ())),
        lsns=tuple(by_column.get("lsn", ())),
        tags=tuple(_plain(condition) for condition in by_column.get("tag", ())),
        first_seq=seqs.first,
        last_seq=seqs.last,
        seqs=seqs.only,
        first_ms=-(-times.first // 1000),
        last_ms=times.last // 1000,
        moments_ms=moments,
        is_never=seqs.is_never or times.is_never,
    )


def meets(condition: Filter, value: int | str | None) -> bool:
    """Tell whether `value` meets the condition."""
    if condition.op is Op.IS_NULL:
        return value is None
    if value is None:
        return False
    if condition.op is Op.NOT_NULL:
        return True
    if condition.op in {Op.EQ, Op.IN}:
        return value in condition.values
    bound = condition.values[0]
    if condition.op is Op.PREFIX:
        return str(value).startswith(str(bound))
    return _ORDERS[condition.op](int(value), int(bound))


class _Range:
    """A range of numbers that filters narrow one by one."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.only: frozenset[int] | None = None
        self.is_never = False

    def narrow(self, condition: Filter) -> None:
        numbers = [int(value) for value in condition.values]
        match condition.op:
            case Op.IS_NULL:  # these columns have no nulls
                self.is_never = True
            case Op.EQ | Op.IN:
                self.only = frozenset(numbers) if self.only is None else self.only & frozenset(numbers)
            case Op.GE:
                self.first = max(self.first, numbers[0])
            case Op.GT:
                self.first = max(self.first, numbers[0] + 1)
            case Op.LE:
                self.last = min(self.last, numbers[0])
            case Op.LT:
                self.last = min(self.last, numbers[0] - 1)
            case _:
                pass  # NOT_NULL is always true
        if self.only is not None:
            self.only = frozenset(number for number in self.only if self.first <= number <= self.last)
            self.is_never = self.is_never or not self.only
            if self.only:
                self.first, self.last = max(self.first, min(self.only)), min(self.last, max(self.only))


def _plain(condition: Filter) -> Filter:
    return Filter(condition.column, Op.IN, condition.values) if condition.op is Op.EQ else condition


@dataclass(frozen=True, slots=True)
class SelectedChunk:
    """A chunk to read, the number of its entries in `shown`, and the conditions that its records still have to meet."""

    chunk: NumberedChunk
    rows: int
    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """Chunks of one segment, ascending, at least one. `shown` has entry ids. Seqs are inclusive.

    In a feed, `change` says what happened to the records. A removal has ranges of seqs for chunks, and is not read.

    The index head is not kept: a plan of many segments would hold the tags and chunks of all of them.
    """

    topic: str
    view: SegmentView
    topic_id: int
    codec: Codec
    block_size: int
    chunk_count: int
    first: int
    last: int
    shown: BitMap
    chunks: tuple[SelectedChunk, ...]
    change: Change | None = None

    def is_read(self, needs: Needs) -> bool:
        """Tell whether a query with these needs reads the data object."""
        return needs is Needs.DATA and not is_removal(self.change)

    @property
    def rows(self) -> int:
        return sum(chunk.rows for chunk in self.chunks)

    @property
    def is_exact(self) -> bool:
        return not any(chunk.filters for chunk in self.chunks)

    def shown_in(self, chunk: NumberedChunk) -> BitMap:
        """Return the entry ids to show of one chunk."""
        base = self.view.ref.first_seq
        first, last = max(self.first, chunk.ref.first_seq), min(self.last, chunk.ref.last_seq)
        return self.shown & BitMap(range(first - base, last + 1 - base))


def may_show(view: SegmentView, conditions: Conditions) -> bool:
    """Tell whether the commit leaves it open that the query reads something of `view`."""
    first, last = max(view.first, conditions.first_seq), min(view.last, conditions.last_seq)
    if conditions.is_never or first > last:
        return False
    if conditions.seqs is not None and not any(first <= seq <= last for seq in conditions.seqs):
        return False
    if not all(meets(condition, view.lsn) for condition in conditions.lsns):
        return False
    return conditions.time_filters(view.ref.min_ts_ms, view.ref.max_ts_ms) is not None


def select(topic: str, view: SegmentView, index: SegmentIndex, conditions: Conditions) -> Selection | None:
    """Return the part of a segment that the query reads. None if it reads nothing of it. Raises `InvalidIndex`."""
    first, last = max(view.first, conditions.first_seq), min(view.last, conditions.last_seq)
    entries = _shown(view, index, conditions, first, last)
    residual = conditions.tags if index.tags is None else ()
    base = view.ref.first_seq
    chunks: list[SelectedChunk] = []
    number = bisect_left(index.chunks, first, key=attrgetter("last_seq"))
    for ref in index.chunks_between(first, last):
        times = conditions.time_filters(ref.min_ts_ms, ref.max_ts_ms)
        begin, end = max(first, ref.first_seq) - base, min(last, ref.last_seq) + 1 - base
        rows = 0 if times is None else entries.range_cardinality(begin, end)
        if times is not None and rows:
            chunks.append(SelectedChunk(NumberedChunk(number, ref), rows, times + residual))
        number += 1
    if not chunks:
        return None
    fields = (index.topic_id, index.codec, index.block_size, len(index.chunks))
    return Selection(topic, view, *fields, first, last, entries, tuple(chunks))


def _shown(view: SegmentView, index: SegmentIndex, conditions: Conditions, first: int, last: int) -> BitMap:
    key = keys.index_key(view.vid, view.ref.sid)
    base = view.ref.first_seq
    entries = BitMap(range(first - base, last + 1 - base)) & decode_bitmap(index.live, index, key)
    if view.deleted:
        entries -= BitMap.deserialize(view.deleted)
    if conditions.seqs is not None:
        entries &= BitMap(seq - base for seq in conditions.seqs if first <= seq <= last)
    if conditions.tags and index.tags is not None and entries:
        entries &= _tagged(index, conditions.tags, key)
    return entries


def _tagged(index: SegmentIndex, filters: tuple[Filter, ...], key: str) -> BitMap:
    """Return the entries whose tag meets `filters`. The index lists all tags."""
    sets = [frozenset(condition.values) for condition in filters if condition.op is Op.IN]
    others = [condition for condition in filters if condition.op is not Op.IN]
    tagged = BitMap()
    untagged = BitMap(range(index.count)) if all(meets(condition, None) for condition in filters) else BitMap()
    for tag, bitmap in (index.tags or {}).items():
        fits = all(tag in texts for texts in sets) and all(meets(condition, tag) for condition in others)
        if fits or untagged:
            entries = decode_bitmap(bitmap, index, key)
            untagged -= entries
            if fits:
                tagged |= entries
    return tagged | untagged
