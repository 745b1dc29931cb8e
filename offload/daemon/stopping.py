"""The event that the daemon stops, which also calls those that wait for it without a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class StopEvent(threading.Event):
    """An event that calls each listener once, in the thread that sets it. A listener neither blocks nor raises."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the event is set, or now if it is."""
        self._listeners.append(listener)
        if self.is_set():
            self._call_all()

    def set(self) -> None:
        super().set()
        self._call_all()

    def _call_all(self) -> None:
        while self._listeners:
            try:
                listener = self._listeners.pop()
            except IndexError:  # another thread has taken the last one
                return
            listener()
