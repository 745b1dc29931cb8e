"""The topics that the daemon need not look at: for which nothing was due, and nothing has changed since.

A look at a topic takes half a millisecond. A daemon with 100,000 topics cannot look at each of them every second.

REST-1  A topic rests only after a look that found nothing due. Its rest ends with the first change of its records,
    segments or configuration, of its offload state, of the settings, or of the state of the disk.
REST-2  The caller takes the version before the look. So a change during the look ends the rest.
REST-3  A rest ends at the time at which the topic is due without a change, and if the clock goes back (TRIGGER-4).

No I/O.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Rest", "Rests"]


@dataclass(frozen=True, slots=True)
class Rest:
    """The rest of one topic, which began at `since_ms` with this version. It ends at `until_ms`; None: no time does."""

    version: tuple[object, ...]
    since_ms: int
    until_ms: int | None

    def lasts(self, version: tuple[object, ...], now_ms: int) -> bool:
        is_due = self.until_ms is not None and now_ms >= self.until_ms
        return self.version == version and self.since_ms <= now_ms and not is_due


class Rests:
    """The rests of all topics of one daemon, by name."""

    def __init__(self) -> None:
        self._rests: dict[str, Rest] = {}
        self._conditions: tuple[object, ...] = ()

    def begin_pass(self, names: Collection[str], *conditions: object) -> None:
        """Begin a pass over these topics. If a condition that all looks share has changed, every rest ends."""
        if conditions != self._conditions:
            self._conditions = conditions
            self._rests.clear()
        if len(self._rests) > len(names):
            self._rests = {name: rest for name, rest in self._rests.items() if name in names}

    def lasts(self, name: str, version: tuple[object, ...], now_ms: int) -> bool:
        rest = self._rests.get(name)
        return rest is not None and rest.lasts(version, now_ms)

    def put(self, name: str, rest: Rest) -> None:
        self._rests[name] = rest
