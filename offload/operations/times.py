"""Times in the options of a command."""

from __future__ import annotations

from seglog import SystemClock

__all__ = ["time_ms"]


def time_ms(text: str | None) -> int | None:
    """Return the milliseconds since 1970 of an option, such as `15 minutes ago`. Raises `InvalidTarget`."""
    from catalog.errors import InvalidTarget
    from catalog.timeline import Time, parse_target

    if text is None:
        return None
    target = parse_target(text, now_ms=SystemClock().now_ms())
    if not isinstance(target, Time):
        raise InvalidTarget(text, "a time is needed here")
    return max(0, target.ms)  # nothing is older than 1970
