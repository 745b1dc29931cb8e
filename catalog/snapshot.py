"""The state that a volume shows at an LSN, made of its commits. Pure: commits in, a snapshot out.

A snapshot is folded from the oldest commit on. The fields of each commit apply in this order:

    removed_sids    remove the views of those segments
    truncate_from   remove seqs at or above it; later commits may use those seqs again
    segments        add a view for each; remove its range from older views (the newest commit wins per seq)
    deletions       before_seq: remove seqs below it; bitmaps: mark seqs as deleted in the views of that segment
    restored        each view replaces all others in its range; its bitmap replaces that of its segment

SNAP-1  Views are ascending and never overlap. A segment may have several, when a newer one covers its middle.
SNAP-2  A fork begins with its parent's snapshot, cut at the fork's seq. Deletions up to the fork point come with it.
SNAP-3  A delete never reaches records that were appended after it.
    So `before_seq` counts up to the `at_seq` of its commit. A truncation or a cut lowers `before_seq`, because later
    records use those seqs again. A commit of kind restore gives `before_seq` itself.
SNAP-4  A checkpoint holds all of a snapshot that further folding needs. So folding may begin with a checkpoint.
SNAP-5  A snapshot has the idempotency keys of the newest 256 loads that gave one. A fork has those of its parent, and a
    cut drops the keys of loads whose records it cuts.

Source: Graft RFC 0001 (Volume Reader). This module does no I/O.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from blake3 import blake3

from catalog.format.commit import NO_PARENT, Bounds, Checkpoint, Commit, CommitKind, LoadedKey, SegmentView
from catalog.format.encoding import StoredCommit, encode_views
from catalog.format.ids import Sid, Vid
from catalog.format.lazy_imports import pyroaring
from seglog.base.dataclasses import dataclass

_KEYS = 256


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A volume at an LSN (0: no commit of its own yet). `head_hash` is the `parent_hash` of the commit that follows.

    A seq from `bounds.first_seq` to `bounds.head_seq` that no view shows was deleted if it lies below
    `before_seq`. `max_seq` is the highest seq that the topic ever had, and `max_ts_ms` its latest time, as far as
    commits tell. `epoch` is the epoch of the newest commit, 0 without one. `config` is the topic's configuration as
    JSON, empty if no commit tells it. No segment with an id from before `collected_before_ms` may be added any more.
    `put_out_ms` is the time of the newest commit that reduced the deleted records in shown objects, 0 without one. Such
    a commit is a delete, or replaces an object that held deleted records. `load_epoch` is the epoch of the newest
    commit of the volume itself with the mark of a load, 0 without one. `loaded` has the idempotency keys of loads,
    oldest first (SNAP-5). `form` is that of the newest commit, also of a parent; 0 without one.
    """

    vid: Vid
    lsn: int
    bounds: Bounds
    segments: tuple[SegmentView, ...]
    before_seq: int
    head_hash: bytes
    max_seq: int = 0
    max_ts_ms: int = 0
    epoch: int = 0
    config: str = ""
    collected_before_ms: int = 0
    put_out_ms: int = 0
    load_epoch: int = 0
    loaded: tuple[LoadedKey, ...] = ()
    form: int = 0

    @property
    def next_epoch(self) -> int:
        """The epoch that fences every writer so far. Above 1: a writer of epoch 1 may not have committed yet, and
        maintenance has epoch 0.
        """
        return max(self.epoch, 1) + 1


def empty(vid: Vid) -> Snapshot:
    """Return a volume without parent and commits."""
    return Snapshot(vid, 0, Bounds(first_seq=1, head_seq=0), (), 0, NO_PARENT)


def fork(parent: Snapshot, vid: Vid) -> Snapshot:
    """Return the volume `vid`, forked from `parent`, before any commit of its own."""
    return replace(parent, vid=vid, lsn=0, epoch=0, collected_before_ms=0, load_epoch=0)


def cut(snapshot: Snapshot, seq: int) -> Snapshot:
    """Return `snapshot` as if no record above `seq` had been appended."""
    above = seq + 1
    bounds = snapshot.bounds
    return replace(
        snapshot,
        bounds=Bounds(min(bounds.first_seq, above), min(bounds.head_seq, seq), min(bounds.evict_floor, above)),
        segments=tuple(_without(snapshot.segments, above, None)),
        before_seq=min(snapshot.before_seq, above),
        max_seq=min(snapshot.max_seq, seq),
        loaded=tuple(load for load in snapshot.loaded if load.last_seq <= seq),
    )


def checkpoint_of(snapshot: Snapshot, *, now_ms: int) -> Checkpoint:
    """Return the checkpoint for the last commit of `snapshot`."""
    views = encode_views(snapshot.segments)
    return Checkpoint(
        made_at_ms=now_ms,
        views=views,
        views_hash=blake3(views).digest(),
        views_length=len(views),
        before_seq=snapshot.before_seq,
        max_seq=snapshot.max_seq,
        max_ts_ms=snapshot.max_ts_ms,
        config=snapshot.config,
        collected_before_ms=snapshot.collected_before_ms,
        put_out_ms=snapshot.put_out_ms,
        load_epoch=snapshot.load_epoch,
        loaded=snapshot.loaded,
    )


def from_checkpoint(stored: StoredCommit, checkpoint: Checkpoint, views: tuple[SegmentView, ...]) -> Snapshot:
    """Return the volume at the commit `stored`, from its checkpoint, whose decoded list is `views`."""
    commit = stored.commit
    return Snapshot(
        vid=commit.vid,
        lsn=commit.lsn,
        bounds=commit.bounds,
        segments=views,
        before_seq=checkpoint.before_seq,
        head_hash=stored.hash,
        max_seq=checkpoint.max_seq,
        max_ts_ms=checkpoint.max_ts_ms,
        epoch=commit.epoch,
        config=checkpoint.config,
        collected_before_ms=checkpoint.collected_before_ms,
        put_out_ms=checkpoint.put_out_ms,
        load_epoch=checkpoint.load_epoch,
        loaded=checkpoint.loaded,
        form=commit.form,
    )


def fold(base: Snapshot, commits: Iterable[StoredCommit]) -> Snapshot:
    """Return `base` after `commits`, which follow it, oldest first."""
    views = list(base.segments)
    bitmaps = {view.ref.sid: pyroaring.BitMap.deserialize(view.deleted) for view in views if view.deleted is not None}
    now = base
    for stored in commits:
        commit = stored.commit
        puts_out = _puts_out(views, bitmaps, commit)
        views = _apply(views, commit)
        _merge(bitmaps, commit)
        now = replace(
            now,
            lsn=commit.lsn,
            bounds=commit.bounds,
            before_seq=_before_seq(now.before_seq, commit),
            head_hash=stored.hash,
            max_seq=max(now.max_seq, commit.bounds.head_seq),
            max_ts_ms=max(now.max_ts_ms, commit.at_ts_ms),
            epoch=commit.epoch,
            config=commit.config or now.config,
            collected_before_ms=max(now.collected_before_ms, commit.collected_before_ms or 0),
            put_out_ms=max(now.put_out_ms, commit.created_at_ms) if puts_out else now.put_out_ms,
            load_epoch=now.load_epoch if commit.load is None else commit.epoch,
            loaded=_loaded(now.loaded, commit),
            form=commit.form,
        )
    return replace(now, segments=_with_deleted(views, bitmaps))


def _apply(views: list[SegmentView], commit: Commit) -> list[SegmentView]:
    if commit.removed_sids:
        removed = frozenset(commit.removed_sids)
        views = [view for view in views if view.ref.sid not in removed]
    if commit.truncate_from is not None:
        views = _without(views, commit.truncate_from, None)
    for ref in commit.segments:
        if views and views[-1].last >= ref.first_seq:
            views = _without(views, ref.first_seq, ref.last_seq)
        view = SegmentView(ref, commit.vid, commit.lsn, ref.first_seq, ref.last_seq)
        insort(views, view, key=lambda view: view.first)
    for view in commit.restored_views:
        views = _without(views, view.first, view.last)
        insort(views, view, key=lambda view: view.first)
    below = deleted_below(commit)
    return _without(views, 1, below - 1) if below > 1 else views


def _loaded(keys: tuple[LoadedKey, ...], commit: Commit) -> tuple[LoadedKey, ...]:
    if commit.load is None or not commit.load.key:
        return keys
    return (*keys, LoadedKey(commit.load.key, commit.bounds.head_seq))[-_KEYS:]


def _puts_out(views: Iterable[SegmentView], bitmaps: Mapping[Sid, pyroaring.BitMap], commit: Commit) -> bool:
    """Return whether the commit hides an entry that was shown, or replaces a segment with a hidden one."""
    if commit.kind is CommitKind.DELETE:
        named = commit.deletions.bitmaps.items()
        return any(view.first < deleted_below(commit) for view in views) or any(
            pyroaring.BitMap.deserialize(bits) - bitmaps.get(sid, pyroaring.BitMap()) for sid, bits in named
        )
    removed = frozenset(commit.removed_sids)
    return bool(removed) and any(
        view.ref.sid in removed and (view.ref.sid in bitmaps or not view.is_whole) for view in views
    )


def _before_seq(before_seq: int, commit: Commit) -> int:
    if commit.restored is not None:
        return commit.restored.before_seq
    if commit.truncate_from is not None:
        before_seq = min(before_seq, commit.truncate_from)
    return max(before_seq, deleted_below(commit))


def deleted_below(commit: Commit) -> int:
    """Return the seq below which the commit deletes every record (SNAP-3); 0 for none."""
    return min(commit.deletions.before_seq, commit.at_seq + 1)


def _without(views: Sequence[SegmentView], first: int, last: int | None) -> list[SegmentView]:
    """Return `views` without the seqs from `first` to `last` (None: to the end).

    A commit may bring back thousands of views, one after the other, so only those that lose seqs are looked at.
    """
    low = bisect_left(views, first, key=lambda view: view.last)
    high = len(views) if last is None else bisect_right(views, last, low, key=lambda view: view.first)
    cut_views: list[SegmentView] = []
    for view in views[low:high]:
        if view.first < first:
            cut_views.append(replace(view, last=first - 1))
        if last is not None and view.last > last:
            cut_views.append(replace(view, first=last + 1))
    return [*views[:low], *cut_views, *views[high:]]


def _merge(bitmaps: dict[Sid, pyroaring.BitMap], commit: Commit) -> None:
    for sid, bitmap in commit.deletions.bitmaps.items():
        more = pyroaring.BitMap.deserialize(bitmap)
        bitmaps[sid] = bitmaps[sid] | more if sid in bitmaps else more
    for view in commit.restored_views:
        bitmaps.pop(view.ref.sid, None)
        if view.deleted is not None:
            bitmaps[view.ref.sid] = pyroaring.BitMap.deserialize(view.deleted)


def _with_deleted(views: Iterable[SegmentView], bitmaps: Mapping[Sid, pyroaring.BitMap]) -> tuple[SegmentView, ...]:
    serialized = {sid: bitmap.serialize() for sid, bitmap in bitmaps.items() if bitmap}
    deleted = [serialized.get(view.ref.sid) for view in views]
    return tuple(
        view if bits == view.deleted else replace(view, deleted=bits) for view, bits in zip(views, deleted, strict=True)
    )
