"""Volumes on object storage: their commits, the state that the commits add up to, and the publication of a new commit.

VOL-1  A method verifies everything that it returns: envelope, commit hash, identity with the key. If it reads or folds
    several commits, it verifies each parent's hash too. The parent of a fork's first commit is the commit at its fork
    point.
VOL-2  Commits and controls never change, so a reader uses the local copy first. If the local copy is damaged, the
    reader fetches the object again. If the list of checkpoints names a commit that was no checkpoint when it was
    copied, the reader fetches that commit again. The reader reads the list only if the commits since its newest
    checkpoint are not all here. It reads only the list's beginning, unless the wanted state lies before that.
VOL-3  `Volumes` keeps the newest snapshot of each volume in memory, so the next one costs the commits since. The first
    snapshot costs the commits since the newest checkpoint, whatever lies before that. So does a snapshot that is far
    from the last.
VOL-4  If a commit is missing below one that is there, that is `InvalidObject`, because history is dense (COMMIT-1). If
    it lies below the current boundary, GC collected it, and that is `NoSuchObject`.
VOL-5  An epoch that falls is `InvalidObject` (COMMIT-5).
VOL-6  After a writer put a commit, it reads the boundary:

        1  Writer W prepares commit 15 and stalls.
        2  GC raises the boundary to 20, and deletes commits and objects below it.
        3  W resumes and puts commit 15. The PUT can succeed, because the key is free.
        4  W reads the boundary, sees 20, and treats its commit as refused: `Outdated`.

    A commit below the boundary counts as refused. GC may have deleted what it stands on, and another commit may have
    used its key before. The exception is a commit that later commits continue, each on the one before, up to the
    boundary. Such a commit is part of the history, and its writer gets a success.
VOL-7  A history needs the current boundary. Only while the store cannot be asked, the last one that was read stands in.
VOL-8  If a LIST costs by the number of keys, the newest commit is searched from the newest checkpoint on. History is
    dense (COMMIT-1), and the kept part begins with a checkpoint. The result may be behind what GC has passed, as the
    result of a LIST may be.
VOL-9  The newest commit as a proxy gave it (`Forward`) stands for all before it. It has the bucket's own hash, and its
    list is the proxy's word. So the local catalog keeps it apart, and only readers through a proxy use it. A directory
    whose remote is the bucket takes its list from there, because a takeover or a checkpoint would publish it.
VOL-10  A list of segments that came damaged is read once more, past the cache of a proxy.

Source: Graft RFC 0001 (visibility_path, remote_commit, checkpoints).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from blake3 import blake3

from catalog.errors import (
    Corrupt,
    Diverged,
    Fenced,
    InvalidObject,
    NoSuchBucket,
    NoSuchObject,
    OutcomeUnknown,
    Outdated,
    Unavailable,
)
from catalog.format.commit import Commit
from catalog.format.control import DEAD, Boundary, CheckpointSet, Control, Fork, full_name
from catalog.format.encoding import StoredCommit, decode_commit, decode_commit_at, decode_views
from catalog.format.envelope import MessageType, unwrap
from catalog.format.ids import LsnNumber, Vid
from catalog.format.keys import (
    Key,
    boundary_key,
    checkpoints_key,
    commit_key,
    commits_prefix,
    control_key,
    fork_key,
    forward_key,
    list_key,
    lsn_of,
)
from catalog.format.small_objects import (
    NEWEST_BYTES,
    decode_boundary,
    decode_checkpoint_set,
    decode_control_of,
    decode_down_to,
    decode_newest_checkpoints,
    encode_boundary,
    encode_checkpoint_set,
    encode_control,
    encode_fork,
)
from catalog.history import BranchSpan, History, KeptCommits
from catalog.local import LocalCatalog
from catalog.objects.base import AT_ONCE, Forward, ObjectStore, each_of, first_valid_key, is_behind_proxy, past_cache
from catalog.objects.settled_writes import put_once
from catalog.objects.wrapped import OfflineStore
from catalog.snapshot import Snapshot, cut, empty, fold, fork, from_checkpoint
from seglog.base.arguments import checked
from seglog.base.later import logger
from seglog.base.progress import count

__all__ = ["DEAD", "Volumes"]

_FAR = 64  # commits: from this distance on, a checkpoint may be nearer than the known state
_LSNS = 2**63  # the first LSN that a local catalog cannot hold
_log = logger(__name__)


class Volumes:
    """The volumes under one prefix. `cache`, if given, keeps what was read. Safe to use from many threads.

    Every method may raise `Unavailable`, `InvalidObject` and `FormatUnsupported`.
    """

    def __init__(self, store: ObjectStore, cache: LocalCatalog | None = None) -> None:
        self.store = store
        self.cache = cache
        self._known: dict[Vid, Snapshot] = {}
        self._last_marks: dict[Vid, int] = {}
        self._forwards: dict[Vid, StoredCommit | None] = {}
        self._boundaries: dict[Vid, int] = {}  # as proxies gave them

    def offline(self) -> Volumes:
        """Return the same volumes without requests. A method that would need one raises `StoreUnreachable`."""
        volumes = Volumes(OfflineStore(self.store), self.cache)
        volumes._known, volumes._last_marks, volumes._forwards = self._known, self._last_marks, self._forwards
        return volumes

    # ------------------------------------------------------------ reading

    @checked
    def control(self, vid: Vid) -> Control:
        """Return the volume's control. Raise `NoSuchObject` if it is absent."""
        cached = self.cache.control(vid) if self.cache else None
        if cached is not None:
            try:
                return decode_control_of(cached, vid)
            except Corrupt as damage:
                _log.warning("local copy is damaged, fetching it again: %s", damage)
        body = self.store.get(control_key(vid))
        control = decode_control_of(body, vid)
        if self.cache:
            self.cache.put_control(vid, body)
        return control

    @checked
    def full_name(self, vid: Vid) -> str:
        """Return the branch's name for messages: `topic@branch`, or the topic alone for its main branch.

        The name comes from the control, which may be gone with the volume.
        """
        try:
            control = self.control(vid)
        except NoSuchObject:
            return "a branch"
        return full_name(control.topic, control.branch)

    @checked
    def newest_lsn(self, vid: Vid) -> int:
        """Return the LSN of the newest commit in the store; 0 if there is none yet.

        One LIST, or a search by name (VOL-8).
        """
        if not self.store.is_ordered:
            with contextlib.suppress(Corrupt):  # callers that need the checkpoints report damage
                return self._searched_newest(vid)
        return first_valid_key(self.store, commits_prefix(vid), lsn_of) or 0

    @checked
    def is_there(self, vid: Vid) -> bool:
        """Tell whether the store has the volume, with commits or without. One HEAD."""
        return self._has(control_key(vid))

    @checked
    def has_commit(self, vid: Vid, lsn: LsnNumber) -> bool:
        """Tell whether the commit is in the store. One HEAD."""
        return self._has(commit_key(vid, lsn))

    def _has(self, key: Key) -> bool:
        try:
            self.store.head(key)
        except NoSuchObject:
            return False
        return True

    @checked
    def next_commits(self, vid: Vid, lsn: LsnNumber, enough: int | None = None) -> tuple[StoredCommit, ...]:
        """Return the commits after `lsn`, oldest first, until one is absent, or there are `enough`.

        This takes no LIST. It takes a GET for each commit that is not here yet, and GETs that find none.
        """
        commits = self._cached_run(vid, lsn)
        width = 1
        while enough is None or len(commits) < enough:
            lsns = range(lsn + len(commits) + 1, lsn + len(commits) + 1 + width)
            bodies = list(itertools.takewhile(lambda body: body is not None, self._fetch(vid, lsns)))
            fetched = [(at, body) for at, body in zip(lsns, bodies, strict=False) if body is not None]
            commits.extend(decode_commit_at(body, vid, at) for at, body in fetched)
            if self.cache and fetched:
                self.cache.put_commits(vid, fetched)
            if len(fetched) < width:
                break
            width = min(width * 2, AT_ONCE)
        _check_chain(commits)
        return tuple(commits)

    @checked
    def boundary(self, vid: Vid) -> int:
        """Return the lowest LSN that GC retains. Commits below it are rejected. 0 before the first collection."""
        return self._boundary(vid).lsn

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
        _check_chain(commits)
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
    def checkpoints(self, vid: Vid) -> CheckpointSet:
        """Return all checkpoints that readers may start from."""
        try:
            body = self.store.get(checkpoints_key(vid))
        except NoSuchObject:
            body = encode_checkpoint_set(CheckpointSet(vid))
        self.remember_checkpoints(vid, body)
        return decode_checkpoint_set(body, vid)

    @checked
    def newest_checkpoints(self, vid: Vid) -> CheckpointSet:
        """Return the newest checkpoints. The cost is the same whatever their number is."""
        try:
            body = self.store.get_range(checkpoints_key(vid), 0, NEWEST_BYTES)
        except NoSuchObject:
            body = encode_checkpoint_set(CheckpointSet(vid))
        return self.remember_checkpoints(vid, body)

    @checked
    def remember_checkpoints(self, vid: Vid, body: bytes) -> CheckpointSet:
        """Remember `body`, the current list of checkpoints or its beginning. Return the newest ones in it."""
        newest = decode_newest_checkpoints(body[:NEWEST_BYTES], vid)
        if self.cache:
            cached = self.cache.object(checkpoints_key(vid))
            if cached is None or len(body) > NEWEST_BYTES or cached[:NEWEST_BYTES] != body:
                self.cache.put_object(checkpoints_key(vid), body)
        self._last_marks[vid] = newest.marks[-1].lsn if newest.marks else 0
        return newest

    @checked
    def last_checkpoint(self, vid: Vid) -> int:
        """Return the LSN of the newest checkpoint as last read; 0 without any. The store may have newer ones."""
        if vid not in self._last_marks:
            self.newest_checkpoints(vid)
        return self._last_marks[vid]

    @checked
    def commits(self, vid: Vid, first_lsn: LsnNumber, last_lsn: LsnNumber) -> tuple[StoredCommit, ...]:
        """Return the commits `first_lsn` to `last_lsn`, both included, oldest first, joined by their hashes.

        Raise `NoSuchObject` if `last_lsn` is absent, or GC collected the first ones.
        """
        _check_lsn(vid, last_lsn)
        return self._load(vid, first_lsn, last_lsn) if first_lsn <= last_lsn else ()

    @checked
    def snapshot(self, vid: Vid, lsn: LsnNumber | None = None, seq: int | None = None) -> Snapshot:
        """Return the state of `vid` at `lsn` (None: the newest), cut at `seq`; parents included.

        Raise `NoSuchObject` if there is no such commit, or GC collected its state.
        """
        _check_lsn(vid, lsn or 0)
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

    def _searched_newest(self, vid: Vid) -> int:
        """Return the newest LSN, by a GET and some HEADs.

        The number of HEADs is twice the binary logarithm of the number of commits since the checkpoint.
        """
        marks = self.newest_checkpoints(vid).marks
        newest, step = marks[-1].lsn if marks else 0, 1
        while self.has_commit(vid, newest + step):
            newest, step = newest + step, 2 * step
        absent = newest + step
        while absent - newest > 1:
            middle = (newest + absent) // 2
            newest, absent = (middle, absent) if self.has_commit(vid, middle) else (newest, middle)
        return newest

    def _boundary(self, vid: Vid) -> Boundary:
        try:
            body = self.store.get(boundary_key(vid))
        except NoSuchObject:
            body = encode_boundary(Boundary(vid, 0))
        boundary = decode_boundary(body, vid)
        if self.cache:
            self.cache.put_object(boundary_key(vid), body)
        return boundary

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

    def _last_read(self, vid: Vid, decode: Callable[[bytes, Vid], CheckpointSet]) -> CheckpointSet | None:
        """Return the list of checkpoints as last read; None if it was not read as far as `decode` needs."""
        body = self.cache.object(checkpoints_key(vid)) if self.cache else None
        try:
            return None if body is None else decode(body, vid)
        except Corrupt as damage:
            _log.warning("the local copy is damaged, or only its beginning is here: %s", damage)
            return None

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
        if snapshot is not None and (lsn - snapshot.lsn < _FAR or self._are_here(vid, snapshot.lsn + 1, lsn)):
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

    def _forwarded(self, vid: Vid) -> StoredCommit | None:
        """Return the commit that a proxy gave as the newest, from the local copy; None without one, or for a bucket."""
        body = self.cache.object(forward_key(vid)) if self.cache and is_behind_proxy(self.store) else None
        try:
            return None if body is None else decode_commit(body, forward_key(vid))
        except Corrupt as damage:
            _log.warning("the local copy is damaged, and the store has its own: %s", damage)
            return None

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

    def _list(self, vid: Vid, lsn: int, digest: bytes) -> bytes:
        key = list_key(vid, lsn, digest)
        cached = self.cache.object(key) if self.cache else None
        if cached is not None and blake3(cached).digest() == digest:
            return cached
        try:
            views = _read_list(self.store, key, digest)
        except Corrupt as damage:
            if not is_behind_proxy(self.store):
                raise
            _log.warning("fetching it past the cache of the proxy: %s", damage)
            views = _read_list(past_cache(self.store), key, digest)
        if self.cache:
            self.cache.put_object(key, views)
        return views

    def _folded(self, base: Snapshot, lsn: int) -> Snapshot:
        """Return `base` after the commits that follow in its volume, up to `lsn`."""
        commits = self.commits(base.vid, base.lsn + 1, lsn)
        if commits and commits[0].commit.parent_hash != base.head_hash:
            base_text = f"lsn {base.lsn}: the parent hash is another" if base.lsn else "what its volume was forked from"
            raise InvalidObject(commit_key(base.vid, base.lsn + 1), f"it does not continue {base_text}")
        if commits:
            _check_rise(base, commits[0])
        snapshot = fold(base, commits)
        older = self._known.get(base.vid)
        if older is None or older.lsn < snapshot.lsn:
            self._known[base.vid] = snapshot
        return snapshot

    def _load(self, vid: Vid, first_lsn: int, last_lsn: int) -> tuple[StoredCommit, ...]:
        cached = self._cached(vid, first_lsn, last_lsn)
        if last_lsn - first_lsn - len(cached) > _FAR and last_lsn not in cached and not self.has_commit(vid, last_lsn):
            raise NoSuchObject(commit_key(vid, last_lsn))  # checked before so many are fetched
        missing = [lsn for lsn in range(first_lsn, last_lsn + 1) if lsn not in cached]
        fetched = dict(zip(missing, self._fetch(vid, missing), strict=True))
        absent = next((lsn for lsn in missing if fetched[lsn] is None), None)
        if absent is not None:
            is_gap = absent < last_lsn and fetched.get(last_lsn, b"") is not None
            if is_gap and absent >= self.boundary(vid):
                raise InvalidObject(commit_key(vid, absent), f"it is missing, though lsn {last_lsn} is there")
            raise NoSuchObject(commit_key(vid, absent if is_gap else last_lsn))
        bodies = {lsn: body for lsn, body in fetched.items() if body is not None}
        cached.update((lsn, decode_commit_at(body, vid, lsn)) for lsn, body in bodies.items())
        loaded = tuple(cached[lsn] for lsn in range(first_lsn, last_lsn + 1))
        _check_chain(loaded)
        if self.cache and bodies:
            self.cache.put_commits(vid, bodies.items())
        return loaded

    def _cached_run(self, vid: Vid, lsn: int) -> list[StoredCommit]:
        """Return the commits after `lsn` that are here, up to the first gap."""
        newest = self.cache.newest_lsn(vid) if self.cache else 0
        commits = self._cached(vid, lsn + 1, newest)
        return [commits[at] for at in itertools.takewhile(commits.__contains__, range(lsn + 1, newest + 1))]

    def _cached(self, vid: Vid, first_lsn: int, last_lsn: int) -> dict[int, StoredCommit]:
        commits: dict[int, StoredCommit] = {}
        bodies = self.cache.commit_bodies(vid, first_lsn, last_lsn) if self.cache else {}
        for lsn, body in bodies.items():
            try:
                commits[lsn] = decode_commit_at(body, vid, lsn)
            except Corrupt as damage:
                _log.warning("local copy is damaged, fetching it again: %s", damage)
        if vid not in self._forwards:
            stored = self._forwarded(vid)
            self._forwards[vid] = stored and replace(stored, checkpoint=None)
        forward = self._forwards[vid]
        if forward is not None and first_lsn <= forward.commit.lsn <= last_lsn:
            commits.setdefault(forward.commit.lsn, forward)
        return commits

    def _fetch(self, vid: Vid, lsns: Sequence[int]) -> Iterator[bytes | None]:
        return _counted(each_of(self.store, lsns, functools.partial(self._get_commit, vid)))

    def _get_commit(self, vid: Vid, lsn: int) -> bytes | None:
        try:
            return self.store.get(commit_key(vid, lsn))
        except NoSuchObject:
            return None

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


def _read_list(store: ObjectStore, key: Key, digest: bytes) -> bytes:
    views = unwrap(MessageType.SEGMENT_LIST, store.get(key), key)
    if blake3(views).digest() != digest:
        raise InvalidObject(key, "its content does not match its name")
    return views


def _snapshot_in(stored: StoredCommit, key: Key) -> Snapshot:
    """Return the state in a commit that is a checkpoint with its list."""
    checkpoint = stored.checkpoint
    if checkpoint is None or checkpoint.views is None:
        raise InvalidObject(key, "it is no checkpoint")
    return from_checkpoint(stored, checkpoint, decode_views(checkpoint.views, key))


def _check_chain(commits: Sequence[StoredCommit]) -> None:
    for before, after in itertools.pairwise(commits):
        if after.commit.parent_hash != before.hash:
            key = commit_key(after.commit.vid, after.commit.lsn)
            raise InvalidObject(key, f"it does not continue lsn {before.commit.lsn}: the parent hash is another")
        _check_rise(before.commit, after)


def _check_rise(before: Commit | Snapshot, after: StoredCommit) -> None:
    """Raise `InvalidObject` if epoch or form fall (COMMIT-5, COMMIT-6)."""
    commit = after.commit
    key = commit_key(commit.vid, commit.lsn)
    if commit.epoch < before.epoch:
        raise InvalidObject(key, f"its epoch is {commit.epoch}, after a commit of epoch {before.epoch}")
    if commit.form < before.form:
        raise InvalidObject(key, f"its form is {commit.form}, after a commit of form {before.form}")


def _origin(control: Control, parent: Snapshot | None) -> Snapshot:
    """Return the volume before any commit of its own. `parent` is the parent volume at the fork point."""
    if control.parent is None:
        return empty(control.vid)
    assert parent is not None  # noqa: S101 - it was looked for
    return fork(parent if control.parent.seq is None else cut(parent, control.parent.seq), control.vid)


def _check_lsn(vid: Vid, lsn: int) -> None:
    """Raise `NoSuchObject` for an LSN that no local catalog can hold, before any work that grows with it."""
    if lsn >= _LSNS:
        raise NoSuchObject(commit_key(vid, lsn))


def _check_new(vid: Vid, seen: set[Vid]) -> None:
    if vid in seen:
        raise InvalidObject(control_key(vid), "its parent is a fork of it")
    seen.add(vid)


def _counted(bodies: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """Yield the bodies of commits, and count them for the watcher."""
    for body in bodies:
        count("reading commits", 0 if body is None else 1, "commits")
        yield body
