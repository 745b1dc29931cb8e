"""Times as operators write them: `yesterday 14:05`, or `2026-11-20 14:05` in the zone of this machine.

    head, seq:N, lsn:N, tag:NAME, pin:NAME  no time, so the command gets the text as it is
    2026-11-21T09:30:00Z, +02:00            exact, so the command gets it as it is
    2026-11-20 14:05                        ISO 8601 without a zone: the local zone
    15 minutes ago                          counted from now
    yesterday 14:05, last friday            what `dateparser` understands, in the local zone, in the past

The command gets a time of the last three as a time in UTC. Without `--json`, a line on standard error tells that time,
so that the operator sees what the words were taken for. With `--strict-time`, a time needs its zone. This module knows
nothing of the catalog, so that a command which a daemon serves starts fast.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from offload.operations.listed import ListedParameter
from offload.operations.units import ago_text

__all__ = ["TimeNeedsZone", "Understood", "understand", "understood_values"]

_NO_TIME = re.compile(r"head(~[0-9]*)?|(seq|lsn|tag|pin):.*|[0-9]*", re.ASCII | re.DOTALL)
_AGO = re.compile(r"([0-9]{1,9}) ?(s|m|h|d|w|seconds?|minutes?|hours?|days?|weeks?) ago", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TIMED = ("point", "target", "time")


class TimeNeedsZone(Exception):
    """With `--strict-time`, a time has no zone."""

    exit_code = 2
    hint = "write the zone, as in 2026-11-21T09:30:00Z or 2026-11-21T09:30:00+02:00"

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} has no zone, and --strict-time asks for one")


class Understood:
    """A text for the command, and a line about it for the operator, or ""."""

    __slots__ = ("note", "text")

    def __init__(self, text: str, note: str = "") -> None:
        self.text = text
        self.note = note


def understood_values(
    parameters: Sequence[ListedParameter], values: Mapping[str, object], *, is_strict: bool
) -> tuple[dict[str, object], list[str]]:
    """Return the values with their times in UTC, and the lines for the operator. Raises `TimeNeedsZone`."""
    found = dict(values)
    notes: list[str] = []
    for parameter in parameters:
        text = values[parameter.name]
        if parameter.names not in _TIMED or not isinstance(text, str):
            continue
        topic, colon, target = text.partition(":") if parameter.names == "point" else ("", "", text)
        understood = understand(target, datetime.now(UTC), is_strict=is_strict)
        found[parameter.name] = f"{topic}{colon}{understood.text}"
        notes += filter(None, [understood.note])
    return found, notes


def understand(text: str, now: datetime, *, is_strict: bool) -> Understood:
    """Return the text that the command gets. A text that is no time stays, and the command refuses it."""
    if _NO_TIME.fullmatch(text):
        return Understood(text)
    try:
        moment = _moment(text, now, is_strict=is_strict)
        utc = None if moment is None else moment.astimezone(UTC)
    except (OverflowError, ValueError):  # before the year 1, or after 9999
        return Understood(text)
    if utc is None:
        return Understood(text)
    shown = utc.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return Understood(shown, f"{text!r} is {shown}, {ago_text(now - utc)}")


def _moment(text: str, now: datetime, *, is_strict: bool) -> datetime | None:
    """Return the time that a text means, or None if the command gets the text itself. Raises `TimeNeedsZone`."""
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2][0]]: int(ago[1])})
    try:
        exact = datetime.fromisoformat(text)
    except ValueError:
        guessed = _guessed(text, now)
        if is_strict and guessed is not None and guessed.tzinfo is None:
            raise TimeNeedsZone(text) from None
        return guessed
    if exact.tzinfo is not None:
        return None
    if is_strict:
        raise TimeNeedsZone(text)
    return exact


def _guessed(text: str, now: datetime) -> datetime | None:
    """Return what `dateparser` makes of a text, without a zone if the text has none. Past times come first."""
    import dateparser

    local = now.astimezone().replace(tzinfo=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python, about forms that dateparser tries
        found: datetime | None = dateparser.parse(
            text, languages=["en"], settings={"PREFER_DATES_FROM": "past", "RELATIVE_BASE": local}
        )
    return found
