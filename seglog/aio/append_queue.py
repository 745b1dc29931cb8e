"""The queue of the appends of tasks. One thread of the log commits them, group by group.

    1  A task puts its append into a part, and waits (seglog.aio.merged). At the end of the tick, `_send` hands all
       parts to the committing thread, and wakes the thread if it is idle.
    2  The thread takes all parts that were handed over, as one group, and commits it (`commit`).
    3  The thread hands the outcomes to the loop, in one callback. Then it takes the next group. If there is none, the
       thread is idle.
    4  `_settle` runs in the loop. It gives each append its result, and makes the next step of each task of the group.
       Then `_send` hands over what these tasks append.

So the loop works while the thread waits for the disk, and all appends that come meanwhile are the next group. If the
log is opened with `loop_wait_ms`, `_send` may commit a small group in the loop itself (AIO-5).

A program under load sets `group_wait_s`. The thread then waits before each group, so that more appends share its sync.
Without it, and while it returns 0, no group waits (decision 0296).

    a wait                      what ends it
    a task for its ack          `_settle` of its group, or `Ack.cancel`
    a task for room             a group that is settled, a task that leaves the line, or `close`
    the thread that is idle     `_send` after an append, or `close`
    the thread before a group   `group_wait_s` seconds, if the program has set it; `close` waits for them
    `close`                     the thread, which ends when nothing is handed over any more

`LoopTime` says how long the writes of a log may keep the loop waiting.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from queue import SimpleQueue
from typing import Any, TypeAlias

from seglog.aio.merged import Outcome, Part, Waiting, merged, steps_of
from seglog.base.ownership import Owned
from seglog.engine.engine import Engine
from seglog.errors import LogClosed, OtherLoop, TopicFull
from seglog.maintenance.checkpoint import wait_for_room
from seglog.writing.append import PendingAppend, begin_append, finish_append

_FIRST_PAUSE = 64
_LONGEST_PAUSE = 65_536
_Outcomes: TypeAlias = dict[Part, Outcome]

# The parts whose appends are in the queue of the committer, or were refused there.
_Begun: TypeAlias = dict[Part, "PendingAppend | Outcome"]
# The loop leaves larger groups to the thread. To encode so much takes a millisecond.
_HERE_MAX_BYTES = 256 * 1024


class LoopTime:
    """Decides for each group whether the loop writes it. Otherwise the committing thread does (AIO-5).

    If a write in the loop took longer than `most_s`, the thread writes the next 64 groups. Then the loop tries again.
    After each further write that took longer, twice as many groups go to the thread, up to 65,536. So a slow disk keeps
    the loop waiting for few groups.
    """

    __slots__ = ("_groups_for_thread", "_most_s", "_pause")

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._groups_for_thread = 0
        self._pause = _FIRST_PAUSE

    @property
    def is_set(self) -> bool:
        """Return whether the loop may write groups at all."""
        return self._most_s > 0

    def allows_next(self) -> bool:
        """Return whether the loop writes the next group. Call this once for each group."""
        if self._groups_for_thread:
            self._groups_for_thread -= 1
            return False
        return self.is_set

    def note(self, took_s: float) -> None:
        """Take note of the time of a write in the loop."""
        if took_s <= self._most_s:
            self._pause = _FIRST_PAUSE
        else:
            self._groups_for_thread = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def commit(engine: Engine, group: list[Part], outcomes: _Outcomes) -> BaseException | None:
    """Commit all parts as one group of the committer, and put the outcome of each into `outcomes`. Raise nothing.

    If the topic of a part is being deleted, that part and all behind it are another group, after the deletion.
    A part that has no room as a whole is split. If an interrupt ends the call early, the committer completes what was
    begun. Only the parts that it does not reach get the interrupt, and the call returns it.
    """
    begun: _Begun = {}
    waiting = group[::-1]
    try:
        for part in group:
            part.drop_cancelled()
        wait_for_room(engine)
        while waiting:
            _begin(engine, waiting, begun)
            for part, pending in begun.items():
                outcomes[part] = _finish(engine, pending) if isinstance(pending, tuple) else pending
            begun = {}
            if waiting:
                _flush(engine, waiting, outcomes)
    except BaseException as error:
        failure = _abandoned(engine, error)
        for part, pending in begun.items():
            outcomes.setdefault(part, _reached(pending, failure))
        for part in waiting:
            outcomes.setdefault(part, failure)
        return failure
    return None


def _abandoned(engine: Engine, error: BaseException) -> BaseException:
    """Abandon what was begun before an error that no append raises. Return the error for the tasks."""
    try:
        engine.committer.abandon()
    except BaseException as worse:
        return worse
    return error


def _reached(begun: PendingAppend | Outcome, failure: BaseException) -> Outcome:
    """Return the outcome of an append that was abandoned. If it is not done yet, that is `failure`."""
    if not isinstance(begun, tuple):
        return begun
    _, _, entries, seqs, _ = begun
    if not all(entry.is_done for entry in entries):
        return failure
    return next((entry.error for entry in entries if entry.error is not None), seqs.start)


def _begin(engine: Engine, waiting: list[Part], begun: _Begun) -> None:
    """Begin the appends of the parts, the last one first, up to the first part whose topic is being deleted."""
    while waiting:
        part = waiting[-1]
        outcome = _begin_one(engine, part, is_alone=not begun and len(waiting) == 1)
        if outcome is None:
            return
        if isinstance(outcome, TopicFull) and len(part.acks) > 1:
            waiting[-1:] = part.split()[::-1]  # there may be room for some of the appends
        else:
            begun[part] = outcome
            part.is_repeated = isinstance(outcome, tuple) and outcome[4]
            del waiting[-1]


def _begin_one(engine: Engine, part: Part, *, is_alone: bool) -> PendingAppend | Outcome | None:
    if not part.acks:
        return 0
    topic, options = part.kind
    try:
        return begin_append(engine, topic, part.values, part.records, part.size_bytes, options, is_alone=is_alone)
    except Exception as error:
        return error


def _flush(engine: Engine, waiting: list[Part], outcomes: _Outcomes) -> None:
    """Make the deletion durable that the parts wait for. If that fails, the failure is their outcome."""
    try:
        engine.committer.flush()
    except Exception as error:
        outcomes |= dict.fromkeys(waiting, error)
        waiting.clear()


def _finish(engine: Engine, begun: PendingAppend) -> Outcome:
    """Commit the append. If an interrupt comes before that, raise it: `commit` then abandons the entries."""
    try:
        return finish_append(engine, begun).start
    except Exception as error:
        if not all(entry.is_done for entry in begun[2]):
            raise
        return error


class AppendQueue(Owned):
    """The appends that wait, and the thread that commits them. Its methods run in the loop."""

    def __init__(self, engine: Engine, loop_time: LoopTime) -> None:
        self.engine = engine
        self._loop_time = loop_time
        self.max_bytes = engine.settings.queue_max_bytes
        self.loop = asyncio.get_running_loop()
        self.waiting = Waiting(self.loop, self._send)
        #: The appends that wait for room, in order.
        self.for_room: deque[asyncio.Future[None]] = deque()
        #: Of each branch that an append has opened. Appends to it wait there, in order.
        self.branches: dict[str, asyncio.Lock] = {}
        #: Returns how many seconds the thread waits before the next group. The thread calls it.
        self.group_wait_s: Callable[[], float] | None = None
        #: How long the group waited whose tasks make their steps now.
        self.waited_s = 0.0
        self.is_closed = False
        self._handed_over: deque[list[Part]] = deque()
        # The thread holds the lock while it commits. The loop holds it if it commits a group itself.
        self._committing = threading.Lock()
        self._is_idle = False
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._at_rest: asyncio.Future[None] = self.loop.create_future()
        self._done: asyncio.Future[None] = self.loop.create_future()
        self._done.set_result(None)
        # A daemon thread: a program that ends without `close` does not wait for it. Recovery makes up for that.
        threading.Thread(target=self._commit_all, name="seglog-append", daemon=True).start()

    def check_loop(self) -> None:
        """Raise `OtherLoop` unless the loop that opened the log runs."""
        if asyncio.get_running_loop() is not self.loop:
            raise OtherLoop

    async def close(self) -> None:
        """Return when no append is in progress. Later appends raise `LogClosed`. Idempotent."""
        if self.loop.is_closed():
            # No task waits for the appends in progress. The thread ends after the group that it writes.
            self.is_closed = True
            self._wakes.put(None)
            return
        self.check_loop()
        self._hand_over()  # before the flag, because the thread ends when it sees the flag and has nothing to do
        self.is_closed = True
        self._wakes.put(None)
        self._wake_first()
        await asyncio.shield(self._at_rest)

    def _has_room(self, size_bytes: int) -> bool:
        unsettled_bytes = self.waiting.unsettled_bytes
        return unsettled_bytes <= 0 or unsettled_bytes + size_bytes <= self.max_bytes

    @property
    def is_full(self) -> bool:
        """Return whether appends of `queue_max_bytes` wait, so that the next one would wait for room."""
        return bool(self.for_room) or self.waiting.unsettled_bytes >= self.max_bytes

    async def wait_for_room(self, size_bytes: int) -> None:
        """Wait until there is room for an append, in order (AIO-3). Raise `LogClosed` and `OtherLoop`.

        Only the first in line is woken. When it leaves, with its append or without, it wakes the next one.
        """
        self.check_loop()
        if self.is_closed:
            raise LogClosed
        if not self.for_room and self._has_room(size_bytes):
            return
        turn: asyncio.Future[None] = self.loop.create_future()
        self.for_room.append(turn)
        try:
            await turn
            while not (self.is_closed or self._has_room(size_bytes)):
                turn = self.for_room[0] = self.loop.create_future()
                await turn
        finally:
            self.for_room.remove(turn)
            self._wake_first()
        if self.is_closed:
            raise LogClosed

    def _wake_first(self) -> None:
        if self.for_room and not self.for_room[0].done():
            self.for_room[0].set_result(None)

    def _send(self) -> None:
        """Hand the appends of this tick to the thread. If it writes a group, it takes them after that."""
        self.waiting.is_sending = False
        try:
            self._hand_over()
            if not self._handed_over:
                return
            if self._loop_time.is_set and self._may_commit_here():
                self._commit_here()
            elif self._is_idle:
                self._wakes.put(None)
        except BaseException:
            # An interrupt ends the loop. If the loop runs again, wake the thread.
            self.loop.call_soon(self._send)
            raise

    def _hand_over(self) -> None:
        if self.waiting.parts:
            self.waiting.hand_over(self._handed_over)

    def _may_commit_here(self) -> bool:
        """Return whether the loop may write what was handed over: it is little, and no other thread writes."""
        engine = self.engine
        size_bytes = sum(part.size_bytes for parts in tuple(self._handed_over) for part in parts)
        is_free = engine.committer.is_at_rest and not (engine.wals.older_files or self._committing.locked())
        may_be = is_free and size_bytes <= _HERE_MAX_BYTES and not self._wait_s()
        return may_be and self._loop_time.allows_next()

    def _wait_s(self) -> float:
        """Return how long the next group waits for more appends."""
        return 0.0 if self.group_wait_s is None else self.group_wait_s()

    def _commit_here(self) -> None:
        outcomes: _Outcomes = {}
        interrupt: BaseException | None = None
        try:
            with self._committing:
                begin = time.perf_counter()
                if not self._handed_over:
                    return  # the thread was faster
                # No calls in these statements, because an interrupt hits only between calls.
                group = self._handed_over[0]
                del self._handed_over[0]
                interrupt = commit(self.engine, group, outcomes)
                self._loop_time.note(time.perf_counter() - begin)
        finally:
            self._settle(outcomes)
        if interrupt is not None:
            raise interrupt

    def _settle(self, outcomes: _Outcomes, steps: Iterator[object] | None = None, waited_s: float = 0.0) -> None:
        """Give each append its result, and make the next step of each task. Then send the appends that wait."""
        self.waiting.is_sending = True
        self.waited_s = waited_s
        try:
            if steps is None:
                for part, outcome in outcomes.items():
                    if part.outcome is None:  # else an interrupt has ended an earlier call
                        part.outcome = outcome
                        self.waiting.unsettled_bytes -= part.size_bytes
                self._wake_first()
                steps = steps_of([ack for part in outcomes for ack in part.acks], self._done)
            deque(steps, maxlen=0)
            self.loop.call_soon(self._send)
        except BaseException:
            # A step raises only an exception that ends the loop. If the loop runs again, wake the other tasks.
            self.loop.call_soon(self._settle, outcomes, steps, waited_s)
            raise
        for part in outcomes:
            part.acks = []  # because an ack refers to its part

    def _take_group(self) -> list[Part]:
        """Return all parts that were handed over, merged. The caller holds the lock, so groups keep their order."""
        ticks = [self._handed_over.popleft() for _ in range(len(self._handed_over))]
        return ticks[0] if len(ticks) == 1 else merged([*chain.from_iterable(ticks)])

    # ------------------------------------------------------------ the committing thread

    def _commit_all(self) -> None:
        """Commit one group after the other, until the queue is closed and nothing is handed over."""
        while True:
            is_last = self.is_closed
            # First the flag, and then the look: what the loop hands over later wakes this thread.
            self._is_idle = True
            if self._handed_over:
                self._is_idle = False
                if not self._commit_next():
                    return
            elif is_last:
                self._tell(self._rest)
                return
            else:
                self._wakes.get()

    def _commit_next(self) -> bool:
        """Commit what was handed over. Return False if the loop is closed."""
        waited_s = self._wait_s()
        if waited_s:
            time.sleep(waited_s)
        with self._committing:
            outcomes: _Outcomes = {}
            commit(self.engine, self._take_group(), outcomes)  # an interrupt of this thread has no other taker
        return self._tell(self._settle, outcomes, None, waited_s)

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> bool:
        """Let the loop make the callback. Return False if the loop is closed: then no task waits for the outcome."""
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            return False
        return True

    def _rest(self) -> None:
        if not self._at_rest.done():
            self._at_rest.set_result(None)
