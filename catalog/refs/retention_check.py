"""Check that GC keeps a point, before a writer builds on it.

    writer                                  GC
    1 puts its Fork, Tag or Pin             1 raises the boundary of the volume
    2 calls `check_kept`, which reads the   2 removes the marks of states that nothing holds from the CheckpointSet
      boundary, then the CheckpointSet      3 reads forks, tags and pins again
                                            4 deletes what nothing holds below the boundary

So GC sees the writer's object in its step 3, or the writer sees GC's steps 1 and 2.

A point below the boundary is kept only while it has a mark. GC keeps a mark for each state that it keeps there. No
other caller adds a mark there (VCKPT-3). A second name of the same point proves nothing, because its writer may be in
the middle of the same check.
"""

from __future__ import annotations

from catalog.errors import OutOfWindow
from catalog.format.commit import ForkPoint
from catalog.format.control import DEAD
from catalog.volume import Volumes

__all__ = ["check_kept"]


def check_kept(volumes: Volumes, point: ForkPoint) -> None:
    """Raise `OutOfWindow` if the state at `point` may be gone. Call this after the Fork, Tag or Pin was put."""
    boundary = volumes.boundary(point.vid)
    if point.lsn >= boundary or boundary <= 1:
        return
    has_mark = any(mark.lsn == point.lsn for mark in volumes.checkpoints(point.vid).marks)
    # If GC has deleted the volume, its CheckpointSet and floor are gone, and a stalled writer may add a mark. So a mark
    # counts only if the commit exists.
    if has_mark and volumes.has_commit(point.vid, point.lsn):
        return
    what = "nothing of its volume" if boundary == DEAD else f"lsn {boundary} of its volume and what came later"
    raise OutOfWindow(f"lsn:{point.lsn}", what)
