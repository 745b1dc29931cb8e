"""Names for one state of a volume: tags, which GC keeps whatever their age, and pins, which expire.

**Tags** are names for points in a topic's history. A tag never moves: a name means one state until the tag is deleted.
The object of a deleted tag stays, with the time of the deletion, and the name is free. The next tag of this name
replaces the object by compare-and-swap.

The local catalog keeps the tags that were made or listed here, for the completion of names. Nothing else reads them.

**Pins** are leases on a state, for a reader that works while GC may run. A restore or a Spark job holds a pin.

A pin is an object that names its holder and the time until which it holds. The holder renews the pin in time. A pin
that its holder does not renew expires, so a reader that dies holds nothing for long. The expiry is counted from the
store's time, or from the holder's clock if that is ahead. So a holder whose clock is behind loses nothing (TIME-2).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from catalog.errors import KeyChanged, NoSuchObject, NoSuchPin, NoSuchTag, OutOfWindow, PinLost, tag_exists
from catalog.format.commit import ForkPoint
from catalog.format.control import Pin, Tag
from catalog.format.keys import (
    Key,
    branch_of,
    named_by,
    pin_key,
    pins_prefix,
    tag_key,
    tags_prefix,
    topic_of,
    volume_in_pin,
)
from catalog.format.small_objects import decode_pin, decode_tag, encode_pin, encode_tag
from catalog.objects.settled_writes import change, put_once
from catalog.objects.store_time import latest_ms
from catalog.refs.kept_points import check_kept
from catalog.refs.oplog import Oplog
from catalog.refs.ref_store import Found, RefStore, is_same
from catalog.volume import Volumes
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NamedTag:
    name: str
    tag: Tag


class Tags:
    """The tags under one prefix. Safe to use from many threads. Every method may raise `InvalidName`."""

    def __init__(self, volumes: Volumes, writer_id: str = "") -> None:
        self._volumes = volumes
        self._store = volumes.store
        self._tags = RefStore(volumes.store, Oplog(volumes.store, writer_id), encode_tag, decode_tag)

    @checked
    def create(self, topic: str, name: str, point: ForkPoint, *, branch: str, now_ms: int, message: str = "") -> Tag:
        """Put a tag on `point` and return it.

        Raises `Conflict`, and `OutOfWindow` if the point is not kept any more.
        """
        key = tag_key(topic, name)
        current = self._tags.read_current(key)
        if current.alive is not None:
            raise tag_exists(topic, name)

        def named(tag: Tag | None) -> Tag:
            if tag is not None and tag.deleted_at_ms is None:
                raise tag_exists(topic, name)
            return Tag(point, branch, now_ms, message)

        return self._hold("tag create", key, current, named, point, now_ms=now_ms, message=message)

    @checked
    def get(self, topic: str, name: str) -> Tag:
        """Return the tag. Raises `NoSuchTag`."""
        tag = self._tags.read_current(tag_key(topic, name)).alive
        if tag is None:
            raise NoSuchTag(topic, name)
        return tag

    @checked
    def list(self, topic: str) -> list[NamedTag]:
        """Return the tags of the topic that are not deleted, ascending by name."""
        keys = [key for key in self._store.list(tags_prefix(topic)) if named_by(key)]
        tags = [(key, decode_tag(self._store.get(Key(key)), key)) for key in keys]
        alive = {key: tag for key, tag in tags if tag.deleted_at_ms is None}
        if self._volumes.cache is not None:
            bodies = {key: encode_tag(tag) for key, tag in alive.items()}
            self._volumes.cache.replace_objects(tags_prefix(topic), bodies)
        return [NamedTag(branch_of(key), tag) for key, tag in alive.items()]

    @checked
    def delete(self, topic: str, name: str, *, now_ms: int) -> Tag:
        """Delete the tag and return its former value.

        GC deletes the state if nothing else holds it. Raises `NoSuchTag`.
        """
        key = tag_key(topic, name)
        current = self._tags.read_current(key)
        if current.alive is None:
            raise NoSuchTag(topic, name)
        self._delete("tag delete", key, current, now_ms=now_ms)
        return current.alive

    def put_back(self, key: Key, former: Tag | None, value: Tag, *, now_ms: int, message: str) -> None:
        """Undo: replace `value` by `former`. If `former` is None or a deleted tag, delete the tag.

        Raises `KeyChanged`, and `OutOfWindow` if the state of `former` is not kept any more.
        """
        current = self._tags.read_current(key)
        if not is_same(current.value, value):
            raise KeyChanged(key)
        if former is None or former.deleted_at_ms is not None:
            self._delete("undo", key, current, now_ms=now_ms, message=message)
        else:
            again = former
            self._hold("undo", key, current, lambda _: again, former.point, now_ms=now_ms, message=message)

    # ------------------------------------------------------------ inside

    def _hold(
        self,
        operation: str,
        key: Key,
        current: Found[Tag],
        make: Callable[[Tag | None], Tag],
        point: ForkPoint,
        *,
        now_ms: int,
        message: str,
    ) -> Tag:
        """Replace `current` by the tag that `make` returns. Check before and after the change that `point` is kept."""
        check_kept(self._volumes, point)
        tag = self._tags.change(operation, key, make, now_ms=now_ms, message=message, current=current)
        assert tag is not None  # noqa: S101 - `make` makes one
        try:
            check_kept(self._volumes, point)
        except OutOfWindow:
            current = self._tags.read_current(key)
            if current.value == tag:
                self._delete("tag delete", key, current, now_ms=now_ms)
            raise
        if self._volumes.cache is not None:
            self._volumes.cache.put_object(key, encode_tag(tag))
        return tag

    def _delete(self, operation: str, key: Key, current: Found[Tag], *, now_ms: int, message: str = "") -> None:
        def deleted(tag: Tag | None) -> Tag | None:
            if tag is None:
                raise NoSuchTag(topic_of(key), branch_of(key))
            return tag if tag.deleted_at_ms is not None else replace(tag, deleted_at_ms=now_ms)

        self._tags.change(operation, key, deleted, now_ms=now_ms, message=message, current=current)
        if self._volumes.cache is not None:
            self._volumes.cache.drop_object(key)


@dataclass(frozen=True, slots=True)
class HeldPin:
    """A pin that a caller holds. `name` tells it from other pins on the same volume."""

    name: str
    pin: Pin

    @property
    def key(self) -> Key:
        return pin_key(self.pin.point.vid, self.name)


class Pins:
    """The pins under one prefix. Safe to use from many threads."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self._store = volumes.store

    def hold(self, point: ForkPoint, holder: str, *, ttl_ms: int, now_ms: int) -> HeldPin:
        """Put a pin on `point` and return it.

        If the state at `point` is not kept, take the pin back and raise `OutOfWindow`.
        """
        now_ms = latest_ms(self._store, now_ms)
        held_pin = HeldPin(os.urandom(8).hex(), Pin(point, now_ms + ttl_ms, holder, os.urandom(16)))
        put_once(self._store, held_pin.key, encode_pin(held_pin.pin))
        try:
            check_kept(self._volumes, point)
        except OutOfWindow:
            self.release(held_pin, now_ms=now_ms)
            raise
        return held_pin

    def renew(self, held_pin: HeldPin, *, ttl_ms: int, now_ms: int) -> HeldPin:
        """Extend the lease, and return the new pin. If the pin had expired, raise `PinLost`: its state may be gone."""
        now_ms = latest_ms(self._store, now_ms)
        return self._changed(held_pin, now_ms + ttl_ms, now_ms)

    def release(self, held_pin: HeldPin, *, now_ms: int) -> None:
        """End the lease. GC deletes the object later. Idempotent."""
        if held_pin.pin.expires_at_ms > now_ms:
            self._changed(held_pin, now_ms, now_ms)

    def find(self, name: str) -> HeldPin:
        """Return the pin with that name, expired or not. Raises `NoSuchPin`."""
        for key in self._store.list(pins_prefix()):
            vid_and_name = volume_in_pin(key)
            if vid_and_name is not None and vid_and_name[1] == name:
                with suppress(NoSuchObject):  # GC has deleted it since
                    return HeldPin(name, decode_pin(self._store.get(Key(key)), key))
        raise NoSuchPin(name)

    def list(self) -> list[HeldPin]:
        """Return all pins by name, expired ones included. GC deletes the object of an expired pin later."""
        pins = []
        for key in self._store.list(pins_prefix()):
            vid_and_name = volume_in_pin(key)
            with suppress(NoSuchObject):  # GC has deleted it since
                if vid_and_name is not None:
                    pins.append(HeldPin(vid_and_name[1], decode_pin(self._store.get(Key(key)), key)))
        return sorted(pins, key=lambda pin: pin.name)

    def _changed(self, held_pin: HeldPin, expires_at_ms: int, now_ms: int) -> HeldPin:
        pin = replace(held_pin.pin, expires_at_ms=expires_at_ms, nonce=os.urandom(16))
        new_body = encode_pin(pin)

        def renewed(body: bytes | None) -> bytes | None:
            if body is None:
                raise PinLost(held_pin.key)
            if body == new_body:
                return None
            if decode_pin(body, held_pin.key).expires_at_ms <= now_ms:
                raise PinLost(held_pin.key)
            return new_body

        change(self._store, held_pin.key, renewed)
        return replace(held_pin, pin=pin)
