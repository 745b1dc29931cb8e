"""Parsers of durations, sizes and counts as people write them: `90s`, `12h`, `7d`; `500000`, `64MB`, `1GiB`; `none`."""

from __future__ import annotations

import re

from offload.errors import InvalidParameters

__all__ = ["parse_bytes", "parse_count", "parse_duration_ms", "parse_span_ms", "parse_span_s"]

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
