"""Volumes on object storage: their commits, the state that the commits add up to, and the publication of a new commit.

VOL-3  `Volumes` keeps the newest snapshot of each volume in memory, so the next one costs the commits since. The first
    snapshot costs the commits since the newest checkpoint, whatever lies before that. So does a snapshot that is far
    from the last.
VOL-6  After a writer put a commit, it reads the boundary:

        1  Writer W prepares commit 15 and stalls.
        2  GC raises the boundary to 20, and deletes commits and objects below it.
        3  W resumes and puts commit 15. The PUT can succeed, because the key is free.
        4  W reads the boundary, sees 20, and treats its commit as refused: `Outdated`.

    A commit below the boundary counts as refused. GC may have deleted what it stands on, and another commit may have
    used its key before. The exception is a commit that later commits continue, each on the one before, up to the
    boundary. Such a commit is part of the history, and its writer gets a success.
VOL-7  A history needs the current boundary. Only while the store cannot be asked, the last one that was read stands in.
VOL-9  The newest commit as a proxy gave it (`Forward`) stands for all before it. It has the bucket's own hash, and its
    list is the proxy's word. So the local catalog keeps it apart, and only readers through a proxy use it. A directory
    whose remote is the bucket takes its list from there, because a takeover or a checkpoint would publish it.

Source: Graft RFC 0001 (visibility_path, remote_commit, checkpoints).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from catalog.errors import (
    Diverged,
    Fenced,
    InvalidObject,
    NoSuchBucket,
    NoSuchObject,
    OutcomeUnknown,
    Outdated,
    Unavailable,
)
from catalog.format.control import DEAD, CheckpointSet, Control, Fork
from catalog.format.encoding import StoredCommit, decode_commit, decode_commit_at, decode_views
from catalog.format.ids import LsnNumber, Vid
from catalog.format.keys import Key, boundary_key, checkpoints_key, commit_key, control_key, fork_key, forward_key
from catalog.format.small_objects import (
    decode_boundary,
    decode_checkpoint_set,
    decode_down_to,
    encode_control,
    encode_fork,
)
from catalog.history import BranchSpan, History, KeptCommits
from catalog.local_catalog import LocalCatalog
from catalog.objects.object_store import Forward, ObjectStore
from catalog.objects.settled_writes import put_once
from catalog.objects.wrapped import OfflineStore
from catalog.snapshot import Snapshot, cut, empty, fold, fork, from_checkpoint
from catalog.stored_commits import FAR, StoredCommits, check_chain, check_lsn, check_rise
from seglog.base.arguments import checked
from seglog.base.lazy import logger

__all__ = ["DEAD", "Volumes"]

_log = logger(__name__)


class Volumes(StoredCommits):
    """The volumes under one prefix. `cache`, if given, keeps what was read. Safe to use from many threads.

    Every method may raise `Unavailable`, `InvalidObject` and `FormatUnsupported`.
    """

    def __init__(self, store: ObjectStore, cache: LocalCatalog | None = None) -> None:
        super().__init__(store, cache)
        self._known: dict[Vid, Snapshot] = {}
        self._boundaries: dict[Vid, int] = {}  # as proxies gave them

    def offline(self) -> Volumes:
        """Return the same volumes without requests. A method that would need one raises `StoreUnreachable`."""
        volumes = Volumes(OfflineStore(self.store), self.cache)
        volumes._known, volumes._last_marks, volumes._forwards = self._known, self._last_marks, self._forwards
        return volumes

    # ------------------------------------------------------------ writing

    @checked
    def take_forward(self, vid: Vid, lsn: LsnNumber, head_hash: bytes, forward: Forward) -> tuple[StoredCommit, ...]:
        """Take what a proxy gave. Return the commits after `lsn`, or none if the newest state came instead (VOL-9)."""
        key = forward_key(vid)
        commits = tuple(decode_commit(body, key) for body in forward.bodies)
        is_whole = commits[-1].checkpoint is not None
        lsns = [forward.lsn] if is_whole else [*range(lsn + 1, forward.lsn + 1)]
        if len(commits) > 1 and any(stored.checkpoint is not None for stored in commits):
            raise InvalidObject(key, "a proxy gave a list of segments among commits")
        if [(stored.commit.vid, stored.commit.lsn) for stored in commits] != [(vid, at) for at in lsns]:
            raise InvalidObject(key, "a proxy gave other commits than it said")
        if is_whole:
            snapshot = _snapshot_in(commits[0], key)
            if self.cache:
                self.cache.put_object(key, forward.bodies[0])
            self._forwards[vid], self._known[vid] = replace(commits[0], checkpoint=None), snapshot
            return ()
        if commits[0].commit.parent_hash != head_hash:
            raise InvalidObject(key, f"it does not continue lsn {lsn}: the parent hash is another")
        check_chain(commits)
        if self.cache:
            self.cache.put_commits(vid, zip(lsns, forward.bodies, strict=True))
        return commits

    @checked
    def falls(self, vid: Vid, boundary: LsnNumber) -> bool:
        """Return whether a proxy named a higher boundary before."""
        seen = self._boundaries[vid] = max(boundary, self._boundaries.get(vid, 0))
        return boundary < seen

    @checked
    def forget(self, vid: Vid, first_lsn: LsnNumber, below_lsn: LsnNumber) -> None:
        """Drop the copies of commits that GC collected: from `first_lsn` on and below `below_lsn`.

        A copy that was read from such a key since then may be another writer's commit.
        """
        snapshot = self._known.get(vid)
        if snapshot is not None and snapshot.lsn < below_lsn:
            self._known.pop(vid, None)
        if self.cache:
            self.cache.drop_commits(vid, below_lsn, first_lsn)

    @checked
    def let_go(self, vid: Vid) -> None:
        """Forget what this process knows of a volume that nothing here names any more. The copies stay."""
        self._known.pop(vid, None)
        self._last_marks.pop(vid, None)
        self._forwards.pop(vid, None)
        self._boundaries.pop(vid, None)

    @checked
    def snapshot(self, vid: Vid, lsn: LsnNumber | None = None, seq: int | None = None) -> Snapshot:
        """Return the state of `vid` at `lsn` (None: the newest), cut at `seq`; parents included.

        Raise `NoSuchObject` if there is no such commit, or GC collected its state.
        """
        check_lsn(vid, lsn or 0)
        missing = ""
        while True:
            try:
                snapshot = self._whole(vid, self.newest_lsn(vid) if lsn is None else lsn)
            except (NoSuchObject, InvalidObject) as trouble:
                # GC may have passed the known state, or the commits that were being read. Then a checkpoint lies
                # above them, so try again. Give up if the same object is missing twice.
                if str(trouble) == missing:
                    raise
                missing = str(trouble)
                self._known.clear()
            else:
                return snapshot if seq is None else cut(snapshot, seq)

    @checked
    def history(self, vid: Vid, lsn: LsnNumber | None = None) -> History:
        """Return the commits that `vid` stands on at `lsn` (None: the newest), as far back as GC keeps their states.

        The history fetches commits on demand, and raises the errors of that. It raises `HistoryCollected` if GC has
        passed them since (`catalog.history.retry_if_collected` then asks once more).
        """
        boundaries: dict[Vid, int] = {}
        spans: list[BranchSpan] = []
        cut_seq: int | None = None
        is_passed = False
        last_lsn = self.newest_lsn(vid) if lsn is None else lsn
        seen = set[Vid]()
        while True:
            _check_new(vid, seen)
            boundary, checkpoints = self._kept(vid)
            boundaries[vid] = boundary
            if lsn is None and not spans and last_lsn < boundary < DEAD:
                last_lsn = max(boundary, self.newest_lsn(vid))  # GC has passed the newest commit of the LIST
            # Below its boundary a volume may still keep the one state that a fork stands on.
            parent, first_lsn = self.control(vid).parent, max(1, min(boundary, last_lsn))
            is_cut = boundary > 1 and (first_lsn > 1 or parent is not None)
            is_passed = is_passed or (not spans and last_lsn < boundary < DEAD)
            spans.append(BranchSpan(vid, first_lsn, last_lsn, cut_seq, checkpoints.marks, is_cut))
            if boundary > 1 or parent is None:
                return History(spans, KeptCommits(self.commits, self.boundary, boundaries), is_passed=is_passed)
            vid, last_lsn = parent.vid, parent.lsn
            cut_seq = min((seq for seq in (cut_seq, parent.seq) if seq is not None), default=None)

    def _kept(self, vid: Vid) -> tuple[int, CheckpointSet]:
        """Return boundary and checkpoints. If the store is unavailable, return the last ones that were read (VOL-7)."""
        try:
            return self.boundary(vid), self.checkpoints(vid)
        except Unavailable as trouble:
            boundary = self.cache.object(boundary_key(vid)) if self.cache else None
            checkpoints = self._last_read(vid, decode_checkpoint_set)
            if boundary is None or checkpoints is None:
                raise
            _log.warning("the history is shown as it was when last heard of: %s", trouble)
            return decode_boundary(boundary, vid).lsn, checkpoints

    def _whole(self, vid: Vid, lsn: int) -> Snapshot:
        try:
            return self._built(vid, lsn)
        except (InvalidObject, NoSuchObject):
            # GC may have collected commits between the known state and this one. GC may also have removed the mark of
            # a state that is held after all, and will put it back.
            self._known.clear()
            return self._built(vid, lsn, unlisted=True)

    def _built(self, vid: Vid, lsn: int, *, unlisted: bool = False) -> Snapshot:
        """Return `vid` at `lsn`. Go down to a known state, and fold the commits that follow, volume by volume.

        With `unlisted`, a commit may be a checkpoint though the list does not have it.
        """
        base_of = self._unlisted_base if unlisted else self._base
        path: list[tuple[Control, int]] = []  # the volumes on the way down, and up to where to fold each
        seen = set[Vid]()
        base = base_of(vid, lsn)
        while base is None:
            _check_new(vid, seen)
            control = self.control(vid)
            path.append((control, lsn))
            if control.parent is None:
                break
            vid, lsn = control.parent.vid, control.parent.lsn
            base = base_of(vid, lsn)
        snapshot = None if base is None else self._folded(base, lsn)
        for control, lsn in reversed(path):
            snapshot = self._folded(_origin(control, snapshot), lsn)
        assert snapshot is not None  # noqa: S101 - a path that found no base is not empty
        return snapshot

    def _unlisted_base(self, vid: Vid, lsn: int) -> Snapshot | None:
        """Return the snapshot of the nearest commit at or below `lsn` that is a checkpoint, listed or not."""
        for at in range(lsn, 0, -1):
            body = self._get_commit(vid, at)
            if body is None:
                break
            if decode_commit_at(body, vid, at).checkpoint is not None:
                return self._from_checkpoint(vid, at)
        return self._base(vid, lsn)

    def _base(self, vid: Vid, lsn: int) -> Snapshot | None:
        """Return the newest snapshot at or below `lsn` that is known or that a checkpoint gives; None without one."""
        snapshot = self._known.get(vid)
        forward = self._forwarded(vid) if snapshot is None else None
        if forward is not None:
            snapshot = _snapshot_in(forward, forward_key(vid))
        if snapshot is not None and snapshot.lsn > lsn:
            snapshot = None
        if snapshot is not None and (lsn - snapshot.lsn < FAR or self._are_here(vid, snapshot.lsn + 1, lsn)):
            return snapshot
        if lsn == 0:
            return None
        last_read = self._last_read(vid, partial(decode_down_to, lsn))
        mark = None if last_read is None else last_read.at_or_below(lsn)
        if last_read is None or not self._are_here(vid, 1 if mark is None else mark.lsn, lsn):
            newest = self.newest_checkpoints(vid)
            mark = newest.at_or_below(lsn)
            if mark is None and newest.older:
                mark = self.checkpoints(vid).at_or_below(lsn)
        if snapshot is not None and (mark is None or mark.lsn <= snapshot.lsn):
            return snapshot
        return None if mark is None else self._from_checkpoint(vid, mark.lsn)

    def _are_here(self, vid: Vid, first_lsn: int, last_lsn: int) -> bool:
        return self.cache is not None and self.cache.has_commits(vid, first_lsn, last_lsn)

    def _from_checkpoint(self, vid: Vid, lsn: int) -> Snapshot:
        key = commit_key(vid, lsn)
        stored = self._cached(vid, lsn, lsn).get(lsn)
        if stored is None or stored.checkpoint is None:
            body = self.store.get(key)
            stored = decode_commit_at(body, vid, lsn)
            if self.cache:
                self.cache.put_commits(vid, [(lsn, body)])
        checkpoint = stored.checkpoint
        if checkpoint is None:
            raise InvalidObject(key, f"{checkpoints_key(vid)} names it, and it is no checkpoint")
        views = self._list(vid, lsn, checkpoint.views_hash) if checkpoint.views is None else checkpoint.views
        return from_checkpoint(stored, checkpoint, decode_views(views, key))

    def _folded(self, base: Snapshot, lsn: int) -> Snapshot:
        """Return `base` after the commits that follow in its volume, up to `lsn`."""
        commits = self.commits(base.vid, base.lsn + 1, lsn)
        if commits and commits[0].commit.parent_hash != base.head_hash:
            base_text = f"lsn {base.lsn}: the parent hash is another" if base.lsn else "what its volume was forked from"
            raise InvalidObject(commit_key(base.vid, base.lsn + 1), f"it does not continue {base_text}")
        if commits:
            check_rise(base, commits[0])
        snapshot = fold(base, commits)
        older = self._known.get(base.vid)
        if older is None or older.lsn < snapshot.lsn:
            self._known[base.vid] = snapshot
        return snapshot

    # ------------------------------------------------------------ writing

    @checked
    def create(self, control: Control) -> None:
        """Make the volume: its control, then the fork in its parent. No name leads to it yet (`catalog.refs.branch`).

        Raise `NoSuchObject` if the fork point's commit is absent.
        """
        if control.parent is not None and control.parent.lsn > 0:
            self.commits(control.parent.vid, control.parent.lsn, control.parent.lsn)
        self._put_own(control_key(control.vid), encode_control(control))
        if control.parent is not None:
            fork_body = encode_fork(Fork(control.vid, control.parent))
            self._put_own(fork_key(control.parent.vid, control.vid), fork_body)

    @checked
    def publish(self, vid: Vid, lsn: LsnNumber, body: bytes) -> None:
        """Put the commit `body` at `lsn`, or find that it is there already. Repeat it with the identical bytes only.

        Return when the commit is the one at `lsn`. Raise `Diverged` if another writer's commit is there, and `Fenced`
        if that commit has a higher epoch. Then `body` never was a part of the volume. Raise `Outdated` if the commit
        lies below the boundary (VOL-6). Then `body` may or may not have been a part. Raise `StoreUnreachable`,
        `AccessDenied` or `NoSuchBucket` if this call certainly wrote nothing.

        Raise `OutcomeUnknown` if the outcome cannot be found out now. The commit may still land. So the caller must
        neither drop the commit nor use another LSN.
        """
        ours = decode_commit_at(body, vid, lsn)
        stored_body = put_once(self.store, commit_key(vid, lsn), body)
        # Hashes, not bytes: a commit that became a checkpoint meanwhile has other bytes and the same hash.
        stored = ours if stored_body == body else decode_commit_at(stored_body, vid, lsn)
        try:
            boundary = self.boundary(vid)
        except (Unavailable, NoSuchBucket) as trouble:
            raise OutcomeUnknown(boundary_key(vid), str(trouble)) from trouble
        if lsn < boundary and not self._is_continued(vid, stored, boundary):
            raise Outdated(self.full_name(vid), str(vid), lsn, boundary)
        if stored.commit.epoch > ours.commit.epoch:
            raise Fenced(self.full_name(vid), str(vid), lsn, stored.commit.epoch)
        if stored.hash != ours.hash:
            raise Diverged(self.full_name(vid), str(vid), lsn)

    def _is_continued(self, vid: Vid, stored: StoredCommit, boundary: int) -> bool:
        """Tell whether the commits after `there`, up to the boundary, stand on it.

        If they do, it counted when they were made.
        """
        head_hash = stored.hash
        for lsn in range(stored.commit.lsn + 1, boundary + 1 if boundary < DEAD else 0):
            try:
                following = decode_commit_at(self.store.get(commit_key(vid, lsn)), vid, lsn)
            except NoSuchObject:
                return False
            if following.commit.parent_hash != head_hash:
                return False
            head_hash = following.hash
        return boundary < DEAD

    def _put_own(self, key: Key, body: bytes) -> None:
        if put_once(self.store, key, body) != body:
            raise InvalidObject(key, "another object has this new id")


def _snapshot_in(stored: StoredCommit, key: Key) -> Snapshot:
    """Return the state in a commit that is a checkpoint with its list."""
    checkpoint = stored.checkpoint
    if checkpoint is None or checkpoint.views is None:
        raise InvalidObject(key, "it is no checkpoint")
    return from_checkpoint(stored, checkpoint, decode_views(checkpoint.views, key))


def _origin(control: Control, parent: Snapshot | None) -> Snapshot:
    """Return the volume before any commit of its own. `parent` is the parent volume at the fork point."""
    if control.parent is None:
        return empty(control.vid)
    assert parent is not None  # noqa: S101 - it was looked for
    return fork(parent if control.parent.seq is None else cut(parent, control.parent.seq), control.vid)


def _check_new(vid: Vid, seen: set[Vid]) -> None:
    if vid in seen:
        raise InvalidObject(control_key(vid), "its parent is a fork of it")
    seen.add(vid)
