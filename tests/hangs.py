"""Ends a process of the tests in which a test hangs: one thread looks after all tests of the process.

pytest-timeout starts a thread for each test, and pytest's faulthandler another. To start and join the two takes two
milliseconds of CPU time, which is more than a third of all tests take themselves. This thread lives as long as the
process and looks every few seconds whether the test that runs has passed its time. What it then does, and which time a
test has, stays pytest-timeout's.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable
from time import monotonic  # by its name here, because tests replace that of the module
from typing import Any, NamedTuple

import pytest_timeout

__all__ = ["Watch", "pytest_configure", "pytest_timeout_cancel_timer", "pytest_timeout_set_timer"]

_LOOK_S = 5.0
_NO_LOOK_S = 840.0


class _Running(NamedTuple):
    item: Any
    settings: Any
    end_s: float


class Watch:
    """The test that runs, and the thread that calls `end` with its item and settings once its time has passed."""

    def __init__(self, end: Callable[[Any, Any], None], look_s: float = _LOOK_S, stacks_to: int = 2) -> None:
        self._end = end
        self._look_s = look_s
        self._stacks_to = stacks_to
        self._running: _Running | None = None
        self._thread: threading.Thread | None = None

    def begin(self, item: Any, settings: Any) -> None:
        self._running = _Running(item, settings, monotonic() + settings.timeout)
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="watch for hangs", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        self._running = None

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            # A call in C that never gives the GIL back stops this thread, too. Then faulthandler shows where.
            faulthandler.dump_traceback_later(_NO_LOOK_S, file=self._stacks_to)
            pause.wait(self._look_s)
            running = self._running
            if running and monotonic() >= running.end_s:
                self.finish()
                self._end(running.item, running.settings)


_watch: Watch


def pytest_configure() -> None:
    global _watch
    _watch = Watch(pytest_timeout.timeout_timer, stacks_to=os.dup(2))  # pytest takes 2 away while a test runs


def pytest_timeout_set_timer(item: Any, settings: Any) -> bool:
    _watch.begin(item, settings)
    return True


def pytest_timeout_cancel_timer() -> bool:
    _watch.finish()
    return True
