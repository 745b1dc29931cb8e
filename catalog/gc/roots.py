"""The names that hold states, read from the store: refs, tags and pins. Also the list of all volumes.

A name that does not decode may hold any volume of its topic. A pin that does not decode may hold any state of its
volume. `Roots` lists such topics and volumes as doubtful. GC does not read a key that is no name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from catalog.errors import Corrupt, NoSuchObject
from catalog.format.control import full_name
from catalog.format.ids import Vid
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
from catalog.gc.policy import HeldBy, Holder
from catalog.objects.object_store import ObjectStore, each_of
from seglog.base.dataclasses import dataclass

Point = tuple[Vid, int]


@dataclass(slots=True)
class Roots:
    """The holders that the names give. `refs` and `deleted_refs` hold volumes, `points` single states.

    `deleted_refs` also has the time of each deletion. `named` has the topic and branch of each of `refs`.
    `expired_pins` has (volume, name, time of expiry). `doubtful_topics` and `doubtful_volumes` have a name that does
    not decode. `unknown_keys` are keys among the names that are no names.
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
        """Yield the keys that `parse` accepts. Add the other keys to `unknown_keys`."""
        for key in keys:
            if parse(key) is None:
                self.unknown_keys.append(key)
            else:
                yield key

    def take_ref(self, key: str, body: bytes, *, only: Vid | None = None) -> None:
        """Add a ref. If `only` is given, add only a ref that names this volume."""
        topic, branch = topic_of(key), branch_of(key)
        name = full_name(topic, branch)
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
        vid_and_name = volume_in_pin(key)
        assert vid_and_name is not None  # noqa: S101 - no other key is read
        vid, name = vid_and_name
        try:
            pin = decode_pin(body, key)
        except Corrupt as damage:
            self.doubtful_volumes[vid] = damage
            return
        if pin.expires_at_ms > now_ms:
            self.points[pin.point.vid, pin.point.lsn].append(Holder(HeldBy.PIN, name))
        else:
            self.expired_pins.append((vid, name, pin.expires_at_ms))


def read_roots(store: ObjectStore, now_ms: int, topic: str | None = None, beside: Iterable[Vid] = ()) -> Roots:
    """Read all refs, tags and pins, with one GET for each. Pins that expired by `now_ms` hold nothing.

    With `topic`, read only its names, and the pins of its named volumes and of the volumes `beside`.
    """
    roots = Roots()
    for key, body in _bodies(store, roots.known(store.list(refs_prefix(topic)), named_by)):
        roots.take_ref(key, body)
    for key, body in _bodies(store, roots.known(store.list(tags_prefix(topic)), named_by)):
        roots.take_tag(key, body)
    pins: Iterable[str] = store.list(pins_prefix())
    if topic is not None:
        volumes = {*roots.refs, *roots.deleted_refs, *beside}
        pins = (key for key in pins if (pin := volume_in_pin(key)) is None or pin[0] in volumes)
    for key, body in _bodies(store, roots.known(pins, volume_in_pin)):
        roots.take_pin(key, body, now_ms)
    return roots


def volumes_of(store: ObjectStore) -> Iterator[Vid]:
    """Yield all volumes, ascending. One LIST of one key for each volume."""
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
    """Yield key and body of each of `keys` that still exists."""

    def body_of(key: str) -> bytes | None:
        try:
            return store.get(Key(key))
        except NoSuchObject:
            return None

    listed = list(keys)
    bodies = each_of(store, listed, body_of)
    return ((key, body) for key, body in zip(listed, bodies, strict=True) if body is not None)
