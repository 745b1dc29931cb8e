"""The mark phase of GC: find out what each volume keeps, from all names and all volumes.

MARK-1  A mark is never taken back: `refresh` only adds. An object that two marks found unreachable stays garbage.
    A later holder is refused (GC-2).
MARK-2  A volume without holders still holds the states of its parent that it stands on, because its name may come back.
    This ends when its boundary is `DEAD`.
MARK-3  If GC cannot read an object, it keeps all that the object might hold. The volume and the volumes that it was
    forked from are then `blocked`, with the reason. A ref or a tag that GC cannot read blocks all volumes of its topic,
    a pin blocks its volume. Damage never turns an object into garbage.
MARK-4  GC marks one volume after the other. In memory stay 16 bytes for each segment that is kept. A scrub also keeps
    the lengths of its two objects: 32 bytes.
MARK-5  Several processes may mark volumes, each some of them. `begin` is the plan: the volumes with their names. The
    step marks one: `mark` takes one after the other, and `marks_of` takes one for another marker, which gets its marks
    by `add`. `finish` marks the single states, after all volumes.
"""

from __future__ import annotations

import struct
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import partial

from catalog.errors import Corrupt, NoSuchObject, SeglogError
from catalog.format.commit import Commit, ForkPoint, SegmentRef
from catalog.format.control import DEAD, CheckpointSet, Control
from catalog.format.ids import Vid
from catalog.format.keys import (
    Key,
    commit_key,
    commits_prefix,
    control_key,
    fork_key,
    fork_of,
    forks_prefix,
    lsn_of,
    ref_key,
)
from catalog.format.small_objects import decode_fork
from catalog.gc.policy import GcPolicy, HeldBy, Holder, Watch, first_kept, scan_from, unwatched, window_ms_of
from catalog.gc.roots import Roots, read_roots, volumes_of
from catalog.gc.sid_set import SidSet
from catalog.local_catalog import LocalCatalog
from catalog.objects.object_store import ObjectStore, first_valid_key
from catalog.snapshot import Snapshot
from catalog.volume import Volumes
from seglog.base.dataclasses import dataclass

_BATCH = 64
_LENGTHS = struct.Struct(">QQ")


def lengths_of(value: bytes) -> tuple[int, int]:
    """Return the lengths of a segment's data object and index object, from the value of its id in `Marker.sids`."""
    data_length, index_length = _LENGTHS.unpack(value)
    return data_length, index_length


@dataclass(slots=True)
class Kept:
    """The kept states of one volume: all commits from `first_lsn` on, and the single state at each of `points`.

    `first_lsn` is None if GC keeps no range of commits. `holders` hold the range. `lowest` is the lowest LSN from which
    all commits are in the store. `tip` is the newest state, without its segments.
    """

    vid: Vid
    boundary: int
    marks: CheckpointSet
    control: Control | None
    lowest: int = 1
    first_lsn: int | None = None
    holders: list[Holder] = field(default_factory=list[Holder])
    points: dict[int, list[Holder]] = field(default_factory=dict[int, list[Holder]])
    tip: Snapshot | None = None

    @property
    def is_dead(self) -> bool:
        return self.boundary == DEAD

    @property
    def is_held(self) -> bool:
        return self.first_lsn is not None or bool(self.points)

    def keeps(self, lsn: int) -> bool:
        return lsn in self.points or (self.first_lsn is not None and lsn >= self.first_lsn)

    def held_alone(self) -> list[int]:
        """Return the points below the kept range, ascending. Each must be a checkpoint (KEEP-2)."""
        return sorted(lsn for lsn in self.points if lsn and (self.first_lsn is None or lsn < self.first_lsn))


@dataclass(frozen=True, slots=True)
class Unmarked:
    """A volume to mark, with its names: its branches, and the deleted ones with the times of their ends in ms."""

    vid: Vid
    refs: tuple[Holder, ...]
    deleted: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Marks:
    """The marks of one volume (MARK-5). `needed` has the states of parents that it stands on."""

    kept: dict[Vid, Kept]
    sids: dict[Vid, SidSet]
    needed: list[tuple[ForkPoint, Holder]]
    blocked: dict[Vid, SeglogError]
    refused: list[str]


class Marker:
    """The mark phase of one run: names and volumes in, kept states and segments out.

    With `keeps_lengths`, the ids in `sids` carry the lengths of their objects (`lengths_of`).
    """

    def __init__(
        self,
        store: ObjectStore,
        cache: LocalCatalog | None,
        policy: GcPolicy,
        *,
        now_ms: int,
        watch: Watch = unwatched,
        keeps_lengths: bool = False,
    ) -> None:
        self._store = store
        self._cache = cache
        self._now_ms = now_ms
        self._window_ms = policy.window_s * 1000
        self._grace_ms = policy.grace_s * 1000
        self._retain_ms = None if policy.retain_s is None else policy.retain_s * 1000
        self._skew_ms = policy.skew_s * 1000
        self._watch = watch
        self._keeps_lengths = keeps_lengths
        self._needed: deque[tuple[ForkPoint, Holder]] = deque()
        self.kept: dict[Vid, Kept] = {}
        self.sids: dict[Vid, SidSet] = defaultdict(partial(SidSet, _LENGTHS.size if keeps_lengths else 0))
        self.blocked: dict[Vid, SeglogError] = {}
        self.refused: list[str] = []
        """Holders that came too late. What they name was deleted or on its way, and GC or `check_kept` refused them."""
        self.roots = Roots()
        self.kept_bytes = 0
        """The bytes of all kept segments that a hash covers."""

    @property
    def now_ms(self) -> int:
        return self._now_ms

    def mark(self) -> None:
        """Mark all volumes. Raises the errors of the store; records damage in `blocked`."""
        volumes = self.begin()
        for done, volume in enumerate(volumes):
            self._watch("reading commits", done, len(volumes), "volumes")
            self._mark_volume(volume.vid, self.roots)
        self.finish()

    def begin(self) -> list[Unmarked]:
        """Read the names, and return the volumes to mark, ascending."""
        self.roots = roots = read_roots(self._store, self._now_ms - self._skew_ms)
        vids = sorted({*volumes_of(self._store), *roots.refs, *roots.deleted_refs})
        return [Unmarked(vid, tuple(roots.refs.get(vid, ())), tuple(roots.deleted_refs.get(vid, ()))) for vid in vids]

    def marks_of(self, volume: Unmarked) -> Marks:
        """Mark one volume, in a marker that marks no other, and return its marks."""
        vid = volume.vid
        if volume.refs:
            self.roots.refs[vid] = list(volume.refs)
        if volume.deleted:
            self.roots.deleted_refs[vid] = list(volume.deleted)
        self._mark_volume(vid, self.roots)
        return Marks({vid: self.kept[vid]}, dict(self.sids), list(self._needed), self.blocked, self.refused)

    def add(self, marks: Marks) -> None:
        """Take over the marks of a volume that another marker has marked."""
        self.kept.update(marks.kept)
        for vid, sids in marks.sids.items():
            for sid in sids:
                self.sids[vid].add(sid)
        self._needed.extend(marks.needed)
        for vid, trouble in marks.blocked.items():
            self.blocked.setdefault(vid, trouble)
        self.refused += marks.refused

    def finish(self) -> None:
        """Mark the single states, and block the volumes of names that do not decode."""
        self._mark_points(self.roots)
        self._doubt(self.roots)

    def refresh(self, vids: Iterable[Vid], *, closing: Iterable[Vid] = ()) -> None:
        """Read the names again, and the forks of `vids`, and mark what holders hold that came since the mark.

        For each volume of `closing`, GC also reads by key the ref that was made for the volume.
        """
        before, self.roots = self.roots, read_roots(self._store, self._now_ms - self._skew_ms)
        roots = self.roots
        for vid in sorted({*roots.refs, *roots.deleted_refs}):
            volume = self.kept.get(vid)
            is_new = vid in roots.refs or roots.deleted_refs.get(vid) != before.deleted_refs.get(vid)
            if volume is None or (volume.first_lsn is None and is_new):
                self._mark_named(vid, roots)
        for vid in closing:
            volume = self.kept[vid]
            if volume.first_lsn is None and vid not in self.blocked and self._is_named(volume, roots):
                self._mark_named(vid, roots)
        for parent in vids:
            self._mark_forks(parent, roots)
        self._mark_points(roots)
        self._doubt(roots)

    def look(self, vid: Vid) -> Kept:
        """Return the record of `vid`.

        If the run has no record yet, read the boundary, the checkpoints and the control.
        """
        if vid not in self.kept:
            volumes = self.volumes()
            volume = self.kept[vid] = Kept(vid, 0, CheckpointSet(vid), None)
            try:
                volume.boundary = volumes.boundary(vid)
                volume.marks = volumes.checkpoints(vid)
                volume.control = self.control(vid)
            except Corrupt as damage:
                self.block(vid, damage)
        return self.kept[vid]

    def control(self, vid: Vid) -> Control | None:
        """Return the control from the store, or None. The volume may be gone, so GC does not use the local copy."""
        try:
            return Volumes(self._store).control(vid)
        except NoSuchObject:
            return None

    def is_gone(self, vid: Vid) -> bool:
        """Return True if the volume is dead and has no control.

        Such a volume takes no commit, and nothing of it can be read.
        """
        volume = self.look(vid)
        return volume.is_dead and volume.control is None and vid not in self.blocked

    def volumes(self) -> Volumes:
        """Return a reader without the snapshots of earlier readers, which would stay in memory (MARK-4)."""
        return Volumes(self._store, self._cache)

    # ------------------------------------------------------------ volumes

    def _mark_named(self, vid: Vid, roots: Roots) -> None:
        """Mark a volume that got its name after the mark, unless another run has closed the volume."""
        if vid in self.kept:
            try:
                self.kept[vid].boundary = self.volumes().boundary(vid)
            except Corrupt as damage:
                self.block(vid, damage)
        self._mark_volume(vid, roots)

    def _mark_volume(self, vid: Vid, roots: Roots) -> None:
        volume = self.look(vid)
        if vid in self.blocked or volume.is_dead:
            return  # a name of a dead volume is void: its writer, or GC, takes it back (catalog.refs.kept_points)
        is_named = vid in roots.refs or vid in roots.deleted_refs or self._is_named(volume, roots)
        is_young = vid.created_ms > self._now_ms - self._grace_ms
        try:
            if volume.control is None and not is_named:
                return  # a volume without name and control was never complete, or GC is deleting it
            if volume.control is None and self._was_closed(volume):
                return
            _check_control(volume)
            volumes = self.volumes()
            volume.lowest = max(volume.boundary, 1)
            volume.tip = volumes.snapshot(vid, self._newest(volumes, volume))
            window_ms = window_ms_of(volume.tip.config, self._window_ms) if self._retain_ms is None else self._retain_ms
            volume.holders = list(roots.refs.get(vid, ()))
            for name, at_ms in roots.deleted_refs.get(vid, ()):
                if at_ms + window_ms > self._now_ms:
                    volume.holders.append(Holder(HeldBy.DELETED_REF, name))
            if is_young and not is_named:
                volume.holders.append(Holder(HeldBy.YOUNG, str(vid)))
            self._mark_range(volumes, volume, self._now_ms - window_ms)
            volume.tip = replace(volume.tip, segments=())
        except (Corrupt, NoSuchObject) as damage:
            parent = volume.control.parent if volume.control else None
            if not is_named and parent is not None and self._came_too_late(self.look(parent.vid), parent.lsn):
                self.refused.append(f"volume {vid}, forked from lsn {parent.lsn} of volume {parent.vid}")
            else:
                self.block(vid, damage, only_below=not (is_named or is_young))

    def _was_closed(self, volume: Kept) -> bool:
        """Return whether another run has closed the volume since the look, so that its control may be gone."""
        volume.boundary = self.volumes().boundary(volume.vid)
        return volume.is_dead

    def _is_named(self, volume: Kept, roots: Roots) -> bool:
        """Return True if the ref that was made for the volume names it.

        If so, add the ref to `roots`, because the LIST may lack it.
        """
        if volume.control is None or volume.vid in roots.deleted_refs:
            return False
        key = ref_key(volume.control.topic, volume.control.branch)
        try:
            roots.take_ref(key, self._store.get(key), only=volume.vid)
        except NoSuchObject:
            return False
        return volume.vid in roots.refs or volume.vid in roots.deleted_refs

    def _mark_range(self, volumes: Volumes, volume: Kept, since_ms: int) -> None:
        """Mark the range of a volume with holders. Without holders, mark only what it stands on (MARK-2).

        A commit of kind restore shows segments that neither the first state nor a later commit adds.
        """
        vid, tip, lowest = volume.vid, volume.tip, volume.lowest
        assert tip is not None  # noqa: S101 - the caller has looked
        start = scan_from(volume.marks, lowest, tip.lsn, since_ms) or lowest
        first = max(first_kept(self.commits(volumes, vid, start, tip.lsn), since_ms) or lowest, lowest)
        is_held = bool(volume.holders)
        if first > 1:
            for view in volumes.snapshot(vid, first).segments:
                if is_held or view.vid != vid:
                    self._keep(view.vid, view.ref)
        is_fork = volume.control is not None and volume.control.parent is not None
        for commit in self.commits(volumes, vid, first + 1 if first > 1 else 1, tip.lsn) if is_held or is_fork else ():
            for ref in commit.segments if is_held else ():
                self._keep(vid, ref)
            for view in commit.restored_views:
                if is_held or view.vid != vid:
                    self._keep(view.vid, view.ref)
        if is_held:
            volume.first_lsn = first
        if lowest <= 1:
            self._need_parent(volume)

    def _keep(self, vid: Vid, ref: SegmentRef) -> None:
        sids = self.sids[vid]
        if ref.sid not in sids:
            sids.add(ref.sid, _LENGTHS.pack(ref.data_length, ref.index_length) if self._keeps_lengths else b"")
            self.kept_bytes += ref.data_length + ref.index_head_length

    def _need_parent(self, volume: Kept) -> None:
        control = volume.control
        if control is not None and control.parent is not None:
            name = f"{control.topic}@{control.branch} ({volume.vid})"
            self._needed.append((control.parent, Holder(HeldBy.FORK, name)))

    def _newest(self, volumes: Volumes, volume: Kept) -> int:
        """Return the newest LSN. The LIST may be behind, so GC asks for the next commits by key."""
        listed = volumes.newest_lsn(volume.vid)
        lsn = max(listed, volume.marks.marks[-1].lsn if volume.marks.marks else 0, volume.lowest - 1)
        newest = lsn + len(volumes.next_commits(volume.vid, lsn))
        if not self._store.is_ordered:
            self._check_no_hole(volumes, volume.vid, newest)
        return newest

    def _check_no_hole(self, volumes: Volumes, vid: Vid, newest: int) -> None:
        """Raise `NoSuchObject` if a commit is missing below a listed one.

        A search by key ends at a commit that an operator deleted by hand.
        """
        listed = first_valid_key(self._store, commits_prefix(vid), lsn_of) or 0
        if listed > newest and not volumes.has_commit(vid, newest + 1):
            raise NoSuchObject(commit_key(vid, newest + 1))

    def commits(self, volumes: Volumes, vid: Vid, first: int, last: int) -> Iterator[Commit]:
        """Yield the commits from `first` to `last`, oldest first, and fetch them in batches on the way."""
        for at in range(first, last + 1, _BATCH):
            yield from (stored.commit for stored in volumes.commits(vid, at, min(at + _BATCH - 1, last)))

    # ------------------------------------------------------------ points

    def _mark_points(self, roots: Roots) -> None:
        """Mark the states that tags and pins hold and that forks stand on. Follow the parents down to the roots."""
        for (vid, lsn), holders in roots.points.items():
            marked = self.kept[vid].points.get(lsn, ()) if vid in self.kept else ()
            self._needed.extend((ForkPoint(vid, lsn), holder) for holder in holders if holder not in marked)
        while self._needed:
            point, holder = self._needed.popleft()
            volume = self.look(point.vid)
            is_new = point.lsn not in volume.points
            holders = volume.points.setdefault(point.lsn, [])
            if holder not in holders:
                holders.append(holder)
            if is_new and point.vid not in self.blocked and not (volume.first_lsn and point.lsn >= volume.first_lsn):
                self._mark_point(volume, point.lsn)

    def _mark_point(self, volume: Kept, lsn: int) -> None:
        stands_alone = any(mark.lsn == lsn for mark in volume.marks.marks)
        try:
            _check_control(volume)
            if lsn:
                for view in self.volumes().snapshot(volume.vid, lsn).segments:
                    self._keep(view.vid, view.ref)
        except (Corrupt, NoSuchObject) as damage:
            if self._came_too_late(volume, lsn) and self._is_absent(commit_key(volume.vid, lsn)):
                self.refused += [f"{holder} at lsn {lsn} of volume {volume.vid}" for holder in volume.points.pop(lsn)]
            else:
                self.block(volume.vid, damage)
            return
        if not stands_alone and not 1 < volume.boundary <= lsn:
            self._need_parent(volume)

    def _came_too_late(self, volume: Kept, lsn: int) -> bool:
        return lsn < volume.boundary and all(mark.lsn != lsn for mark in volume.marks.marks)

    def _is_absent(self, key: Key) -> bool:
        try:
            self._store.get(key)
        except NoSuchObject:
            return True
        return False

    def _mark_forks(self, parent: Vid, roots: Roots) -> None:
        """Mark the forks of `parent` that came since the mark. Some have no name yet."""
        for key in list(self._store.list(forks_prefix(parent))):
            vid = fork_of(key)
            if vid is None or vid in self.kept:
                continue
            volume = self.look(vid)
            if volume.control is not None:
                self._mark_volume(vid, roots)
            elif not volume.is_dead:
                self._hold_by_fork(parent, vid, key)

    def _hold_by_fork(self, parent: Vid, vid: Vid, key: str) -> None:
        try:
            point = decode_fork(self._store.get(Key(key)), key).parent
        except NoSuchObject:
            return
        except Corrupt as damage:
            self.block(parent, damage)
            return
        self._needed.append((point, Holder(HeldBy.FORK, str(vid))))

    # ------------------------------------------------------------ damage

    def block(self, vid: Vid, trouble: SeglogError, *, only_below: bool = False) -> None:
        """Keep the volume, and the volumes that it stands on, from all deletes (MARK-3).

        With `only_below`, keep only the volumes that it stands on.
        """
        if not only_below:
            self.blocked.setdefault(vid, trouble)
        for parent in self._parents(vid):
            if parent not in self.blocked:
                self.block(parent, trouble)

    def _parents(self, vid: Vid) -> list[Vid]:
        """Return the parent that the control names.

        If there is no readable control, return the volumes with a Fork of `vid`.
        """
        try:
            control = self.control(vid)
        except Corrupt:
            control = None
        if control is None:
            vids = {*self.kept, *volumes_of(self._store)}
            return [parent for parent in vids if any(self._store.list(fork_key(parent, vid), limit=1))]
        return [] if control.parent is None else [control.parent.vid]

    def _doubt(self, roots: Roots) -> None:
        """Block the volumes whose names do not decode (MARK-3)."""
        for vid, damage in roots.doubtful_volumes.items():
            self.block(vid, damage)
        for topic, damage in roots.doubtful_topics.items():
            for volume in list(self.kept.values()):
                if volume.control is None or volume.control.topic == topic:
                    self.block(volume.vid, damage)


def _check_control(volume: Kept) -> None:
    if volume.control is None:
        raise NoSuchObject(control_key(volume.vid))
