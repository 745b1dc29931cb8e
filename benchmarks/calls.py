"""How much a call does, counted: what takes longer the more there is makes more calls the more there is."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["count_calls"]


def count_calls(work: Callable[[], object]) -> int:
    """Of Python functions, generator steps and built-in functions, in this thread.

    The garbage collector waits meanwhile: its callbacks and finalizers are not calls of `work`.
    """
    count = 0

    def note(_frame: FrameType, event: str, _what: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

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
