"""Look at each object of segments, and read some of them. It changes nothing.

    state        meaning
    found        a commit names it and it is there; if it was read, its bytes are those of its commit
    lost         a commit names it, and it is not there
    corrupt      its length or its bytes are not those of its commit
    orphan       no commit names it, and it is older than a day
    uploading    no commit names it yet: a multipart upload that is not completed, or an object younger than a day

OBJ-1  A segment has a place in [0, 1), which its id alone decides. A part of the objects is a range of places. So parts
    that follow each other read every segment once.
OBJ-2  No false alarm: if an object seems lost or corrupt, the check marks all volumes again. It reports the object if a
    kept state still needs it, and it is still lost or corrupt (as SCRUB-1). The same holds for a volume that cannot be
    read, because GC may raise a boundary meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from blake3 import blake3

from catalog.errors import AccessDenied, Corrupt, InvalidObject, NoSuchObject, NotOffered
from catalog.format.commit import SegmentRef
from catalog.format.ids import Sid, Vid
from catalog.format.keys import Key, data_key, index_key
from catalog.gc.mark import Kept, Marker
from catalog.gc.policy import Watch, unwatched
from catalog.gc.roots import volumes_of
from catalog.gc.scrub import Scrub, ScrubReport, check_length
from catalog.gc.sid_set import SidSet
from catalog.objects.object_store import ObjectStore
from seglog.base.dataclasses import dataclass

_YOUNG_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Looked:
    """One object, or a name that does not decode. `reason` is empty for a found one."""

    key: str
    state: str
    was_read: bool = False
    reason: str = ""


def place_of(sid: Sid) -> float:
    """Return the place of a segment in [0, 1) (OBJ-1)."""
    return int.from_bytes(blake3(sid.raw).digest()[:6], "big") / 2**48


class ObjectCheck:
    """The check of one prefix. It reads segments whose place lies in [start, end), except those of `done`.

    It calls `on_read` for each segment that it has read and found whole. `read_bytes` counts bytes of segments.
    """

    def __init__(
        self,
        store: ObjectStore,
        now_ms: int,
        start: float,
        end: float,
        done: Container[str] = (),
        on_read: Callable[[Sid], None] = lambda _: None,
        watch: Watch = unwatched,
    ) -> None:
        self._store = store
        self._now_ms = now_ms
        self._start = start
        self._end = end
        self._done = done
        self._on_read = on_read
        self._watch = watch
        self._scrub = Scrub(store, now_ms=now_ms)
        self._report = ScrubReport()

    @property
    def read_bytes(self) -> int:
        return self._report.size_bytes

    def run(self) -> Iterator[Looked]:
        """Yield each object, suspect ones last. Raises the errors of the store."""
        marker = self._marked()
        for vid, trouble in marker.blocked.items():
            yield Looked(str(vid), "corrupt", reason=f"its volume cannot be read: {trouble}")
        yield from self._uploads()
        suspects: list[tuple[Vid, SegmentRef]] = []
        for number, (vid, ref) in enumerate(self._segments(marker)):
            self._watch("looking at objects", number, None, "segments")
            is_read = self._is_wanted(ref.sid)
            if any(self._bad(vid, ref, is_read=is_read)):
                suspects.append((vid, ref))
                continue
            if is_read:
                self._on_read(ref.sid)
            for key in (data_key(vid, ref.sid), index_key(vid, ref.sid)):
                yield Looked(key, "found", is_read)
        yield from self._unnamed(marker)
        if suspects:
            yield from self._judged(suspects)

    def _marked(self) -> Marker:
        """Mark all volumes. If some cannot be read, mark again: GC may have raised a boundary meanwhile (OBJ-2)."""
        marker = self._scrub.marked(self._watch)
        return self._scrub.marked(self._watch) if marker.blocked else marker

    def _is_wanted(self, sid: Sid) -> bool:
        place = place_of(sid)
        in_part = any(self._start <= point < self._end for point in (place, place + 1))  # a part may go past 1
        return in_part and str(sid) not in self._done

    def _segments(self, marker: Marker) -> Iterator[tuple[Vid, SegmentRef]]:
        """Yield each segment of a kept state once. If GC raises a boundary meanwhile, mark again for that volume."""
        seen, moved = SidSet(), set[Vid]()
        for volume in _readable(marker):
            try:
                yield from self._new_segments(marker, volume, seen)
            except (Corrupt, NoSuchObject):
                if not self._scrub.has_moved(volume):
                    raise
                moved.add(volume.vid)
        if moved:
            again = self._marked()
            for volume in _readable(again):
                if volume.vid in moved:
                    yield from self._new_segments(again, volume, seen)

    def _new_segments(self, marker: Marker, volume: Kept, seen: SidSet) -> Iterator[tuple[Vid, SegmentRef]]:
        for vid, ref in self._scrub.segments(marker, volume):
            if ref.sid not in seen:
                seen.add(ref.sid)
                yield vid, ref

    def _bad(self, vid: Vid, ref: SegmentRef, *, is_read: bool) -> Iterator[Looked]:
        if is_read:
            for finding in self._scrub.read(vid, ref, self._report):
                yield Looked(finding.place, "corrupt", True, finding.reason)
            return
        sizes = {data_key(vid, ref.sid): ref.data_length, index_key(vid, ref.sid): ref.index_length}
        for key, length in sizes.items():
            try:
                check_length(self._store, key, length)
            except NoSuchObject:
                yield Looked(key, "lost", reason="it is not there")
            except InvalidObject as damage:
                yield Looked(key, "corrupt", reason=damage.reason)

    def _judged(self, suspects: list[tuple[Vid, SegmentRef]]) -> Iterator[Looked]:
        """Yield the objects of the suspects again, by the names of now (OBJ-2)."""
        marker = self._marked()
        for vid, ref in suspects:
            if ref.sid not in marker.sids[vid]:
                continue
            bad = {looked.key: looked for looked in self._bad(vid, ref, is_read=self._is_wanted(ref.sid))}
            for key in (data_key(vid, ref.sid), index_key(vid, ref.sid)):
                looked = bad.get(key, Looked(key, "found"))
                yield Looked(key, "lost", reason="it is not there") if self._is_lost(key, looked) else looked

    def _is_lost(self, key: Key, looked: Looked) -> bool:
        if looked.state != "corrupt":
            return False
        try:
            self._store.head(key)
        except NoSuchObject:
            return True
        return False

    # ------------------------------------------------------------ objects that no commit names

    def _uploads(self) -> Iterator[Looked]:
        """Yield the multipart uploads. Without the right to list them, say so."""
        try:
            uploads = sorted({key for key, _ in self._store.list_uploads("")})
        except (AccessDenied, NotOffered) as refusal:
            yield Looked("", "uploading", reason=f"unfinished uploads cannot be listed: {refusal}")
            return
        for key in uploads:
            yield Looked(key, "uploading", reason="a multipart upload that is not completed")

    def _unnamed(self, marker: Marker) -> Iterator[Looked]:
        for vid in volumes_of(self._store):
            if vid in marker.blocked:
                continue
            for sid, _ in self._scrub.listed(vid):
                if sid not in marker.sids[vid]:
                    is_young = sid.created_ms + _YOUNG_MS > self._now_ms
                    reason = "no commit names it" + (" yet" if is_young else ": GC deletes it")
                    yield Looked(data_key(vid, sid), "uploading" if is_young else "orphan", reason=reason)


def _readable(marker: Marker) -> list[Kept]:
    """Return the volumes with kept states whose commits the mark has read."""
    return [volume for volume in marker.kept.values() if volume.is_held and volume.vid not in marker.blocked]
