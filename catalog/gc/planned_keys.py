"""The keys that a plan of GC names, why it names them, and which of them GC keeps now. Values only.

OUT-1  A plan is outgrown if something needs one of its objects now: a name that was restored, a commit that was
    published late, a longer window. An outgrown plan is never applied as a whole (`Collector.apply`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from catalog.format.gid import Sid
from catalog.format.keys import (
    Key,
    checkpoints_key,
    commit_key,
    control_key,
    data_key,
    fork_key,
    list_key,
    pin_key,
)
from catalog.gc.mark import Marker
from catalog.gc.plan import Garbage

__all__ = ["PlannedKey", "keys_needed", "planned_keys", "small_keys_of"]


@dataclass(frozen=True, slots=True)
class PlannedKey:
    """An object that a plan names. `size_bytes` is None if the plan does not know it.

    A segment is one object here: its data object, with the bytes of its index object.
    """

    key: Key
    size_bytes: int | None
    reason: str


def planned_keys(garbage: Garbage, *, is_held: bool = False) -> Iterator[PlannedKey]:
    """Yield the objects of one volume that a plan names. If GC keeps single states of the volume, its control stays."""
    vid, first = garbage.vid, garbage.first_lsn
    kept = f"the kept states of its volume begin with lsn {first}" if first else "nothing keeps a range of its volume"
    for lsn in garbage.lsns:
        yield PlannedKey(commit_key(vid, lsn), None, kept)
    for sid, size_bytes in garbage.segments:
        yield PlannedKey(data_key(vid, sid), size_bytes, "only states that nothing keeps show it")
    for sid in garbage.orphans:
        yield PlannedKey(data_key(vid, sid), None, "no commit names it, and it is older than the grace")
    for lsn, digest in garbage.lists:
        yield PlannedKey(list_key(vid, lsn, digest), None, f"it belongs to lsn {lsn}, which nothing keeps")
    for fork in garbage.forks:
        yield PlannedKey(fork_key(vid, fork), None, "the fork is gone")
    for name in garbage.pins:
        yield PlannedKey(pin_key(vid, name), None, "the pin expired a grace ago")
    if garbage.closes and not is_held:
        yield PlannedKey(control_key(vid), None, "nothing keeps a range of the volume: it closes")


def small_keys_of(garbage: Garbage, *, is_held: bool) -> list[Key]:
    """Return the keys that `garbage` names, without segments. `is_held` says that GC keeps states of the volume."""
    small = replace(garbage, segments=[], orphans=[])
    keys = [each.key for each in planned_keys(small, is_held=is_held)]
    return [*keys, checkpoints_key(garbage.vid)] if garbage.closes and not is_held else keys


def keys_needed(garbage: Garbage, marker: Marker, attempts: Collection[Sid]) -> Iterator[Key]:
    """Yield the keys of `garbage` that GC keeps now. `marker` has marked all volumes after the plan was written.

    If the volume is damaged, all its keys may be needed (MARK-3).
    """
    vid, kept = garbage.vid, marker.look(garbage.vid)
    if vid in marker.blocked:
        yield from (each.key for each in planned_keys(garbage))
        return
    yield from (commit_key(vid, lsn) for lsn in garbage.lsns if kept.keeps(lsn))
    yield from (list_key(vid, *each) for each in garbage.lists if kept.keeps(each[0]))
    for sid in (*(sid for sid, _ in garbage.segments), *garbage.orphans):
        if sid in marker.sids[vid] or sid in attempts:
            yield data_key(vid, sid)
    yield from (fork_key(vid, fork) for fork in garbage.forks if not marker.is_gone(fork))
    expired = {name for of, name, _ in marker.roots.expired_pins if of == vid}
    held = {holder.name for (of, _), holders in marker.roots.points.items() if of == vid for holder in holders}
    yield from (pin_key(vid, name) for name in garbage.pins if name in held - expired)
    if garbage.closes and kept.first_lsn is not None:
        yield control_key(vid)
