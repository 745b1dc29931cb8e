"""Leases on points of a topic's history: `seglog pin ...`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from offload.moment import Moment
from offload.operations.command import About, Command, always
from offload.operations.printing import lines, parse_span_s, rows
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from offload.archive import Archive
    from offload.services.names import TopicPin

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
    """List the pins in the remote. They are leases on past states, which GC keeps until they expire.

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


def _listed(pinned: TopicPin) -> PinListed:
    pin = pinned.held.pin
    return PinListed(
        pin=pinned.held.name,
        topic=pinned.topic,
        volume=str(pin.point.vid),
        lsn=pin.point.lsn,
        seq=pin.point.seq,
        holder=pin.holder,
        expires_at=Moment(pin.expires_at_ms),
        is_expired=pinned.is_expired,
    )


def _point(listed: PinListed) -> str:
    cut = f" seq {listed.seq}" if listed.seq else ""
    return f"{listed.topic or listed.volume} lsn {listed.lsn}{cut}"


def pin_text(listed: PinListed) -> str:
    until = "expired" if listed.is_expired else "until"
    return f"{listed.pin:<16} {_point(listed):<28} {until} {listed.expires_at}  {listed.holder}"


def _pin_row(listed: PinListed) -> Sequence[str | Moment]:
    return listed.pin, _point(listed), listed.expires_at, listed.holder


_print_pins = rows(("pin", "point", "expires", "holder"), _pin_row, pin_text)


PIN_LIST = Command("pin/list", list_pins, _print_pins, reads=always, role="read")
PIN_REFRESH = Command("pin/refresh", refresh, lines(pin_text))
PIN_RELEASE = Command("pin/release", release, lines(lambda gone: f"pin {gone.pin} is released"))
