"""What a read of records asks for: its query, and the form in which the records travel. No I/O.

The client's `Accept` chooses the form (RFC 9110, section 12.5.1):

    application/x-ndjson                  JSON lines; the default
    application/vnd.seglog.values.seqs    records: seq (u64), length of the value (u32), both little-endian, the value
    application/vnd.apache.arrow.stream   the columns of `Topic.read_arrow`; needs pyarrow
    text/event-stream                     JSON lines as events; with follow=1 only
"""

from __future__ import annotations

import importlib.util
from enum import Enum
from typing import Any, NamedTuple

from starlette.requests import Request

from offload.daemon.http import operations as api
from offload.daemon.http.parameters import query_of, whole, yes
from offload.errors import InvalidOption, Refused
from seglog import Record
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.values.record import tag_fits

_WAIT_MAX_S = 60


def _whole(name: str, about: str, minimum: int = 0, maximum: int = WHOLE_MAX) -> dict[str, Any]:
    return api.in_query(name, "integer", about, minimum=minimum, maximum=maximum)


READ_PARAMETERS = (
    _whole("from", "The first seq. Without it, the first one that exists."),
    _whole("to", "The last seq."),
    _whole("tail", "Begin so many seqs before the head, in the place of from and to."),
    _whole("since_ms", "Only records of this time or later, in ms since 1970."),
    _whole("until_ms", "Only records of this time or earlier, in ms since 1970."),
    api.in_query("tag", "string", "Only records with this tag. A trailing * makes it a prefix."),
    api.in_query("exclude_node", "string", "No records of this node. May be given several times."),
    api.in_query("at", "string", "The records as they were then: seq:N, lsn:N, head~N, tag:NAME, pin:NAME, or a time."),
    _whole("limit", "At most so many records.", 1),
    _whole("max_bytes", "At most so many bytes of values. One record always fits.", 1),
    api.in_query("gaps", "boolean", "Also tell the ranges that retention removed."),
    api.in_query("follow", "boolean", "Continue with new records."),
    _whole("wait_s", "Without records, wait so long for the first one.", maximum=_WAIT_MAX_S),
)
_SEVERAL = frozenset({"exclude_node"})
READ_QUERY = api.names_of(READ_PARAMETERS)
"""The names of the query."""


class Choice(NamedTuple):
    """The records that a reader wants. A `tag` with a trailing `*` is a prefix."""

    tag: str | None = None
    since_ms: int | None = None
    excluded: frozenset[str] = frozenset()

    def takes(self, record: Record) -> bool:
        if self.since_ms is not None and record.ts_ms < self.since_ms:
            return False
        if self.excluded and record.node in self.excluded:
            return False
        return self.tag is None or tag_fits(record.tag, self.tag)


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """The range and the limits of a read. `tail` is a number of seqs before the head."""

    start: int | None
    end: int | None
    tail: int | None
    until_ms: int | None
    choice: Choice
    limit: int | None
    max_bytes: int | None
    gaps: bool
    follow: bool
    wait_s: int
    at: str | None = None

    @property
    def is_cut(self) -> bool:
        """Return whether the answer may end before the range does."""
        return self.limit is not None or self.max_bytes is not None

    @classmethod
    def of(cls, request: Request) -> RangeQuery:
        """Return the query. Raises `InvalidOption`."""
        query = query_of(request, READ_QUERY, _SEVERAL)
        excluded = frozenset(request.query_params.getlist("exclude_node"))
        found = cls(
            start=whole(query, "from"),
            end=whole(query, "to"),
            tail=whole(query, "tail"),
            until_ms=whole(query, "until_ms"),
            choice=Choice(query.get("tag"), whole(query, "since_ms"), excluded),
            limit=whole(query, "limit"),
            max_bytes=whole(query, "max_bytes"),
            gaps=yes(query, "gaps"),
            follow=yes(query, "follow"),
            wait_s=whole(query, "wait_s") or 0,
            at=query.get("at"),
        )
        found.check()
        return found

    def check(self) -> None:
        """Raise `InvalidOption` for values that do not fit, or do not fit together."""
        for name, value in (("limit", self.limit), ("max_bytes", self.max_bytes)):
            if value == 0:
                raise InvalidOption(name, "must be at least 1")
        if self.wait_s > _WAIT_MAX_S:
            raise InvalidOption("wait_s", f"must be at most {_WAIT_MAX_S}")
        if self.at is not None and (self.follow or self.wait_s):
            raise InvalidOption("at", "names a past state, which gets no more records: leave out follow and wait_s")
        if self.follow and (self.end is not None or self.until_ms is not None):
            raise InvalidOption("follow", "has no end: leave out to and until_ms")
        if self.follow and self.wait_s:
            raise InvalidOption("follow", "waits without an end: leave out wait_s")
        if self.follow and self.max_bytes is not None:
            raise InvalidOption("follow", "has no bound of bytes: leave out max_bytes")
        if self.tail is not None and (self.start is not None or self.end is not None):
            raise InvalidOption("tail", "ends at the head: leave out from and to")

    def begin(self, earliest: int, head: int) -> int:
        """Return the first seq of the range in a topic with these bounds."""
        if self.tail is not None:
            return max(earliest, head - self.tail + 1)
        return earliest if self.start is None else self.start


class Form(Enum):
    """A form. The value is its media type. If a client likes several forms alike, the first one counts."""

    LINES = "application/x-ndjson"
    SEQS = "application/vnd.seglog.values.seqs"
    ARROW = "application/vnd.apache.arrow.stream"
    EVENTS = "text/event-stream"

    @property
    def has_lines(self) -> bool:
        """Return whether an answer can tell of gaps, errors and its end."""
        return self in {Form.LINES, Form.EVENTS}


def form_of(accept: str | None, query: RangeQuery) -> Form:
    """Return the form of the answer. Raises `Refused` (406), `InvalidOption`."""
    wanted = _wanted_form(accept or "*/*")
    if wanted is None:
        raise _unfit(f"records come in none of the types of Accept: {accept}")
    if wanted is Form.EVENTS and not query.follow:
        raise InvalidOption("follow", f"must be 1 for {Form.EVENTS.value}")
    if not wanted.has_lines and query.follow:
        raise _unfit(f"a follower takes {Form.LINES.value} or {Form.EVENTS.value}")
    if not wanted.has_lines and query.gaps:
        raise InvalidOption("gaps", f"have no place in {wanted.value}")
    if wanted is Form.ARROW and importlib.util.find_spec("pyarrow") is None:
        raise _unfit(f"{wanted.value} needs pyarrow, which the daemon does not have")
    return wanted


def _wanted_form(accept: str) -> Form | None:
    best, best_weight = None, 0.0
    ranges = [_media_range(each) for each in accept.split(",") if each.strip()]
    for form in Form:
        # The most specific range that fits decides the weight of a form.
        fitting = [each for each in ranges if each[0] in {form.value, f"{form.value.partition('/')[0]}/*", "*/*"}]
        weight = min(fitting, key=lambda each: each[0].count("*"))[1] if fitting else 0.0
        is_asked = any("*" not in kind for kind, _ in fitting)
        if weight > best_weight and (is_asked or form is Form.LINES):
            best, best_weight = form, weight
    return best


def _media_range(text: str) -> tuple[str, float]:
    """Return the media type of one part of an Accept header in lower case, and its weight."""
    kind, *parameters = (part.strip().lower() for part in text.split(";"))
    for each in parameters:
        name, _, value = each.partition("=")
        if name.strip() == "q":
            try:
                return kind, max(0.0, min(1.0, float(value)))
            except ValueError:
                return kind, 0.0
    return kind, 1.0


def _unfit(told: str) -> Refused:
    kinds = ", ".join(form.value for form in Form)
    return Refused(406, "accept", told, hint=f"send one of these in Accept: {kinds}")
