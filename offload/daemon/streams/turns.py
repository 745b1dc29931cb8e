"""The order of the appends to one stream.

TURN-1  An append that only adds records shares its turn with others of its kind, and they are written together.
TURN-2  An append that first looks at the state of the stream, and a deletion, has its turn alone. It begins when all
    earlier appends have ended, and later ones wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Turns"]


class Turns:
    """The turns of one stream. For one event loop."""

    __slots__ = ("_idle", "_lock", "_running")

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        async with self._lock:
            self._running += 1
            self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        async with self._lock:
            await self._idle.wait()
            yield
