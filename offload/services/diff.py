"""What two branches of a topic show differently: records that only one of them has, and records that one has deleted.

Up to a seq they share, both show the same records, but for deletes: the seq is that of their nearest common point, or
where one of them was truncated since, if that is lower. Above it every record belongs to one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap64

from catalog import SegmentView, Snapshot
from catalog.history import History
from offload.read.cold_reader import ColdReader
from offload.read.deletes import live_entries

__all__ = ["BranchDiff", "Side", "diff_of"]


@dataclass(frozen=True, slots=True)
class Side:
    """Of one branch: how many records it appended above the shared seq, from which seq to which; and how many of the
    shared ones it does not show any more, though the other does.
    """

    appended: int
    first_seq: int
    last_seq: int
    deleted: int


@dataclass(frozen=True, slots=True)
class BranchDiff:
    shared_seq: int
    left: Side
    right: Side


def diff_of(left: Snapshot, left_past: History, right: Snapshot, right_past: History, reader: ColdReader) -> BranchDiff:
    """Reads the heads of the index objects of segments that the two do not show alike."""
    shared_seq = _shared_seq(left, left_past, right, right_past)
    alike = {_look(view) for view in left.segments} & {_look(view) for view in right.segments}
    of_left, of_right = (_live(each, alike, reader) for each in (left, right))
    return BranchDiff(shared_seq, _side(of_left, of_right, shared_seq), _side(of_right, of_left, shared_seq))


def _shared_seq(left: Snapshot, left_past: History, right: Snapshot, right_past: History) -> int:
    """0 if they have nothing in common."""
    for leg in left_past.legs:
        for other in right_past.legs:
            if leg.vid == other.vid:
                lsn = min(leg.last_lsn, other.last_lsn)
                heads = [leg.cut_seq, other.cut_seq, left.max_seq, right.max_seq]
                common = left_past.at(leg.vid, lsn)
                heads.append(None if common is None else common.commit.bounds.head_seq)
                for past in (left_past, right_past):
                    heads += [seq - 1 for seq in past.truncations_after(leg.vid, lsn)]
                return min(head for head in heads if head is not None)
    return 0


def _look(view: SegmentView) -> tuple[object, ...]:
    return view.vid, view.ref.sid, view.first, view.last, view.deleted


def _live(snapshot: Snapshot, alike: set[tuple[object, ...]], reader: ColdReader) -> BitMap64:
    """The seqs that it shows, but for those of the views in `alike`."""
    live = BitMap64()
    for view in reader.indexed([view for view in snapshot.segments if _look(view) not in alike]):
        base = view.ref.first_seq
        live |= BitMap64(base + entry for entry in live_entries(view, reader))
    return live


def _side(own: BitMap64, other: BitMap64, shared_seq: int) -> Side:
    appended = own - BitMap64(range(shared_seq + 1)) if own else own
    deleted = (other - own) & BitMap64(range(shared_seq + 1))
    ends = (min(appended), max(appended)) if appended else (0, 0)
    return Side(len(appended), *ends, len(deleted))
