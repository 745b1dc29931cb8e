"""Count the objects and bytes of a prefix by volume, and the garbage among them. The survey changes nothing.

SURVEY-1  Each stored byte counts once, for the volume that stores it. `shared_bytes` are bytes of other volumes that
    the newest state of a volume shows. They do not count again.
SURVEY-2  Garbage is all that GC would plan now, together with what waiting plans name. The same search finds it.
SURVEY-3  The survey lists all keys twice, and reads each commit once. Writers may change the prefix meanwhile, so the
    figures are those of some moment of the survey.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from catalog.errors import Corrupt, NoSuchObject
from catalog.format.ids import Sid, Vid
from catalog.format.keys import sid_of, volume_of
from catalog.gc.garbage_search import GarbageSearch
from catalog.gc.mark import Marker
from catalog.gc.plan import Garbage, PlanWriter, small_keys_of
from catalog.gc.policy import GcReport
from catalog.gc.sid_set import SidSet
from catalog.objects.object_store import ObjectStore, sizes_of
from seglog.base.dataclasses import dataclass


@dataclass(slots=True)
class Use:
    """Stored objects and their bytes, and how many of them are garbage."""

    objects: int = 0
    size_bytes: int = 0
    garbage_objects: int = 0
    garbage_bytes: int = 0

    def add(self, size_bytes: int, *, is_garbage: bool) -> None:
        self.objects += 1
        self.size_bytes += size_bytes
        if is_garbage:
            self.garbage_objects += 1
            self.garbage_bytes += size_bytes


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """The use of one volume.

    `names` are its branches, as (topic, branch). If no branch has the volume, they are the name that it was made for,
    and `is_named` is False. `shared_bytes` are bytes of other volumes that its newest state shows.
    """

    vid: Vid
    names: tuple[tuple[str, str], ...]
    is_named: bool
    use: Use
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Survey:
    """The use of each volume, and of everything else by the first word of its keys: `refs`, `oplog`, `gc`.

    `blocked` counts the volumes that GC leaves alone because of damage. Their garbage is unknown.
    """

    volumes: tuple[VolumeUse, ...]
    others: dict[str, Use]
    blocked: int


@dataclass(slots=True)
class _Garbage:
    """The keys of all garbage. Segments take 16 bytes each."""

    marker: Marker
    sids: SidSet = field(default_factory=SidSet)
    keys: set[str] = field(default_factory=set[str])

    def take(self, page: list[Garbage]) -> None:
        for garbage in page:
            for sid in (*(sid for sid, _ in garbage.segments), *garbage.orphans):
                self.sids.add(sid)
            self.keys.update(small_keys_of(garbage, is_held=self.marker.look(garbage.vid).is_held))

    def has(self, key: str) -> bool:
        sid = sid_of(key.removesuffix(".index"))
        return sid in self.sids if sid is not None else key in self.keys


def survey(store: ObjectStore, marker: Marker, attempts: Collection[Sid], *, now_ms: int, grace_ms: int) -> Survey:
    """Return the survey. `marker` has marked all volumes. Raises the errors of the store."""
    garbage = _Garbage(marker)
    writer = PlanWriter(None, now_ms, garbage.take)
    GarbageSearch(store, marker, writer, GcReport(), attempts, now_ms=now_ms, grace_ms=grace_ms).run(())
    writer.close(now_ms)
    volumes: dict[Vid, Use] = {}
    others: dict[str, Use] = {}
    for key, size_bytes in sizes_of(store, ""):
        vid = volume_of(key)
        use = others.setdefault(key.partition("/")[0], Use()) if vid is None else volumes.setdefault(vid, Use())
        use.add(size_bytes, is_garbage=garbage.has(key))
    uses = tuple(_volume_use(marker, vid, use) for vid, use in sorted(volumes.items()))
    return Survey(uses, others, len(marker.blocked))


def _volume_use(marker: Marker, vid: Vid, use: Use) -> VolumeUse:
    volume = marker.look(vid)
    names = tuple(marker.roots.named.get(vid, ()))
    made_for = () if volume.control is None else ((volume.control.topic, volume.control.branch),)
    return VolumeUse(vid, names or made_for, bool(names), use, _shared_bytes(marker, vid))


def _shared_bytes(marker: Marker, vid: Vid) -> int:
    """Return the bytes of segments of other volumes in the newest state. 0 if the state is not kept or is damaged."""
    volume = marker.look(vid)
    if volume.control is None or volume.control.parent is None or volume.first_lsn is None or volume.tip is None:
        return 0
    try:
        views = marker.volumes().snapshot(vid, volume.tip.lsn).segments
    except (Corrupt, NoSuchObject) as damage:
        marker.block(vid, damage)
        return 0
    refs = {view.ref.sid: view.ref for view in views if view.vid != vid}
    return sum(ref.data_length + ref.index_length for ref in refs.values())
