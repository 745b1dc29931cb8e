"""A pending commit that lost its LSN to maintenance only (P2 of catalog.sync) goes on to the next one. No I/O.

    the pending commit is        what becomes of it
    an offload                   the same, after the maintenance: another LSN, parent and nonce; so a new commit
    an offload whose segment     given up, for GC may have counted its objects among those that nobody needs: the
      was collected              records are sent anew, under a new id
    a delete                     given up: which segments have its records, the newest snapshot says anew
    a merge, a configuration     given up, and planned anew

B1  Only a commit that has lost is replaced: its LSN is another's, or lies below the boundary. Bytes that may still
    land are sent again as they are (A2 of offload.write.attempt).
B2  What takes its place is on record before it is sent.
"""

from __future__ import annotations

from dataclasses import replace

from catalog import Commit, CommitKind, Snapshot

__all__ = ["rebased"]


def rebased(lost: Commit, newest: Snapshot, *, nonce: bytes, now_ms: int) -> Commit | None:
    """What takes the place of `lost` after `newest`; None if it is given up."""
    if lost.kind is not CommitKind.OFFLOAD:
        return None
    if any(segment.sid.created_ms < newest.collected_before_ms for segment in lost.segments):
        return None
    return replace(lost, lsn=newest.lsn + 1, parent_hash=newest.head_hash, nonce=nonce, created_at_ms=now_ms)
