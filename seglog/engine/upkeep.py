"""Who does the work that appends leave behind: a thread of the log's own, or the appender itself.

    Background   one thread, from the first `wake` to `close`; an append does not wait for it
    InCaller     at once, in the thread that wakes: the same order of file operations every time; nothing later, because
                 nobody is there then

Wakes that come while the work is done are one more turn, together. What the work raises is its own business: it has to
end in a state of the log that appends see.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

from seglog.errors import CalledWithin
from seglog.process.interrupts import uninterrupted
from seglog.process.own_lock import OwnLock
from seglog.process.ownership import Owned

__all__ = ["Background", "InCaller", "Upkeep", "UpkeepFactory"]


class Upkeep(Protocol):
    def wake(self) -> None:
        """There is work."""
        ...

    def wake_later(self, delay_s: float) -> None:
        """There will be work then. Of several the first one counts."""
        ...

    def close(self, patience_s: float | None = None) -> bool:
        """Returns when nothing is done any more, or after `patience_s`; a later `wake` does nothing. Idempotent.

        False: something is still done.
        """
        ...


UpkeepFactory: TypeAlias = Callable[[Callable[[], None]], Upkeep]


class Background(Owned):
    """A daemon thread: a process that ends without `close` does not wait for it, and recovery makes up for it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        # Held by `with` itself: an interrupt within the condition's own `__enter__` would leave it locked for ever.
        self._lock = OwnLock()
        self._changed = threading.Condition(cast("Any", self._lock.once))
        self._has_work = False
        self._due_s: float | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        if self._lock.is_mine:
            return  # within another `wake` of this thread, or where the thread looks for work: the next one does it
        with self._lock.once:
            if self._has_work or self._is_closed:
                return
            self._stir()
            self._has_work = True

    def wake_later(self, delay_s: float) -> None:
        if self._lock.is_mine:
            return
        with self._lock.once:
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
        if patience_s is not None:
            return self._stop(patience_s)
        # An interrupt waits for the work too: whoever closes lets go of the directory next.
        uninterrupted(self._stop)
        return True

    def _stop(self, patience_s: float | None = None) -> bool:
        with self._lock.once:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is None or thread.ident is None:
            return True
        thread.join(patience_s)
        return not thread.is_alive()

    def _stir(self) -> None:
        """The lock is held: whoever is woken looks after it. What an interrupt cuts off here, the next one does."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="seglog-upkeep", daemon=True)
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._lock.once:
                while not self._is_closed and (wait_s := self._wait_s()) != 0:
                    self._changed.wait(wait_s)
                if self._is_closed:
                    return
                self._has_work, self._due_s = False, None
            self._work()

    def _wait_s(self) -> float | None:
        """Until there is work; None: nobody knows."""
        if self._has_work:
            return 0
        return None if self._due_s is None else max(self._due_s - time.monotonic(), 0)


class InCaller:
    """For tests that count file operations, and for processes that must not have a second thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._is_closed = False

    def wake(self) -> None:
        if not self._is_closed:
            self._work()

    def wake_later(self, delay_s: float) -> None:
        pass

    def close(self, patience_s: float | None = None) -> bool:  # noqa: ARG002 - nothing is done in between
        self._is_closed = True
        return True
