"""Pins: leases on a state, for a reader that works while GC may run. A restore or a Spark job holds a pin.

A pin is an object that names its holder and the time until which it holds. The holder renews the pin in time. A pin
that its holder does not renew expires, so a reader that dies holds nothing for long. The expiry is counted from the
store's time, or from the holder's clock if that is ahead. So a holder whose clock is behind loses nothing (TIME-2).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace

from catalog.errors import NoSuchObject, NoSuchPin, OutOfWindow, PinLost
from catalog.format.commit import ForkPoint
from catalog.format.control import Pin
from catalog.format.keys import Key, pin_key, pins_prefix, volume_in_pin
from catalog.format.small_objects import decode_pin, encode_pin
from catalog.objects.settled_writes import change, put_once
from catalog.objects.store_time import latest_ms
from catalog.refs.beside_gc import check_kept
from catalog.volume import Volumes

__all__ = ["HeldPin", "Pins"]


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
        held = HeldPin(os.urandom(8).hex(), Pin(point, now_ms + ttl_ms, holder, os.urandom(16)))
        put_once(self._store, held.key, encode_pin(held.pin))
        try:
            check_kept(self._volumes, point)
        except OutOfWindow:
            self.release(held, now_ms=now_ms)
            raise
        return held

    def renew(self, held: HeldPin, *, ttl_ms: int, now_ms: int) -> HeldPin:
        """Extend the lease, and return the new pin. If the pin had expired, raise `PinLost`: its state may be gone."""
        now_ms = latest_ms(self._store, now_ms)
        return self._changed(held, now_ms + ttl_ms, now_ms)

    def release(self, held: HeldPin, *, now_ms: int) -> None:
        """End the lease. GC deletes the object later. Idempotent."""
        if held.pin.expires_at_ms > now_ms:
            self._changed(held, now_ms, now_ms)

    def find(self, name: str) -> HeldPin:
        """Return the pin with that name, expired or not. Raises `NoSuchPin`."""
        for key in self._store.list(pins_prefix()):
            named = volume_in_pin(key)
            if named is not None and named[1] == name:
                with suppress(NoSuchObject):  # GC has deleted it since
                    return HeldPin(name, decode_pin(self._store.get(Key(key)), key))
        raise NoSuchPin(name)

    def list(self) -> list[HeldPin]:
        """Return all pins by name, expired ones included. GC deletes the object of an expired pin later."""
        found = []
        for key in self._store.list(pins_prefix()):
            named = volume_in_pin(key)
            with suppress(NoSuchObject):  # GC has deleted it since
                if named is not None:
                    found.append(HeldPin(named[1], decode_pin(self._store.get(Key(key)), key)))
        return sorted(found, key=lambda each: each.name)

    def _changed(self, held: HeldPin, expires_at_ms: int, now_ms: int) -> HeldPin:
        pin = replace(held.pin, expires_at_ms=expires_at_ms, nonce=os.urandom(16))
        wanted = encode_pin(pin)

        def made(body: bytes | None) -> bytes | None:
            if body is None:
                raise PinLost(held.key)
            if body == wanted:
                return None
            if decode_pin(body, held.key).expires_at_ms <= now_ms:
                raise PinLost(held.key)
            return wanted

        change(self._store, held.key, made)
        return replace(held, pin=pin)
