"""The part of a segment that a query reads: its chunks, and the records to show. This module does no I/O.

SELECT-1  The commit narrows by seq, time and LSN, then the index head narrows by seq, time and tag to chunks.
SELECT-2  `shown` is exact, except for the filters that a chunk still has. A chunk without filters shows exactly the
    entries that are in `shown`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from operator import attrgetter

from pyroaring import BitMap

from catalog.format import keys
from catalog.format.commit import Codec, SegmentView
from offload.format.metadata import SegmentIndex, decode_bitmap
from offload.spark.conditions import Conditions, meets
from offload.spark.task import Filter, NumberedChunk

__all__ = ["SelectedChunk", "Selection", "may_show", "select"]


@dataclass(frozen=True, slots=True)
class SelectedChunk:
    """A chunk to read, the number of its entries in `shown`, and the conditions that its records still have to meet."""

    chunk: NumberedChunk
    rows: int
    filters: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """Chunks of one segment, ascending, at least one. `shown` has entry ids. Seqs are inclusive.

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
    shown = _shown(view, index, conditions, first, last)
    residual = conditions.tags if index.tags is None else ()
    base = view.ref.first_seq
    found: list[SelectedChunk] = []
    number = bisect_left(index.chunks, first, key=attrgetter("last_seq"))
    for ref in index.chunks_between(first, last):
        times = conditions.time_filters(ref.min_ts_ms, ref.max_ts_ms)
        begin, end = max(first, ref.first_seq) - base, min(last, ref.last_seq) + 1 - base
        rows = 0 if times is None else shown.range_cardinality(begin, end)
        if times is not None and rows:
            found.append(SelectedChunk(NumberedChunk(number, ref), rows, times + residual))
        number += 1
    if not found:
        return None
    fields = (index.topic_id, index.codec, index.block_size, len(index.chunks))
    return Selection(topic, view, *fields, first, last, shown, tuple(found))


def _shown(view: SegmentView, index: SegmentIndex, conditions: Conditions, first: int, last: int) -> BitMap:
    key = keys.index_key(view.vid, view.ref.sid)
    base = view.ref.first_seq
    shown = BitMap(range(first - base, last + 1 - base)) & decode_bitmap(index.live, index, key)
    if view.deleted:
        shown -= BitMap.deserialize(view.deleted)
    if conditions.seqs is not None:
        shown &= BitMap(seq - base for seq in conditions.seqs if first <= seq <= last)
    if conditions.tags and index.tags is not None and shown:
        shown &= _tagged(index, conditions.tags, key)
    return shown


def _tagged(index: SegmentIndex, filters: tuple[Filter, ...], key: str) -> BitMap:
    """Return the entries whose tag meets `filters`. The index lists all tags."""
    found = BitMap()
    untagged = BitMap(range(index.count)) if all(meets(each, None) for each in filters) else BitMap()
    for tag, bitmap in (index.tags or {}).items():
        fits = all(meets(each, tag) for each in filters)
        if fits or untagged:
            entries = decode_bitmap(bitmap, index, key)
            untagged -= entries
            if fits:
                found |= entries
    return found | untagged
