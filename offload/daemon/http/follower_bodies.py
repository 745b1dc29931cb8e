"""The bytes that followers get, as JSON lines or as events. No I/O.

event      data                                             id
record     the JSON line of a record                        epoch-seq
gap        the JSON line of a gap                           epoch-seq, with the last seq that is lost
truncated  {"from": seq}: all records from there on are     epoch-seq, with the seq before it
           void, and the stream continues with that seq
end        {"reason": "stopping"}, or "limit", or "error"   none
           with the problem in "error"; "revoked" comes
           from offload.daemon.revocation
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from offload.daemon.feeds import Page
from offload.daemon.http.range_query import Choice
from offload.daemon.http.sse import encode_event
from offload.errors import InvalidOption
from seglog import Record
from seglog.base.arguments import WHOLE_MAX

__all__ = ["EventId", "Truncation", "chosen", "end_event", "end_line", "events", "lines", "truncated_event"]

_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class EventId:
    """The id of an event. Its client has the records up to `seq`, as they were in `epoch`."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"

    @classmethod
    def of(cls, text: str | None) -> EventId | None:
        """Return the id in a `Last-Event-ID` header, or None without one. Raises `InvalidOption`."""
        if not text:
            return None
        found = _ID.fullmatch(text)
        if found is None or max(int(part) for part in found.groups()) >= WHOLE_MAX:
            raise InvalidOption("Last-Event-ID", f"{text[:60]!r} is not epoch-seq, as in the ids of this stream")
        return cls(int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Truncation:
    """All records that the client has from `seq` on are void. Records of `epoch` follow."""

    epoch: int
    seq: int


def chosen(page: Page, choice: Choice, first: int, count: int | None) -> list[int]:
    """Return the places of items in a page: from seq `first` on, and at most `count` records."""
    places: list[int] = []
    for place, item in enumerate(page.items):
        if isinstance(item, Record):
            if item.seq < first or not choice.takes(item):
                continue
            if count is not None:
                count -= 1
        elif item.gap_to < first:
            continue
        places.append(place)
        if count == 0:
            break
    return places


def lines(page: Page, places: Iterable[int]) -> bytes:
    return b"".join(page.lines[place] for place in places)


def end_line(reason: str, error: dict[str, Any] | None = None) -> bytes:
    """Return the last line of a follower. After `limit` records there is none, as in a read that does not follow."""
    if reason == "limit":
        return b""
    return json.dumps({"end": reason} if error is None else {"error": error}).encode() + b"\n"


def events(page: Page, places: Iterable[int]) -> bytes:
    found: list[bytes] = []
    for place in places:
        item, line = page.items[place], page.lines[place]
        name, seq = (b"record", item.seq) if isinstance(item, Record) else (b"gap", item.gap_to)
        # As `encode_event` does. The JSON of a record is one line, which ends with a line feed.
        found.append(b"id: %d-%d\nevent: %s\ndata: %s\n" % (page.epoch, seq, name, line))
    return b"".join(found)


def truncated_event(cut: Truncation) -> bytes:
    return encode_event("truncated", json.dumps({"from": cut.seq}), str(EventId(cut.epoch, cut.seq - 1)))


def end_event(reason: str, error: dict[str, Any] | None = None) -> bytes:
    return encode_event("end", json.dumps({"reason": reason} if error is None else {"reason": reason, "error": error}))
