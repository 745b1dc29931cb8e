"""Times as results show them: milliseconds since 1970, and a text in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def format_time(ts_ms: int) -> str:
    """Return a time in UTC with milliseconds, in the form that a restore target accepts.

    A time beyond the year 9999 becomes a number of milliseconds after 1970.
    """
    try:
        moment = datetime.fromtimestamp(ts_ms / 1000, UTC)
    except (OverflowError, ValueError):
        return f"{ts_ms} ms after 1970"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ts_ms % 1000:03d}Z"


class Moment(int):
    """A time in milliseconds since 1970. As text and in JSON it is a time in UTC."""

    __slots__ = ()

    def __str__(self) -> str:
        return format_time(int(self))

    @classmethod
    def of(cls, text: str) -> Moment:
        """Return the time that has this text."""
        number, _, unit = text.partition(" ")
        return cls(int(number) if unit else round(datetime.fromisoformat(text).timestamp() * 1000))
