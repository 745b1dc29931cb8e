"""An event loop whose wait hands over to other threads. What threads send to it arrives in an order that a seed draws.

asyncio promises that callbacks run in the order in which they were registered. So the loop keeps that order, and the
order of what one thread sends. Between threads, any order may come, as late as may be.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from tests.races.turns import Turns

__all__ = ["RacingLoop"]


class RacingLoop(asyncio.BaseEventLoop):
    """The event loop of one thread of the schedule."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns
        self._selector = self
        self._arrived: dict[Any, deque[asyncio.Handle]] = {}

    def time(self) -> float:
        return self._turns.now_s

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()  # type: ignore[attr-defined]
        handle = asyncio.Handle(callback, args, self, context)
        self._arrived.setdefault(self._turns.current, deque()).append(handle)
        self._turns.step()
        return handle

    def select(self, timeout_s: float | None) -> list[object]:
        """Wait as a selector does. Then take what has arrived, or a part of it."""
        if timeout_s == 0:
            self._turns.step()
        else:
            self._turns.wait(lambda: bool(self._arrived), timeout_s)
        draw = self._turns.random
        must = not self._ready  # type: ignore[attr-defined]
        while self._arrived and (must or not self._turns.is_racing or draw.random() < 0.7):
            must = False
            sender = draw.choice([*self._arrived])
            handles = self._arrived[sender]
            self._ready.append(handles.popleft())  # type: ignore[attr-defined]
            if not handles:
                del self._arrived[sender]
        return []

    def _process_events(self, events: object) -> None:
        """Do nothing: no file is watched."""

    def _write_to_self(self) -> None:
        """Do nothing: `select` sees what has arrived."""
