"""The differences between two states of a topic: records that only one has, and records that only one has deleted.

Up to the shared seq, both states show the same records, except for deletes. The shared seq is the head of the nearest
common point. If a state was truncated below that head since, the shared seq is the last seq before the truncation. If
both have undone a truncation from before the common point, the records that came back are shared.
Above the shared seq, every record belongs to one of the states.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from catalog import Commit, CommitKind, ForkPoint, SegmentView, Snapshot
from catalog.format.lazy_imports import pyroaring
from catalog.history import History
from offload.read.delete_effects import live_entries
from offload.reports import Side
from seglog import Record
from seglog.base.dataclasses import dataclass
from seglog.base.progress import count

if TYPE_CHECKING:
    from offload.read.cold_reader import ColdReader

_NEARBY_SEQS = 1024


@dataclass(frozen=True, slots=True)
class State:
    """A state of a topic, and the commits that lead to it."""

    snapshot: Snapshot
    past: History


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of two states, left and right. `only` are the live seqs whose record only that state shows."""

    shared_seq: int
    left: Side
    right: Side
    states: tuple[State, State] = field(repr=False)
    only: tuple[pyroaring.BitMap64, pyroaring.BitMap64] = field(repr=False)


def diff_of(left: State, right: State, reader: ColdReader) -> Difference:
    """Return the differences between two states.

    Reads the heads of the index objects of the segments that the states show differently.
    """
    last_shared = shared_seq(left, right)
    alike = {_look(view) for view in left.snapshot.segments} & {_look(view) for view in right.snapshot.segments}
    of_left, of_right = (_live(state.snapshot, alike, reader) for state in (left, right))
    return Difference(
        last_shared,
        _side(of_left, of_right, last_shared),
        _side(of_right, of_left, last_shared),
        (left, right),
        (_only(of_left, of_right, last_shared), _only(of_right, of_left, last_shared)),
    )


def differing_records(difference: Difference, reader: ColdReader) -> Iterator[tuple[bool, Record]]:
    """Yield the records that only one state shows, by seq. True stands for the left state."""
    left, right = (_records(*side, reader) for side in zip(difference.states, difference.only, strict=True))
    return heapq.merge(
        ((True, record) for record in left), ((False, record) for record in right), key=lambda pair: pair[1].seq
    )


def _records(state: State, seqs: pyroaring.BitMap64, reader: ColdReader) -> Iterator[Record]:
    for first, last in _ranges(seqs):
        yield from (record for record in reader.records(state.snapshot, first, last) if record.seq in seqs)


def _ranges(seqs: pyroaring.BitMap64) -> Iterator[tuple[int, int]]:
    """Yield ranges that cover the seqs. Seqs that lie near to each other share a range, and so a request."""
    first = last = 0
    for seq in seqs:
        if last and seq - last > _NEARBY_SEQS:
            yield first, last
            first = 0
        first, last = first or seq, seq
    if last:
        yield first, last


def shared_seq(left: State, right: State) -> int:
    """Return the shared seq; 0 if the states have no common point."""
    for span in left.past.spans:
        for other in right.past.spans:
            if span.vid == other.vid:
                lsn = min(span.last_lsn, other.last_lsn)
                heads = [span.cut_seq, other.cut_seq, left.snapshot.max_seq, right.snapshot.max_seq]
                common = left.past.at(span.vid, lsn) or right.past.at(span.vid, lsn)  # GC may have passed it in one
                since = [[past.commit for past in state.past.after(span.vid, lsn)] for state in (left, right)]
                if common is not None:
                    heads.append(_head_seq(common.commit.bounds.head_seq, *map(_heads_back, since)))
                for commits in since:
                    heads += [seq - 1 for seq in _truncations(commits)]
                return min(head for head in heads if head is not None)
    return 0


def _head_seq(head_seq: int, left: Mapping[ForkPoint, int], right: Mapping[ForkPoint, int]) -> int:
    """Return the head that two states share, from that of their common point and their undos since."""
    return max(head_seq, *(min(left[undone], right[undone]) for undone in left.keys() & right.keys()), 0)


def _heads_back(commits: Sequence[Commit]) -> dict[ForkPoint, int]:
    """Return the head after each undo that came before any new record, by the undone commit. `commits` are newest
    first.
    """
    heads: dict[ForkPoint, int] = {}
    for commit in commits:
        if commit.kind is CommitKind.OFFLOAD:
            heads.clear()
        elif commit.restored is not None:
            heads[commit.restored.undone] = commit.bounds.head_seq
    return heads


def _truncations(commits: Sequence[Commit]) -> Iterator[int]:
    """Yield the first seq that each truncation removed. A truncation that was undone does not count: its records are
    back. `commits` are newest first.
    """
    undone = {commit.restored.undone for commit in commits if commit.restored is not None}
    for commit in commits:
        if commit.truncate_from is not None and ForkPoint(commit.vid, commit.lsn) not in undone:
            yield commit.truncate_from


def _look(view: SegmentView) -> tuple[object, ...]:
    return view.vid, view.ref.sid, view.first, view.last, view.deleted


def _live(snapshot: Snapshot, alike: set[tuple[object, ...]], reader: ColdReader) -> pyroaring.BitMap64:
    """Return the live seqs of `snapshot`, without the segments that both states show alike."""
    live = pyroaring.BitMap64()
    for view in reader.indexed([view for view in snapshot.segments if _look(view) not in alike]):
        count("comparing", 1, "segments")
        base = view.ref.first_seq
        live |= pyroaring.BitMap64(base + entry for entry in live_entries(view, reader))
    return live


def _side(own: pyroaring.BitMap64, other: pyroaring.BitMap64, shared_seq: int) -> Side:
    appended = own - pyroaring.BitMap64(range(shared_seq + 1)) if own else own
    deleted = (other - own) & pyroaring.BitMap64(range(shared_seq + 1))
    first, last = (min(appended), max(appended)) if appended else (None, None)
    return Side(len(appended), first, last, len(deleted))


def _only(own: pyroaring.BitMap64, other: pyroaring.BitMap64, shared_seq: int) -> pyroaring.BitMap64:
    """Return the live seqs of `own` that `other` lacks. Above the shared seq, an equal seq is another record."""
    return own - (other & pyroaring.BitMap64(range(shared_seq + 1)))
