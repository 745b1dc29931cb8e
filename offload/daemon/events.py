"""State changes of the daemon, for consoles that watch it (`GET /daemon/events`).

    offloaded   topic, offloaded_seq         records of a topic reached the remote
    failed      topic, error                 an offload of a topic failed, and is tried again
    diverged    topic, error                 another writer committed to the topic's volume: its offload stopped
    disk        state, free_bytes            the disk is fine, alarm or full
    gc          outcome, deleted, deleted_bytes
    bucket      own_prefix, whole_bucket     another answer to a LIST: allowed, denied, unknown

EVENT-1  Publishing never blocks and never fails. A listener holds at most 256 events. If a slow one has as many, it
    loses the new event, and its next event comes with the number of those that it lost.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from seglog.base.dataclasses import dataclass

_HELD_EVENTS = 256


@dataclass(frozen=True, slots=True)
class Event:
    """A state change. `topic` is empty if it concerns the whole daemon."""

    kind: str
    at_ms: int
    topic: str
    details: Mapping[str, Any]


class Listener:
    """One client's events. Make and take them in an event loop; `add` may be called in any thread."""

    def __init__(self, wants: Callable[[Event], bool], count_lost: Callable[[], None]) -> None:
        self._wants = wants
        self._count_lost = count_lost
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._held: deque[Event] = deque()
        self._lost = 0
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        if not self._wants(event):
            return
        with self._lock:
            is_lost = len(self._held) >= _HELD_EVENTS
            if is_lost:
                self._lost += 1
            else:
                self._held.append(event)
        if is_lost:
            self._count_lost()
        self.wake()

    def wake(self) -> None:
        """Let `take` return now. May be called in any thread."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._news.set)

    async def take(self, timeout_s: float) -> tuple[list[Event], int]:
        """Return the events that came, and how many were lost after them. Without any, wait `timeout_s` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        self._news.clear()
        with self._lock:
            events, lost = list(self._held), self._lost
            self._held.clear()
            self._lost = 0
        return events, lost


class Events:
    """The events of one daemon. `count_lost` runs for each event that a listener loses."""

    def __init__(self, now_ms: Callable[[], int], count_lost: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._count_lost = count_lost
        self._listeners: tuple[Listener, ...] = ()

    def publish(self, kind: str, topic: str = "", **details: Any) -> None:
        """Give an event to each listener (EVENT-1). May be called in any thread."""
        event = Event(kind, self._now_ms(), topic, details)
        for listener in self._listeners:
            listener.add(event)

    def wake(self) -> None:
        """Let each listener return from `take` now. May be called in any thread."""
        for listener in self._listeners:
            listener.wake()

    @contextmanager
    def listening(self, wants: Callable[[Event], bool]) -> Iterator[Listener]:
        """Yield a listener that gets the events it wants from now on. Call it in the event loop."""
        listener = Listener(wants, self._count_lost)
        self._listeners = (*self._listeners, listener)
        try:
            yield listener
        finally:
            self._listeners = tuple(other for other in self._listeners if other is not listener)
