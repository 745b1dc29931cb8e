"""The forms in which records travel, and the choice of one by the client's `Accept` (RFC 9110, section 12.5.1).

application/x-ndjson                  JSON lines; the default
application/vnd.seglog.values.seqs    seqs and values (offload.wire)
application/vnd.apache.arrow.stream   the columns of `Topic.read_arrow`; needs pyarrow
text/event-stream                     JSON lines as events; with follow=1 only
"""

from __future__ import annotations

import importlib.util
from enum import Enum

from offload.daemon.http.range_query import RangeQuery
from offload.errors import InvalidOption, Refused
from offload.wire import SEQS_TYPE

__all__ = ["Form", "form_of"]


class Form(Enum):
    """A form. The value is its media type. If a client likes several forms alike, the first one counts."""

    LINES = "application/x-ndjson"
    SEQS = SEQS_TYPE
    ARROW = "application/vnd.apache.arrow.stream"
    EVENTS = "text/event-stream"

    @property
    def has_lines(self) -> bool:
        """Return whether an answer can tell of gaps, errors and its end."""
        return self in {Form.LINES, Form.EVENTS}


def form_of(accept: str | None, query: RangeQuery) -> Form:
    """Return the form of the answer. Raises `Refused` (406), `InvalidOption`."""
    wanted = _wanted(accept or "*/*")
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


def _wanted(accept: str) -> Form | None:
    best, best_weight = None, 0.0
    ranges = [_range(each) for each in accept.split(",") if each.strip()]
    for form in Form:
        # The most specific range that fits decides the weight of a form.
        fitting = [each for each in ranges if each[0] in {form.value, f"{form.value.partition('/')[0]}/*", "*/*"}]
        weight = min(fitting, key=lambda each: each[0].count("*"))[1] if fitting else 0.0
        is_asked = any("*" not in kind for kind, _ in fitting)
        if weight > best_weight and (is_asked or form is Form.LINES):
            best, best_weight = form, weight
    return best


def _range(text: str) -> tuple[str, float]:
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
