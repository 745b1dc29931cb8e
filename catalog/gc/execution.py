"""Carry out a plan of GC: steps 2 to 7 of `catalog.gc.collector`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import field, replace

from catalog.checkpointer import make_checkpoint
from catalog.errors import Corrupt, Diverged, NoSuchObject, Outdated, OutOfWindow
from catalog.format.commit import Commit, CommitKind
from catalog.format.control import Boundary, CheckpointSet
from catalog.format.encoding import StoredCommit, decode_commit_at, encode_commit
from catalog.format.ids import Sid, Vid
from catalog.format.keys import (
    Key,
    boundary_key,
    checkpoints_key,
    commit_key,
    control_key,
    data_key,
    fork_key,
    index_key,
    list_key,
    pin_key,
    plan_key,
)
from catalog.format.small_objects import decode_boundary, decode_checkpoint_set, encode_boundary, encode_checkpoint_set
from catalog.gc.mark import Kept, Marker
from catalog.gc.plan import Garbage, Plan, pages_of, remove_plan
from catalog.gc.policy import GcReport, Watch, unwatched
from catalog.objects.object_store import ObjectStore
from catalog.objects.settled_writes import change
from catalog.refs.kept_points import begin_closing, close, keep_open
from catalog.snapshot import fold
from seglog.base.dataclasses import dataclass

Note = Callable[[str, Key, str], None]

_FENCE_ROUNDS = 20


@dataclass(slots=True)
class Execution:
    """The plans that one run carries out. `attempts` returns the segments that are being uploaded now."""

    store: ObjectStore
    marker: Marker
    report: GcReport
    attempts: Callable[[], Collection[Sid]]
    note: Note
    writer_id: str
    now_ms: int
    watch: Watch = unwatched
    _pruned: dict[Vid, bytes] = field(default_factory=dict[Vid, bytes])
    _planned: dict[Vid, int] = field(default_factory=dict[Vid, int])
    """For each volume, the first LSN that was kept when this plan was written. 0 if no range was kept."""
    _before: dict[Vid, CheckpointSet] = field(default_factory=dict[Vid, CheckpointSet])
    """The CheckpointSet of each volume, before this run pruned it."""

    def run(self, plan: Plan) -> None:
        """Carry out `plan`. A crash may interrupt this anywhere, and a later run may repeat it."""
        newest_orphans: dict[Vid, int] = {}
        done = 0
        self._planned.clear()
        closing: set[Vid] = set()
        try:
            for page in pages_of(self.store, plan):
                for garbage in page:
                    newest = max((sid.created_ms for sid in garbage.orphans), default=-1)
                    newest_orphans[garbage.vid] = max(newest, newest_orphans.get(garbage.vid, -1))
                    closing |= {garbage.vid} if garbage.closes else set()
                    self._planned[garbage.vid] = garbage.first_lsn
        except Corrupt as damage:
            self.report.damaged_plans.append(str(damage))
            remove_plan(self.store, plan.number)
            return
        self.note("gc", plan_key(plan.number), f"at most {plan.objects} objects")
        for vid in newest_orphans:
            self._raise_boundary(self.marker.look(vid))
        self._close(closing)
        for vid in newest_orphans:
            self._prune(self.marker.look(vid))
        for number, page in enumerate(pages_of(self.store, plan)):
            self.marker.refresh(newest_orphans if number == 0 else {garbage.vid for garbage in page})
            self._settle(newest_orphans if number == 0 else {})
            attempts = frozenset(self.attempts())
            for garbage in page:
                self.watch("deleting", done, plan.objects, "objects")
                self._delete(garbage, attempts)
                done += len(garbage)
        remove_plan(self.store, plan.number)

    # ------------------------------------------------------------ before anything goes

    def _raise_boundary(self, volume: Kept) -> None:
        vid, target = volume.vid, self._begin(volume)
        if vid in self.marker.blocked or target <= max(volume.boundary, 1):
            return
        self._make_checkpoints(volume)
        if vid in self.marker.blocked:
            return
        self.note("boundary", boundary_key(vid), f"raised to lsn {target}")

        def raised(body: bytes | None) -> bytes | None:
            is_higher = body is not None and decode_boundary(body, vid).lsn >= target
            return None if is_higher else encode_boundary(Boundary(vid, target, nonce=os.urandom(16)))

        try:
            body = change(self.store, boundary_key(vid), raised)
        except Corrupt as damage:
            self.marker.block(vid, damage)
            return
        assert body is not None  # noqa: S101 - `raised` makes one when it is absent
        volume.boundary = decode_boundary(body, vid).lsn
        volume.lowest = max(volume.lowest, target)

    def _close(self, vids: Iterable[Vid]) -> None:
        """Close each volume of `vids` if no range of it is kept now. None was kept when the plan was written.

        `catalog.refs.kept_points` has the protocol.
        """
        begun = dict(self._begun(vids))
        if not begun:
            return
        self.marker.refresh(begun, closing=begun)
        for vid, boundary in begun.items():
            volume = self.marker.look(vid)
            if vid in self.marker.blocked:
                continue  # the volume stays closing
            if volume.first_lsn is not None:
                keep_open(self.store, vid)
                continue
            self.note("boundary", boundary_key(vid), "closed")
            volume.boundary = close(self.store, boundary).lsn

    def _begun(self, vids: Iterable[Vid]) -> Iterator[tuple[Vid, Boundary]]:
        for vid in sorted(vids):
            volume = self.marker.look(vid)
            if volume.first_lsn is not None or volume.is_dead:
                continue
            self._make_checkpoints(volume)
            if vid in self.marker.blocked:
                continue
            try:
                boundary = begin_closing(self.store, vid)
            except Corrupt as damage:
                self.marker.block(vid, damage)
                continue
            volume.boundary = boundary.lsn
            if not volume.is_dead:
                yield vid, boundary

    def _make_checkpoints(self, volume: Kept) -> None:
        """Make a checkpoint of each state that will have nothing below it: the first one, and each single one."""
        begin = self._begin(volume)
        first = [begin] if begin > max(volume.boundary, 1) else []
        marked = {mark.lsn for mark in volume.marks.marks}
        try:
            for lsn in sorted({*volume.held_alone(), *first} - marked):
                self._make_checkpoint(volume.vid, lsn)
            volume.marks = self.marker.volumes().checkpoints(volume.vid)
        except (Corrupt, NoSuchObject) as damage:
            self.marker.block(volume.vid, damage)

    def _make_checkpoint(self, vid: Vid, lsn: int) -> None:
        """Make the commit at `lsn` a checkpoint, and add its mark if GC may add one (VCKPT-3).

        GC may add a mark at or above the floor of the CheckpointSet. Below the floor GC adds a mark only on two
        conditions. The state was kept until this run pruned the set. No other run has pruned the set since.

        If GC may not add the mark, there are two cases:

        1. The holder of the state came too late, and was refused.
        2. The holder had the state before an earlier run. That run removed the mark, and stopped before it added the
           mark again. GC keeps the state for this holder, and refuses all new holders.
        """
        before = self._before.get(vid)
        was_kept = before is not None and (lsn >= before.floor or any(mark.lsn == lsn for mark in before.marks))
        pruned = self._pruned.get(vid) if was_kept else None
        with contextlib.suppress(OutOfWindow):
            make_checkpoint(self.marker.volumes(), vid, lsn, now_ms=self.now_ms, pruned=pruned)

    def _settle(self, newest_orphans: dict[Vid, int]) -> None:
        """Make checkpoints of the states that are newly held, and shut out stalled writers.

        `run` calls this after it has read the names again, before it deletes anything of the page.
        """
        for volume in list(self.marker.kept.values()):
            if volume.boundary > 1 and volume.vid not in self.marker.blocked and not self._stands(volume):
                self._make_checkpoints(volume)
        for vid, newest_ms in newest_orphans.items():
            volume = self.marker.look(vid)
            if newest_ms >= 0 and volume.first_lsn is not None and vid not in self.marker.blocked:
                self._shut_out(volume, newest_ms)

    def _stands(self, volume: Kept) -> bool:
        marked = {mark.lsn for mark in volume.marks.marks}
        return all(lsn in marked for lsn in volume.held_alone())

    def _shut_out(self, volume: Kept, newest_ms: int) -> None:
        """Publish a commit that forbids new segments as old as `newest_ms`.

        The commit takes the LSN that a stalled writer would use. If another commit takes the LSN first, GC keeps the
        segments of that commit, and tries the next LSN.
        """
        volumes, vid = self.marker.volumes(), volume.vid
        for _ in range(_FENCE_ROUNDS):
            tip = volume.tip
            assert tip is not None  # noqa: S101 - a volume with a range has one
            if volume.is_dead or tip.collected_before_ms > newest_ms:
                return
            commit = Commit(
                vid=vid,
                lsn=tip.lsn + 1,
                kind=CommitKind.CONFIG,
                bounds=tip.bounds,
                parent_hash=tip.head_hash,
                nonce=os.urandom(16),
                created_at_ms=self.now_ms,
                writer_id=self.writer_id,
                epoch=tip.epoch,
                at_seq=tip.bounds.head_seq,
                at_ts_ms=tip.max_ts_ms,
                message="gc: segments of before were collected",
                collected_before_ms=newest_ms + 1,
                form=tip.form or 1,  # without a commit, what every writer reads
            )
            body, _ = encode_commit(commit)
            try:
                volumes.publish(vid, commit.lsn, body)
                following: tuple[StoredCommit, ...] = (decode_commit_at(body, vid, commit.lsn),)
            except Outdated:
                return  # another run has raised the boundary further
            except Diverged:
                try:
                    following = volumes.next_commits(vid, tip.lsn)
                except Corrupt as damage:
                    if volumes.boundary(vid) <= tip.lsn + 1:
                        self.marker.block(vid, damage)
                    # Otherwise another run has raised the boundary, and the damaged commit is no part of the history.
                    return
            for stored in following:
                for ref in stored.commit.segments:
                    self.marker.sids[vid].add(ref.sid)
                for view in stored.commit.restored_views:
                    self.marker.sids[view.vid].add(view.ref.sid)
            volume.tip = replace(fold(tip, following), segments=())

    # ------------------------------------------------------------ deletes

    def _delete(self, garbage: Garbage, attempts: frozenset[Sid]) -> None:
        vid = garbage.vid
        volume = self.marker.look(vid)
        if vid in self.marker.blocked or not self._is_passed(volume):
            return
        self._remove("commits", [commit_key(vid, lsn) for lsn in garbage.lsns if not volume.keeps(lsn)])
        self._remove("lists", [list_key(vid, lsn, digest) for lsn, digest in garbage.lists if not volume.keeps(lsn)])
        self._delete_segments(volume, garbage, attempts)
        self._remove("forks", [fork_key(vid, fork) for fork in garbage.forks if self.marker.is_gone(fork)])
        expired = {(vid, name) for vid, name, _ in self.marker.roots.expired_pins}
        self._remove("pins", [pin_key(vid, name) for name in garbage.pins if (vid, name) in expired])
        if garbage.closes:
            self._delete_rest(volume)

    def _delete_segments(self, volume: Kept, garbage: Garbage, attempts: frozenset[Sid]) -> None:
        vid, keep = volume.vid, self.marker.sids[volume.vid]
        sizes = {sid: size for sid, size in garbage.segments if sid not in keep and sid not in attempts}
        orphans = [sid for sid in garbage.orphans if sid not in keep and sid not in attempts]
        if volume.first_lsn is not None and not volume.is_dead:
            assert volume.tip is not None  # noqa: S101 - a volume with a range has one
            orphans = [sid for sid in orphans if sid.created_ms < volume.tip.collected_before_ms]
            orphans = self._never_named(volume, orphans)
        sids = [*sizes, *orphans]
        if sids:
            self.store.delete_many([key for sid in sids for key in (data_key(vid, sid), index_key(vid, sid))])
            self.report.deleted["segments"] += len(sids)
        self.report.deleted_bytes += sum(sizes.values())

    def _never_named(self, volume: Kept, orphans: list[Sid]) -> list[Sid]:
        """Return the orphans that still no commit names.

        No commit named them when the plan was written. Since then a commit may have named one, and then left the
        window. The mark may miss its segments, because the commit lies below the first kept LSN. But the commit lies at
        or above the boundary, so its segments stay. This method reads the commits from the boundary to the first kept
        LSN.
        """
        begin, volumes = self._begin(volume), self.marker.volumes()
        assert volume.first_lsn is not None  # noqa: S101 - else the volume goes as a whole
        if not orphans or begin == volume.first_lsn:
            return orphans
        try:
            commits = self.marker.commits(volumes, volume.vid, begin, volume.first_lsn)
            sids = {
                ref.sid
                for commit in commits
                for ref in (*commit.segments, *(view.ref for view in commit.restored_views))
            }
        except (Corrupt, NoSuchObject) as damage:
            self.marker.block(volume.vid, damage)
            return []
        return [sid for sid in orphans if sid not in sids]

    def _prune(self, volume: Kept) -> None:
        """Remove the marks of states below the boundary that nothing holds.

        After that, no reader starts from such a state, and a new holder is refused (`catalog.refs.kept_points`).
        """
        vid = volume.vid
        is_pruned = vid in self._pruned and volume.boundary <= volume.marks.floor
        if is_pruned or vid in self.marker.blocked or not self._is_passed(volume):
            return

        def pruned(body: bytes | None) -> bytes | None:
            if body is None and volume.control is None:
                return None  # the volume is gone, so a caller can hold nothing of it
            checkpoints = CheckpointSet(vid) if body is None else decode_checkpoint_set(body, vid)
            marks = tuple(mark for mark in checkpoints.marks if mark.lsn >= volume.boundary or volume.keeps(mark.lsn))
            self._before[vid] = checkpoints
            if len(marks) == len(checkpoints.marks) and volume.boundary <= checkpoints.floor:
                return None
            return encode_checkpoint_set(CheckpointSet(vid, marks, 0, volume.boundary, os.urandom(16)))

        try:
            body = change(self.store, checkpoints_key(vid), pruned)
        except Corrupt as damage:
            self.marker.block(vid, damage)
            return
        volume.marks = CheckpointSet(vid) if body is None else decode_checkpoint_set(body, vid)
        self._pruned[vid] = volume.marks.nonce

    def _begin(self, volume: Kept) -> int:
        """Return the lower of the first LSNs that the plan and this run keep.

        0 if the plan or this run keeps no range.
        """
        return min(volume.first_lsn or 0, self._planned.get(volume.vid, 0))

    def _is_passed(self, volume: Kept) -> bool:
        """Return True if the boundary allows the deletes of the plan.

        Without a kept range the boundary must be `DEAD`. Otherwise it must have reached `_begin`. If it has not, the
        holders of the volume have changed since the plan was written.
        """
        return volume.is_dead if volume.first_lsn is None else 0 < self._begin(volume) <= max(volume.boundary, 1)

    def _delete_rest(self, volume: Kept) -> None:
        """Delete checkpoints and control, if only the boundary is left beside them."""
        vid = volume.vid
        last = {boundary_key(vid), checkpoints_key(vid), control_key(vid)}
        if volume.is_held or not volume.is_dead or not last.issuperset(self.store.list(f"{vid}/", limit=len(last) + 1)):
            return
        self.store.delete(checkpoints_key(vid))
        self.store.delete(control_key(vid))
        self.report.deleted["volumes"] += 1
        volume.control = None

    def _remove(self, kind: str, keys: list[Key]) -> None:
        if keys:
            self.store.delete_many(keys)
            self.report.deleted[kind] += len(keys)
