"""Runs the work that appends leave behind: in a thread of the log, or in the appender itself.

    Background   one thread, from the first `wake` to `close`; an append does not wait for it
    InCaller     at once, in the thread that calls `wake`: the order of file operations is always the same. It ignores
                 `wake_later`, because no thread could run the work then

All wakes during the work cause one more run together. The work handles its own errors. After an error it leaves the log
in a state that makes the error visible to appends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

from seglog.base.ownership import Owned
from seglog.errors import CalledWithin
from seglog.interrupts import OwnLock


class Upkeep(Protocol):
    def wake(self) -> None:
        """Run the work soon or at once."""

    def wake_later(self, delay_s: float) -> None:
        """Run the work after `delay_s` seconds. If several calls wait, the first one counts."""

    def close(self, patience_s: float | None = None) -> bool:
        """Stop, and return when the work has ended, or after `patience_s` seconds. Idempotent.

        Return False if the work still runs. A later `wake` does nothing.
        """


UpkeepFactory: TypeAlias = Callable[[Callable[[], None]], Upkeep]


class Background(Owned):
    """Runs the work in a daemon thread. A process that ends without `close` does not wait for the thread.

    The next recovery then makes up for the missing work.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        # `with` takes this lock itself: an interrupt in the condition's own `__enter__` would leave it locked for ever.
        self._lock = OwnLock()
        self._changed = threading.Condition(cast("Any", self._lock.exclusive))
        self._has_work = False
        self._due_s: float | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._running = threading.Lock()  # the thread holds it until it ends; `_thread` is known from then on

    def wake(self) -> None:
        if self._lock.is_mine:
            return  # this thread is within another `wake`, or just looks for work: the next `wake` runs it
        with self._lock.exclusive:
            if self._has_work or self._is_closed:
                return
            self._stir()
            self._has_work = True

    def wake_later(self, delay_s: float) -> None:
        if self._lock.is_mine:
            return
        with self._lock.exclusive:
            if self._has_work or self._is_closed or self._due_s is not None:
                return
            due_s = time.monotonic() + delay_s
            self._stir()
            self._due_s = due_s

    def check_apart(self) -> None:
        """Raises `CalledWithin` if `close` would wait for this thread."""
        if self._lock.is_mine or self._thread is threading.current_thread():
            raise CalledWithin

    def close(self, patience_s: float | None = None) -> bool:
        with self._lock.exclusive:
            self._is_closed = True
            self._changed.notify()
        # Not `Thread.join`: after an interrupt, a second `join` returns although the thread still runs.
        if patience_s is None:
            with self._running:
                return True
        has_ended = self._running.acquire(timeout=patience_s)
        if has_ended:
            self._running.release()
        return has_ended

    def _stir(self) -> None:
        """Start the thread, or notify it. The caller holds the lock, and the thread looks for work after its release.

        If an interrupt cuts off a step here, the next call does that step. A cut `start` may have begun a thread, and
        may also have left it waiting for ever. So the next call starts another one, and the first that runs is the one.
        """
        if self._thread is None:
            threading.Thread(target=self._run, name="seglog-upkeep", daemon=True).start()
        else:
            self._changed.notify()

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return  # an interrupt cut off a `start`, and two threads came of it; or the log has closed
        try:
            self._thread = threading.current_thread()
            while self._has_work_now():
                self._work()
        finally:
            self._running.release()

    def _has_work_now(self) -> bool:
        """Wait until there is work. Return False if the log closes."""
        with self._lock.exclusive:
            while not self._is_closed and (wait_s := self._wait_s()) != 0:
                self._changed.wait(wait_s)
            self._has_work, self._due_s = False, None
            return not self._is_closed

    def _wait_s(self) -> float | None:
        """Return the seconds until there is work, or None if no work is known."""
        if self._has_work:
            return 0
        return None if self._due_s is None else max(self._due_s - time.monotonic(), 0)


class InCaller:
    """Runs the work in the thread that calls `wake`.

    It serves tests that count file operations, and processes that must not have a second thread.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._is_closed = False

    def wake(self) -> None:
        if not self._is_closed:
            self._work()

    def wake_later(self, delay_s: float) -> None:
        pass

    def close(self, patience_s: float | None = None) -> bool:  # noqa: ARG002 - no work runs between the calls
        self._is_closed = True
        return True
