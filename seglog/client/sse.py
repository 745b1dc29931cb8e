"""Server-sent events, as a daemon sends them: their fields, event by event. No I/O.

An event ends with an empty line. A comment has a colon first, and changes nothing.

Source: the HTML standard, section 9.2, https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from typing import NamedTuple

from seglog.client.bodies import lines_of


class Event(NamedTuple):
    """One event. `id` is None if it does not change the id of the stream."""

    kind: str
    data: str
    id: str | None


class EventParser(NamedTuple):
    """The bytes and the fields of the event that is not whole yet."""

    rest: tuple[bytes, ...] = ()
    fields: tuple[tuple[str, str], ...] = ()

    def fed(self, piece: bytes) -> tuple[EventParser, list[Event], bool]:
        """Return the parser behind a piece of any size, the events that are whole now, and whether a line came."""
        rest, lines = lines_of(self.rest, piece)
        fields, events = [*self.fields], list[Event]()
        for line in lines:
            name, _, text = line.decode().rstrip("\r").partition(":")
            if name:
                fields.append((name, text.removeprefix(" ")))
            elif not line.rstrip(b"\r"):
                events.append(_event_of(fields))
                fields = []
        return EventParser(rest, tuple(fields)), events, bool(lines)


def _event_of(fields: list[tuple[str, str]]) -> Event:
    known = dict(fields)
    data = "\n".join(text for name, text in fields if name == "data")
    return Event(known.get("event", "record" if data else ""), data, known.get("id"))
