"""How much ended lately. No I/O: the caller says the time."""

from __future__ import annotations

import math

__all__ = ["RecentRate"]

_OVER_S = 10.0


class RecentRate:
    """An amount a second, over about the last ten seconds. The times never go back."""

    __slots__ = ("_begin_s", "_last_s", "_recent")

    def __init__(self, now_s: float) -> None:
        self._begin_s = self._last_s = now_s
        self._recent = 0.0

    def note(self, amount: int, now_s: float) -> None:
        self._recent = self._recent * self._kept(now_s) + amount
        self._last_s = now_s

    def per_s(self, now_s: float) -> float:
        age_s = max(now_s - self._begin_s, 0.001)
        return self._recent * self._kept(now_s) / (_OVER_S * -math.expm1(-age_s / _OVER_S))

    def _kept(self, now_s: float) -> float:
        return math.exp((self._last_s - now_s) / _OVER_S)
