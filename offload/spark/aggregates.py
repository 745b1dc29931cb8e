"""Counts, and least and greatest seqs, of a query or of each of its topics or tags, without a data object.

AGG-1  The commit tells the count of a segment that the query reads whole. The index head tells the rest.
AGG-2  If a record has to be read to know whether it counts, there is no answer.
AGG-3  A least or greatest seq reads the index heads of the segments at the ends only, and of those in part.
COUNTS-1  The index heads tell the tag of each record. If a segment has too many tags to list, there is no answer.
COUNTS-2  If a record has to be read to know whether it counts, there is no answer.
COUNTS-3  A group has a record. Records without a tag are a group, which has no name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyroaring import BitMap

from catalog.format import keys
from catalog.format.commit import SegmentView
from offload.format.metadata import SegmentIndex, decode_bitmap
from offload.read.cold_reader import ColdReader
from offload.read.deletes import count_live, live_entries
from offload.spark.selection import Conditions, Selection, select
from seglog.base.values import dataclass

GROUPING_COLUMNS = ("topic", "tag")
_MOST_GROUPS = 100_000  # more of them do not belong into one message

Row = list[str | int | None]
_Group = tuple[str | None, ...]
_Values = tuple[int, int, int]  # count, least and greatest seq


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count`, or `min` or `max` of the seqs."""

    op: str


@dataclass(frozen=True, slots=True)
class TopicView:
    """A segment that the query may read, and the query's conditions for its topic."""

    topic: str
    view: SegmentView
    conditions: Conditions

    @property
    def is_whole(self) -> bool:
        """Tell whether the query reads all records that the view shows."""
        view, conditions = self.view, self.conditions
        in_range = conditions.first_seq <= view.first and view.last <= conditions.last_seq
        is_free = conditions.seqs is None and not conditions.tags
        return is_free and in_range and conditions.time_filters(view.ref.min_ts_ms, view.ref.max_ts_ms) == ()


def aggregate(views: Iterable[TopicView], reader: ColdReader, figures: Sequence[Aggregate]) -> list[int | None] | None:
    """Return the aggregates over the records of `views`. None if only data objects can tell them."""
    parts = list(views)
    whole_views = [part.view for part in parts if part.is_whole]
    in_part = [part for part in parts if not part.is_whole]
    selections: list[Selection] = []
    for part, view in zip(in_part, reader.indexed(part.view for part in in_part), strict=True):
        selection = select(part.topic, view, reader.index(view), part.conditions)
        if selection is not None and not selection.is_exact:
            return None
        selections += [selection] if selection else []
    counts = [count_live(view, reader) for view in whole_views]
    shown_views = [view for view, count in zip(whole_views, counts, strict=True) if count]
    values: dict[str, int | None] = {"count": sum(counts) + sum(selection.rows for selection in selections)}
    if any(figure.op == "min" for figure in figures):
        values["min"] = _least(shown_views, selections, reader)
    if any(figure.op == "max" for figure in figures):
        values["max"] = _greatest(shown_views, selections, reader)
    return [values[figure.op] for figure in figures]


def _least(views: Iterable[SegmentView], selections: Iterable[Selection], reader: ColdReader) -> int | None:
    least = min((_in_chunk(selection, 0)[0] for selection in selections), default=None)
    for view in sorted(views, key=lambda view: view.first):
        if least is not None and least <= view.first:
            break
        first = _ends(view, reader)[0]
        least = first if least is None else min(least, first)
    return least


def _greatest(views: Iterable[SegmentView], selections: Iterable[Selection], reader: ColdReader) -> int | None:
    greatest = max((_in_chunk(selection, -1)[1] for selection in selections), default=None)
    for view in sorted(views, key=lambda view: view.last, reverse=True):
        if greatest is not None and greatest >= view.last:
            break
        last = _ends(view, reader)[1]
        greatest = last if greatest is None else max(greatest, last)
    return greatest


def _in_chunk(selection: Selection, number: int) -> tuple[int, int]:
    """Return the first and the last seq that a selection shows of one of its chunks."""
    entries = selection.shown_in(selection.chunks[number].chunk)
    return selection.view.ref.first_seq + entries.min(), selection.view.ref.first_seq + entries.max()


def _ends(view: SegmentView, reader: ColdReader) -> tuple[int, int]:
    """Return the first and the last seq that a view shows. It shows at least one."""
    ref = view.ref
    if view.deleted is None and ref.live_records == ref.last_seq - ref.first_seq + 1:
        return view.first, view.last
    live = live_entries(view, reader)
    return ref.first_seq + live.min(), ref.first_seq + live.max()


def groups(
    views: Iterable[TopicView], reader: ColdReader, by: Sequence[str], figures: Sequence[Aggregate]
) -> list[Row] | None:
    """Return a row for each group: its names in the order of `by`, then the aggregates.

    The rows ascend by the names. None if only data objects can tell them, or if there are too many groups.
    """
    parts = list(views)
    values: dict[_Group, _Values] = {}
    for part, view in zip(parts, reader.indexed(part.view for part in parts), strict=True):
        index = reader.index(view)
        selection = select(part.topic, view, index, part.conditions)
        if selection is None:
            continue
        if not selection.is_exact or (index.tags is None and "tag" in by):
            return None
        for tag, entries in _by_tag(selection, index) if "tag" in by else ((None, _shown(selection)),):
            group = tuple(tag if column == "tag" else part.topic for column in by)
            values[group] = _joined(values.get(group), _values(entries, selection))
        if len(values) > _MOST_GROUPS:
            return None
    return [[*group, *_chosen(values[group], figures)] for group in sorted(values, key=_place)]


def _shown(selection: Selection) -> BitMap:
    """Return the entries that the selection's chunks show."""
    if len(selection.shown) == selection.rows:
        return selection.shown
    return BitMap.union(*(selection.shown_in(selected.chunk) for selected in selection.chunks))


def _by_tag(selection: Selection, index: SegmentIndex) -> Iterator[tuple[str | None, BitMap]]:
    """Yield each tag that has a shown record, with the entries. None stands for no tag."""
    key = keys.index_key(selection.view.vid, selection.view.ref.sid)
    untagged = shown_entries = _shown(selection)
    for tag, bitmap in (index.tags or {}).items():
        if entries := decode_bitmap(bitmap, index, key) & shown_entries:
            untagged = untagged - entries
            yield tag, entries
    if untagged:
        yield None, untagged


def _values(entries: BitMap, selection: Selection) -> _Values:
    base = selection.view.ref.first_seq
    return len(entries), base + entries.min(), base + entries.max()


def _joined(one: _Values | None, other: _Values) -> _Values:
    return other if one is None else (one[0] + other[0], min(one[1], other[1]), max(one[2], other[2]))


def _chosen(values: _Values, figures: Sequence[Aggregate]) -> Row:
    by_op = dict(zip(("count", "min", "max"), values, strict=True))
    return [by_op[figure.op] for figure in figures]


def _place(group: _Group) -> tuple[tuple[bool, str], ...]:
    """Return the sort key of a group. No name sorts before every name."""
    return tuple((name is not None, name or "") for name in group)
