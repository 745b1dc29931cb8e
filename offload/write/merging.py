"""The plan of `seglog compact`: the small segments of a volume that become one segment. A Spark job has the same plan.

A tail that is offloaded every few seconds leaves a small object each time. A commit of kind compact replaces a range of
segments by one segment. The new segment has the same live records under the same seqs, in one data object.

MERGE-1  A range is at least `least` adjacent segments of the volume itself. Fewer would gain nothing.
    Each has less than `below_bytes` of frames and is shown in one piece. All of them together have at most `max_bytes`.
MERGE-2  The past keeps all its records: the replaced segments stay for the readers of older commits.
MERGE-3  A record that was deleted before the commit is a tombstone in the new segment. No later state shows it.
    So a segment that holds deleted records is replaced alone, to erase them (`to_erase`).
MERGE-4  The new objects are read back before the commit. The hot copies of the old segments may already be deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from catalog import SegmentView, Snapshot, Vid

if TYPE_CHECKING:
    from offload.read.cold_reader import ColdReader


class MergeLimits(NamedTuple):
    """The numbers of MERGE-1."""

    below_bytes: int
    max_bytes: int
    least: int


def ranges_to_merge(views: Sequence[SegmentView], vid: Vid, limits: MergeLimits) -> Iterator[list[SegmentView]]:
    """Yield the ranges that may be merged, oldest first."""
    below_bytes, max_bytes, least = limits
    pieces = Counter(view.ref.sid for view in views)
    group: list[SegmentView] = []
    for view in views:
        is_small = view.vid == vid and view.ref.frame_bytes < below_bytes and pieces[view.ref.sid] == 1
        fits = is_small and sum(member.ref.frame_bytes for member in group) + view.ref.frame_bytes <= max_bytes
        if group and not (fits and group[-1].last + 1 == view.first):
            if len(group) >= least:
                yield group
            group = []
        if is_small:
            group.append(view)
    if len(group) >= least:
        yield group


def ranges_of_one_log(snapshot: Snapshot, reader: ColdReader, limits: MergeLimits) -> Iterator[list[SegmentView]]:
    """Yield the parts of the ranges of a state that one log wrote. A data object has only one topic id.

    The reader fetches the indexes of a range when its turn comes. Raises as `ColdReader.index` does.
    """
    for segment_range in ranges_to_merge(snapshot.segments, snapshot.vid, limits):
        for _, group in groupby(list(reader.indexed(segment_range)), lambda view: reader.index(view).topic_id):
            views = list(group)
            if len(views) >= limits.least:
                yield views


def to_erase(views: Sequence[SegmentView], vid: Vid) -> SegmentView | None:
    """Return the first segment of the volume itself whose objects hold records that it no longer shows, or None."""
    return next(all_to_erase(views, vid), None)


def all_to_erase(views: Sequence[SegmentView], vid: Vid) -> Iterator[SegmentView]:
    pieces = Counter(view.ref.sid for view in views)
    return (view for view in views if view.vid == vid and pieces[view.ref.sid] == 1 and holds_more(view))


def holds_more(view: SegmentView) -> bool:
    """Return whether a segment's objects have records that were deleted or truncated since the objects were made."""
    return view.deleted is not None or not view.is_whole
