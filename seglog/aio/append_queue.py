"""The queue of the appends of tasks."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from queue import SimpleQueue

from seglog.aio.group import commit
from seglog.aio.merged import MERGED_MAX_BYTES, Ack, Kind, Outcome, Part
from seglog.engine.engine import Engine
from seglog.errors import LogClosed, OtherLoop
from seglog.process.ownership import Owned

__all__ = ["AppendQueue"]


class AppendQueue(Owned):
    """The queue of appends. The loop's thread does all work but the commit itself, once for each group:

    1  `_send` hands the waiting appends to the committing thread. If none wait, the queue rests.

    2  `_commit` writes and syncs, in the committing thread.

    3  `_settle` gives each append its result, and wakes the next append that waits for room. Then `_wake` makes the
    next step of each task of the group. After the tasks that these steps woke, the loop calls `_send` again.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.max_bytes = engine.settings.queue_max_bytes
        self.loop = asyncio.get_running_loop()
        self._work: SimpleQueue[list[Part] | None] = SimpleQueue()
        self._waiting: list[Part] = []
        # The newest part of each topic, and the newest of all.
        self._last_parts: dict[str, Part] = {}
        self._last: Part | None = None
        self.waiting_bytes = 0
        self.for_room: deque[asyncio.Future[None]] = deque()
        self._is_sending = False
        self._at_rest: asyncio.Future[None] | None = None
        self.is_closed = False
        # A daemon thread: a program that ends without `close` does not wait for it. Recovery makes up for that.
        threading.Thread(target=self._commit_all, name="seglog-append", daemon=True).start()

    def put(self, values: Sequence[bytes], records: int, size_bytes: int, kind: Kind) -> Ack:
        """Queue an append, for which there is room. It joins the last part of its topic, if it may (AIO-1)."""
        ack, part = Ack(loop=self.loop), self._last
        ack.records = records
        if part is None or part.kind is not kind or part.size_bytes + size_bytes > MERGED_MAX_BYTES:
            part = self._last = self._part_for(kind, size_bytes)
        part.values += values
        part.acks += [ack]
        part.size_bytes += size_bytes
        self.waiting_bytes += size_bytes
        if self.for_room:
            self._wake_next()
        if not self._is_sending:
            # Send a tick later, so that the group has the appends of all tasks of this tick.
            self._is_sending = True
            self.loop.call_soon(self._send)
        return ack

    def _part_for(self, kind: Kind, size_bytes: int) -> Part:
        part = self._last_parts.get(kind[0])
        if part is None or part.kind != kind or part.size_bytes + size_bytes > MERGED_MAX_BYTES:
            part = self._last_parts[kind[0]] = Part(kind)
            self._waiting.append(part)
        return part

    async def close(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            if not self.loop.is_closed():
                raise OtherLoop
            # The appends that wait get no answer. The group that is being written is completed.
            self.is_closed = True
            self._work.put(None)
            return
        if not self.is_closed:
            self.is_closed = True
            if self._is_sending:
                self._at_rest = self.loop.create_future()
            else:
                self._work.put(None)
        if self._at_rest is not None:
            await asyncio.shield(self._at_rest)

    def _check_open(self) -> None:
        if self.is_closed:
            self._wake_next()
            raise LogClosed

    def _has_room(self, size_bytes: int) -> bool:
        return not self.waiting_bytes or self.waiting_bytes + size_bytes <= self.max_bytes

    async def wait_for_room(self, size_bytes: int) -> None:
        """Wait until there is room for an append (AIO-3). Raise `LogClosed`.

        A waiter that leaves, with its append or without, wakes the next one.
        """
        self._check_open()
        if not self.for_room and self._has_room(size_bytes):
            return
        turn: asyncio.Future[None] = self.loop.create_future()
        self.for_room.append(turn)
        try:
            await turn
            while not self._has_room(size_bytes):
                turn = self.loop.create_future()
                self.for_room.appendleft(turn)
                await turn
        except BaseException:
            if turn in self.for_room:
                self.for_room.remove(turn)
            else:
                self._wake_next()
            raise
        self._check_open()

    def _wake_next(self) -> None:
        while self.for_room:
            turn = self.for_room.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _send(self) -> None:
        if self._waiting:
            group, self._waiting, self._last_parts, self._last = self._waiting, [], {}, None
            for part in group:
                part.drop_cancelled()
            self._work.put(group)
            return
        self._is_sending = False
        if self._at_rest is not None:
            self._at_rest.set_result(None)
            self._work.put(None)

    def _settle(self, outcomes: list[tuple[Part, Outcome]]) -> None:
        for part, outcome in outcomes:
            self.waiting_bytes -= part.size_bytes
            part.settle(outcome)
        self._wake_next()
        self._wake(chain.from_iterable([part.acks for part, _ in outcomes]))

    def _wake(self, acks: Iterator[Ack]) -> None:
        """Make the next step of each task that awaits one of `acks`, and then send the appends that wait."""
        try:
            for ack in acks:
                step, ack.step = ack.step, None
                if step is not None:
                    ack.context.run(step, ack)
        except BaseException:
            # A step raises only an exception that ends the loop. If the loop runs again, wake the other tasks.
            self.loop.call_soon(self._wake, acks)
            raise
        self.loop.call_soon(self._send)

    def _commit_all(self) -> None:
        """Commit one group after the other, in the committing thread."""
        while (group := self._work.get()) is not None:
            outcomes = commit(self.engine, group)
            try:
                self.loop.call_soon_threadsafe(self._settle, outcomes)
            except RuntimeError:
                return  # the loop is closed: no task waits for the outcome
