"""The commits of a writer: made, put on record, published; and what is done when an LSN is lost.

    publishing finds                                    then
    our commit under its key                            it is part of the handle's volume
    no definite answer                                  raised: the same bytes are sent again the next time
    another's, and all since is maintenance             it goes on after that (offload.write.rebase), and is published
    again
    another's, of a higher epoch                        `Fenced`, on record: somebody took the volume over
    another's, anything else                            `Diverged`, on record
    the volume collected as a whole                     `BranchCollected`, on record

Q1  A commit is on record, as it will be sent, before it is sent (A2 of offload.write.attempt).
Q2  What is on record as diverged or fenced stays so, without a request, until `reset` ends it.
Q3  With a truncation, published attempts end before it: the hot copies of what takes those seqs later are not theirs.

Source: Graft RFC 0001 (Push Volume, PendingCommit).
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, replace

from catalog import (
    Attempt,
    Bounds,
    CheckpointPolicy,
    Commit,
    CommitKind,
    Deletions,
    Handle,
    LocalCatalog,
    SegmentRef,
    Sid,
    Vid,
    Volumes,
    checkpoint_due,
    encode_commit,
    make_checkpoint,
)
from catalog.errors import BranchCollected, CatalogError, Diverged, Fenced, KeyTaken
from catalog.format import keys
from catalog.format.encoding import decode_commit_at
from offload.handles import Handles, Tip
from offload.write.attempt import AttemptState
from offload.write.rebase import rebased
from seglog.files.clock import Clock

__all__ = ["Published", "Publisher", "divergence"]

_ROUNDS = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """One commit that a run made. `segment` is set for an offload and a merge; other kinds have none."""

    lsn: int
    kind: CommitKind
    segment: SegmentRef | None


def divergence(handle: Handle) -> Diverged:
    """The error for a handle that has diverged, was fenced, or whose volume was collected."""
    assert handle.diverged_lsn is not None  # noqa: S101 - the caller has looked
    if handle.is_collected:
        return BranchCollected(handle.name, str(handle.vid))
    if handle.fenced_epoch is not None:
        return Fenced(handle.name, str(handle.vid), handle.diverged_lsn, handle.fenced_epoch)
    return Diverged(handle.name, str(handle.vid), handle.diverged_lsn)


class Publisher:
    """For the topics of one log. One thread at a time for each of them: the caller sees to it."""

    def __init__(
        self,
        volumes: Volumes,
        handles: Handles,
        local: LocalCatalog,
        checkpoints: CheckpointPolicy,
        clock: Clock,
        writer_id: str,
    ) -> None:
        self._volumes = volumes
        self._handles = handles
        self._local = local
        self._checkpoints = checkpoints
        self._clock = clock
        self.writer_id = writer_id

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
        """The one that follows `tip`; bounds and epoch None: they stay."""
        return Commit(
            vid=handle.vid,
            lsn=handle.lsn + 1,
            kind=kind,
            bounds=bounds or tip.bounds,
            parent_hash=tip.hash,
            nonce=os.urandom(16),
            created_at_ms=self._clock.now_ms(),
            writer_id=self.writer_id,
            epoch=handle.epoch if epoch is None else epoch,
            at_seq=at_seq,
            at_ts_ms=at_ts_ms,
            message=message,
            segments=segments,
            removed_sids=removed_sids,
            deletions=deletions or Deletions(),
            truncate_from=truncate_from,
            config=config,
        )

    def prepare(self, handle: Handle, commit: Commit, attempt: Attempt | None = None) -> Handle:
        """Q1."""
        body, _ = encode_commit(commit)
        prepared = replace(handle, pending_lsn=commit.lsn, pending_body=body)
        self._local.save(
            handle=prepared,
            attempt=replace(attempt, state=AttemptState.PREPARED, lsn=commit.lsn) if attempt else None,
        )
        return prepared

    def publish(self, handle: Handle) -> Published | None:
        """The pending commit of a writer. None if it was given up: the caller goes on from the newest state.

        Raises `Diverged`, `Fenced`, and what the store raises.
        """
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

    def settled(self, handle: Handle) -> Handle:
        """Without its pending commit, which is sent as it is until the answer is definite; one LSN on if it landed.

        It is not rebased: for who is about to become, or to stop being, the writer. Raises what the store raises.
        """
        if handle.pending_body is None:
            return handle
        lsn, body = _pending(handle)
        commit = decode_commit_at(body, handle.vid, lsn).commit
        attempt = self._attempt_of(handle)
        settled = replace(handle, pending_lsn=None, pending_body=None)
        try:
            self._volumes.publish(handle.vid, lsn, body)
        except Diverged:
            self._local.save(handle=settled)
            return settled
        settled = replace(settled, lsn=lsn)
        self._local.save(
            handle=settled,
            attempt=self._done_with(attempt),
            commit=(handle.vid, lsn, body),
            truncated=_truncated(handle, commit),
        )
        return settled

    def take_in(self, handle: Handle) -> None:
        """What is mere maintenance, for a writer with nothing pending.

        Raises `Diverged` or `Fenced` for anything else, and puts it on record.
        """
        news = self._handles.heard(handle)
        tip = self._handles.tip(handle)
        if news.is_empty:
            return
        fence = news.fenced_by(handle.epoch)
        if fence is not None:
            raise self.note_divergence(handle, *fence)
        if not news.is_maintenance(tip.bounds, handle.epoch):
            raise self.note_divergence(handle, handle.lsn + 1, None)
        self._local.save(handle=self._handles.advanced(handle, news))

    def is_passed(self, handle: Handle) -> bool:
        """Whether GC keeps only what the volume has behind the newest commit that is known here."""
        return handle.lsn < self._volumes.boundary(handle.vid)

    def note_divergence(self, handle: Handle, lsn: int, epoch: int | None) -> Diverged:
        """Put it on record, and return the error to raise (Q2)."""
        handle = replace(handle, diverged_lsn=lsn, fenced_epoch=epoch)
        self._local.save(handle=handle)
        return divergence(handle)

    def _done(self, handle: Handle) -> Published:
        lsn, body = _pending(handle)
        attempt = self._attempt_of(handle)
        commit = decode_commit_at(body, handle.vid, lsn).commit
        # A merge has no hot copy that could go: nothing is left to do for it.
        is_merge = commit.kind is CommitKind.COMPACT
        self._local.save(
            handle=replace(handle, lsn=lsn, pending_lsn=None, pending_body=None, config=commit.config or handle.config),
            attempt=None if is_merge else self._done_with(attempt),
            commit=(handle.vid, lsn, body),
            done=attempt.sid if attempt and is_merge else None,
            truncated=_truncated(handle, commit),
        )
        self._make_checkpoint(handle.vid, lsn)
        return Published(lsn, commit.kind, commit.segments[0] if commit.segments else None)

    def _done_with(self, attempt: Attempt | None) -> Attempt | None:
        if attempt is None:
            return None
        return replace(attempt, state=AttemptState.PUBLISHED, published_at_ms=self._clock.now_ms())

    def _rebased(self, handle: Handle, loss: Diverged) -> Handle:
        """On record after the maintenance that its pending commit lost to.

        Raises `Diverged`, `Fenced`, `BranchCollected`.
        """
        lsn, body = _pending(handle)
        news = self._handles.heard(handle)
        tip = self._handles.tip(handle)
        fence = news.fenced_by(handle.epoch)
        if fence is not None:
            raise self.note_divergence(handle, *fence) from None
        if news.is_empty or not news.is_maintenance(tip.bounds, handle.epoch):
            raise self.note_divergence(handle, loss.lsn, None) from None
        newest = self._volumes.snapshot(handle.vid, news.lsn)
        lost = decode_commit_at(body, handle.vid, lsn).commit
        attempt = self._attempt_of(handle)
        moved = self._handles.advanced(handle, news)
        following = rebased(lost, newest, nonce=os.urandom(16), now_ms=self._clock.now_ms())
        if following is None:
            moved = replace(moved, pending_lsn=None, pending_body=None)
            # PLANNED: what is there of it is removed by whoever finds it so.
            given_up = replace(attempt, state=AttemptState.PLANNED, lsn=None) if attempt else None
            self._local.save(handle=moved, attempt=given_up)
            return moved
        _log.info("%s: lsn %d was taken by maintenance, going on with lsn %d", handle.name, lsn, following.lsn)
        return self.prepare(moved, following, attempt)

    def _attempt_of(self, handle: Handle) -> Attempt | None:
        """The one whose segment the pending commit names."""
        lsn, _ = _pending(handle)
        found = self._local.attempts(handle.name)
        return next(
            (a for a in found if a.state == AttemptState.PREPARED and (a.lsn, a.vid) == (lsn, handle.vid)), None
        )

    def _make_checkpoint(self, vid: Vid, lsn: int) -> None:
        """If one is due. What was published stays published if it fails: the next commit tries again.

        So it does if it finds damage, which is told by whatever needs what is damaged.
        """
        try:
            due = checkpoint_due(self._volumes, vid, lsn, self._checkpoints)
            if due is not None:
                make_checkpoint(self._volumes, vid, due, now_ms=self._clock.now_ms())
        except CatalogError as trouble:
            _log.warning("no checkpoint of volume %s at lsn %d: %s", vid, lsn, trouble)


def _truncated(handle: Handle, commit: Commit) -> tuple[str, str, int] | None:
    """Q3."""
    seq = commit.truncate_from
    return None if seq is None else (handle.name, AttemptState.PUBLISHED, seq)


def _pending(handle: Handle) -> tuple[int, bytes]:
    assert handle.pending_lsn is not None  # noqa: S101 - only called with a pending commit on record
    assert handle.pending_body is not None  # noqa: S101
    return handle.pending_lsn, handle.pending_body
