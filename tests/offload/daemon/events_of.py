"""A decoder of server-sent events, as a browser has one.

Source: the HTML standard, section 9.2, https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

__all__ = ["Event", "EventDecoder"]

_LINE_END = re.compile("\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `id` is the last id that the stream has sent; the client sends it as `Last-Event-ID`."""

    name: str
    data: str
    id: str = ""


class EventDecoder:
    """Takes a stream in pieces of any size, and returns the events that are whole."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._is_at_start = True
        self._is_after_cr = False
        self._name, self._id, self._data = "", "", list[str]()

    def feed(self, piece: bytes) -> list[Event]:
        text = self._text.decode(piece)
        if text and self._is_at_start:
            text, self._is_at_start = text.removeprefix("\ufeff"), False
        if text and self._is_after_cr:  # a line feed then is of the same line end
            text, self._is_after_cr = text.removeprefix("\n"), False
        self._rest += text
        events: list[Event] = []
        at = 0
        while end := _LINE_END.search(self._rest, at):
            self._is_after_cr = end.group() == "\r" and end.end() == len(self._rest)
            line, at = self._rest[at : end.start()], end.end()
            if line:
                self._take(line)
            elif (event := self._end()) is not None:
                events.append(event)
        self._rest = self._rest[at:]
        return events

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id" and "\0" not in value:
            self._id = value

    def _end(self) -> Event | None:
        name, data = self._name or "message", self._data
        self._name, self._data = "", []
        return Event(name, "\n".join(data), self._id) if data else None
