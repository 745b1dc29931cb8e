"""Plans of GC: what one run found that nothing needs, for a later run to take away. Objects in pages of bounded size.

    step                        what a crash after it leaves
    1 pages, each when full     pages without a plan: they are taken away once they are old
    2 the plan                  the plan
    (a later run takes away what is in it)
    3 the plan goes             pages without a plan
    4 its pages go              nothing

G1  A plan is whole once it is there, and never changes. It holds ids, never keys.
G2  What a plan names may be taken away again and again.

Numbers of plans grow with the time at which they were begun.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from catalog import schema_pb2 as pb
from catalog.errors import Corrupt, InvalidObject, NoSuchObject
from catalog.format.envelope import MessageType, wrap
from catalog.format.gid import Sid, Vid
from catalog.format.keys import Key, page_key, plan_key, plan_of, plan_prefix, plans_prefix
from catalog.format.wire import fields_of, parse, serialized, timestamp
from catalog.objects.base import ObjectStore
from catalog.objects.put_once import put_once

__all__ = [
    "PAGE_OBJECTS",
    "Garbage",
    "Plan",
    "PlanWriter",
    "decode_page",
    "decode_plan",
    "encode_page",
    "encode_plan",
    "pages_of",
    "plans",
    "remove_plan",
]

PAGE_OBJECTS = 10_000


@dataclass(slots=True)
class Garbage:
    """Of one volume. `segments` are sids that a commit named once, with their bytes; `orphans` those that none did.

    `closes`: nobody held it, but for single states: it takes no commit any more, and goes if nothing stays.
    `raises`: its boundary lies below what is kept, so its parents are held for it without need.
    `first_lsn`: where what is kept of it begins; 0 if nobody holds it.
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
        return sum(len(each) for each in names) + self.closes + self.raises


@dataclass(frozen=True, slots=True)
class Plan:
    """`number` names it; `is_whole` is False for pages that no plan is there for, and then there is no more to know.

    `objects` counts a segment once.
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
    """Raises `InvalidObject` and `FormatUnsupported`."""
    message = pb.GcPlan()
    place = plan_key(number)
    parse(message, MessageType.GC_PLAN, body, place)
    with fields_of(place):
        return Plan(number, message.written_at.ToMilliseconds(), message.pages, message.objects)


def encode_page(garbage: list[Garbage], written_at_ms: int, nonce: bytes) -> bytes:
    volumes = [
        pb.GcVolume(
            vid=each.vid.raw,
            lsns=each.lsns,
            segments=[sid.raw for sid, _ in each.segments],
            segment_bytes=[size for _, size in each.segments],
            orphans=[sid.raw for sid in each.orphans],
            lists=[pb.GcList(lsn=lsn, digest=digest) for lsn, digest in each.lists],
            forks=[vid.raw for vid in each.forks],
            pins=each.pins,
            closes=each.closes,
            raises=each.raises,
            first_lsn=each.first_lsn,
        )
        for each in garbage
    ]
    message = pb.GcPage(written_at=timestamp(written_at_ms), volumes=volumes, nonce=nonce)
    return wrap(MessageType.GC_PAGE, serialized(message))


def decode_page(body: bytes, place: str) -> tuple[list[Garbage], int]:
    """What is in it, and when it was written. Raises `InvalidObject` and `FormatUnsupported`."""
    message = pb.GcPage()
    parse(message, MessageType.GC_PAGE, body, place)
    with fields_of(place):
        return [_garbage(volume) for volume in message.volumes], message.written_at.ToMilliseconds()


def _garbage(message: pb.GcVolume) -> Garbage:
    return Garbage(
        Vid(message.vid),
        list(message.lsns),
        [(Sid(raw), size) for raw, size in zip(message.segments, message.segment_bytes, strict=True)],
        [Sid(raw) for raw in message.orphans],
        [(each.lsn, each.digest) for each in message.lists],
        [Vid(raw) for raw in message.forks],
        list(message.pins),
        message.closes,
        message.raises,
        message.first_lsn,
    )


# ---------------------------------------------------------------- objects


class PlanWriter:
    """Takes garbage as it is found, volume by volume, and writes a page whenever one is full.

    Without a `store` it only counts. A plan that found nothing is not written.
    """

    def __init__(self, store: ObjectStore | None, number: int) -> None:
        self._store = store
        self._number = number
        self._nonce = os.urandom(16)
        self._waiting: list[Garbage] = []
        self._count = 0
        self.pages = 0
        self.objects = 0

    def of(self, vid: Vid) -> Garbage:
        """Where to put what is garbage of `vid`. Ask again after each that was put there (`added`)."""
        if not self._waiting or self._waiting[-1].vid != vid:
            self._waiting.append(Garbage(vid))
        return self._waiting[-1]

    def added(self, now_ms: int) -> None:
        """One more is in."""
        self._count += 1
        self.objects += 1
        if self._count >= PAGE_OBJECTS:
            self._write(now_ms)

    def close(self, now_ms: int) -> Plan | None:
        """The plan, which is there from now on; None if it has nothing but what was not `added`."""
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
            body = encode_page([each for each in self._waiting if len(each)], now_ms, self._nonce)
            while put_once(self._store, page_key(self._number, self.pages), body) != body:
                if self.pages:
                    raise InvalidObject(page_key(self._number, self.pages), "another run writes this plan, too")
                self._number += 1  # it is another run's: each plan has its own
        self.pages += 1
        self._count = 0
        self._waiting.clear()


def _unheard(_key: str) -> None:
    """Nobody asks."""


def plans(store: ObjectStore, on_unknown: Callable[[str], None] = _unheard) -> list[Plan]:
    """Those that are there, newest first. A plan that does not decode counts as none: its pages are only pages.

    `on_unknown` is told of the keys among them that are none of ours.
    """
    found: dict[int, Plan] = {}
    for key in store.list(plans_prefix()):
        number = plan_of(key)
        if number is None:
            on_unknown(key)
        elif number not in found:
            found[number] = _plan(store, number, key)
    return list(found.values())


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
    """Page by page. One that is not there is passed over; raises `InvalidObject` for one that does not decode."""
    for page in range(plan.pages):
        key = page_key(plan.number, page)
        try:
            yield decode_page(store.get(key), key)[0]
        except NoSuchObject:
            continue


def remove_plan(store: ObjectStore, number: int) -> None:
    """The plan, then its pages, and nothing else that lies among them. Idempotent."""
    store.delete(plan_key(number))
    store.delete_many([Key(key) for key in store.list(plan_prefix(number)) if plan_of(key) is not None])
