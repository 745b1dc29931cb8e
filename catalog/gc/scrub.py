"""Scrub: check that every kept object is there and unchanged. Scrub changes nothing.

    names → volumes     every ref, tag and pin decodes, and the volume that it names has a control
    volumes → commits   all commits from the boundary to the newest, linked by hashes; and each single held state
    forks → parents     the parent has a Fork for each fork
    commits → objects   each segment has both its objects, with the lengths that its commit says
    objects → commits   scrub counts the objects that no commit names: GC deletes them once they are old
    deep                each byte: blake3 of data objects and of the heads of indexes; and each checkpoint
                        against the fold of the commits up to it

SCRUB-1  No false alarm: if scrub finds damage, it checks everything again. It reports the damage that it finds both
    times. A writer, a merge or GC may change objects between two requests. Objects below a boundary that GC has raised
    since are no damage.
SCRUB-2  Scrub cannot see what a volume has lost at its newest end. Only the writer's own copy has that.
SCRUB-3  A LIST is never the reason for a finding. Scrub asks by key for each object that the LIST lacks, or that has
    another length there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import field

from blake3 import blake3

from catalog.errors import Corrupt, InvalidObject, NoSuchObject, SeglogError
from catalog.format.commit import SegmentRef
from catalog.format.ids import Sid, Vid
from catalog.format.keys import Key, commit_key, data_key, fork_key, index_key, segments_prefix, sid_of
from catalog.gc.mark import Kept, Marker, lengths_of
from catalog.gc.policy import GcPolicy, Watch, unwatched
from catalog.gc.sid_set import SidSet
from catalog.objects.object_store import ObjectStore, sizes_of
from catalog.snapshot import fold
from catalog.volume import Volumes
from seglog.base.dataclasses import dataclass

_PIECE_BYTES = 8 * 1024 * 1024
_KEEPS_ALL = GcPolicy(window_s=0, grace_s=0, retain_s=2**50, skew_s=0)


@dataclass(frozen=True, slots=True)
class Finding:
    """One damage. `place` is a key."""

    place: str
    reason: str


@dataclass(slots=True)
class ScrubReport:
    """The counts of a scrub. `size_bytes` is the number of segment bytes read; `unreferenced` counts segments."""

    volumes: int = 0
    commits: int = 0
    segments: int = 0
    unreferenced: int = 0
    size_bytes: int = 0
    findings: list[Finding] = field(default_factory=list[Finding])


class Scrub:
    """The scrub of one prefix. Raises the errors of the store."""

    def __init__(self, store: ObjectStore, *, now_ms: int, watch: Watch = unwatched) -> None:
        """`watch` gets the progress of each phase. A deep scrub tells bytes."""
        self._store = store
        self._now_ms = now_ms
        self._watch = watch
        self._again = ""
        self._read_bytes = 0
        self._all_bytes = 0

    def run(self, *, deep: bool = False) -> ScrubReport:
        report = ScrubReport()
        suspected = set(self._look(report, deep=deep))
        if suspected:
            self._again = "again, "
            again = set(self._look(ScrubReport(), deep=deep))
            report.findings = sorted(suspected & again, key=lambda finding: (finding.place, finding.reason))
        return report

    def _look(self, report: ScrubReport, *, deep: bool) -> Iterator[Finding]:
        marker = self.marked(lambda phase, *progress: self._watch(self._again + phase, *progress))
        self._read_bytes, self._all_bytes = 0, marker.kept_bytes
        for trouble in dict.fromkeys(marker.blocked.values()):
            concerned = [vid for vid, reason in marker.blocked.items() if reason is trouble]
            if not any(self.has_moved(marker.look(vid)) for vid in concerned):
                yield _finding(trouble)
        seen = SidSet()
        for volume in [volume for volume in marker.kept.values() if volume.is_held]:
            report.volumes += 1
            report.commits += len(volume.held_alone())
            if volume.first_lsn is not None and volume.tip is not None:
                report.commits += max(volume.tip.lsn - volume.first_lsn + 1, 0)
            if volume.vid in marker.blocked:
                continue
            yield from self._look_at_fork(volume)
            if deep:
                yield from self._read_all(marker, volume, seen, report)
        looked, segments = 0, sum(len(sids) for sids in marker.sids.values())
        for vid in sorted(marker.sids):
            self._watch(f"{self._again}looking for objects", looked, segments, "segments")
            yield from self._look_at_objects(vid, marker.sids[vid], report)
            looked += len(marker.sids[vid])

    def marked(self, watch: Watch) -> Marker:
        """Return the marks of all states from the boundaries on, whatever the windows are."""
        marker = Marker(self._store, None, _KEEPS_ALL, now_ms=self._now_ms, watch=watch, keeps_lengths=True)
        marker.mark()
        return marker

    def _look_at_fork(self, volume: Kept) -> Iterator[Finding]:
        control = volume.control
        if control is None or control.parent is None or volume.boundary > 1:
            return
        key = fork_key(control.parent.vid, volume.vid)
        try:
            self._store.head(key)
        except NoSuchObject as trouble:
            yield _finding(trouble)

    # ------------------------------------------------------------ objects

    def _look_at_objects(self, vid: Vid, sids: SidSet, report: ScrubReport) -> Iterator[Finding]:
        listed = self.listed(vid)
        segment = next(listed, None)
        for sid, value in sids.items():
            report.segments += 1
            while segment is not None and segment[0] < sid:
                report.unreferenced += 1
                segment = next(listed, None)
            stored, lengths = segment, lengths_of(value)
            if segment is not None and segment[0] == sid:
                segment = next(listed, None)
            if stored != (sid, lengths):
                for key, length in zip((data_key(vid, sid), index_key(vid, sid)), lengths, strict=True):
                    yield from self._ask(key, length)
        if segment is not None:
            report.unreferenced += 1 + sum(1 for _ in listed)

    def listed(self, vid: Vid) -> Iterator[tuple[Sid, tuple[int | None, int | None]]]:
        """Yield each listed segment with the lengths of its data object and its index object. None is not listed."""
        for sid, objects in itertools.groupby(self._objects(vid), key=lambda stored: stored[0]):
            lengths = {is_index: length for _, is_index, length in objects}
            yield sid, (lengths.get(False), lengths.get(True))

    def _objects(self, vid: Vid) -> Iterator[tuple[Sid, bool, int]]:
        """Yield each listed object of a segment: the segment, whether it is the index object, and its length."""
        for key, length in sizes_of(self._store, segments_prefix(vid)):
            sid = sid_of(key.removesuffix(".index"))
            if sid is not None:
                yield sid, key.endswith(".index"), length

    def _ask(self, key: Key, length: int) -> Iterator[Finding]:
        try:
            check_length(self._store, key, length)
        except (InvalidObject, NoSuchObject) as trouble:
            yield _finding(trouble)

    # ------------------------------------------------------------ deep

    def _read_all(self, marker: Marker, volume: Kept, seen: SidSet, report: ScrubReport) -> Iterator[Finding]:
        try:
            for vid, ref in self.segments(marker, volume):
                if ref.sid not in seen:
                    seen.add(ref.sid)
                    yield from self.read(vid, ref, report)
            yield from self._fold_again(marker, volume)
        except (Corrupt, NoSuchObject) as trouble:
            if not self.has_moved(volume):
                yield _finding(trouble)

    def has_moved(self, volume: Kept) -> bool:
        """Return True if GC has changed the boundary since this scrub read it."""
        try:
            return Volumes(self._store).boundary(volume.vid) != volume.boundary
        except Corrupt:
            return False

    def segments(self, marker: Marker, volume: Kept) -> Iterator[tuple[Vid, SegmentRef]]:
        """Yield all segments of the volume, and the segments of other volumes that its states show."""
        volumes, vid = marker.volumes(), volume.vid
        for lsn in volume.held_alone():
            yield from ((view.vid, view.ref) for view in volumes.snapshot(vid, lsn).segments)
        if volume.first_lsn is None or volume.tip is None:
            return
        first = volume.first_lsn
        if first > 1:
            yield from ((view.vid, view.ref) for view in volumes.snapshot(vid, first).segments)
        for commit in marker.commits(volumes, vid, first + 1 if first > 1 else 1, volume.tip.lsn):
            yield from ((vid, ref) for ref in commit.segments)
            yield from ((view.vid, view.ref) for view in commit.restored_views)

    def read(self, vid: Vid, ref: SegmentRef, report: ScrubReport) -> Iterator[Finding]:
        for key, length, hashed, digest in (
            (data_key(vid, ref.sid), ref.data_length, ref.data_length, ref.data_hash),
            (index_key(vid, ref.sid), ref.index_length, ref.index_head_length, ref.index_head_hash),
        ):
            try:
                wrong = list(self._ask(key, length))
                if not wrong and self._hash_of(key, hashed, report) != digest:
                    wrong = [Finding(key, "its content is not what its commit says")]
            except (Corrupt, NoSuchObject) as trouble:
                wrong = [_finding(trouble)]
            yield from wrong

    def _hash_of(self, key: Key, length: int, report: ScrubReport) -> bytes:
        hasher = blake3()
        for at in range(0, length, _PIECE_BYTES):
            piece = self._store.get_range(key, at, min(_PIECE_BYTES, length - at))
            hasher.update(piece)
            report.size_bytes += len(piece)
            self._read_bytes += len(piece)
            self._watch(f"{self._again}reading objects", self._read_bytes, self._all_bytes, "bytes")
        return hasher.digest()

    def _fold_again(self, marker: Marker, volume: Kept) -> Iterator[Finding]:
        """Compare each checkpoint, except the first, with the fold from the checkpoint before it."""
        if volume.first_lsn is None or volume.tip is None:
            return
        lsns = [mark.lsn for mark in volume.marks.marks if volume.first_lsn <= mark.lsn <= volume.tip.lsn]
        for before, lsn in itertools.pairwise(lsns):
            base = Volumes(self._store).snapshot(volume.vid, before)
            folded = fold(base, marker.volumes().commits(volume.vid, before + 1, lsn))
            if folded != Volumes(self._store).snapshot(volume.vid, lsn):
                yield Finding(commit_key(volume.vid, lsn), "its checkpoint is not what the commits up to it add up to")


def check_length(store: ObjectStore, key: Key, length: int) -> None:
    """Ask for an object by its key. Raises `NoSuchObject`, or `InvalidObject` if it has another length."""
    size = store.head(key).size
    if size != length:
        raise InvalidObject(key, f"it has {size} bytes, its commit says {length}")


def _finding(trouble: SeglogError) -> Finding:
    if isinstance(trouble, InvalidObject):
        return Finding(trouble.place, trouble.reason)
    if isinstance(trouble, NoSuchObject):
        return Finding(trouble.key, "it is not there")
    return Finding("", str(trouble))
