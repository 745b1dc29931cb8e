"""Whether a point is kept, for whoever is about to build on it.

GC raises a volume's boundary, and reads forks, tags and pins again, before it deletes anything below. The mirror image
is here: write the Fork, Tag or Pin first, and ask `check_kept` then. One of the two sees the other.

A point below the boundary is kept only while another fork, tag or pin holds the same commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from catalog.commit import ForkPoint
from catalog.errors import NoSuchObject, OutOfWindow
from catalog.gid import Vid
from catalog.keys import Key, branch_of, forks_prefix, pins_prefix, tags_prefix
from catalog.small_objects import decode_fork, decode_pin, decode_tag
from catalog.volume import DEAD, Volumes

__all__ = ["check_kept"]


def check_kept(volumes: Volumes, point: ForkPoint, *, but: Key, now_ms: int) -> None:
    """Raises `OutOfWindow` if the state at `point` may be gone. `but` is the object that was just put to hold it."""
    boundary = volumes.boundary(point.vid)
    if point.lsn >= boundary or boundary <= 1:
        return
    if point.lsn in _held(volumes, point.vid, but, now_ms):
        return
    what = "nothing of its volume" if boundary == DEAD else f"lsn {boundary} of its volume and what came later"
    raise OutOfWindow(f"lsn:{point.lsn}", what)


def _held(volumes: Volumes, vid: Vid, but: Key, now_ms: int) -> Iterator[int]:
    """LSNs of the volume that something else holds."""
    store = volumes.store
    for key in store.list(forks_prefix(vid)):
        if key != but:
            fork = decode_fork(store.get(Key(key)), key)
            if volumes.boundary(fork.fork_vid) <= 1:  # else it stands on a checkpoint of its own
                yield fork.parent.lsn
    for key in store.list(pins_prefix(vid)):
        if key != but:
            pin = decode_pin(store.get(Key(key)), key)
            if pin.expires_at_ms > now_ms:
                yield pin.point.lsn
    try:
        topic = volumes.control(vid).topic
    except NoSuchObject:
        return
    for key in store.list(tags_prefix(topic)):
        if key != but:
            tag = decode_tag(store.get(Key(key)), f"tag {branch_of(key)}")
            if tag.point.vid == vid:
                yield tag.point.lsn
