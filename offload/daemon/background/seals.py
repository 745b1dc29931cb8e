"""The seals of topics whose tail is due for an offload.

A seal writes the whole manifest of the log. So one seal of many topics costs about as much as the seal of one.

SEALS-1  A topic is sealed when its offload begins, and not before it is among the next `_AT_ONCE` ones. So few sealed
    segments wait.
"""

from __future__ import annotations

import threading

from seglog import Log

__all__ = ["Seals"]

_AT_ONCE = 500


class Seals:
    """The topics that wait for a seal, in the order of their offloads. For several threads."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._lock = threading.Lock()

    def want(self, name: str) -> None:
        self._waiting[name] = None

    def seal(self, log: Log, name: str) -> None:
        """Seal the topic, and the next ones that wait. If an earlier call sealed it since `want`, do nothing."""
        with self._lock:
            if name not in self._waiting:
                return
            names = [name, *(each for each in list(self._waiting) if each != name)][:_AT_ONCE]
            log.seal(names)
            for each in names:
                self._waiting.pop(each, None)
