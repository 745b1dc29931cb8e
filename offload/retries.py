"""Another try: how long it waits after failures, and which look-up is repeated because its topic moved meanwhile.

Records go from the log to the remote, or a whole topic goes there or comes back.

MOVED-1  A look-up takes no lock of the topic, so an offload, a reset, a takeover or a promotion may run beside it. It
    then looks in the old place, and fails. So it looks again if it failed and the place is another one since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from seglog.base.dataclasses import dataclass

T = TypeVar("T")

_ROUNDS = 5


def retry_if_moved(look: Callable[[], T], position: Callable[[], object], *errors: type[Exception]) -> T:
    """Return what `look` returns. After one of the `errors`, look again if `position` returns another value since.

    `look` may change something, if a caller may repeat it after these errors.
    """
    for _ in range(_ROUNDS - 1):
        before = position()
        try:
            return look()
        except errors:
            if position() == before:
                raise
    return look()


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait after failures in a row. It doubles with each failure, from `min_ms` to `max_ms`."""

    min_ms: int
    max_ms: int

    def delay_ms(self, failures: int, chance: float) -> int:
        """Return the wait after so many failures in a row. `chance`, from 0 to 1, shortens it by up to half."""
        longest = min(self.max_ms, self.min_ms * 2 ** min(failures - 1, 40))
        return max(self.min_ms, int(longest * (1 - chance / 2)))
