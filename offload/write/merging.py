"""Which small segments of a volume become one, decided from values. No I/O.

The tail that is shipped every few seconds leaves an object each time. A commit of kind compact puts one segment in the
place of a run of them: the same live records under the same seqs, in one object.

G1  A run is adjacent segments of the volume itself, each with less than `below_bytes` of frames, each shown in one
    piece, together within `max_bytes`; `least` of them, or nothing is gained.
G2  Nothing is taken from the past: the segments that are replaced stay for whoever reads an older commit.
G3  What was deleted before the commit is a tombstone in the new segment: no state from that commit on shows it.
    So a segment that holds deleted records is put anew, alone, to be rid of them (`to_erase`).
G4  The new objects are read back before the commit: hot copies may have gone already, for the old ones were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from catalog import SegmentView, Vid

__all__ = ["holds_more", "merge_runs", "to_erase"]


def merge_runs(
    views: Sequence[SegmentView], vid: Vid, *, below_bytes: int, max_bytes: int, least: int
) -> Iterator[list[SegmentView]]:
    """The runs that may be merged, oldest first."""
    pieces = Counter(view.ref.sid for view in views)
    run: list[SegmentView] = []
    for view in views:
        is_small = view.vid == vid and view.ref.frame_bytes < below_bytes and pieces[view.ref.sid] == 1
        fits = is_small and sum(each.ref.frame_bytes for each in run) + view.ref.frame_bytes <= max_bytes
        if run and not (fits and run[-1].last + 1 == view.first):
            if len(run) >= least:
                yield run
            run = []
        if is_small:
            run.append(view)
    if len(run) >= least:
        yield run


def to_erase(views: Sequence[SegmentView], vid: Vid) -> SegmentView | None:
    """The first segment of the volume itself whose objects hold records that it does not show any more."""
    pieces = Counter(view.ref.sid for view in views)
    return next((view for view in views if view.vid == vid and pieces[view.ref.sid] == 1 and holds_more(view)), None)


def holds_more(view: SegmentView) -> bool:
    """Whether its objects have records that were deleted or truncated since they were made."""
    return view.deleted is not None or not view.is_whole
