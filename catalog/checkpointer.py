"""Checkpoints: a commit gets the whole list of what its volume shows. A reader then needs nothing older.

    step                                                              what a crash after it leaves
    1 the list, in an object of its own if it is large                an object that nothing names, for GC
    2 the commit, rewritten by compare-and-swap to hold or name it    a checkpoint that readers do not look for
    3 its mark in the CheckpointSet, by compare-and-swap              the checkpoint

VCKPT-1  A commit that became a checkpoint keeps its hash and all its fields. A reader of the commit sees no difference,
    at any step.
VCKPT-2  The commits and the marks alone decide which commit becomes the next checkpoint. After a crash, or at the same
    time, another process makes the same checkpoint. It finds the steps that are done already.
VCKPT-3  A mark below the boundary says that the state is kept (catalog.refs.kept_points). So a mark must not appear
    after GC has passed the commit:

        1  Process P makes steps 1 and 2 for a commit, and stalls before step 3.
        2  GC prunes the CheckpointSet. The set now has a floor above the commit, and a new nonce.
        3  GC looks at the names for the last time.
        4  P resumes, finds the commit below the floor, and adds no mark: `OutOfWindow`.

    Below the floor, only the run of GC that drew the nonce adds marks, and only until another run prunes. The run adds
    a mark for a state that it found to be held after all. Before the run pruned the set, that state had a mark or lay
    at or above the floor. So if a state below the floor has a mark, no run has begun to delete that state.

Source: Graft RFC 0001 (Checkpointing).
"""

from __future__ import annotations

from dataclasses import replace

from catalog.errors import InvalidObject, NoSuchObject, OutOfWindow
from catalog.format.commit import Checkpoint
from catalog.format.control import CheckpointSet, Mark
from catalog.format.encoding import decode_commit_at, with_checkpoint
from catalog.format.envelope import MessageType, wrap
from catalog.format.ids import LsnNumber, Vid
from catalog.format.keys import checkpoints_key, commit_key, list_key
from catalog.format.small_objects import decode_checkpoint_set, encode_checkpoint_set
from catalog.objects.settled_writes import change, put_once
from catalog.snapshot import checkpoint_of
from catalog.volume import Volumes
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass

_INLINE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """A checkpoint is due after `commits` commits since the last one, or after `commit_bytes` bytes of them."""

    commits: int = 64
    commit_bytes: int = 4 * 1024 * 1024


@checked
def checkpoint_due(volumes: Volumes, vid: Vid, lsn: LsnNumber, policy: CheckpointPolicy) -> int | None:
    """Return the LSN of the next checkpoint, among the commits up to `lsn`; None if it is too early (VCKPT-2).

    Sizes count only for commits that the local copy has.
    """
    last = volumes.last_checkpoint(vid)
    lsn_due = last + policy.commits
    if volumes.cache:
        total = 0
        for at, body in sorted(volumes.cache.commit_bodies(vid, last + 1, min(lsn, lsn_due)).items()):
            total += len(body)
            if total >= policy.commit_bytes:
                lsn_due = at
                break
    return lsn_due if lsn_due <= lsn else None


@checked
def make_checkpoint(volumes: Volumes, vid: Vid, lsn: LsnNumber, *, now_ms: int, pruned: bytes | None = None) -> Mark:
    """Make the commit at `lsn` a checkpoint, or find that it is one already. It may be repeated after any error.

    `pruned` is for GC: the nonce that the CheckpointSet got when this run of GC pruned it (VCKPT-3). Raise
    `NoSuchObject` if there is no such commit, `OutOfWindow` if GC has passed it, and the store's errors.
    """
    key = commit_key(vid, lsn)
    body = volumes.store.get(key)
    checkpoint = decode_commit_at(body, vid, lsn).checkpoint
    if checkpoint is None:
        checkpoint = checkpoint_of(volumes.snapshot(vid, lsn), now_ms=now_ms)
        if checkpoint.views_length > _INLINE_BYTES:
            checkpoint = _with_list_apart(volumes, vid, lsn, checkpoint)
        body = _rewrite(volumes, vid, lsn, checkpoint)
    if volumes.cache:
        volumes.cache.put_commits(vid, [(lsn, body)])
    mark = Mark(lsn, checkpoint.max_ts_ms, checkpoint.max_seq)
    _list_mark(volumes, vid, mark, pruned)
    return mark


def _with_list_apart(volumes: Volumes, vid: Vid, lsn: int, checkpoint: Checkpoint) -> Checkpoint:
    views = checkpoint.views or b""
    key = list_key(vid, lsn, checkpoint.views_hash)
    wrapped = wrap(MessageType.SEGMENT_LIST, views)
    if put_once(volumes.store, key, wrapped) != wrapped:
        raise InvalidObject(key, "its content does not match its name")
    return replace(checkpoint, views=None)


def _rewrite(volumes: Volumes, vid: Vid, lsn: int, checkpoint: Checkpoint) -> bytes:
    key = commit_key(vid, lsn)

    def rewritten(body: bytes | None) -> bytes | None:
        if body is None:
            raise NoSuchObject(key)
        is_one = decode_commit_at(body, vid, lsn).checkpoint is not None
        return None if is_one else with_checkpoint(body, checkpoint, key)

    rewritten_body = change(volumes.store, key, rewritten)
    assert rewritten_body is not None  # noqa: S101 - `rewritten` raises when it is absent
    return rewritten_body


def _list_mark(volumes: Volumes, vid: Vid, mark: Mark, pruned: bytes | None = None) -> None:
    def listed(body: bytes | None) -> bytes | None:
        checkpoints = CheckpointSet(vid) if body is None else decode_checkpoint_set(body, vid)
        if any(old.lsn == mark.lsn for old in checkpoints.marks):
            return None
        if mark.lsn < checkpoints.floor and pruned != checkpoints.nonce:
            raise OutOfWindow(f"lsn:{mark.lsn}", f"lsn {checkpoints.floor} of its volume and what came later")
        marks = sorted((*checkpoints.marks, mark), key=lambda mark: mark.lsn)
        return encode_checkpoint_set(replace(checkpoints, marks=tuple(marks)))

    body = change(volumes.store, checkpoints_key(vid), listed)
    assert body is not None  # noqa: S101 - `listed` makes one when it is absent
    volumes.remember_checkpoints(vid, body)
