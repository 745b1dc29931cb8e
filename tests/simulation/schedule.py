"""A schedule. One seed decides which task runs next, fails, crashes or sleeps for days, and how the clock moves.

A task is ordinary code in a greenlet of its own. At every request to the store the task hands over to the schedule. The
schedule draws the next task. Threads that take turns would do the same, but their locks took three quarters of the
time. Every event goes into the trace. The same seed gives the same trace.

While a schedule runs, `deterministic` draws all other input of the code from the same seed. That input is the bytes of
`os.urandom`, the pauses between tries, and the clock. Thread pools run their jobs in the calling thread.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from unittest import mock

import xxhash
from greenlet import getcurrent, greenlet

from tests.faults.in_caller import InCaller
from tests.seams.catalog import databases_from
from tests.seams.limits import Limit

__all__ = ["DAY_MS", "START_MS", "Clock", "Crashed", "Ended", "Schedule", "Task"]

START_MS = 1_763_111_523_000
DAY_MS = 24 * 3_600_000
_HOUR_MS = 3_600_000


class Crashed(BaseException):
    """The process dies at this point. The restarted process finds the durable state only."""


class Ended(BaseException):
    """The schedule is over."""


class Clock:
    """The clock of one task. It is behind or ahead of the store's clock, too slow or too fast, and sometimes jumps.

    Its difference from the store's clock stays between `lowest_ms` and `highest_ms`.
    """

    def __init__(self, schedule: Schedule, lowest_ms: int, highest_ms: int) -> None:
        self._schedule = schedule
        self._range = (lowest_ms, highest_ms)
        self._drift = schedule.random.choice((0.0, -0.001, 0.001))
        self.set_anew()

    def set_anew(self) -> None:
        """Jump in either direction."""
        lowest_ms, highest_ms = self._range
        self._set_ms = self._schedule.now_ms
        self._ahead_ms = self._schedule.random.choice((0, self._schedule.random.randint(lowest_ms, highest_ms)))

    def now_ms(self) -> int:
        lowest_ms, highest_ms = self._range
        now_ms = self._schedule.now_ms
        drifted_ms = int(self._drift * (now_ms - self._set_ms))
        return now_ms + min(max(self._ahead_ms + drifted_ms, lowest_ms), highest_ms)


class Task:
    """A task of the schedule. `live` is one process of the task. The schedule calls it again after a crash.

    If `may_crash` is false, the task never crashes. `weight` is the relative rate at which the schedule draws the task.
    If `passes` is set, some changes by the task wake sleeping tasks. If `sees_names` is set, the task's LISTs of names
    are complete.
    """

    may_crash = True
    weight = 1
    stall_rate = 0.008
    # The rate of stalls before a write that GC has to see. The task has looked already, so a stall here is dangerous.
    critical_rate = 0.1
    passes = False
    sees_names = False

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name
        self.wakes_ms = 0
        self.late_for = ""
        self.is_dead = False  # if set, no call of the dying process takes effect
        self.own = greenlet(self._run, schedule.main)
        schedule.tasks.append(self)

    def live(self) -> None:
        raise NotImplementedError

    @property
    def is_over(self) -> bool:
        return self.own.dead

    def bury(self) -> None:
        """Dispose of the crashed process's state."""

    def _run(self) -> None:
        while True:
            try:
                self.live()
            except Crashed:
                self.schedule.note(self.name, "crashed")
                self.bury()
                self.is_dead = False
                self.hand_over()
            else:
                return

    def hand_over(self) -> None:
        """Let the schedule draw the next task."""
        self.schedule.main.switch()

    def end(self) -> None:
        self.is_dead = True
        if self.own:  # true for a greenlet that has begun and is not over
            with contextlib.suppress(Ended, Crashed):
                self.own.throw(Ended)


class Schedule:
    """A schedule. `now_ms` is the store's time. `fault_rate` and `crash_rate` are rates per request.

    `day_rate` is the rate at which a step takes hours or days.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = START_MS
        self.tasks: list[Task] = []
        self.main = getcurrent()
        # Some seeds have few faults, so that operations with many requests can finish.
        self.fault_rate = self.random.choice((0.001, 0.005, 0.04))
        self.crash_rate = self.random.choice((0.0005, 0.003))
        # If long steps are rare, a state leaves the window close in time to the actions on that state.
        self.day_rate = self.random.choice((0.002, 0.006, 0.02))
        self.rest_ms = int(DAY_MS * self.day_rate * 50)
        self.steps = 0
        self.crashes = 0
        self.stalls = 0
        self.databases: dict[Path, sqlite3.Connection] = {}
        self._trace = xxhash.xxh3_128()
        self._roused: Task | None = None
        self._roused_at = 0
        self._late: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def trace_hash(self) -> str:
        return self._trace.hexdigest()

    def note(self, *what: object) -> None:
        self._trace.update(repr((self.now_ms, *what)).encode())

    def chance(self, rate: float) -> bool:
        return self.random.random() < rate

    def later(self, at_ms: int, act: Callable[[], None]) -> None:
        """Schedule a delayed request, which lands at `at_ms`."""
        heapq.heappush(self._late, (at_ms, next(self._numbers), act))

    def run(self, steps: int) -> None:
        """Run until all tasks are over or `steps` steps were made. Raise the first error of a task."""
        try:
            while self.steps < steps and any(not task.is_over for task in self.tasks):
                self._step()
        finally:
            for task in self.tasks:
                task.end()
        self.land(None)

    def land(self, up_to_ms: int | None) -> None:
        while self._late and (up_to_ms is None or self._late[0][0] <= up_to_ms):
            heapq.heappop(self._late)[2]()

    def tick(self) -> None:
        """Advance the time, mostly by milliseconds and sometimes by hours or days."""
        drawn = self.random.random()
        if drawn < self.day_rate:
            self.now_ms += self.random.randrange(DAY_MS // 4, 2 * DAY_MS)
        elif drawn < self.day_rate + 0.02:
            self.now_ms += self.random.randrange(_HOUR_MS)
        else:
            self.now_ms += self.random.randrange(1, 200)
        self.land(self.now_ms)

    def _step(self) -> None:
        self.steps += 1
        self.tick()
        alive = [task for task in self.tasks if not task.is_over]
        in_a_hurry = self._roused if self.steps >= self._roused_at else None
        if in_a_hurry is not None and in_a_hurry.late_for:
            in_a_hurry.wakes_ms = self.now_ms
        awake = [task for task in alive if task.wakes_ms <= self.now_ms]
        if not awake:
            self.now_ms = min(task.wakes_ms for task in alive)
            self.land(self.now_ms)
            awake = [task for task in alive if task.wakes_ms <= self.now_ms]
        [task] = self.random.choices(awake, [each.weight for each in awake])
        if in_a_hurry in awake and self.chance(0.7):
            task = in_a_hurry
        task.own.switch()

    def rouse(self, is_concerned: Callable[[str], object]) -> None:
        """Choose a task that sleeps before a request to a key that `is_concerned` accepts. Wake and prefer it soon."""
        asleep = (task for task in self.tasks if task.wakes_ms > self.now_ms and not task.is_over)
        late = [task for task in asleep if task.late_for and is_concerned(task.late_for)]
        if late:
            self._roused = self.random.choice(late)
            self._roused_at = self.steps + self.random.randrange(80)

    def reach(self, task: Task, critical_key: str = "") -> None:
        """Hand over before a request. The task may sleep first for up to 30 days, or crash."""
        task.late_for = ""
        if self.chance(task.critical_rate if critical_key else task.stall_rate):
            self.stalls += 1
            task.late_for = critical_key
            task.wakes_ms = self.now_ms + self.random.randrange(self.random.choice((1, 6, 30)) * DAY_MS)
        task.hand_over()
        self.perhaps_crash(task)

    def perhaps_crash(self, task: Task) -> None:
        if task.may_crash and self.chance(self.crash_rate):
            self.kill(task)

    def kill(self, task: Task) -> None:
        self.crashes += 1
        task.is_dead = True
        raise Crashed

    @contextlib.contextmanager
    def deterministic(self) -> Iterator[None]:
        def pause(_: int) -> float:
            self.now_ms += self.random.randrange(5_000)
            return 0.0

        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(os, "urandom", self.random.randbytes))
            stack.enter_context(databases_from(lambda path: self.databases[path.parent]))
            # A record may be larger than a block of the simulation, but none is.
            stack.enter_context(mock.patch(Limit.RECORD_OVERHEAD_BYTES.value, 0))
            stack.enter_context(mock.patch("offload.context.host_name", return_value="simulated"))
            stack.enter_context(mock.patch("concurrent.futures.ThreadPoolExecutor", InCaller))
            for name, module in sorted(sys.modules.items()):
                if not name.startswith(("catalog.", "offload.")):
                    continue
                if hasattr(module, "backoff_s"):
                    stack.enter_context(mock.patch.object(module, "backoff_s", pause))
                if hasattr(module, "ThreadPoolExecutor"):
                    stack.enter_context(mock.patch.object(module, "ThreadPoolExecutor", InCaller))
            yield
