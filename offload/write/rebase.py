"""The rebase of a pending commit that lost its LSN to maintenance only (SYNC-2). No I/O.

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
"""

from __future__ import annotations

from dataclasses import replace

from catalog import Commit, CommitKind, Snapshot

__all__ = ["rebased"]


def rebased(lost: Commit, newest: Snapshot, *, nonce: bytes, now_ms: int) -> Commit | None:
    """Return the replacement of `lost` that follows `newest`, or None if `lost` is given up."""
    if lost.kind is not CommitKind.OFFLOAD:
        return None
    if any(segment.sid.created_ms < newest.collected_before_ms for segment in lost.segments):
        return None
    return replace(lost, lsn=newest.lsn + 1, parent_hash=newest.head_hash, nonce=nonce, created_at_ms=now_ms)
