"""Whether a point is kept, for whoever is about to build on it.

GC raises a volume's boundary, takes the marks of what nothing holds out of the CheckpointSet, and reads forks, tags and
pins again, before it deletes anything below. The mirror image is here: write the Fork, Tag or Pin first, and ask
`check_kept` then. One of the two sees the other.

A point below the boundary is kept only while it has a mark, for each state that GC keeps there has one, and nobody else
adds one there (K3 of `catalog.checkpointer`). That another name holds the same point is no ground: its maker may be
asking the same question at this moment.
"""

from __future__ import annotations

from catalog.errors import OutOfWindow
from catalog.format.commit import ForkPoint
from catalog.format.control import DEAD
from catalog.volume import Volumes

__all__ = ["check_kept"]


def check_kept(volumes: Volumes, point: ForkPoint) -> None:
    """Raises `OutOfWindow` if the state at `point` may be gone. What holds it is there already."""
    boundary = volumes.boundary(point.vid)
    if point.lsn >= boundary or boundary <= 1:
        return
    has_mark = any(mark.lsn == point.lsn for mark in volumes.checkpoints(point.vid).marks)
    # When all of a volume is gone its CheckpointSet is, too, and so is what kept late marks out.
    if has_mark and volumes.has_commit(point.vid, point.lsn):
        return
    what = "nothing of its volume" if boundary == DEAD else f"lsn {boundary} of its volume and what came later"
    raise OutOfWindow(f"lsn:{point.lsn}", what)
