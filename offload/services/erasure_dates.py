"""The date by which deleted records are gone for good. This module makes no request: it computes dates from views and
commits.

A record's bytes disappear in three steps.

1. A delete hides the record.
2. A compaction rewrites the segment without the record. If the delete left nothing of the segment, this step happens at
   once.
3. GC deletes the old object, once no retained state shows it.

    erased by = when the segment was rewritten + window + grace + two intervals between GC runs

`erasure_state` computes one date for all deletes of a snapshot.

ERASE-1  While the topic still shows a segment that held the record, there is no date. `seglog compact --erase` rewrites
    the segment.
ERASE-2  A tag, a lease or a branch that holds an older state keeps its bytes beyond that date, a deleted branch too
    until GC has collected it. So `Erasures.of` gives these names in the place of the date, and neither of them while
    the remote cannot be asked for the names. Like GC, it takes what cannot be read for a name that keeps everything.

The window of a topic, for which GC keeps its past states, comes from its configuration.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from pyroaring import BitMap

from catalog import Commit, CommitKind, ForkPoint, PastCommit, SegmentView, Sid, Snapshot, Vid
from catalog.errors import Unavailable
from catalog.gc.policy import window_ms_of
from catalog.history import History
from offload.context import ArchiveContext
from offload.write.merging import holds_more
from seglog.base.dataclasses import dataclass


def window_ms_here(context: ArchiveContext, name: str, remote_config: Callable[[], str]) -> int:
    """Return the window of a topic or branch in ms, as this directory knows it.

    The log knows a change of the configuration before the remote does. A replica uses `remote_config`.
    """
    log = context.log
    config = json.dumps(log.topic(name).config.to_json()) if log.has_topic(name) else remote_config()
    return window_ms_of(config, context.settings.pitr_window_s * 1000)


@dataclass(frozen=True, slots=True)
class ErasureState:
    """How far the deleted records of a topic are erased.

    `objects` counts the topic's own objects that still hold deleted records (ERASE-1). The deleted records in no such
    object are gone for good by `by_ms`. `by_ms` is None if they are gone now.
    """

    objects: int
    by_ms: int | None


def collected_after_ms(context: ArchiveContext, name: str, snapshot: Snapshot) -> int:
    """Return the longest time from a commit of the topic until GC has deleted the objects that the commit replaced."""
    settings = context.settings
    window_ms = window_ms_here(context, name, lambda: snapshot.config)
    interval_s = settings.gc_interval_s if isinstance(settings.gc_interval_s, int) else 0
    return window_ms + (settings.gc_grace_s + 2 * interval_s) * 1000


def erasure_state(snapshot: Snapshot, after_ms: int, now_ms: int) -> ErasureState:
    """Return the erasure state of `snapshot`. `after_ms` comes from `collected_after_ms`."""
    holding = {view.ref.sid for view in snapshot.segments if view.vid == snapshot.vid and holds_more(view)}
    by_ms = snapshot.put_out_ms + after_ms
    return ErasureState(len(holding), by_ms if snapshot.put_out_ms and by_ms > now_ms else None)


Piece = tuple[Vid, int, int, int, Sid]
"""A segment of a state: its volume, the LSN that added it, its first seq and its last, its id."""
Holder = tuple[Sequence[str], Sequence[Piece] | None]
"""The names that hold one state, and its segments, or None if it cannot be read."""


class Erasures:
    """The erasure dates of one history, which is that of the branch `name`.

    `state_at` returns the segments that a topic shows at a point, and the time of `collected_after_ms`. The first
    delete or eviction asks it for the newest commit, because a topic may show many segments. `holders` returns the
    states that names of the topic hold. The first date asks for them.
    """

    def __init__(
        self,
        name: str,
        history: History,
        state_at: Callable[[ForkPoint], tuple[Sequence[SegmentView], int]],
        holders: Callable[[], Sequence[Holder]],
    ) -> None:
        self.holders = holders
        self._name = name
        self._ages = {span.vid: age for age, span in enumerate(history.spans)}
        self._history = history
        self._state_at = state_at
        self._first_seqs: dict[Sid, int] = {}
        self._unread: Iterator[PastCommit] | None = None
        self._newest: ForkPoint | None = None
        self._shown: dict[Sid, SegmentView] | None = None
        self._after_ms = 0
        self._put_again_ms: dict[Sid, int] = {}
        self._undone = set[tuple[Vid, int]]()
        self._latest_ms = 0

    def of(self, past: PastCommit) -> tuple[int | None, tuple[str, ...]]:
        """Return the date of `date_ms`, or the names that keep the bytes beyond it (ERASE-2)."""
        date_ms = self.date_ms(past)
        if date_ms is None:
            return None, ()
        try:
            others = [(others, pieces) for names, pieces in self.holders() if (others := {*names} - {self._name})]
            taken = sorted(self._taken(past.commit)) if any(pieces for _, pieces in others) else []
        except Unavailable:
            return None, ()
        firsts, lasts = [first for first, _ in taken], [*accumulate((last for _, last in taken), max)]
        has_bytes = partial(self._has_bytes, past.commit, firsts, lasts)
        names = {name for names, pieces in others if pieces is None or any(map(has_bytes, pieces)) for name in names}
        return (None, tuple(sorted(names))) if names else (date_ms, ())

    def _has_bytes(self, commit: Commit, firsts: Sequence[int], lasts: Sequence[int], piece: Piece) -> bool:
        """Return whether a segment has bytes that the commit took: it is older, and has some of the seqs.

        `firsts` ascend. `lasts` has for each of them the highest last seq so far.
        """
        vid, lsn, first_seq, last_seq, sid = piece
        age = self._ages.get(vid, -1)
        if age < self._ages[commit.vid] or (vid == commit.vid and lsn > commit.lsn):
            return False
        if first_seq < commit.deletions.before_seq or sid in commit.deletions.bitmaps:
            return True
        below = bisect_right(firsts, last_seq)
        return below > 0 and lasts[below - 1] >= first_seq

    def _taken(self, commit: Commit) -> Iterator[tuple[int, int]]:
        """Yield the first and last seq that a commit took of each segment, which a compaction may have made of others.

        They are all seqs if GC has passed the commit of the segment.
        """
        for sid, bitmap in commit.deletions.bitmaps.items():
            first_seq, entries = self._first_seq(sid), BitMap.deserialize(bitmap)
            if first_seq is None:
                yield 0, sys.maxsize
            elif entries:
                yield first_seq + entries.min(), first_seq + entries.max()

    def _first_seq(self, sid: Sid) -> int | None:
        """Return the first seq of a segment of the history. Read no more of the history than that takes."""
        if self._unread is None:
            oldest = self._history.spans[-1]
            views, _ = self._state_at(ForkPoint(oldest.vid, oldest.first_lsn))
            self._first_seqs = {view.ref.sid: view.ref.first_seq for view in views}
            self._unread = iter(self._history)
        while sid not in self._first_seqs and (past := next(self._unread, None)) is not None:
            self._first_seqs |= {ref.sid: ref.first_seq for ref, _ in past.segments()}
        return self._first_seqs.get(sid)

    def date_ms(self, past: PastCommit) -> int | None:
        """Return when the records that a delete or an eviction took are gone for good.

        Returns None if the date is not known yet, if the commit was undone, and for any other commit. The caller passes
        every commit of a history, newest first.
        """
        commit = past.commit
        self._newest = self._newest or past.point()
        if commit.kind is CommitKind.COMPACT:
            self._latest_ms = max(self._latest_ms, commit.created_at_ms)
            for sid in commit.removed_sids:
                self._put_again_ms.setdefault(sid, commit.created_at_ms)
        if commit.restored is not None:
            self._undone.add((commit.restored.undone.vid, commit.restored.undone.lsn))
        if commit.kind not in {CommitKind.DELETE, CommitKind.EVICT} or (commit.vid, commit.lsn) in self._undone:
            return None
        if self._shown is None:
            views, self._after_ms = self._state_at(self._newest)
            self._shown = {view.ref.sid: view for view in views}
        before_seq, sids = commit.deletions.before_seq, commit.deletions.bitmaps
        if any(sid in self._shown for sid in sids):
            return None
        if any(view.ref.first_seq < before_seq and holds_more(view) for view in self._shown.values()):
            return None
        times = [commit.created_at_ms, *(self._put_again_ms[sid] for sid in sids if sid in self._put_again_ms)]
        return max([*times, self._latest_ms] if before_seq else times) + self._after_ms
