"""Drop the copies of commits in the local catalog that no handle needs. It deletes no record and no object.

A handle needs the commits from which its newest state is built. Within its volume, these begin at the newest checkpoint
at or below its LSN. If the volume has no such checkpoint, the handle needs all commits of the volume. It then also
needs the parent's commits, by the same rule from the fork point, and so on.

LGC-1  Every copy can be fetched again, so a dropped copy costs a request and no data. A read of an older state, or of
    the history, fetches the commits that it needs.
LGC-2  A missing or damaged copy counts as no checkpoint and as no parent.
LGC-3  Handles and attempts, with their pending commits, are not copies. They stay.

Source: Graft RFC 0001 (Local garbage collection).
"""

from __future__ import annotations

from catalog import LocalCatalog, Vid
from catalog.errors import Corrupt
from catalog.format.checkpoint_list import decode_down_to
from catalog.format.encoding import decode_commit_at
from catalog.format.keys import checkpoints_key
from catalog.format.small_objects import decode_control_of

__all__ = ["drop_copies"]


def drop_copies(local: LocalCatalog) -> int:
    """Drop the copies of commits that no handle needs. Return how many were dropped. Makes no request."""
    needed: dict[Vid, int] = {}  # the first LSN to keep
    for handle in local.handles():
        for vid, first_lsn in _path(local, handle.vid, handle.lsn):
            needed[vid] = min(first_lsn, needed.get(vid, first_lsn))
    dropped = 0
    for vid in local.volumes():
        dropped += local.drop_commits(vid, needed[vid]) if vid in needed else local.drop_volume(vid)
    return dropped


def _path(local: LocalCatalog, vid: Vid, lsn: int) -> list[tuple[Vid, int]]:
    path: list[tuple[Vid, int]] = []
    while True:
        first_lsn = _checkpoint(local, vid, lsn)
        path.append((vid, first_lsn or 1))
        parent = None if first_lsn else _parent(local, vid)
        if parent is None or parent[0] in {each for each, _ in path}:
            return path
        vid, lsn = parent


def _checkpoint(local: LocalCatalog, vid: Vid, lsn: int) -> int:
    """Return the LSN of the newest checkpoint at or below `lsn`.

    Returns 0 if there is none, or if the checkpoint list or the checkpoint's commit is missing here or damaged.
    """
    body = local.object(checkpoints_key(vid))
    if body is None:
        return 0
    try:
        mark = decode_down_to(lsn, body, vid).at_or_below(lsn)
        bodies = {} if mark is None else local.commit_bodies(vid, mark.lsn, mark.lsn)
        is_here = any(decode_commit_at(found, vid, at).checkpoint is not None for at, found in bodies.items())
    except Corrupt:
        return 0
    return mark.lsn if mark is not None and is_here else 0


def _parent(local: LocalCatalog, vid: Vid) -> tuple[Vid, int] | None:
    body = local.control(vid)
    try:
        parent = None if body is None else decode_control_of(body, vid).parent
    except Corrupt:
        return None
    return None if parent is None else (parent.vid, parent.lsn)
