"""Leases on points of a topic's history: `seglog pin ...`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from offload.commands.parameters import About
from offload.commands.units import parse_span_s
from offload.moment import Moment

if TYPE_CHECKING:
    from offload.archive import Archive
    from offload.services.names import TopicPin

__all__ = ["PinListed", "list_pins", "refresh", "release"]

Name = Annotated[str, About("The pin, as `pin list` shows it.")]


@dataclass(frozen=True, slots=True)
class PinListed:
    """A pin and its point. `seq` is None if the pin holds the whole commit. `topic` is None if the volume is gone."""

    pin: str
    topic: str | None
    volume: str
    lsn: int
    seq: int | None
    holder: str
    expires_at: Moment
    is_expired: bool


def list_pins(
    archive: Archive,
    topic: Annotated[str | None, About("Only the pins of this topic.", is_argument=True, names="plain topic")] = None,
) -> Iterator[PinListed]:
    """List the pins in the remote: leases on past states, which GC keeps until they expire.

    `resolve --pin` makes a pin, and so does a reader such as a Spark job.
    """
    return map(_listed, archive.pins.list(topic))


def refresh(
    archive: Archive,
    name: Name,
    time: Annotated[str, About("Hold for so long from now on, such as 12h. No pin gets shorter.", "--for")] = "1h",
) -> PinListed:
    """Extend a pin. A pin that has expired does not come back, because its state may be gone."""
    return _listed(archive.pins.refresh(name, parse_span_s("--for", time)))


def release(archive: Archive, name: Name) -> PinListed:
    """End a pin now. If its holder still reads the state, GC may delete objects under the reader."""
    return _listed(archive.pins.release(name))


def _listed(found: TopicPin) -> PinListed:
    pin = found.held.pin
    return PinListed(
        pin=found.held.name,
        topic=found.topic,
        volume=str(pin.point.vid),
        lsn=pin.point.lsn,
        seq=pin.point.seq,
        holder=pin.holder,
        expires_at=Moment(pin.expires_at_ms),
        is_expired=found.is_expired,
    )
