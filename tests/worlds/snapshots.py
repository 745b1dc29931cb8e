"""What a snapshot shows."""

from __future__ import annotations

from pyroaring import BitMap

from catalog.snapshot import Snapshot

__all__ = ["visible"]


def visible(snapshot: Snapshot) -> dict[int, bytes]:
    """Return the seqs that a reader gets, each with the id of its segment."""
    found: dict[int, bytes] = {}
    last = 0
    for view in snapshot.segments:
        assert last < view.first <= view.last  # views ascend and never overlap (SNAP-1)
        assert view.ref.first_seq <= view.first
        assert view.last <= view.ref.last_seq
        last = view.last
        deleted = BitMap.deserialize(view.deleted) if view.deleted else BitMap()
        for seq in range(view.first, view.last + 1):
            if seq - view.ref.first_seq not in deleted:
                found[seq] = view.ref.sid.raw
    return found
