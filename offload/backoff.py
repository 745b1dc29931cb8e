"""The wait before a try that follows failures. No I/O."""

from __future__ import annotations

from seglog.base.values import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after failures in a row. It doubles with each failure, from `min_ms` to `max_ms`."""

    min_ms: int
    max_ms: int

    def delay_ms(self, failures: int, chance: float) -> int:
        """Return the wait after so many failures in a row. `chance`, from 0 to 1, shortens it by up to half."""
        longest = min(self.max_ms, self.min_ms * 2 ** min(failures - 1, 40))
        return max(self.min_ms, int(longest * (1 - chance / 2)))
