"""Counts, and least and greatest seqs, of each topic or tag, without a data object.

COUNTS-1  The index heads tell the tag of each record. If a segment has too many tags to list, there is no answer.
COUNTS-2  If a record has to be read to know whether it counts, there is no answer.
COUNTS-3  A group has a record. Records without a tag are a group, which has no name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyroaring import BitMap

from catalog.format import keys
from offload.format.metadata import SegmentIndex, decode_bitmap
from offload.read.cold_reader import ColdReader
from offload.spark.aggregates import Aggregate, TopicView
from offload.spark.selection import Selection, select

__all__ = ["GROUPING_COLUMNS", "Row", "groups"]

GROUPING_COLUMNS = ("topic", "tag")
_MOST_GROUPS = 100_000  # more of them do not belong into one message

Row = list[str | int | None]
_Group = tuple[str | None, ...]
_Values = tuple[int, int, int]  # count, least and greatest seq


def groups(
    found: Iterable[TopicView], reader: ColdReader, by: Sequence[str], wanted: Sequence[Aggregate]
) -> list[Row] | None:
    """Return a row for each group: its names in the order of `by`, then the aggregates.

    The rows ascend by the names. None if only data objects can tell them, or if there are too many groups.
    """
    parts = list(found)
    values: dict[_Group, _Values] = {}
    for each, view in zip(parts, reader.indexed(each.view for each in parts), strict=True):
        index = reader.index(view)
        selection = select(each.topic, view, index, each.conditions)
        if selection is None:
            continue
        if not selection.is_exact or (index.tags is None and "tag" in by):
            return None
        for tag, entries in _by_tag(selection, index) if "tag" in by else ((None, _shown(selection)),):
            group = tuple(tag if column == "tag" else each.topic for column in by)
            values[group] = _joined(values.get(group), _values(entries, selection))
        if len(values) > _MOST_GROUPS:
            return None
    return [[*group, *_chosen(values[group], wanted)] for group in sorted(values, key=_place)]


def _shown(selection: Selection) -> BitMap:
    """Return the entries that the selection's chunks show."""
    if len(selection.shown) == selection.rows:
        return selection.shown
    return BitMap.union(*(selection.shown_in(each.chunk) for each in selection.chunks))


def _by_tag(selection: Selection, index: SegmentIndex) -> Iterator[tuple[str | None, BitMap]]:
    """Yield each tag that has a shown record, with the entries. None stands for no tag."""
    key = keys.index_key(selection.view.vid, selection.view.ref.sid)
    rest = shown = _shown(selection)
    for tag, bitmap in (index.tags or {}).items():
        if entries := decode_bitmap(bitmap, index, key) & shown:
            rest = rest - entries
            yield tag, entries
    if rest:
        yield None, rest


def _values(entries: BitMap, selection: Selection) -> _Values:
    base = selection.view.ref.first_seq
    return len(entries), base + entries.min(), base + entries.max()


def _joined(one: _Values | None, other: _Values) -> _Values:
    return other if one is None else (one[0] + other[0], min(one[1], other[1]), max(one[2], other[2]))


def _chosen(values: _Values, wanted: Sequence[Aggregate]) -> Row:
    named = dict(zip(("count", "min", "max"), values, strict=True))
    return [named[each.op] for each in wanted]


def _place(group: _Group) -> tuple[tuple[bool, str], ...]:
    """Return the sort key of a group. No name sorts before every name."""
    return tuple((name is not None, name or "") for name in group)
