"""A look-up beside a change of place: records go from the log to the remote, or a whole topic goes there or comes back.

MOVED-1  A look-up takes no lock of the topic, so an offload, a reset, a takeover or a promotion may run beside it. It
    then looks in the old place, and fails. So it looks again if it failed and the place is another one since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

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
