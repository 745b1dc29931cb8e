"""Counts, and least and greatest seqs, without a data object.

AGG-1  The commit tells the count of a segment that the query reads whole. The index head tells the rest.
AGG-2  If a record has to be read to know whether it counts, there is no answer.
AGG-3  A least or greatest seq reads the index heads of the segments at the ends only, and of those in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from catalog.format.commit import SegmentView
from offload.read.cold_reader import ColdReader
from offload.read.deletes import count_live, live_entries
from offload.spark.conditions import Conditions
from offload.spark.selection import Selection, select

__all__ = ["Aggregate", "TopicView", "aggregate"]


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
        view, wanted = self.view, self.conditions
        in_range = wanted.first_seq <= view.first and view.last <= wanted.last_seq
        is_free = wanted.seqs is None and not wanted.tags
        return is_free and in_range and wanted.time_filters(view.ref.min_ts_ms, view.ref.max_ts_ms) == ()


def aggregate(found: Iterable[TopicView], reader: ColdReader, wanted: Sequence[Aggregate]) -> list[int | None] | None:
    """Return the aggregates over the records of `found`. None if only data objects can tell them."""
    parts = list(found)
    whole = [each.view for each in parts if each.is_whole]
    in_part = [each for each in parts if not each.is_whole]
    selections: list[Selection] = []
    for each, view in zip(in_part, reader.indexed(each.view for each in in_part), strict=True):
        selection = select(each.topic, view, reader.index(view), each.conditions)
        if selection is not None and not selection.is_exact:
            return None
        selections += [selection] if selection else []
    counts = [count_live(view, reader) for view in whole]
    shown = [view for view, count in zip(whole, counts, strict=True) if count]
    values: dict[str, int | None] = {"count": sum(counts) + sum(each.rows for each in selections)}
    if any(each.op == "min" for each in wanted):
        values["min"] = _least(shown, selections, reader)
    if any(each.op == "max" for each in wanted):
        values["max"] = _greatest(shown, selections, reader)
    return [values[each.op] for each in wanted]


def _least(shown: Iterable[SegmentView], selections: Iterable[Selection], reader: ColdReader) -> int | None:
    least = min((_in_chunk(each, 0)[0] for each in selections), default=None)
    for view in sorted(shown, key=lambda view: view.first):
        if least is not None and least <= view.first:
            break
        first = _ends(view, reader)[0]
        least = first if least is None else min(least, first)
    return least


def _greatest(shown: Iterable[SegmentView], selections: Iterable[Selection], reader: ColdReader) -> int | None:
    greatest = max((_in_chunk(each, -1)[1] for each in selections), default=None)
    for view in sorted(shown, key=lambda view: view.last, reverse=True):
        if greatest is not None and greatest >= view.last:
            break
        last = _ends(view, reader)[1]
        greatest = last if greatest is None else max(greatest, last)
    return greatest


def _in_chunk(selection: Selection, number: int) -> tuple[int, int]:
    """Return the first and the last seq that a selection shows of one of its chunks."""
    shown = selection.shown_in(selection.chunks[number].chunk)
    return selection.view.ref.first_seq + shown.min(), selection.view.ref.first_seq + shown.max()


def _ends(view: SegmentView, reader: ColdReader) -> tuple[int, int]:
    """Return the first and the last seq that a view shows. It shows at least one."""
    ref = view.ref
    if view.deleted is None and ref.live_records == ref.last_seq - ref.first_seq + 1:
        return view.first, view.last
    live = live_entries(view, reader)
    return ref.first_seq + live.min(), ref.first_seq + live.max()
