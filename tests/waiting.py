"""Wait for another thread or process, with a bound, so that a mistake ends the test."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["wait_until"]

_LOOKS = 60_000


def wait_until(holds: Callable[[], object], pause_s: float = 0.001) -> None:
    """Wait until `holds` returns True. Raise AssertionError after so many looks that only a hang explains them."""
    for _ in range(_LOOKS):
        if holds():
            return
        time.sleep(pause_s)
    raise AssertionError("what the test waits for never came")
