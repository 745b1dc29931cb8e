"""Compare every object of every volume with what the mark keeps, and plan the garbage. `catalog.gc.execution` deletes.

SEARCH-1  GC goes through one LIST after the other. It keeps nothing of a LIST in memory, except the current page of the
    plan.
SEARCH-2  GC does not plan an object again if a waiting plan has it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import field

from catalog.errors import Corrupt, InvalidKey, NoSuchObject
from catalog.format.commit import SegmentRef
from catalog.format.ids import Sid, Vid
from catalog.format.keys import fork_of, list_of, lsn_of
from catalog.gc.mark import Kept, Marker
from catalog.gc.plan import Garbage, Plan, PlanWriter, pages_of
from catalog.gc.policy import GcReport, Watch, unwatched
from catalog.gc.roots import volumes_of
from catalog.gc.sid_set import SidSet
from catalog.objects.object_store import ObjectStore
from seglog.base.dataclasses import dataclass

_LEFT_FOR_LAST = frozenset({"boundary", "checkpoints", "control"})


@dataclass(slots=True)
class _Planned:
    """The garbage of one volume that waiting plans have."""

    sids: SidSet = field(default_factory=SidSet)
    lsns: set[int] = field(default_factory=set[int])
    first_lsn: int = 0
    rest: set[object] = field(default_factory=set[object])


class GarbageSearch:
    """A search over one prefix. `writer` takes the garbage, `report` its counts."""

    def __init__(
        self,
        store: ObjectStore,
        marker: Marker,
        writer: PlanWriter,
        report: GcReport,
        attempts: Collection[Sid],
        *,
        now_ms: int,
        grace_ms: int,
    ) -> None:
        self._store = store
        self._marker = marker
        self._writer = writer
        self._report = report
        self._attempts = frozenset(attempts)
        self._now_ms = now_ms
        self._grace_ms = grace_ms
        self._planned: dict[Vid, _Planned] = defaultdict(_Planned)

    def run(self, waiting: Iterable[Plan], watch: Watch = unwatched) -> None:
        for plan in waiting:
            for garbage in _readable(self._store, plan):
                _take(self._planned[garbage.vid], garbage)
        total = len(self._marker.kept)
        for done, vid in enumerate(volumes_of(self._store)):
            watch("searching", min(done, total), total, "volumes")
            self.search(vid)
        for vid, name, until_ms in self._marker.roots.expired_pins:
            is_due = until_ms + self._grace_ms <= self._now_ms
            if is_due and vid not in self._marker.blocked and name not in self._planned[vid].rest:
                self._of(self._marker.look(vid)).pins.append(name)
                self._add("pins")

    def search(self, vid: Vid) -> None:
        """Plan the garbage of one volume, unless it is blocked."""
        if vid not in self._marker.blocked:
            self._search(self._marker.look(vid))

    def _search(self, volume: Kept) -> None:
        vid, planned = volume.vid, self._planned[volume.vid]
        sizes: dict[Sid, int] | None = None
        stays, has_rest = volume.is_held, False
        last_sid = None
        for key in self._store.list(f"{vid}/"):
            _, kind, name = f"{key}//".split("/", 2)
            if kind in _LEFT_FOR_LAST and name == "/":
                has_rest = has_rest or kind != "boundary"
            elif kind == "log":
                stays = not self._plan_commit(volume, planned, key) or stays
            elif kind == "segments":
                sid = _sid_of(name.rstrip("/"))
                if sid is None:
                    stays = self._tell(key)
                elif sid == last_sid:
                    continue
                elif sid in self._marker.sids[vid] or sid in self._attempts:
                    stays = True
                elif sid not in planned.sids:
                    sizes = self._named(volume) if sizes is None else sizes
                    stays = not self._plan_segment(volume, sid, sizes) or stays
                last_sid = sid
            elif kind == "lists" and (named_list := list_of(key)) is not None:
                stays = not self._plan_list(volume, planned, named_list) or stays
            elif kind == "forks":
                stays = not self._plan_fork(volume, planned, key) or stays
            else:
                stays = self._tell(key)
        goes = has_rest and not stays
        if volume.first_lsn is None and (goes or not volume.is_dead) and "closes" not in planned.rest:
            self._of(volume).closes = True
            self._add("volumes")
        if volume.first_lsn is not None and volume.first_lsn > max(volume.boundary, 1):
            # Every plan names this volume, so GC raises the boundary before the deletes. The plan may delete objects of
            # another volume that states below the new boundary stand on.
            self._of(volume).raises = True
            if volume.first_lsn > planned.first_lsn:
                self._add("boundaries")

    # Each of these methods returns True if the object is garbage, planned now or by an earlier run.

    def _plan_commit(self, volume: Kept, planned: _Planned, key: str) -> bool:
        lsn = lsn_of(key)
        if lsn is None:
            return not self._tell(key)
        if volume.keeps(lsn):
            return False
        if lsn not in planned.lsns:
            self._of(volume).lsns.append(lsn)
            self._add("commits")
        return True

    def _plan_list(self, volume: Kept, planned: _Planned, name: tuple[int, bytes]) -> bool:
        if volume.keeps(name[0]):
            return False
        if name not in planned.rest:
            self._of(volume).lists.append(name)
            self._add("lists")
        return True

    def _plan_fork(self, volume: Kept, planned: _Planned, key: str) -> bool:
        fork = fork_of(key)
        if fork is None:
            return not self._tell(key)
        if not self._marker.is_gone(fork):
            return False
        if fork not in planned.rest:
            self._of(volume).forks.append(fork)
            self._add("forks")
        return True

    def _plan_segment(self, volume: Kept, sid: Sid, sizes: dict[Sid, int]) -> bool:
        if sid in sizes:
            self._of(volume).segments.append((sid, sizes[sid]))
            self._report.planned_bytes += sizes[sid]
        elif volume.first_lsn is not None and sid.created_ms + self._grace_ms > self._now_ms:
            self._report.young_segments += 1
            return False
        else:
            self._of(volume).orphans.append(sid)
        self._add("segments")
        return True

    def _named(self, volume: Kept) -> dict[Sid, int]:
        """Return the segments that commits below the kept range have named, with their sizes in bytes.

        Such a segment is no pending upload, so it needs no grace. Commits newer than the mark are not read: their
        segments are needed.
        """
        newest = 0 if volume.tip is None else volume.tip.lsn
        last = newest if volume.first_lsn is None else min(volume.first_lsn, newest)
        if volume.is_dead or last < volume.lowest:
            return {}
        volumes, vid = self._marker.volumes(), volume.vid
        base = volume.lowest if volume.lowest > 1 else 0
        refs: list[SegmentRef] = []
        try:
            if base:
                refs += [view.ref for view in volumes.snapshot(vid, base).segments if view.vid == vid]
            for commit in self._marker.commits(volumes, vid, base + 1, last):
                refs += commit.segments
                refs += [view.ref for view in commit.restored_views if view.vid == vid]
        except (Corrupt, NoSuchObject) as damage:
            # The segments of the commits that were not read count as orphans, which have to be older than the grace.
            self._marker.block(vid, damage)
        return {ref.sid: ref.data_length + ref.index_length for ref in refs}

    def _tell(self, key: str) -> bool:
        """Report an unknown key (GC-5). Return True: the key stays."""
        self._report.add_unknown_key(key)
        return True

    def _of(self, volume: Kept) -> Garbage:
        garbage = self._writer.of(volume.vid)
        garbage.first_lsn = volume.first_lsn or 0
        return garbage

    def _add(self, kind: str) -> None:
        self._report.planned[kind] += 1
        self._writer.added(self._now_ms)


def _readable(store: ObjectStore, plan: Plan) -> Iterator[Garbage]:
    """Yield what can be read of a plan. GC plans the rest again."""
    try:
        for page in pages_of(store, plan):
            yield from page
    except Corrupt:
        return


def _take(planned: _Planned, garbage: Garbage) -> None:
    planned.lsns.update(garbage.lsns)
    for sid, _ in garbage.segments:
        planned.sids.add(sid)
    for sid in garbage.orphans:
        planned.sids.add(sid)
    planned.rest.update(garbage.lists, garbage.forks, garbage.pins)
    planned.rest.update(["closes"] * garbage.closes)
    planned.first_lsn = max(planned.first_lsn, garbage.first_lsn)


def _sid_of(name: str) -> Sid | None:
    try:
        return Sid.parse(name.removesuffix(".index"))
    except InvalidKey:
        return None
