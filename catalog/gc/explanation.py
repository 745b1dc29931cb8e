"""Why GC keeps an object, or would delete it. It changes nothing.

    verdict    meaning
    kept       a holder needs it, or GC never deletes such a key
    garbage    nothing needs it: the next run plans it, or a waiting plan names it
    young      nothing needs it yet, and it may still be published
    blocked    GC leaves the volume alone, because damage may hide a need (MARK-3)
    unknown    seglog did not write this key here (GC-5)

EXPLAIN-1  The search of GC decides whether an object is garbage (`catalog.gc.garbage_search`). The reasons are from the
    same marks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from catalog.errors import Corrupt, NoSuchObject
from catalog.format.ids import Sid, Vid
from catalog.format.keys import (
    Key,
    checkpoints_key,
    control_key,
    list_of,
    lsn_of,
    named_by,
    number_of,
    plan_of,
    sid_of,
    volume_in_pin,
    volume_of,
)
from catalog.gc.garbage_search import GarbageSearch
from catalog.gc.mark import Kept, Marker
from catalog.gc.plan import Garbage, PlannedKey, PlanWriter, pages_of, planned_keys, plans
from catalog.gc.policy import GcReport, Holder
from catalog.objects.object_store import ObjectStore
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    key: Key
    size_bytes: int
    verdict: str
    reasons: tuple[str, ...]


def explain(store: ObjectStore, marker: Marker, attempts: Collection[Sid], key: Key, *, grace_ms: int) -> Explanation:
    """Explain one key. `marker` has marked all volumes. Raises `NoSuchObject`, and the errors of the store."""
    size_bytes = store.head(key).size
    verdict, reasons = _judged(store, marker, attempts, key, grace_ms)
    if verdict == "garbage":
        reasons += list(_waiting(store, marker, key, grace_ms))
    return Explanation(key, size_bytes, verdict, tuple(reasons))


def _judged(
    store: ObjectStore, marker: Marker, attempts: Collection[Sid], key: Key, grace_ms: int
) -> tuple[str, list[str]]:
    if named_by(key) is not None:
        return "kept", ["it is a name, and GC deletes no name"]
    if number_of(key) is not None:
        return "kept", ["it is an entry of the oplog, and GC deletes none"]
    if plan_of(key) is not None:
        return "kept", ["it is a plan of GC, and goes when it is carried out"]
    if (pin := volume_in_pin(key)) is not None:
        return _of_pin(marker, *pin, grace_ms)
    vid = volume_of(key)
    if vid is None:
        return "unknown", ["it belongs to no volume and is no name, so GC leaves it alone"]
    if vid in marker.blocked:
        return "blocked", [f"damage may hide what needs its volume: {marker.blocked[vid]}"]
    reasons = _planned(store, marker, attempts, vid, grace_ms)
    if _whole(key) in reasons:
        return "garbage", [reasons[_whole(key)]]
    return _of_volume(marker, attempts, vid, key, grace_ms)


def _whole(key: str) -> str:
    """Return the key under which a plan names the object.

    For an index object, it is the key of its data object. The checkpoints of a volume go with its control.
    """
    data = key.removesuffix(".index")
    vid = volume_of(key)
    if vid is not None and key == checkpoints_key(vid):
        return control_key(vid)
    return data if sid_of(data) is not None else key


def _planned(store: ObjectStore, marker: Marker, attempts: Collection[Sid], vid: Vid, grace_ms: int) -> dict[str, str]:
    """Return the reason for each object of the volume that GC would plan now."""
    reasons: dict[str, str] = {}

    def take(page: list[Garbage]) -> None:
        reasons.update((planned.key, planned.reason) for planned in _keys(marker, page))

    writer = PlanWriter(None, marker.now_ms, take)
    search = GarbageSearch(store, marker, writer, GcReport(), attempts, now_ms=marker.now_ms, grace_ms=grace_ms)
    search.search(vid)
    writer.close(marker.now_ms)
    return reasons


def _of_pin(marker: Marker, vid: Vid, name: str, grace_ms: int) -> tuple[str, list[str]]:
    for of, pin, until_ms in marker.roots.expired_pins:
        if (of, pin) == (vid, name):
            age_ms = marker.now_ms - until_ms
            is_due = age_ms >= grace_ms
            reason = f"the pin expired {_span(age_ms)} ago, and holds nothing"
            return ("garbage", [reason]) if is_due else ("kept", [f"{reason}; it goes {_span(grace_ms)} after its end"])
    return "kept", ["the pin has not expired, or GC cannot read it"]


def _of_volume(marker: Marker, attempts: Collection[Sid], vid: Vid, key: Key, grace_ms: int) -> tuple[str, list[str]]:
    volume = marker.look(vid)
    kind = key.split("/")[1] if key.count("/") else ""
    if (lsn := lsn_of(key)) is not None:
        return "kept", list(_of_state(volume, lsn))
    if (list_name := list_of(key)) is not None:
        return "kept", [f"it belongs to the checkpoint of lsn {list_name[0]}", *_of_state(volume, list_name[0])]
    if (sid := sid_of(_whole(key))) is not None:
        return _of_segment(marker, attempts, volume, sid, grace_ms)
    if kind == "forks":
        return "kept", ["the fork that it names may still stand on this volume"]
    if key == f"{vid}/boundary":
        return "kept", ["it is a boundary, which stays also after its volume"]
    if kind in {"control", "checkpoints"} and key.count("/") == 1:
        return "kept", list(_of_holders(volume)) or ["its volume closes first: GC deletes this object last"]
    return "unknown", ["seglog writes no such key into a volume, so GC leaves it alone"]


def _of_state(volume: Kept, lsn: int) -> Iterator[str]:
    for holder in volume.points.get(lsn, ()):
        yield f"{holder} holds lsn {lsn}"
    if volume.first_lsn is None or lsn < volume.first_lsn:
        return
    newest = volume.tip is not None and lsn >= volume.tip.lsn
    part = "is the newest state" if newest else "is the first state of the window" if lsn == volume.first_lsn else ""
    state = f"lsn {lsn} {part}" if part else f"lsn {lsn} is in the window, which begins with lsn {volume.first_lsn}"
    yield f"{state}: {_names(volume.holders)} keeps it"


def _of_holders(volume: Kept) -> Iterator[str]:
    if volume.first_lsn is not None:
        yield f"{_names(volume.holders)} keeps its volume, from lsn {volume.first_lsn} on"
    for lsn in sorted(volume.points):
        yield f"{_names(volume.points[lsn])} holds lsn {lsn} of its volume"


def _of_segment(
    marker: Marker, attempts: Collection[Sid], volume: Kept, sid: Sid, grace_ms: int
) -> tuple[str, list[str]]:
    age_ms = marker.now_ms - sid.created_ms
    if sid in attempts:
        return "kept", ["an upload of this directory has it on record"]
    if sid not in marker.sids[volume.vid]:
        reason = f"no commit names it; it is {_span(age_ms)} old, and the grace is {_span(grace_ms)}"
        return "young", [reason]
    reasons = [reason for standing in _standing_on(marker, volume.vid) for reason in _of_states(marker, standing, sid)]
    return "kept", reasons or ["a kept state shows it"]


def _standing_on(marker: Marker, vid: Vid) -> Iterator[Kept]:
    """Yield the volume, and the volumes that were forked from it, directly or not."""
    for volume in list(marker.kept.values()):
        ancestor: Kept | None = volume
        while ancestor is not None and ancestor.vid != vid:
            parent = None if ancestor.control is None else ancestor.control.parent
            ancestor = None if parent is None else marker.look(parent.vid)
        if ancestor is not None and volume.is_held and volume.vid not in marker.blocked:
            yield volume


def _of_states(marker: Marker, volume: Kept, sid: Sid) -> Iterator[str]:
    """Yield the kept states of one volume that show a segment, with their holders."""
    volumes, vid = marker.volumes(), volume.vid
    name = "" if volume.control is None else f" of {volume.control.topic}@{volume.control.branch}"
    try:
        for lsn in volume.held_alone():
            if any(view.ref.sid == sid for view in volumes.snapshot(vid, lsn).segments):
                yield f"lsn {lsn}{name} shows it: {_names(volume.points[lsn])} holds that state"
        if volume.first_lsn is None or volume.tip is None:
            return
        first = volume.first_lsn
        if any(view.ref.sid == sid for view in volumes.snapshot(vid, first).segments):
            yield f"lsn {first}{name} shows it, where the kept states begin: {_names(volume.holders)} keeps them"
            return
        for commit in marker.commits(volumes, vid, first + 1, volume.tip.lsn):
            if any(ref.sid == sid for ref in commit.segments):
                yield f"lsn {commit.lsn}{name} names it: {_names(volume.holders)} keeps the states from lsn {first} on"
                return
    except (Corrupt, NoSuchObject) as damage:
        yield f"a state of volume {vid} cannot be read: {damage}"


def _keys(marker: Marker, page: Iterable[Garbage]) -> Iterator[PlannedKey]:
    for garbage in page:
        yield from planned_keys(garbage, is_held=marker.look(garbage.vid).is_held)


def _waiting(store: ObjectStore, marker: Marker, key: Key, grace_ms: int) -> Iterator[str]:
    for plan in plans(store):
        keys = (planned.key for page in pages_of(store, plan) for planned in _keys(marker, page))
        if plan.is_whole and any(planned == _whole(key) for planned in keys):
            yield f"plan {plan.number} names it, and may be carried out {_span(grace_ms)} after it was written"


def _names(holders: Iterable[Holder]) -> str:
    return ", ".join(dict.fromkeys(map(str, holders))) or "nothing"


def _span(span_ms: int) -> str:
    minutes = max(0, span_ms) // 60_000
    days, hours = minutes // 1440, minutes % 1440 // 60
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60} min"
