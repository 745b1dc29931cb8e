"""When deleted records are gone for good. Pure: views and commits in, dates out.

A record's bytes go in three steps: the delete; a compaction that puts the segment anew without them (at once for
segments of which the delete left nothing); and GC, when no state that is kept shows the old object any more.

    erased by = when the segment was put anew + window + grace + two intervals between GC runs

A snapshot tells it for all deletes together (`erasure_state`).

E1  While a segment that held the record is still shown, there is no date: `seglog compact --erase` puts it anew.
E2  A tag, a lease or a fork that holds an older state holds its bytes beyond that date: `seglog gc` tells which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog import CommitKind, PastCommit, SegmentView, Sid, Snapshot
from offload.write.merging import holds_more

__all__ = ["ErasureState", "Erasures", "erasure_state"]


@dataclass(frozen=True, slots=True)
class ErasureState:
    """Of all that was deleted: `objects` of the topic's own hold some of it still (E1), and what is in none of these is
    gone for good by `by_ms`; None if it is gone now.
    """

    objects: int
    by_ms: int | None


def erasure_state(snapshot: Snapshot, after_ms: int, now_ms: int) -> ErasureState:
    """`after_ms` is how long GC takes at most."""
    holding = {view.ref.sid for view in snapshot.segments if view.vid == snapshot.vid and holds_more(view)}
    by_ms = snapshot.put_out_ms + after_ms
    return ErasureState(len(holding), by_ms if snapshot.put_out_ms and by_ms > now_ms else None)


class Erasures:
    """Of one topic or branch: `views` is what it shows now, `after_ms` how long GC takes at most."""

    def __init__(self, views: Sequence[SegmentView], after_ms: int) -> None:
        self._shown = {view.ref.sid: view for view in views}
        self._after_ms = after_ms
        self._put_anew_ms: dict[Sid, int] = {}
        self._latest_ms = 0

    def date_ms(self, past: PastCommit) -> int | None:
        """For a delete or an eviction: when what it took is gone for good. None if that is not known yet, and for any
        other commit.

        Ask for each commit of a history, newest first.
        """
        commit = past.commit
        if commit.kind is CommitKind.COMPACT:
            self._latest_ms = max(self._latest_ms, commit.created_at_ms)
            for sid in commit.removed_sids:
                self._put_anew_ms.setdefault(sid, commit.created_at_ms)
        if commit.kind not in {CommitKind.DELETE, CommitKind.EVICT}:
            return None
        before_seq, sids = commit.deletions.before_seq, commit.deletions.bitmaps
        if any(sid in self._shown for sid in sids):
            return None
        if any(view.ref.first_seq < before_seq and holds_more(view) for view in self._shown.values()):
            return None
        times = [commit.created_at_ms, *(self._put_anew_ms[sid] for sid in sids if sid in self._put_anew_ms)]
        return max([*times, self._latest_ms] if before_seq else times) + self._after_ms
