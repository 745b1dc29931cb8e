"""The undo of one delete, eviction or truncation: which records come back, and from which objects. Pure: states and
commits in, a plan out.

    before    the state right before the commit that is undone
    later     the commits after it
    now       the newest state, on which the commit of kind restore builds

UNDO-1  A record comes back if the commit took it, and no later commit took it as well. A commit takes seqs by a delete
    below a seq, an eviction or a truncation, and records by a delete that names them, also if they were deleted before.
    A later commit that is undone itself does not count. A record that an earlier undo of the same commit brought back
    stays as it is now, since a later delete may have taken it whose object a compaction has replaced since.
UNDO-2  If records were appended after a truncation, it cannot be undone. Two records of one seq cannot both be shown.
UNDO-3  Nothing else changes. Each record that is shown now stays, and each that another commit took stays away.
UNDO-4  A view that is there now stays if its object holds all that its range shows afterwards. Otherwise the view of
    `before` takes its place. If neither object holds all, the range is divided. So an undo after a compaction or an
    erasure shows again what the older object has.
UNDO-5  Whole segments need no request. If an object lacked records when it was made, `live` tells which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import islice

from pyroaring import BitMap

from catalog.errors import NotUndone
from catalog.format.commit import Bounds, Commit, CommitKind, Deletions, ForkPoint, Restored, SegmentView
from catalog.format.encoding import StoredCommit
from catalog.format.ids import Sid
from catalog.snapshot import Snapshot, deleted_below, fold
from seglog.base.dataclasses import dataclass

TAKES_AWAY = frozenset({CommitKind.DELETE, CommitKind.EVICT, CommitKind.TRUNCATE})
_ABOVE_ALL = 2**64

Live = Callable[[SegmentView], BitMap]
"""Return the entries (`seq - ref.first_seq`) of the whole segment that were live when it was made.

Called only for a segment that lacked some.
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """Records of one segment: `entries` are their seqs, less the segment's first seq."""

    view: SegmentView
    entries: BitMap

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the ranges of seqs, ascending."""
        base, entries = self.view.ref.first_seq, self.entries
        while entries:
            first = entries.min()
            last = (_bits(first, entries.max() + 1) - entries).min() - 1
            yield base + first, base + last
            entries = entries - _bits(first, last)


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The outcome of an undo. `back` come back, `gone` are in a missing object.

    Later commits with the LSNs `taken_by` took `away` as well. `shown_again` are views whose objects the newest state
    does not show. `undone_by` is the LSN of an earlier undo of the same commit, 0 without one. `names_records` says
    that the commit has named records: if all were deleted before, its undo brings none back, and frees them (UNDO-1).
    """

    restored: Restored
    bounds: Bounds
    back: tuple[Taken, ...]
    gone: tuple[Taken, ...]
    away: tuple[Taken, ...]
    shown_again: tuple[SegmentView, ...]
    undone_by: int
    taken_by: tuple[int, ...]
    names_records: bool

    @property
    def records(self) -> int:
        return count(self.back)


def count(taken: Iterable[Taken]) -> int:
    """Return the number of records."""
    return sum(len(records.entries) for records in taken)


def first_ranges(taken: Iterable[Taken], limit: int) -> tuple[tuple[int, int], ...]:
    """Return the first ranges of seqs."""
    return tuple(islice((seqs for records in taken for seqs in records.ranges()), limit))


def plan_undo(
    name: str,
    before: Snapshot,
    undone: StoredCommit,
    later: Sequence[Commit],
    now: Snapshot,
    live: Live,
    *,
    missing: Set[Sid] = frozenset(),
) -> UndoPlan:
    """Return the plan to undo a commit. `later` are oldest first. The objects of `missing` cannot be read.

    Raise `NotUndone` if the commit takes no records away, or its seqs are in use again. `name` is for the message.
    """
    commit = undone.commit
    undos = [(by.lsn, undo) for by in later if (undo := by.restored) is not None]
    undone_by = {(undo.undone.vid, undo.undone.lsn): lsn for lsn, undo in undos}
    _check(name, commit, later, undone_by.get((commit.vid, commit.lsn), 0))
    in_force = [commit for commit in later if (commit.vid, commit.lsn) not in undone_by]
    earlier = [undo.views for _, undo in undos if (undo.undone.vid, undo.undone.lsn) == (commit.vid, commit.lsn)]
    search = _Search(now, live, earlier, _named(in_force), *_reach(in_force))
    for taken in _taken_by(before, undone, search.held):
        search.add(taken, is_missing=taken.view.ref.sid in missing)
    sids = {view.ref.sid for view in now.segments}
    views = search.views()
    return UndoPlan(
        Restored(ForkPoint(commit.vid, commit.lsn), _before_seq(before, in_force), views),
        _bounds(before, commit, in_force, now, is_undone=(commit.vid, commit.lsn) in undone_by),
        tuple(search.back),
        tuple(search.gone),
        tuple(search.away),
        tuple({view.ref.sid: view for view in views if view.ref.sid not in sids}.values()),
        undone_by.get((commit.vid, commit.lsn), 0),
        tuple(commit.lsn for commit in in_force if any(_takes(commit, taken) for taken in search.away)),
        commit.deletions != Deletions() or commit.truncate_from is not None,
    )


def _check(name: str, commit: Commit, later: Sequence[Commit], undone_by: int) -> None:
    if commit.kind not in TAKES_AWAY:
        raise NotUndone.of_commit(
            name, commit.lsn, f"a commit of kind {commit.kind.name.lower()} takes no records away"
        )
    if commit.truncate_from is None or undone_by:
        return
    reused = next((newer for newer in later if newer.bounds.head_seq >= commit.truncate_from), None)
    if reused is not None:
        raise NotUndone.of_commit(
            name,
            commit.lsn,
            f"lsn {reused.lsn} has new records with the seqs from {commit.truncate_from} on",
            f"`seglog restore {name} --to lsn:{commit.lsn - 1} --as NAME` makes a branch with the old ones",
        )


def _takes(commit: Commit, taken: Taken) -> bool:
    """Return whether the commit took some of these records."""
    first, end = _reach([commit])
    base, sid = taken.view.ref.first_seq, taken.view.ref.sid
    seqs = base + taken.entries.min(), base + taken.entries.max()
    return seqs[0] < first or seqs[1] >= end or bool(taken.entries & _named([commit]).get(sid, BitMap()))


def _named(later: Iterable[Commit]) -> dict[Sid, BitMap]:
    """Return the entries that later commits name (UNDO-1)."""
    named: dict[Sid, BitMap] = defaultdict(BitMap)
    for commit in later:
        for sid, bitmap in commit.deletions.bitmaps.items():
            named[sid] |= BitMap.deserialize(bitmap)
    return named


def _reach(later: Iterable[Commit]) -> tuple[int, int]:
    """Return the first seq that later commits left, and the first seq above it that they took (UNDO-1)."""
    first, end = 1, _ABOVE_ALL
    for commit in later:
        first = max(first, deleted_below(commit))
        if commit.kind is CommitKind.EVICT:
            first = max(first, commit.bounds.evict_floor)
        if commit.truncate_from is not None:
            end = min(end, commit.truncate_from)
            first = min(first, end)  # later records use these seqs again
    return first, end


def _before_seq(before: Snapshot, later: Iterable[Commit]) -> int:
    """Return `Snapshot.before_seq` as it would be without the commit that is undone."""
    seq = before.before_seq
    for commit in later:
        if commit.restored is not None:
            seq = min(seq, commit.restored.before_seq)
        if commit.truncate_from is not None:
            seq = min(seq, commit.truncate_from)
        seq = max(seq, deleted_below(commit))
    return seq


def _bounds(before: Snapshot, undone: Commit, later: Iterable[Commit], now: Snapshot, *, is_undone: bool) -> Bounds:
    """Return the bounds as they would be without the commit that is undone."""
    if undone.kind is CommitKind.DELETE:
        return now.bounds
    first_seq, evict_floor = before.bounds.first_seq, before.bounds.evict_floor
    for commit in later:
        if commit.kind is CommitKind.EVICT:
            first_seq = evict_floor = commit.bounds.evict_floor
        elif commit.truncate_from is not None or commit.restored is not None:
            first_seq = min(first_seq, commit.bounds.first_seq)
            evict_floor = min(evict_floor, commit.bounds.evict_floor)
    is_head_back = undone.kind is CommitKind.TRUNCATE and not is_undone
    return Bounds(first_seq, before.bounds.head_seq if is_head_back else now.bounds.head_seq, evict_floor)


def by_segment(views: Iterable[SegmentView]) -> dict[Sid, list[SegmentView]]:
    by_sid: dict[Sid, list[SegmentView]] = defaultdict(list)
    for view in views:
        by_sid[view.ref.sid].append(view)
    return by_sid


def _taken_by(before: Snapshot, undone: StoredCommit, held: Callable[[SegmentView], BitMap]) -> Iterator[Taken]:
    """Yield the live records that the commit took, by the views of `before`."""
    after = fold(before, [undone]).segments
    unchanged = frozenset(after)
    views_after = by_segment(after)
    for view in before.segments:
        if view not in unchanged:
            entries = _shown(view) - BitMap.union(BitMap(), *map(_shown, views_after[view.ref.sid]))
            if entries and (entries := entries & held(view)):
                yield Taken(view, entries)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range of seqs that one segment shows. `wanted` are its entries that the range shows."""

    view: SegmentView
    first: int
    last: int
    wanted: BitMap


class _Search:
    """Finds the views that show the taken records again, and all that is shown beside them now.

    `earlier` are the views of earlier undos of the same commit. `named` are the entries that later commits name.
    """

    def __init__(
        self,
        now: Snapshot,
        live: Live,
        earlier: Sequence[Sequence[SegmentView]],
        named: Mapping[Sid, BitMap],
        first_seq: int,
        end_seq: int,
    ) -> None:
        self._now = now.segments
        self._live = live
        self._earlier = earlier
        self._named = named
        self._first_seq = first_seq
        self._last_seq = end_seq - 1
        self._held: dict[Sid, BitMap] = {}
        self._pieces: list[_Piece] = []
        self.back: list[Taken] = []
        self.gone: list[Taken] = []
        self.away: list[Taken] = []

    def held(self, view: SegmentView) -> BitMap:
        """Return the entries of the whole segment that its object holds."""
        ref = view.ref
        size = ref.last_seq - ref.first_seq + 1
        if ref.live_records == size:
            return _bits(0, size - 1)
        if ref.sid not in self._held:
            self._held[ref.sid] = self._live(view)
        return self._held[ref.sid]

    def add(self, taken: Taken, *, is_missing: bool) -> None:
        """Find out which of the taken records come back, and plan the views that show them."""
        view, base = taken.view, taken.view.ref.first_seq
        first, last = max(view.first, self._first_seq), min(view.last, self._last_seq)
        within = _bits(first - base, last - base) if first <= last else BitMap()
        within -= self._named.get(view.ref.sid, BitMap())
        self._note(self.away, view, taken.entries - within)
        parts = list(_parts(self._now, first, last))
        shown = BitMap()
        for now, begin, end in parts:
            if now is not None:
                shown |= _moved(_shown(now) & self.held(now), now.ref.first_seq - base) & _bits(
                    begin - base, end - base
                )
        back = (taken.entries & within) - shown
        if back:
            back -= self._returned(first, last, base)
        self._note(self.gone if is_missing else self.back, view, back)
        if back and not is_missing:
            for now, begin, end in parts:
                part = _bits(begin - base, end - base)
                if back & part or (now is not None and now.ref.sid == view.ref.sid):
                    self._pieces += self._shown_by(view, now, begin, end, (shown | back) & part)

    def views(self) -> tuple[SegmentView, ...]:
        """Return the planned views, ascending. All views of a segment have the same deleted entries."""
        deleted = {view.ref.sid: BitMap.deserialize(view.deleted) for view in self._now if view.deleted is not None}
        joined: list[SegmentView] = []
        for piece in sorted(self._pieces, key=lambda piece: piece.first):
            sid, base = piece.view.ref.sid, piece.view.ref.first_seq
            part = _bits(piece.first - base, piece.last - base)
            deleted[sid] = (deleted.get(sid, BitMap()) - part) | ((self.held(piece.view) & part) - piece.wanted)
            last = joined[-1] if joined else None
            if last is not None and last.ref.sid == sid and last.last + 1 == piece.first:
                joined[-1] = replace(last, last=piece.last)
            else:
                joined.append(replace(piece.view, first=piece.first, last=piece.last))
        bits = {sid: entries.serialize() if entries else None for sid, entries in deleted.items()}
        return tuple(replace(view, deleted=bits[view.ref.sid]) for view in joined)

    def _note(self, taken: list[Taken], view: SegmentView, entries: BitMap) -> None:
        if entries:
            taken.append(Taken(view, entries))

    def _returned(self, first: int, last: int, base: int) -> BitMap:
        """Return the entries of a range that earlier undos of the same commit showed again."""
        entries = BitMap()
        for views in self._earlier:
            for view, begin, end in _parts(views, first, last):
                if view is not None:
                    entries |= _moved(_shown(view), view.ref.first_seq - base) & _bits(begin - base, end - base)
        return entries

    def _shown_by(
        self, before: SegmentView, now: SegmentView | None, first: int, last: int, entries: BitMap
    ) -> Iterator[_Piece]:
        """Yield the pieces that show `entries` in a range (UNDO-4). `entries` are those of `before`."""
        if now is None or now.ref.sid == before.ref.sid:
            yield _Piece(before, first, last, entries)
            return
        base, offset = before.ref.first_seq, before.ref.first_seq - now.ref.first_seq
        by_now, by_before = _moved(self.held(now), -offset), self.held(before)
        if entries <= by_now:
            yield _Piece(now, first, last, _moved(entries, offset))
        elif entries <= by_before:
            yield _Piece(before, first, last, entries)
        else:
            for is_now, begin, end in _runs(entries, by_now, by_before, first - base, last - base):
                part = entries & _bits(begin, end)
                view, shown = (now, _moved(part, offset)) if is_now else (before, part)
                yield _Piece(view, base + begin, base + end, shown)


def _parts(views: Sequence[SegmentView], first: int, last: int) -> Iterator[tuple[SegmentView | None, int, int]]:
    """Yield the range in parts: each with the view that shows it, or None. `views` ascend."""
    at = bisect_left(views, first, key=lambda view: view.last)
    while first <= last:
        view = views[at] if at < len(views) else None
        if view is None or view.first > first:
            end = last if view is None else min(last, view.first - 1)
            yield None, first, end
        else:
            end = min(last, view.last)
            yield view, first, end
            at += 1
        first = end + 1


def _runs(entries: BitMap, by_now: BitMap, by_before: BitMap, first: int, last: int) -> Iterator[tuple[bool, int, int]]:
    """Divide a range of entries, so that one of two objects holds all entries of each part."""
    is_now: bool | None = None
    for entry in entries:
        if is_now is None:
            is_now = entry in by_now
        elif entry not in (by_now if is_now else by_before):
            yield is_now, first, entry - 1
            is_now, first = not is_now, entry
    if is_now is not None:
        yield is_now, first, last


def _shown(view: SegmentView) -> BitMap:
    base = view.ref.first_seq
    entries = _bits(view.first - base, view.last - base)
    return entries if view.deleted is None else entries - BitMap.deserialize(view.deleted)


def _bits(first: int, last: int) -> BitMap:
    entries = BitMap()
    entries.add_range(first, last + 1)
    return entries


def _moved(entries: BitMap, by: int) -> BitMap:
    return entries.shift(by) if by else entries
