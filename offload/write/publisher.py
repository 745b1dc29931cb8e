"""The publisher makes commits of a writer, puts them on record, publishes them, and settles the loss of an LSN.

    publishing finds                                    then
    our commit under its key                            it is part of the handle's volume
    no definite answer                                  an error: the next call sends the same bytes again
    a foreign commit, and only maintenance since        a new commit after it is published (REBASE-1)
    a foreign commit of a higher epoch                  `Fenced`, on record: another directory took the volume over
    any other foreign commit                            `Diverged`, on record
    the volume collected as a whole                     `BranchCollected`, on record

PUBLISH-1  A commit is on record, byte for byte, before it is sent (ATTEMPT-2).
PUBLISH-2  A handle that is on record as diverged or fenced stays so, without a request, until `reset` ends it.
PUBLISH-3  A truncation cuts the ranges of published attempts. Hot copies of later records with those seqs are not
    theirs.
PUBLISH-4  GC may have passed the LSN of a pending commit.
    Then the writer cannot tell if the commit landed, and later states may show its segment. So the writer drops the
    attempt from its record, and leaves the objects to GC.
PUBLISH-5  The log shows the records of an undo again before the handle has its commit. So after a crash in between, the
    undo is still pending, and the next `publish` brings them back once more, which changes nothing.
PUBLISH-6  An undo names objects that only its lease keeps (BACK-2). So a commit of an undo that did not land for
    `UNDO_LATE_MS` is given up: the lease is longer.

**The rebase** of a pending commit that lost its LSN to maintenance only (SYNC-2):

    the pending commit is        the writer
    an offload                   makes a new commit with the same content after the maintenance: only LSN, parent, nonce
                                 and time differ
    an offload whose segment     gives it up, because GC may have planned to delete its objects; the offloader sends
      was collected              the records again, under a new id
    a delete                     gives it up; the newest snapshot says which segments have its records now
    a merge, a configuration     gives it up, and plans it again

REBASE-1  Only a lost commit is replaced: another commit has its LSN, or the LSN lies below the boundary.
    Bytes that may still land are sent again unchanged (ATTEMPT-2).
REBASE-2  The replacement is on record before it is sent.

Source: Graft RFC 0001 (Push Volume, PendingCommit).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from catalog import (
    Attempt,
    Bounds,
    CheckpointPolicy,
    Commit,
    CommitKind,
    Deletions,
    Handle,
    SegmentRef,
    SegmentView,
    Sid,
    Snapshot,
    Vid,
    Volumes,
    checkpoint_due,
    encode_commit,
    make_checkpoint,
)
from catalog.errors import BranchCollected, CatalogError, Diverged, Fenced, KeyTaken, Outdated
from catalog.format import keys
from catalog.format.encoding import decode_commit_at
from catalog.objects.object_store import check_writable
from catalog.refs.oplog import author
from offload.context import ArchiveContext, OfContext
from offload.handles import Tip
from offload.write.attempt import AttemptState
from seglog import Elsewhere
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import logger

UNDO_LATE_MS = 3 * 24 * 3_600_000

_ROUNDS = 20
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """One commit that a run published. `segment` is set for an offload and a merge, and None for other kinds."""

    lsn: int
    kind: CommitKind
    segment: SegmentRef | None


def divergence(handle: Handle) -> Diverged:
    """Return the error for a handle that has diverged, was fenced, or whose volume was collected."""
    assert handle.diverged_lsn is not None  # noqa: S101 - the caller has looked
    if handle.is_collected:
        return BranchCollected(handle.name, str(handle.vid))
    if handle.fenced_epoch is not None:
        return Fenced(handle.name, str(handle.vid), handle.diverged_lsn, handle.fenced_epoch)
    return Diverged(handle.name, str(handle.vid), handle.diverged_lsn)


class Publisher(OfContext):
    """The publisher for the topics of one log. The caller lets one thread at a time work on a topic."""

    def __init__(self, context: ArchiveContext) -> None:
        super().__init__(context)
        self._checkpoints = context.settings.checkpoint_policy
        self.writer_id = context.writer_id

    def commit(
        self,
        handle: Handle,
        tip: Tip,
        kind: CommitKind,
        *,
        at_seq: int,
        at_ts_ms: int,
        bounds: Bounds | None = None,
        epoch: int | None = None,
        segments: tuple[SegmentRef, ...] = (),
        removed_sids: tuple[Sid, ...] = (),
        deletions: Deletions | None = None,
        truncate_from: int | None = None,
        config: str = "",
        message: str = "",
    ) -> Commit:
        """Return the commit that follows `tip`. Without `bounds` or `epoch`, that value does not change."""
        return Commit(
            vid=handle.vid,
            lsn=handle.lsn + 1,
            kind=kind,
            bounds=bounds or tip.bounds,
            parent_hash=tip.hash,
            nonce=os.urandom(16),
            created_at_ms=self._clock.now_ms(),
            writer_id=author(self.writer_id),
            epoch=handle.epoch if epoch is None else epoch,
            at_seq=at_seq,
            at_ts_ms=at_ts_ms,
            message=message,
            segments=segments,
            removed_sids=removed_sids,
            deletions=deletions or Deletions(),
            truncate_from=truncate_from,
            config=config,
            form=tip.form or self._log.form,
        )

    def prepare(self, handle: Handle, commit: Commit, attempt: Attempt | None = None) -> Handle:
        """Put a commit on record before it is sent (PUBLISH-1), and return the handle with it.

        Raises `AccessDenied` for a remote that only reads, where a commit on record would wait for good.
        """
        check_writable(self._volumes.store)
        body, _ = encode_commit(commit)
        prepared = replace(handle, pending_lsn=commit.lsn, pending_body=body)
        self._local.save(
            handle=prepared, attempt=replace(attempt, state=AttemptState.PREPARED, lsn=commit.lsn) if attempt else None
        )
        return prepared

    def publish(self, handle: Handle) -> Published | None:
        """Publish the pending commit of a writer. If the commit is given up, return None.

        Then the caller plans again from the newest state. Raises `Diverged`, `Fenced`, and what the store raises.
        """
        if self._is_late(handle):
            self._local.save(handle=replace(handle, pending_lsn=None, pending_body=None))
            return None
        for _ in range(_ROUNDS):
            lsn, body = _pending(handle)
            try:
                self._volumes.publish(handle.vid, lsn, body)
            except Diverged as loss:
                handle = self._rebased(handle, loss)
                if handle.pending_body is None:
                    return None
            else:
                return self._done(handle)
        raise KeyTaken(keys.commit_key(handle.vid, _pending(handle)[0]))

    def resolve_pending(self, handle: Handle) -> Handle:
        """Send the pending commit once more, unchanged, and return the handle without it.

        If the commit landed, the handle is one LSN further. A lost commit is not rebased, because this directory is
        about to become the writer, or to stop being the writer. Raises the errors of the store, and then the commit
        stays pending.
        """
        if handle.pending_body is None:
            return handle
        lsn, body = _pending(handle)
        commit = decode_commit_at(body, handle.vid, lsn).commit
        attempt = self._attempt_of(handle)
        resolved = replace(handle, pending_lsn=None, pending_body=None)
        if self._is_late(handle):
            self._local.save(handle=resolved)
            return resolved
        try:
            self._volumes.publish(handle.vid, lsn, body)
        except Diverged as loss:
            self._local.save(handle=resolved, done=_undecided(attempt, loss))
            return resolved
        self._bring_back(handle, commit)
        resolved = replace(resolved, lsn=lsn)
        self._local.save(
            handle=resolved,
            attempt=self._done_with(attempt),
            commit=(handle.vid, lsn, body),
            truncated=_truncated(handle, commit),
        )
        return resolved

    def fast_forward(self, handle: Handle) -> None:
        """Move the handle of a writer with nothing pending past mere maintenance.

        For any other foreign commit, put `Diverged` or `Fenced` on record, and raise it.
        """
        updates = self._handles.fetch_updates(handle)
        tip = self._handles.tip(handle)
        if updates.is_empty:
            return
        fence = updates.fenced_by(handle.epoch)
        if fence is not None:
            raise self.note_divergence(handle, *fence)
        if not updates.is_maintenance(tip.bounds, handle.epoch):
            raise self.note_divergence(handle, handle.lsn + 1, None)
        self._local.save(handle=self._handles.advanced(handle, updates))

    def is_passed(self, handle: Handle) -> bool:
        """Return whether GC has passed the newest commit that is known here, and keeps only later states."""
        return handle.lsn < self._volumes.boundary(handle.vid)

    def note_divergence(self, handle: Handle, lsn: int, epoch: int | None) -> Diverged:
        """Put the divergence on record, and return the error to raise (PUBLISH-2)."""
        handle = replace(handle, diverged_lsn=lsn, fenced_epoch=epoch)
        if epoch is not None:
            self._log.mark_elsewhere(handle.name, Elsewhere(is_fenced=True))
        self._local.save(handle=handle)
        return divergence(handle)

    def _done(self, handle: Handle) -> Published:
        lsn, body = _pending(handle)
        attempt = self._attempt_of(handle)
        commit = decode_commit_at(body, handle.vid, lsn).commit
        # A merge has no hot copy to release, so its attempt is done.
        is_merge = commit.kind is CommitKind.COMPACT
        self._bring_back(handle, commit)
        self._local.save(
            handle=replace(handle, lsn=lsn, pending_lsn=None, pending_body=None, config=commit.config or handle.config),
            attempt=None if is_merge else self._done_with(attempt),
            commit=(handle.vid, lsn, body),
            done=attempt.sid if attempt and is_merge else None,
            truncated=_truncated(handle, commit),
        )
        make_due_checkpoint(self._volumes, handle.vid, lsn, self._checkpoints, now_ms=self._clock.now_ms())
        return Published(lsn, commit.kind, commit.segments[0] if commit.segments else None)

    def _is_late(self, handle: Handle) -> bool:
        """Return whether the pending commit is an undo that did not land, and its lease may have ended (PUBLISH-6)."""
        lsn, body = _pending(handle)
        commit = decode_commit_at(body, handle.vid, lsn).commit
        is_old = commit.restored is not None and self._clock.now_ms() - commit.created_at_ms > UNDO_LATE_MS
        has_passed = is_old and lsn < self._volumes.boundary(handle.vid)  # then it may have landed (PUBLISH-4)
        return is_old and not has_passed and not self._volumes.has_commit(handle.vid, lsn)

    def _bring_back(self, handle: Handle, commit: Commit) -> None:
        """Let the log show the records that an undo shows again (PUBLISH-5)."""
        if commit.restored is not None and self._handles.is_writer(handle):
            self._show(handle, commit.restored.views, commit.bounds.evict_floor)

    def _show(self, handle: Handle, views: Sequence[SegmentView], evict_floor: int) -> None:
        from offload.read.delete_effects import shown_seqs  # imported late, because an append needs no reader

        topic = self._log.topic(handle.name)
        is_lower = evict_floor < self._handles.tip(handle).bounds.evict_floor
        seqs = shown_seqs(views, self._context.reader).within(1, topic.inner.sealed_seq)
        if seqs or is_lower:
            topic.inner.undelete(seqs, evict_floor=evict_floor if is_lower else None)

    def _done_with(self, attempt: Attempt | None) -> Attempt | None:
        if attempt is None:
            return None
        return replace(attempt, state=AttemptState.PUBLISHED, published_at_ms=self._clock.now_ms())

    def _rebased(self, handle: Handle, loss: Diverged) -> Handle:
        """Move the handle past the maintenance that took its LSN, and put it on record with a new pending commit.

        If that commit is given up, the handle has none. Raises `Diverged`, `Fenced`, `BranchCollected`.
        """
        lsn, body = _pending(handle)
        updates = self._handles.fetch_updates(handle)
        tip = self._handles.tip(handle)
        fence = updates.fenced_by(handle.epoch)
        if fence is not None:
            raise self.note_divergence(handle, *fence) from None
        if updates.is_empty or not updates.is_maintenance(tip.bounds, handle.epoch):
            raise self.note_divergence(handle, loss.lsn, None) from None
        newest = self._volumes.snapshot(handle.vid, updates.lsn)
        lost = decode_commit_at(body, handle.vid, lsn).commit
        attempt = self._attempt_of(handle)
        moved = self._handles.advanced(handle, updates)
        following = rebased(lost, newest, nonce=os.urandom(16), now_ms=self._clock.now_ms())
        if following is None:
            if lost.restored is not None:
                _log.warning("%s: an undo is given up, because other commits came first: repeat it", handle.name)
            # It may have landed (PUBLISH-4). What the log shows already stays as it is.
            if lost.restored is not None and isinstance(loss, Outdated):
                ranges = [(view.first, view.last) for view in lost.restored.views]
                views = [view for view in newest.segments if any(a <= view.last and view.first <= b for a, b in ranges)]
                self._show(handle, views, newest.bounds.evict_floor)
            moved = replace(moved, pending_lsn=None, pending_body=None)
            undecided = _undecided(attempt, loss)
            # PLANNED: the next `discard` removes its objects.
            given_up = replace(attempt, state=AttemptState.PLANNED, lsn=None) if attempt and not undecided else None
            self._local.save(handle=moved, attempt=given_up, done=undecided)
            return moved
        _log.info("%s: lsn %d was taken by maintenance, going on with lsn %d", handle.name, lsn, following.lsn)
        return self.prepare(moved, following, attempt)

    def _attempt_of(self, handle: Handle) -> Attempt | None:
        """Return the attempt whose segment the pending commit names, or None."""
        lsn, _ = _pending(handle)
        attempts = self._local.attempts(handle.name)
        return next(
            (a for a in attempts if a.state == AttemptState.PREPARED and (a.lsn, a.vid) == (lsn, handle.vid)), None
        )


def make_due_checkpoint(volumes: Volumes, vid: Vid, lsn: int, policy: CheckpointPolicy, *, now_ms: int) -> None:
    """Make a checkpoint if one is due. If that fails, the commit stays published, and the next commit tries again.

    That holds for damage, too: the next operation that needs the damaged object reports it.
    """
    try:
        due = checkpoint_due(volumes, vid, lsn, policy)
        if due is not None:
            make_checkpoint(volumes, vid, due, now_ms=now_ms)
    except CatalogError as trouble:
        _log.warning("no checkpoint of volume %s at lsn %d: %s", vid, lsn, trouble)


def _undecided(attempt: Attempt | None, loss: Diverged) -> Sid | None:
    """Return the segment of the attempt if its commit may have landed all the same (PUBLISH-4)."""
    return attempt.sid if attempt is not None and isinstance(loss, Outdated) else None


def _truncated(handle: Handle, commit: Commit) -> tuple[str, str, int] | None:
    """Return the cut of published attempts that the commit demands (PUBLISH-3), or None if it truncates nothing."""
    seq = commit.truncate_from
    return None if seq is None else (handle.name, AttemptState.PUBLISHED, seq)


def _pending(handle: Handle) -> tuple[int, bytes]:
    assert handle.pending_lsn is not None  # noqa: S101 - only called with a pending commit on record
    assert handle.pending_body is not None  # noqa: S101
    return handle.pending_lsn, handle.pending_body


def rebased(lost: Commit, newest: Snapshot, *, nonce: bytes, now_ms: int) -> Commit | None:
    """Return the replacement of `lost` that follows `newest`, or None if `lost` is given up."""
    if lost.kind is not CommitKind.OFFLOAD:
        return None
    if any(segment.sid.created_ms < newest.collected_before_ms for segment in lost.segments):
        return None
    return replace(
        lost, lsn=newest.lsn + 1, parent_hash=newest.head_hash, form=newest.form, nonce=nonce, created_at_ms=now_ms
    )
