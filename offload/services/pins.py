"""`archive.pins`: leases on points of the past, which GC keeps until they expire. `archive.history.pin` makes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from catalog.errors import NoSuchObject
from catalog.refs.pin import HeldPin, Pins
from offload.context import ArchiveContext
from offload.handles import split_name
from seglog.base.arguments import checked
from seglog.base.ownership import Owned

__all__ = ["PinService", "TopicPin"]


@dataclass(frozen=True, slots=True)
class TopicPin:
    """A pin, and the topic of its volume. `topic` is None if GC has collected the volume."""

    topic: str | None
    held: HeldPin
    is_expired: bool


class PinService(Owned):
    """The calls about pins. A holder of another machine may have made them."""

    def __init__(self, context: ArchiveContext) -> None:
        self._log = context.log
        self._volumes = context.volumes
        self._clock = context.clock
        self._pins = Pins(context.volumes)

    @checked
    def list(self, topic: str | None = None) -> Iterator[TopicPin]:
        """Yield the pins by name, expired ones included. With `topic`, yield only those on the topic's volumes."""
        wanted = None if topic is None else split_name(topic)[0]
        for held in self._pins.list():
            found = self._shown(held)
            if wanted is None or found.topic == wanted:
                yield found

    @checked
    def refresh(self, name: str, ttl_s: int) -> TopicPin:
        """Let the pin hold for that time from now on, or longer if it does already.

        Raises `NoSuchPin`, and `PinLost` if the pin has expired: its state may be gone.
        """
        self._log.check_writable()
        held, now_ms = self._pins.find(name), self._clock.now_ms()
        ttl_ms = max(ttl_s * 1000, held.pin.expires_at_ms - now_ms)
        return self._shown(self._pins.renew(held, ttl_ms=ttl_ms, now_ms=now_ms))

    @checked
    def release(self, name: str) -> TopicPin:
        """End the pin now. GC no longer keeps its state for it. Raises `NoSuchPin`."""
        self._log.check_writable()
        held = self._pins.find(name)
        self._pins.release(held, now_ms=self._clock.now_ms())
        return self._shown(self._pins.find(name))

    def _shown(self, held: HeldPin) -> TopicPin:
        topic = None
        with suppress(NoSuchObject):
            topic = self._volumes.control(held.pin.point.vid).topic
        return TopicPin(topic, held, held.pin.expires_at_ms <= self._clock.now_ms())
