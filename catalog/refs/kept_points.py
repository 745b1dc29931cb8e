"""What a caller that gives a name checks, because GC may run at the same time: the point, and the volume.

**A point.** The caller checks that GC keeps it, before it builds on it.

    writer                                  GC
    1 puts its Fork, Tag or Pin             1 raises the boundary of the volume
    2 calls `check_kept`, which reads the   2 removes the marks of states that nothing holds from the CheckpointSet
      boundary, then the CheckpointSet      3 reads forks, tags and pins again
                                            4 deletes what nothing holds below the boundary

So GC sees the writer's object in its step 3, or the writer sees GC's steps 1 and 2.

A point below the boundary is kept only while it has a mark. GC keeps a mark for each state that it keeps there. No
other caller adds a mark there (VCKPT-3). A second name of the same point proves nothing, because its writer may be in
the middle of the same check.

**The end of a volume.** GC closes it, unless a caller gives it a name at the same time.

The Boundary of the volume has three states. Each change of it has a new nonce.

    state      what is true                                         who changes it, to what
    open       `lsn` is the boundary; an absent Boundary is open    GC, if nothing holds the volume: closing
    closing    the same; commits, names and holders still work      GC, after it has read the names: dead
                                                                    the caller that gives a name: open
                                                                    GC, if it sees a name: open
    dead       `lsn` is the highest there is; the volume takes      no caller
               no commit and no name

    The caller gives a name         GC closes the volume
    1 puts the ref                  1 open -> closing; a closing boundary stays as it is
    2 calls `keep_open`:            2 reads all names
      open: done                    3 if a name leads to the volume: closing -> open
      closing -> open: done           else, if the Boundary is still the one of step 1: closing -> dead
      dead: takes the ref back        else: leaves the Boundary as it is

VDEL-1  No acked name leads to a dead volume. Suppose GC does not see the ref in its step 2. Then the caller put the ref
    after GC's step 1, and `keep_open` finds closing, or a later state. There are two cases:
      1. closing -> open came first. GC's step 3 changes nothing, because no state comes back.
      2. closing -> dead came first. The caller takes the ref back and acks nothing.
    If `keep_open` finds an open boundary, and GC closes it later, the ref was there before GC's step 1.

VDEL-2  A caller that stops between its steps 1 and 2 acked nothing. GC takes the ref of a dead volume back in its
    place.

VDEL-3  A run of GC that stops leaves the volume closing. Closing changes nothing for any caller. Another run continues
    from there, and reads the names itself.

VDEL-4  Forks, tags and pins need no part in this. GC reads them also after the volume is dead (GC-2).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from catalog.errors import OutOfWindow
from catalog.format.commit import ForkPoint
from catalog.format.control import DEAD, Boundary
from catalog.format.ids import Vid
from catalog.format.keys import boundary_key
from catalog.format.small_objects import decode_boundary, encode_boundary
from catalog.objects.object_store import ObjectStore
from catalog.objects.settled_writes import change
from catalog.volume import Volumes


def check_kept(volumes: Volumes, point: ForkPoint) -> None:
    """Raise `OutOfWindow` if the state at `point` may be gone. Call this after the Fork, Tag or Pin was put."""
    boundary = passed_boundary(volumes, point)
    if boundary is None:
        return
    window = "nothing of its volume" if boundary == DEAD else f"lsn {boundary} of its volume and what came later"
    raise OutOfWindow(f"lsn:{point.lsn}", window)


def passed_boundary(volumes: Volumes, point: ForkPoint) -> int | None:
    """Return the boundary of the volume if the state at `point` may be gone, else None."""
    boundary = volumes.boundary(point.vid)
    if point.lsn >= boundary or boundary <= 1:
        return None
    has_mark = any(mark.lsn == point.lsn for mark in volumes.checkpoints(point.vid).marks)
    # If GC has deleted the volume, its CheckpointSet and floor are gone, and a stalled writer may add a mark. So a mark
    # counts only if the commit exists.
    return None if has_mark and volumes.has_commit(point.vid, point.lsn) else boundary


def begin_closing(store: ObjectStore, vid: Vid) -> Boundary:
    """Start to close the volume: GC's step 1. Return the boundary as it is now: closing, or dead."""

    def closing(now: Boundary) -> Boundary | None:
        return None if now.is_closing or now.lsn == DEAD else replace(now, is_closing=True)

    return _changed(store, vid, closing)


def close(store: ObjectStore, begun: Boundary) -> Boundary:
    """Close the volume: GC's step 3, if GC saw no name since `begun`. Return the boundary as it is now.

    It is dead, unless a caller kept the volume open.
    """
    return _changed(store, begun.vid, lambda now: Boundary(now.vid, DEAD) if now == begun else None)


def keep_open(store: ObjectStore, vid: Vid) -> bool:
    """Keep the volume open. Return False if it is dead. Costs one GET if it is open.

    A caller calls this after it has put a ref to `vid`, and GC when it sees one. Raises the errors of the store.
    """
    return _changed(store, vid, lambda now: replace(now, is_closing=False) if now.is_closing else None).lsn != DEAD


def _changed(store: ObjectStore, vid: Vid, make: Callable[[Boundary], Boundary | None]) -> Boundary:
    def changed(body: bytes | None) -> bytes | None:
        boundary = make(_decoded(body, vid))
        return None if boundary is None else encode_boundary(replace(boundary, nonce=os.urandom(16)))

    return _decoded(change(store, boundary_key(vid), changed), vid)


def _decoded(body: bytes | None, vid: Vid) -> Boundary:
    return Boundary(vid, 0) if body is None else decode_boundary(body, vid)
