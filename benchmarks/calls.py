"""Counts the calls that a function makes.

If a function takes longer for more data, it makes more calls for more data.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["count_calls"]


def count_calls(work: Callable[[], object]) -> int:
    """Return the calls of Python functions, generator steps and built-in functions that `work` makes in this thread.

    A call of `work` itself counts too if `work` is a Python function.
    The garbage collector is off meanwhile: its callbacks and finalizers are not calls of `work`.
    """
    count = 0

    def note(_frame: FrameType, event: str, what: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call") and what is not sys.setprofile

    was_enabled = gc.isenabled()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        if was_enabled:
            gc.enable()
    return count
