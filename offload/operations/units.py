"""Durations, sizes, counts and times as people write them: `90s`, `12h`, `7d`; `500000`, `64MB`, `1GiB`; `none`.

The first functions read what an option has, and the others make the text that a terminal shows.
"""

from __future__ import annotations

import re
from datetime import timedelta

from offload.errors import InvalidParameters

__all__ = [
    "ago_text",
    "counted",
    "format_bytes",
    "parse_bytes",
    "parse_count",
    "parse_duration_ms",
    "parse_span_ms",
    "parse_span_s",
    "span_text",
    "time_ms",
]

_DURATIONS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
          "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}  # fmt: skip
_NUMBER = re.compile(r"([1-9][0-9]{0,17}) ?([A-Za-z]*)", re.ASCII)


def parse_duration_ms(text: str) -> int | None:
    """Return a duration in milliseconds, or None for `none`."""
    return _parse(text, _DURATIONS_MS, "a duration such as 90s, 15m, 12h or 7d")


def parse_span_ms(option: str, text: str, others: str = "") -> int:
    """Return a duration in milliseconds for an option that does not take `none`. `others` are its other forms."""
    span_ms = parse_duration_ms(text)
    if span_ms is None:
        raise InvalidParameters(f"{option} takes a duration such as 12h or 7d{others}")
    return span_ms


def parse_span_s(option: str, text: str, others: str = "") -> int:
    """Return a duration in whole seconds, for an option that keeps seconds. `others` are its other forms."""
    seconds, rest_ms = divmod(parse_span_ms(option, text, others), 1000)
    if rest_ms:
        raise InvalidParameters(f"{option} takes whole seconds, at least 1s{others}; {text} is not")
    return seconds


def parse_bytes(text: str) -> int | None:
    """Return a size in bytes, or None for `none`."""
    return _parse(text, _SIZES, "a size such as 500000, 64MB or 1GiB")


def parse_count(text: str) -> int | None:
    """Return a count, or None for `none`."""
    return _parse(text, {"": 1}, "a whole number from 1 on")


def _parse(text: str, units: dict[str, int], what: str) -> int | None:
    if text == "none":
        return None
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in units:
        raise InvalidParameters(f"{text!r} is not {what}, nor none")
    return int(match[1]) * units[match[2]]


def time_ms(text: str | None) -> int | None:
    """Return the milliseconds since 1970 of an option, such as `15 minutes ago`. Raises `InvalidTarget`."""
    from catalog.errors import InvalidTarget
    from catalog.timeline import Time, parse_target
    from seglog import SystemClock

    if text is None:
        return None
    target = parse_target(text, now_ms=SystemClock().now_ms())
    if not isinstance(target, Time):
        raise InvalidTarget(text, "a time is needed here")
    return max(0, target.ms)  # nothing is older than 1970


def counted(count: int, noun: str = "record") -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_bytes(count: int) -> str:
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def span_text(passed: timedelta) -> str:
    """Return a span of time such as `3 h 12 min`, with its two largest units."""
    seconds = round(abs(passed.total_seconds()))
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def ago_text(passed: timedelta) -> str:
    """Return a span of time such as `3 h 12 min ago`, or `in 3 h 12 min`."""
    return f"{span_text(passed)} ago" if passed >= timedelta(0) else f"in {span_text(passed)}"
