"""The errors that a call of the system may raise at any time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

__all__ = ["ERRORS"]


def _system(number: int) -> Callable[[], BaseException]:
    return lambda: OSError(number, os.strerror(number))


ERRORS = {
    "EIO": _system(errno.EIO),
    "ENOSPC": _system(errno.ENOSPC),
    "EINTR": _system(errno.EINTR),
    "MemoryError": MemoryError,
}
