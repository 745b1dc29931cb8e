"""Decide whether a request is sent again, and when. No I/O.

    outcome                                   repeatable request          other request
    no connection: the daemon got no byte     again                       again
    408, 429, 507, or 503 while it stops,     again                       again
    unless the answer counts records
    lost answer, 500, 502, other 503, 504     again                       the error; for an append `AppendUnknown`
    any other status from 400 on              the error                   the error

A request with chunks that a daemon got is not sent again: the chunks are gone.

The rules of the client (CLIENT-1 to CLIENT-3) are in `seglog.client`.
"""

from __future__ import annotations

from dataclasses import replace

from seglog.base.arguments import kind_of, taken
from seglog.base.dataclasses import dataclass
from seglog.client.answers import error_of, problem_of
from seglog.client.connections import Lost, Outcome, Request
from seglog.errors import AppendUnknown, InvalidArgument, ProducerGap, SeglogError

_AGAIN = frozenset({408, 429, 500, 502, 503, 504, 507})
_UNSURE = frozenset({500, 502, 503, 504})
_REFUSALS = frozenset({"Stopping", "LogClosed"})
_NUMBER = kind_of(float)


@dataclass(frozen=True, slots=True)
class Retries:
    """How long and how often the client tries. The wait doubles with each failure, from `least_s` to `most_s`.

    `total_s` bounds all tries of one call. `connect_s` bounds the tries to connect of a client that no daemon has
    answered yet: its address may be wrong. `silence_s` bounds the wait for the next byte of an answer.
    """

    total_s: float = 60.0
    least_s: float = 0.05
    most_s: float = 5.0
    silence_s: float = 60.0
    connect_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("total_s", "least_s", "most_s", "silence_s", "connect_s"):
            taken(name, getattr(self, name), _NUMBER)
        if self.silence_s <= 0:
            raise InvalidArgument("silence_s", self.silence_s, "more than 0")

    def wait_s(self, failures: int, chance: float) -> float:
        """Return the wait after so many failures in a row. `chance`, from 0 to 1, shortens it by up to half."""
        longest = min(self.most_s, self.least_s * 2.0 ** min(failures - 1, 40))
        return max(min(self.least_s, self.most_s), longest * (1 - chance / 2))


@dataclass(frozen=True, slots=True)
class Call:
    """One request and its tries so far. `is_unsure`: an earlier try may have had its effect.

    `connect_until_s` bounds the tries to connect, and is None once a daemon got a request of the client.
    """

    request: Request
    address: str
    retries: Retries
    deadline_s: float
    failures: int = 0
    is_unsure: bool = False
    connect_until_s: float | None = None

    @classmethod
    def begun(cls, request: Request, address: str, retries: Retries, now_s: float, *, is_reached: bool) -> Call:
        """Return a call whose time begins now. `is_reached`: a daemon got an earlier request of the client."""
        connect_until_s = None if is_reached else now_s + retries.connect_s
        return cls(request, address, retries, now_s + retries.total_s, connect_until_s=connect_until_s)


@dataclass(frozen=True, slots=True)
class Again:
    """Send the request of `call` again, after a wait."""

    call: Call
    wait_s: float


def after(call: Call, outcome: Outcome, now_s: float, chance: float) -> Again:
    """Return the next try after a lost answer or a status from 400 on. Raise the error that ends the call."""
    error = error_of(call.request, outcome, call.address)
    may_be_in = _may_be_in(call.request, outcome)
    is_unsure = call.is_unsure or may_be_in
    is_used = call.request.chunks is not None and is_reached(outcome)
    if not _is_transient(outcome) or (may_be_in and not call.request.is_repeatable) or is_used:
        raise _final(call, error, is_unsure=is_unsure)
    failures = call.failures + 1
    wait_s = max(call.retries.wait_s(failures, chance), _retry_after_s(outcome))
    connect_until_s = None if is_reached(outcome) else call.connect_until_s
    if now_s + wait_s > min(call.deadline_s, call.deadline_s if connect_until_s is None else connect_until_s):
        raise _final(call, error, is_unsure=is_unsure)
    return Again(replace(call, failures=failures, is_unsure=is_unsure, connect_until_s=connect_until_s), wait_s)


def is_reached(outcome: Outcome) -> bool:
    """Return whether the request came to a daemon."""
    return outcome.is_sent if isinstance(outcome, Lost) else True


def _is_transient(outcome: Outcome) -> bool:
    return not outcome.is_lasting if isinstance(outcome, Lost) else outcome.status in _AGAIN


def _may_be_in(request: Request, outcome: Outcome) -> bool:
    """Return whether the daemon may have done what the request asks for.

    A refusal of the daemon comes before the work, unless the answer counts records that are in.
    """
    if request.method in ("GET", "HEAD"):
        return False
    if isinstance(outcome, Lost):
        return outcome.is_sent
    report = problem_of(outcome.body)
    is_refusal = outcome.status not in _UNSURE or report.get("title") in _REFUSALS
    return bool(report.get("appended")) or not is_refusal


def _final(call: Call, error: SeglogError, *, is_unsure: bool) -> SeglogError:
    """Return the error of the call, with its cause (CLIENT-3)."""
    request = call.request
    is_out = isinstance(error, ProducerGap) and error.expected <= error.number
    if not request.is_append or not is_unsure or is_out:
        return error
    number = None if request.producer is None else request.producer.number
    unknown = AppendUnknown(request.topic, str(error), number=number)
    unknown.__cause__ = error
    return unknown


def _retry_after_s(outcome: Outcome) -> float:
    """Return the seconds of `Retry-After`, or 0 without it. The daemon sends seconds, never a date."""
    text = "" if isinstance(outcome, Lost) else outcome.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0
