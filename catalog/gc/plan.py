"""Plans of GC. A plan lists the garbage that one run found, in pages of bounded size. A later run deletes this garbage.

    step                                          what a crash after it leaves
    1 GC writes each page when it is full.        pages without a plan, which GC deletes once they are old
    2 GC writes the plan.                         the plan
    (A later run deletes what is in it.)
    3 GC deletes the plan.                        pages without a plan
    4 GC deletes its pages.                       nothing

PLAN-1  A plan is complete as soon as it exists, and never changes. It holds ids, never keys.
PLAN-2  GC may delete the garbage of a plan again and again.

Each plan has a number. The numbers grow with the time at which GC began the plans.

OUT-1  A plan is outgrown if something needs one of its objects now: a name that was restored, a commit that was
    published late, a longer window. An outgrown plan is never applied as a whole (`Collector.apply`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import field, replace

from catalog.errors import Corrupt, InvalidObject, NoSuchObject
from catalog.format.envelope import MessageType, fields_of, parse, serialized, timestamp, wrap
from catalog.format.ids import Sid, Vid
from catalog.format.keys import (
    Key,
    checkpoints_key,
    commit_key,
    control_key,
    data_key,
    fork_key,
    list_key,
    page_key,
    pin_key,
    plan_key,
    plan_of,
    plan_prefix,
    plans_prefix,
)
from catalog.format.lazy_imports import pb
from catalog.gc.mark import Marker
from catalog.objects.object_store import ObjectStore
from catalog.objects.settled_writes import put_once
from seglog.base.dataclasses import dataclass

PAGE_OBJECTS = 10_000


@dataclass(slots=True)
class Garbage:
    """The garbage of one volume.

    `segments` are sids that a commit once named, with their sizes in bytes. `orphans` are sids that no commit named.

    `closes`: no range of the volume was kept, though single states may be. The volume takes no more commits, and GC
    deletes it if nothing of it stays.

    `raises`: the boundary lies below the first kept LSN, so the volume still holds states of its parents without need.

    `first_lsn` is the first kept LSN; 0 if no range is kept.
    """

    vid: Vid
    lsns: list[int] = field(default_factory=list[int])
    segments: list[tuple[Sid, int]] = field(default_factory=list[tuple[Sid, int]])
    orphans: list[Sid] = field(default_factory=list[Sid])
    lists: list[tuple[int, bytes]] = field(default_factory=list[tuple[int, bytes]])
    forks: list[Vid] = field(default_factory=list[Vid])
    pins: list[str] = field(default_factory=list[str])
    closes: bool = False
    raises: bool = False
    first_lsn: int = 0

    def __len__(self) -> int:
        names = (self.lsns, self.segments, self.orphans, self.lists, self.forks, self.pins)
        return sum(len(keys) for keys in names) + self.closes + self.raises

    @property
    def counts(self) -> Counter[str]:
        """Return the number of objects of each kind, in the words of the report of GC."""
        segments = len(self.segments) + len(self.orphans)
        return Counter(
            {
                "commits": len(self.lsns),
                "segments": segments,
                "lists": len(self.lists),
                "forks": len(self.forks),
                "pins": len(self.pins),
                "volumes": int(self.closes),
            }
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan and its `number`. `objects` counts each segment once.

    `is_whole` is False if there are pages and no plan; then `pages` and `objects` are 0.
    """

    number: int
    written_at_ms: int
    pages: int
    objects: int
    is_whole: bool = True


# ---------------------------------------------------------------- bytes


def encode_plan(plan: Plan) -> bytes:
    message = pb.GcPlan(written_at=timestamp(plan.written_at_ms), pages=plan.pages, objects=plan.objects)
    return wrap(MessageType.GC_PLAN, serialized(message))


def decode_plan(body: bytes, number: int) -> Plan:
    """Decode a plan. Raises `InvalidObject` and `FormatUnsupported`."""
    key = plan_key(number)
    message = parse(pb.GcPlan(), MessageType.GC_PLAN, body, key)
    with fields_of(key):
        return Plan(number, message.written_at.ToMilliseconds(), message.pages, message.objects)


def encode_page(garbage: list[Garbage], written_at_ms: int, nonce: bytes) -> bytes:
    volumes = [
        pb.GcVolume(
            vid=volume.vid.raw,
            lsns=volume.lsns,
            segments=[sid.raw for sid, _ in volume.segments],
            segment_bytes=[size for _, size in volume.segments],
            orphans=[sid.raw for sid in volume.orphans],
            lists=[pb.GcList(lsn=lsn, digest=digest) for lsn, digest in volume.lists],
            forks=[vid.raw for vid in volume.forks],
            pins=volume.pins,
            closes=volume.closes,
            raises=volume.raises,
            first_lsn=volume.first_lsn,
        )
        for volume in garbage
    ]
    message = pb.GcPage(written_at=timestamp(written_at_ms), volumes=volumes, nonce=nonce)
    return wrap(MessageType.GC_PAGE, serialized(message))


def decode_page(body: bytes, key: str) -> tuple[list[Garbage], int]:
    """Return the garbage of the page, and when it was written. Raises `InvalidObject` and `FormatUnsupported`."""
    message = parse(pb.GcPage(), MessageType.GC_PAGE, body, key)
    with fields_of(key):
        return [_garbage(volume) for volume in message.volumes], message.written_at.ToMilliseconds()


def _garbage(message: pb.GcVolume) -> Garbage:
    return Garbage(
        Vid(message.vid),
        list(message.lsns),
        [(Sid(raw), size) for raw, size in zip(message.segments, message.segment_bytes, strict=True)],
        [Sid(raw) for raw in message.orphans],
        [(entry.lsn, entry.digest) for entry in message.lists],
        [Vid(raw) for raw in message.forks],
        list(message.pins),
        message.closes,
        message.raises,
        message.first_lsn,
    )


# ---------------------------------------------------------------- objects


class PlanWriter:
    """Take garbage, volume by volume, and write each page when it is full.

    Without a `store` the writer only counts. If there is no garbage, it writes no plan. `on_page` gets each page.
    """

    def __init__(
        self, store: ObjectStore | None, number: int, on_page: Callable[[list[Garbage]], None] = lambda _: None
    ) -> None:
        self._store = store
        self._number = number
        self._on_page = on_page
        self._nonce = os.urandom(16)
        self._waiting: list[Garbage] = []
        self._count = 0
        self.pages = 0
        self.objects = 0

    def of(self, vid: Vid) -> Garbage:
        """Return the entry for the garbage of `vid`. After each call of `added`, the caller calls this method again."""
        if not self._waiting or self._waiting[-1].vid != vid:
            self._waiting.append(Garbage(vid))
        return self._waiting[-1]

    def added(self, now_ms: int) -> None:
        """Count one more object of garbage, and write the page if it is full."""
        self._count += 1
        self.objects += 1
        if self._count >= PAGE_OBJECTS:
            self._write(now_ms)

    def close(self, now_ms: int) -> Plan | None:
        """Write the plan and return it. If nothing was `added`, write nothing and return None."""
        if self._count or (self.pages and any(map(len, self._waiting))):
            self._write(now_ms)
        if not self.pages:
            return None
        plan = Plan(self._number, now_ms, self.pages, self.objects)
        if self._store is not None:
            put_once(self._store, plan_key(self._number), encode_plan(plan))
        return plan

    def _write(self, now_ms: int) -> None:
        if self._store is not None:
            body = encode_page([volume for volume in self._waiting if len(volume)], now_ms, self._nonce)
            while put_once(self._store, page_key(self._number, self.pages), body) != body:
                if self.pages:
                    raise InvalidObject(page_key(self._number, self.pages), "another run writes this plan, too")
                self._number += 1  # another run has this number: each plan has its own
        self._on_page([volume for volume in self._waiting if len(volume)])
        self.pages += 1
        self._count = 0
        self._waiting.clear()


def _ignore(_key: str) -> None:
    """Ignore the unknown key."""


def plans(store: ObjectStore, on_unknown: Callable[[str], None] = _ignore) -> list[Plan]:
    """Return the plans in the store, newest first. A plan that does not decode counts as pages without a plan.

    Call `on_unknown` with each key among the plans that is neither a plan's nor a page's.
    """
    by_number: dict[int, Plan] = {}
    for key in store.list(plans_prefix()):
        number = plan_of(key)
        if number is None:
            on_unknown(key)
        elif number not in by_number:
            by_number[number] = _plan(store, number, key)
    return list(by_number.values())


def _plan(store: ObjectStore, number: int, key: str) -> Plan:
    try:
        return decode_plan(store.get(plan_key(number)), number)
    except (NoSuchObject, Corrupt):
        pass
    try:
        _, written_at_ms = decode_page(store.get(Key(key)), key)
    except (NoSuchObject, Corrupt):
        written_at_ms = 0
    return Plan(number, written_at_ms, 0, 0, is_whole=False)


def pages_of(store: ObjectStore, plan: Plan) -> Iterator[list[Garbage]]:
    """Yield the garbage of each page, and pass over missing pages. Raises `InvalidObject` if a page does not decode."""
    for page in range(plan.pages):
        key = page_key(plan.number, page)
        try:
            yield decode_page(store.get(key), key)[0]
        except NoSuchObject:
            continue


def remove_plan(store: ObjectStore, number: int) -> None:
    """Delete the plan, then its pages. Leave all other keys among them. Idempotent."""
    store.delete(plan_key(number))
    store.delete_many([Key(key) for key in store.list(plan_prefix(number)) if plan_of(key) is not None])


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
    reason = f"the kept states of its volume begin with lsn {first}" if first else "nothing keeps a range of its volume"
    for lsn in garbage.lsns:
        yield PlannedKey(commit_key(vid, lsn), None, reason)
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
    keys = [planned.key for planned in planned_keys(small, is_held=is_held)]
    return [*keys, checkpoints_key(garbage.vid)] if garbage.closes and not is_held else keys


def keys_needed(garbage: Garbage, marker: Marker, attempts: Collection[Sid]) -> Iterator[Key]:
    """Yield the keys of `garbage` that GC keeps now. `marker` has marked all volumes after the plan was written.

    If the volume is damaged, all its keys may be needed (MARK-3).
    """
    vid, volume = garbage.vid, marker.look(garbage.vid)
    if vid in marker.blocked:
        yield from (planned.key for planned in planned_keys(garbage))
        return
    yield from (commit_key(vid, lsn) for lsn in garbage.lsns if volume.keeps(lsn))
    yield from (list_key(vid, lsn, digest) for lsn, digest in garbage.lists if volume.keeps(lsn))
    for sid in (*(sid for sid, _ in garbage.segments), *garbage.orphans):
        if sid in marker.sids[vid] or sid in attempts:
            yield data_key(vid, sid)
    yield from (fork_key(vid, fork) for fork in garbage.forks if not marker.is_gone(fork))
    expired = {name for of, name, _ in marker.roots.expired_pins if of == vid}
    held_names = {holder.name for (of, _), holders in marker.roots.points.items() if of == vid for holder in holders}
    yield from (pin_key(vid, name) for name in garbage.pins if name in held_names - expired)
    if garbage.closes and volume.first_lsn is not None:
        yield control_key(vid)
