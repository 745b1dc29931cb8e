"""The event loops that `seglog.aio` is tested on."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

__all__ = ["factory_of", "on_both_loops", "run_on"]

_HAS_UVLOOP = importlib.util.find_spec("uvloop") is not None

on_both_loops = pytest.mark.parametrize(
    "loop", ["asyncio", pytest.param("uvloop", marks=pytest.mark.skipif(not _HAS_UVLOOP, reason="no uvloop here"))]
)


def run_on(loop: str, main: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutine on a new loop of that kind, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=factory_of(loop)) as runner:
        return runner.run(main)


def factory_of(loop: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if loop == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return new_event_loop
