"""Counts, and least and greatest seqs, of a query or of each of its topics or tags, without a task.

AGG-1  The commit tells the count of a segment that the query reads whole. The index head tells the rest.
AGG-2  A range of time has chunks at its ends that count in part. They are read and checked here, up to 4 MiB of them.
    A query with more of them has no answer, and neither has one that checks nothing (`verify=none`).
AGG-3  A least or greatest seq reads the index heads of the segments at the ends only, and of those in part.
COUNTS-1  The index heads tell the tag of each record. If a segment has too many tags to list, there is no answer.
COUNTS-2  Chunks that count in part are read as for AGG-2.
COUNTS-3  A group has a record. Records without a tag are a group, which has no name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pyroaring import BitMap

from catalog.format import keys
from catalog.format.commit import SegmentView
from offload.format.metadata import SegmentIndex, decode_bitmap
from offload.read.cold_reader import ColdReader
from offload.read.delete_effects import count_live, live_entries
from offload.spark.selection import Conditions, SelectedChunk, Selection, meets, select
from offload.spark.task import Filter
from seglog import Record
from seglog.base.dataclasses import dataclass

GROUPING_COLUMNS = ("topic", "tag")
_MOST_GROUPS = 100_000  # more of them do not belong into one message
MOST_READ_BYTES = 4 << 20  # four whole chunks, one by one; more of them are for tasks, which read side by side

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


def aggregate(
    views: Iterable[TopicView], reader: ColdReader, figures: Sequence[Aggregate], most_bytes: int = MOST_READ_BYTES
) -> list[int | None] | None:
    """Return the aggregates over the records of `views`. None if more than `most_bytes` have to be read for them."""
    parts = list(views)
    whole_views = [part.view for part in parts if part.is_whole]
    selections: list[Selection] = []
    for selection in _exact([part for part in parts if not part.is_whole], reader, most_bytes):
        if selection is None:
            return None
        selections.append(selection)
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
    views: Iterable[TopicView],
    reader: ColdReader,
    by: Sequence[str],
    figures: Sequence[Aggregate],
    most_bytes: int = MOST_READ_BYTES,
) -> list[Row] | None:
    """Return a row for each group: its names in the order of `by`, then the aggregates.

    The rows ascend by the names. None as in `aggregate`, and if there are too many groups.
    """
    values: dict[_Group, _Values] = {}
    for selection in _exact(list(views), reader, most_bytes):
        if selection is None:
            return None
        index = reader.index(selection.view)
        if index.tags is None and "tag" in by:
            return None
        for tag, entries in _by_tag(selection, index) if "tag" in by else ((None, _shown(selection)),):
            group = tuple(tag if column == "tag" else selection.topic for column in by)
            values[group] = _joined(values.get(group), _values(entries, selection))
        if len(values) > _MOST_GROUPS:
            return None
    return [[*group, *_chosen(values[group], figures)] for group in sorted(values, key=_place)]


def _exact(parts: Sequence[TopicView], reader: ColdReader, most_bytes: int) -> Iterator[Selection | None]:
    """Yield what the query reads of each segment, with no filter left. None, at the end, if too much has to be read."""
    left_bytes = most_bytes
    for part, view in zip(parts, reader.indexed(part.view for part in parts), strict=True):
        selection = select(part.topic, view, reader.index(view), part.conditions)
        if selection is None:
            continue
        left_bytes -= sum(chunk.chunk.ref.raw_length for chunk in selection.chunks if chunk.filters)
        if left_bytes < 0:
            yield None
            return
        selection = selection if selection.is_exact else _filtered(selection, reader)
        if selection.chunks:
            yield selection


def _filtered(selection: Selection, reader: ColdReader) -> Selection:
    """Read the chunks that still have filters, and return the selection without the records that do not meet them."""
    base = selection.view.ref.first_seq
    shown, chunks = selection.shown, []
    for selected in selection.chunks:
        if selected.filters:
            entries = selection.shown_in(selected.chunk)
            records = reader.segment_records(selection.view, base + entries.min(), base + entries.max())
            met = BitMap(record.seq - base for record in records if _meets(record, selected.filters)) & entries
            shown = shown - (entries - met)
            selected = SelectedChunk(selected.chunk, len(met), ())
        chunks += [selected] if selected.rows else []
    return replace(selection, shown=shown, chunks=tuple(chunks))


def _meets(record: Record, filters: Iterable[Filter]) -> bool:
    values = {"timestamp": record.ts_ms * 1000, "tag": record.tag}
    return all(meets(condition, values[condition.column]) for condition in filters)


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
