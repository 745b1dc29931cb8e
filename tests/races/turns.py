"""A seeded scheduler of threads. One seed decides which thread goes next at each point where another may get in.

    thread     ordinary code in a greenlet of its own; `threading.Thread` makes one while the schedule runs
    seam       a point where another thread may go on: each lock that a thread takes or gives back, each wait, each
               request to a store, each call of the file system, each statement of SQLite (`step`)
    wait       a thread that waits goes on once its condition is true. If nobody can go on, the time moves to the next
               timeout. If there is none, that is a deadlock, and `run` raises `Stuck` with the place of each thread

While `Turns.run` runs, the names of `threading`, `queue`, `time` and `os.urandom` lead here. So locks, conditions,
events, semaphores, queues, executors and futures are those of Python, over locks of the schedule. The time stands
still while a thread works.

A seed chooses one of two ways to draw the next thread. It changes at each seam with one probability; or each thread
has a rank, the first in rank goes on, and at a few seams drawn before, whoever comes there gets the last rank. The
second way lets one thread run far between two steps of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import os
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import thread as executors
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet

from seglog.interrupts import OwnLock

__all__ = ["Stuck", "Turns"]

_START_S = 1_763_111_523.0
_LIMIT_S = 600.0  # no schedule lasts that long on its own clock, unless somebody waits for ever
_SEAMS_ABOUT = 1_500  # between the beginning of two calls and their end
_SEAMS_MOST = 400_000


class Stuck(AssertionError):
    """Nobody can go on, or somebody works for ever."""


class _Thread:
    """A thread of the schedule, in place of `threading.Thread`."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Any = (),
        kwargs: Any = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        turns = _turns()
        self.ident = next(turns.numbers)
        self.name = name or f"thread-{self.ident}"
        self.daemon = bool(daemon)
        self.error: BaseException | None = None
        self.until: Callable[[], bool] | None = None
        self.deadline_s: float | None = None
        self.rank = 0.0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.own: greenlet | None = None
        self._work = (target, args, kwargs or {})

    def start(self) -> None:
        turns = _turns()
        self.own = greenlet(self.run, turns.hub)
        self.rank = turns.random.random()
        turns.threads.append(self)
        turns.step()

    def run(self) -> None:
        target, args, named = self._work
        try:
            if target is not None:
                target(*args, **named)
        except BaseException as error:
            self.error = error
        finally:
            del self._work

    def join(self, timeout: float | None = None) -> None:
        _turns().wait(lambda: not self.is_alive(), timeout)

    def is_alive(self) -> bool:
        return self.own is not None and not self.own.dead

    @property
    def native_id(self) -> int:
        return self.ident


class _Lock:
    """`threading.Lock`. Any thread may give it back."""

    def __init__(self) -> None:
        self.is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        turns = _turns()
        turns.step()
        if self.is_held and not (blocking and turns.wait(lambda: not self.is_held, None if timeout < 0 else timeout)):
            return False
        self.is_held = True
        return True

    def release(self) -> None:
        if not self.is_held:
            raise RuntimeError("release unlocked lock")
        self.is_held = False
        _turns().step()

    def locked(self) -> bool:
        return self.is_held

    def _at_fork_reinit(self) -> None:
        self.is_held = False

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class _RLock:
    """`threading.RLock`, with the methods that a condition calls."""

    def __init__(self) -> None:
        self._owner: _Thread | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        turns = _turns()
        me = turns.current
        if self._owner is not me or not self._count:
            turns.step()
            if self._count and not (blocking and turns.wait(lambda: not self._count, None if timeout < 0 else timeout)):
                return False
        self._owner = me
        self._count += 1
        return True

    def release(self) -> None:
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            _turns().step()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        return bool(self._count) and self._owner is _turns().current

    def _release_save(self) -> int:
        count, self._count = self._count, 1
        self.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self.acquire()
        self._count = count

    def _at_fork_reinit(self) -> None:
        self._count = 0


class _SimpleQueue:
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        self._items.append(item)
        _turns().step()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        turns = _turns()
        turns.step()
        if not self._items and not (block and turns.wait(lambda: bool(self._items), timeout)):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class _Local:
    """`threading.local`."""

    def __init__(self) -> None:
        object.__setattr__(self, "_of_all", WeakKeyDictionary())

    def _mine(self) -> dict[str, Any]:
        of_all = object.__getattribute__(self, "_of_all")
        return of_all.setdefault(_turns().current, {})  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        try:
            return self._mine()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._mine()[name] = value

    def __delattr__(self, name: str) -> None:
        del self._mine()[name]


_running: list[Turns] = []


def _turns() -> Turns:
    return _running[-1]


class Turns:
    """One schedule. Its calls outside `racing` change threads only where one waits."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_s = 0.0
        self.numbers = itertools.count(1)
        self.threads: list[_Thread] = []
        self.seams = 0
        self.changes = 0
        self.is_racing = False
        self._trace = 0
        self._rate = self.random.choice((0.5, 0.15, 0.04, 0.0, 0.0, 0.0))
        self._lowered: set[int] = set()
        self.current: _Thread | None = None

    @property
    def trace(self) -> int:
        """A hash of which thread went on at each seam."""
        return self._trace

    def now_ms(self) -> int:
        return int((_START_S + self.now_s) * 1000)

    def run(self, main: Callable[[], Any]) -> Any:
        """Run `main` as the first thread, and all threads that it makes. Return what it returns, or raise its error."""
        found: list[Any] = []
        with self._in_place(), self._without_collector():
            self.hub = getcurrent()
            _Thread(target=lambda: found.append(main()), name="main").start()
            first = self.threads[0]
            try:
                while first.is_alive():
                    self._turn(self._next())
            finally:
                self._end()
            if first.error is not None:
                raise first.error
        return found[0]

    @contextlib.contextmanager
    def racing(self, seams_about: int = _SEAMS_ABOUT) -> Iterator[None]:
        """Let threads change at seams, too."""
        if not self._rate:
            count = self.random.choice((1, 1, 2, 3))
            self._lowered = {self.seams + int(self.random.random() * seams_about) for _ in range(count)}
        for thread in self.threads:
            thread.rank = self.random.random()
        self.is_racing = True
        try:
            yield
        finally:
            self.is_racing = False

    def step(self) -> None:
        """Let another thread go on, if the seed says so."""
        me = self.current
        if me is None or not self.is_racing:
            return
        self.seams += 1
        if self.seams > _SEAMS_MOST:
            raise Stuck("the threads work for ever\n" + self._places())
        if self._rate:
            if self.random.random() < self._rate:
                self._hand_over()
        else:
            if self.seams in self._lowered:
                me.rank = -self.random.random() - self.seams
            if any(each.rank > me.rank and self._can_go(each) for each in self.threads):
                self._hand_over()

    def wait(self, until: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until it is true. Return False if it was not within the timeout."""
        if until():
            return True
        me = self.current
        if me is None:
            raise Stuck("a wait outside all threads")
        me.until = until
        me.deadline_s = None if timeout_s is None else self.now_s + max(timeout_s, 0.0)
        self._hand_over()
        me.until = me.deadline_s = None
        return until()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.wait(lambda: False, seconds)
        else:
            self.step()

    # ------------------------------------------------------------ the schedule

    def _hand_over(self) -> None:
        assert self.current is not None
        self.hub.switch()

    def _can_go(self, thread: _Thread) -> bool:
        if thread.until is None:
            return True
        return thread.until() or (thread.deadline_s is not None and thread.deadline_s <= self.now_s)

    def _next(self) -> _Thread:
        ready = [each for each in self.threads if self._can_go(each)]
        if not ready:
            deadlines = [each.deadline_s for each in self.threads if each.deadline_s is not None]
            if not deadlines or min(deadlines) > _LIMIT_S:
                raise Stuck("nobody can go on\n" + self._places())
            self.now_s = min(deadlines)
            ready = [each for each in self.threads if self._can_go(each)]
        if not self.is_racing or len(ready) == 1:
            return ready[0]
        return self.random.choice(ready) if self._rate else max(ready, key=lambda each: each.rank)

    def _turn(self, thread: _Thread) -> None:
        assert thread.own is not None
        self._trace = hash((self._trace, thread.ident, self.seams))
        self.changes += 1
        self.current = thread
        asyncio._set_running_loop(thread.loop)
        thread.own.switch()
        thread.loop = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        self.current = None
        if thread.own.dead:
            self.threads.remove(thread)

    def _end(self) -> None:
        """Dispose of the threads that are left."""
        self.is_racing = False
        for thread in [*self.threads]:
            with contextlib.suppress(BaseException):
                self.current = thread
                if thread.own:
                    thread.own.throw()
            self.current = None
        self.threads.clear()
        asyncio._set_running_loop(None)
        of_pools = vars(executors)["_threads_queues"]  # the end of the process would wake what is left of them
        for thread in [each for each in of_pools if isinstance(each, _Thread)]:
            del of_pools[thread]

    def _places(self) -> str:
        return "\n".join(f"{each.name}:\n{_stack(each)}" for each in self.threads)

    # ------------------------------------------------------------ in place of Python's own

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        outside = _Stand(0, "main")

        def me() -> Any:
            return self.current or outside

        given = [
            (threading, "Lock", _Lock),
            (threading, "RLock", _RLock),
            (threading, "_allocate_lock", _Lock),
            (threading, "Thread", _Thread),
            (threading, "local", _Local),
            (threading, "get_ident", lambda: me().ident),
            (threading, "current_thread", me),
            (threading, "_time", lambda: self.now_s),
            (queue, "SimpleQueue", _SimpleQueue),
            (executors, "_global_shutdown_lock", _Lock()),
            (time, "sleep", self.sleep),
            (time, "monotonic", lambda: self.now_s),
            (os, "urandom", self.random.randbytes),
        ]
        of_modules = _of_modules(queue.SimpleQueue, len(sys.modules))
        former = [(target, name, getattr(target, name)) for target, name, _ in (*given, *of_modules)]
        _running.append(self)
        try:
            for target, name, value in given:
                setattr(target, name, value)
            for module, name, make in of_modules:  # they may make locks of the schedule
                setattr(module, name, make())
            yield
        finally:
            for target, name, value in former:
                setattr(target, name, value)
            _running.pop()

    @contextlib.contextmanager
    def _without_collector(self) -> Iterator[None]:
        """Let no finalizer run at a point that the seed does not choose."""
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


@functools.cache
def _of_modules(simple_queue: Any, _count: int) -> list[tuple[Any, str, Callable[[], Any]]]:
    """Return the names of our modules that hold what a schedule replaces, and what makes its replacement.

    Modules are imported late, so another count of modules is another list.
    """
    found: list[tuple[Any, str, Callable[[], Any]]] = []
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(("catalog.", "offload.", "seglog.")):
            continue
        for held, value in vars(module).items():
            if isinstance(value, OwnLock):  # made with the module, before the schedule
                found.append((module, held, OwnLock))
            elif held == "backoff_s":
                found.append((module, held, lambda: lambda *_args, **_named: 0.001))
            elif value is simple_queue:
                found.append((module, held, lambda: _SimpleQueue))
    return found


class _Stand:
    """The thread of the tests."""

    def __init__(self, ident: int, name: str) -> None:
        self.ident, self.name, self.daemon = ident, name, False


def _stack(thread: _Thread) -> str:
    frame = thread.own.gr_frame if thread.own else None
    return "".join(traceback.format_stack(frame)[-12:]) if frame else "  (runs)\n"
