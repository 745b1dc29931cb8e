"""The names that hold something: refs, tags and pins, as they are in the store. And which volumes there are.

A name that does not decode may be that of anything of its topic, or for a pin of its volume: it is told as such. A key
that is none of a name is not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from catalog.errors import Corrupt, NoSuchObject
from catalog.format.control import MAIN
from catalog.format.gid import Vid
from catalog.format.keys import (
    Key,
    after_volume,
    branch_of,
    named_by,
    pins_prefix,
    refs_prefix,
    tags_prefix,
    topic_of,
    volume_in_pin,
    volume_of,
    volumes_prefix,
)
from catalog.format.small_objects import decode_pin, decode_ref, decode_tag
from catalog.objects.base import ObjectStore
from catalog.retention import HeldBy, Holder

__all__ = ["Point", "Roots", "read_roots", "volumes_of"]

_CONCURRENT_GETS = 16

Point = tuple[Vid, int]


@dataclass(slots=True)
class Roots:
    """`refs` and `deleted_refs` hold volumes, the latter with when they were deleted; `points` single states.

    `named` has the topic and branch of each of `refs`.
    `expired_pins` has (volume, name, when). `doubtful_topics` and `doubtful_volumes` have a name that does not decode.
    `unknown_keys` lie among the names and are none.
    """

    refs: dict[Vid, list[Holder]] = field(default_factory=lambda: defaultdict[Vid, list[Holder]](list))
    deleted_refs: dict[Vid, list[tuple[str, int]]] = field(
        default_factory=lambda: defaultdict[Vid, list[tuple[str, int]]](list)
    )
    named: dict[Vid, list[tuple[str, str]]] = field(
        default_factory=lambda: defaultdict[Vid, list[tuple[str, str]]](list)
    )
    points: dict[Point, list[Holder]] = field(default_factory=lambda: defaultdict[Point, list[Holder]](list))
    expired_pins: list[tuple[Vid, str, int]] = field(default_factory=list[tuple[Vid, str, int]])
    doubtful_topics: dict[str, Corrupt] = field(default_factory=dict[str, Corrupt])
    doubtful_volumes: dict[Vid, Corrupt] = field(default_factory=dict[Vid, Corrupt])
    unknown_keys: list[str] = field(default_factory=list[str])

    def known(self, keys: Iterable[str], parse: Callable[[str], object | None]) -> Iterator[str]:
        """Those that `parse` knows; the others are put down."""
        for key in keys:
            if parse(key) is None:
                self.unknown_keys.append(key)
            else:
                yield key

    def take_ref(self, key: str, body: bytes, *, only: Vid | None = None) -> None:
        """`only`: if it names that volume."""
        topic, branch = topic_of(key), branch_of(key)
        name = topic if branch == MAIN else f"{topic}@{branch}"
        try:
            ref = decode_ref(body, key)
        except Corrupt as damage:
            self.doubtful_topics[topic] = damage
            return
        if only is not None and ref.vid != only:
            return
        if ref.deleted_at_ms is None:
            self.refs[ref.vid].append(Holder(HeldBy.REF, name))
            self.named[ref.vid].append((topic, branch))
        else:
            self.deleted_refs[ref.vid].append((name, ref.deleted_at_ms))

    def take_tag(self, key: str, body: bytes) -> None:
        try:
            tag = decode_tag(body, key)
        except Corrupt as damage:
            self.doubtful_topics[topic_of(key)] = damage
            return
        if tag.deleted_at_ms is not None:
            return
        point = tag.point
        self.points[point.vid, point.lsn].append(Holder(HeldBy.TAG, f"{topic_of(key)}/{branch_of(key)}"))

    def take_pin(self, key: str, body: bytes, now_ms: int) -> None:
        named = volume_in_pin(key)
        assert named is not None  # noqa: S101 - no other key is read
        vid, name = named
        try:
            pin = decode_pin(body, key)
        except Corrupt as damage:
            self.doubtful_volumes[vid] = damage
            return
        if pin.expires_at_ms > now_ms:
            self.points[pin.point.vid, pin.point.lsn].append(Holder(HeldBy.PIN, name, pin.expires_at_ms))
        else:
            self.expired_pins.append((vid, name, pin.expires_at_ms))


def read_roots(store: ObjectStore, now_ms: int) -> Roots:
    """One GET for each name there is. Pins that expired by `now_ms` hold nothing."""
    roots = Roots()
    for key, body in _bodies(store, roots.known(store.list(refs_prefix()), named_by)):
        roots.take_ref(key, body)
    for key, body in _bodies(store, roots.known(store.list(tags_prefix()), named_by)):
        roots.take_tag(key, body)
    for key, body in _bodies(store, roots.known(store.list(pins_prefix()), volume_in_pin)):
        roots.take_pin(key, body, now_ms)
    return roots


def volumes_of(store: ObjectStore) -> Iterator[Vid]:
    """Ascending. One LIST of one key for each."""
    after = ""
    while True:
        key = next(store.list(volumes_prefix(), limit=1, start_after=after), None)
        if key is None:
            return
        vid = volume_of(key)
        if vid is not None:
            yield vid
        after = key if vid is None else after_volume(vid)


def _bodies(store: ObjectStore, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Of those that are still there."""

    def body_of(key: str) -> bytes | None:
        try:
            return store.get(Key(key))
        except NoSuchObject:
            return None

    listed = list(keys)
    if len(listed) < 2:
        bodies: Iterable[bytes | None] = map(body_of, listed)
        yield from _there(listed, bodies)
        return
    with ThreadPoolExecutor(min(_CONCURRENT_GETS, len(listed)), "roots-get") as pool:
        yield from _there(listed, pool.map(body_of, listed))


def _there(keys: Iterable[str], bodies: Iterable[bytes | None]) -> Iterator[tuple[str, bytes]]:
    return ((key, body) for key, body in zip(keys, bodies, strict=True) if body is not None)
