"""The differences between two branches of a topic: records that only one has, and records that only one has deleted.

Up to the shared seq, both branches show the same records, except for deletes. The shared seq is the head of the nearest
common point. If a branch was truncated below that head since, the shared seq is the last seq before the truncation.
Above the shared seq, every record belongs to one of the branches.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap64

from catalog import SegmentView, Snapshot
from catalog.history import History
from offload.read.cold_reader import ColdReader
from offload.read.deletes import live_entries
from offload.reports import Side

__all__ = ["BranchDiff", "diff_of"]


@dataclass(frozen=True, slots=True)
class BranchDiff:
    shared_seq: int
    left: Side
    right: Side


def diff_of(left: Snapshot, left_past: History, right: Snapshot, right_past: History, reader: ColdReader) -> BranchDiff:
    """Return the differences between two branches.

    Reads the heads of the index objects of the segments that the branches show differently.
    """
    shared_seq = _shared_seq(left, left_past, right, right_past)
    alike = {_look(view) for view in left.segments} & {_look(view) for view in right.segments}
    of_left, of_right = (_live(each, alike, reader) for each in (left, right))
    return BranchDiff(shared_seq, _side(of_left, of_right, shared_seq), _side(of_right, of_left, shared_seq))


def _shared_seq(left: Snapshot, left_past: History, right: Snapshot, right_past: History) -> int:
    """Return the shared seq; 0 if the branches have no common point."""
    for span in left_past.spans:
        for other in right_past.spans:
            if span.vid == other.vid:
                lsn = min(span.last_lsn, other.last_lsn)
                heads = [span.cut_seq, other.cut_seq, left.max_seq, right.max_seq]
                common = left_past.at(span.vid, lsn)
                heads.append(None if common is None else common.commit.bounds.head_seq)
                for past in (left_past, right_past):
                    heads += [seq - 1 for seq in past.truncations_after(span.vid, lsn)]
                return min(head for head in heads if head is not None)
    return 0


def _look(view: SegmentView) -> tuple[object, ...]:
    return view.vid, view.ref.sid, view.first, view.last, view.deleted


def _live(snapshot: Snapshot, alike: set[tuple[object, ...]], reader: ColdReader) -> BitMap64:
    """Return the live seqs of `snapshot`, without the segments that both branches show alike."""
    live = BitMap64()
    for view in reader.indexed([view for view in snapshot.segments if _look(view) not in alike]):
        base = view.ref.first_seq
        live |= BitMap64(base + entry for entry in live_entries(view, reader))
    return live


def _side(own: BitMap64, other: BitMap64, shared_seq: int) -> Side:
    appended = own - BitMap64(range(shared_seq + 1)) if own else own
    deleted = (other - own) & BitMap64(range(shared_seq + 1))
    first, last = (min(appended), max(appended)) if appended else (None, None)
    return Side(len(appended), first, last, len(deleted))
