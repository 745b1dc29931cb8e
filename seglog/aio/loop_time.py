"""How long the writes of a log may keep the loop waiting."""

from __future__ import annotations

__all__ = ["LoopTime"]

_FIRST_PAUSE = 64
_LONGEST_PAUSE = 65_536


class LoopTime:
    """Decides for each group whether the loop writes it. Otherwise the committing thread does (AIO-5).

    If a write in the loop took longer than `most_s`, the thread writes the next 64 groups. Then the loop tries again.
    After each further write that took longer, twice as many groups go to the thread, up to 65,536. So a slow disk keeps
    the loop waiting for few groups.
    """

    __slots__ = ("_groups_for_thread", "_most_s", "_pause")

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._groups_for_thread = 0
        self._pause = _FIRST_PAUSE

    @property
    def is_set(self) -> bool:
        """Return whether the loop may write groups at all."""
        return self._most_s > 0

    def allows_next(self) -> bool:
        """Return whether the loop writes the next group. Call this once for each group."""
        if self._groups_for_thread:
            self._groups_for_thread -= 1
            return False
        return self.is_set

    def note(self, took_s: float) -> None:
        """Take note of the time of a write in the loop."""
        if took_s <= self._most_s:
            self._pause = _FIRST_PAUSE
        else:
            self._groups_for_thread = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
