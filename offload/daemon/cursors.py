"""The cursors of one service, in its event loop: positions, and acks that are durable when they are answered.

    1  An ack waits until the end of the tick. All acks of a cursor that wait by then become one record.
    2  The records of all cursors go to the log with one write and one sync (seglog.aio).
    3  When its record is durable, the new state counts, and the acks are answered. Meanwhile the next acks wait.

ACK-1  An answered ack survives a crash. An ack that is refused, or whose append fails, changes nothing.
ACK-2  Acks of one cursor are written one record after another, each made of the state before it. So none loses the
    seqs of another one, and the acks of a thousand readers of one cursor cost one sync together.
ACK-3  An ack whose client has gone is written all the same: the client cannot tell, and acks again.
ACK-4  The record of acks counts for the tenant's quotas as an appended one. Over a quota, its acks are refused as an
    append is. An ack that changes nothing needs no record, so it passes, as do the commands of cursors.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from offload.daemon.quota import frame_bytes
from offload.daemon.threads import in_threads
from offload.operations.cursor import TOPIC, deletion, loaded_states
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict

if TYPE_CHECKING:
    from offload.daemon.service import Service
    from offload.daemon.topic_news import Acked, EventId
    from offload.replica_topic import ReplicaTopic
    from seglog import Topic
    from seglog.delivery.cursor import Cursor
    from seglog.delivery.cursor_states import CursorStates

_log = logging.getLogger("seglog.daemon")


@dataclass(frozen=True, slots=True, eq=False)
class _Ack:
    seqs: Sequence[int]
    epoch: int
    done: asyncio.Future[Cursor]


class Cursors:
    """The cursors of one service. Commands share their states (`CursorStates.of`)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._waiting: dict[str, list[_Ack]] = {}  # by the cursor; while there is an entry, a task writes its acks
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Load the cursors in the background, if there are any, so that the metrics have them. Keep up with them."""
        self._service.repeat("cursors", self._look)
        if self._service.sync.has_topic(TOPIC):
            self._keep(asyncio.create_task(self._load_early()))

    async def position(self, topic: str, name: str) -> EventId:
        """Return the epoch of the topic and the ack floor of a cursor.

        Raise `NoSuchTopic`, `Conflict` for a topic that another directory writes, `Missing` and `Corrupt`.
        """
        return _position(await self._find(topic, name))

    async def begin(self, topic: Topic | ReplicaTopic, name: str) -> tuple[EventId, Acked | None]:
        """Return the position of a cursor, and the acked seqs behind it, if any. Raise as `position` does."""
        from offload.daemon.topic_news import Acked  # imported late, because that module imports the service

        cursor = await self._find(topic.name, name)
        acked = cursor.acked_above
        return _position(cursor), Acked(topic, acked, cursor.epoch) if acked else None

    async def ack(self, topic: str, name: str, seqs: Sequence[int], epoch: int) -> EventId:
        """Ack seqs, durably, and return the position then. A range from 1 on acks all up to its end.

        Raise as `position` does, `Conflict` for another epoch, `SeqOutOfRange` for a seq above the head,
        `InvalidArgument` for one below 1, and what an append raises. Then nothing has changed.
        """
        return _position(await self.acked(topic, name, seqs, epoch))

    async def acked(self, topic: str, name: str, seqs: Sequence[int], epoch: int) -> Cursor:
        """Do as `ack` does, and return the cursor."""
        cursor = await self._find(topic, name)
        done: asyncio.Future[Cursor] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(cursor.key)
        if waiting is None:
            waiting = self._waiting[cursor.key] = []
            self._keep(asyncio.create_task(self._write(topic, name, cursor.key, waiting)))
        waiting.append(_Ack(seqs, epoch, done))
        return await done

    async def _find(self, topic: str, name: str) -> Cursor:
        service = self._service
        states = await self._states()
        if service.archive is not None and not service.sync.has_topic(topic):
            await in_threads(service.cold_reads, service.archive.replication.check_not_followed, topic)
        return states.find(topic, name)

    async def _states(self) -> CursorStates:
        from seglog.delivery.cursor_states import CursorStates  # imported late: most daemons have no cursor

        states = CursorStates.of(self._service.sync)
        if not states.is_loaded:
            await in_threads(self._service.cold_reads, loaded_states, self._service.sync, self._service.archive)
        return states

    async def _load_early(self) -> None:
        try:
            await self._states()
        except Exception as error:
            _log.warning("the cursors are not loaded yet, and the first request tries again: %s", error)

    async def _look(self) -> None:
        """Store truncated cursors, and compact their topic (`CursorStates.keep_up`)."""
        service = self._service
        if service.sync.has_topic(TOPIC):
            from seglog.delivery.cursor_states import CursorStates  # imported late: most daemons have no cursor

            states, delete = CursorStates.of(service.sync), deletion(service.sync, service.archive)
            await in_threads(service.cold_reads, states.keep_up, delete)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, topic: str, name: str, key: str, waiting: list[_Ack]) -> None:
        """Write the acks of a cursor, as long as there are any (ACK-2)."""
        acks: list[_Ack] = []
        try:
            states = await self._states()
            while waiting:
                if not states.try_claim(key):  # a command moves it just now
                    await in_threads(self._service.local, states.claim, key)
                try:
                    acks, waiting[:] = [*waiting], []
                    await self._write_together(states, topic, name, acks)
                finally:
                    states.release(key)
        except BaseException as error:
            _refuse([*acks, *waiting], error)
            if not isinstance(error, Exception):
                raise
        finally:
            del self._waiting[key]

    async def _write_together(self, states: CursorStates, topic: str, name: str, acks: Sequence[_Ack]) -> None:
        """Write the acks as one record; one by one, if together they make a state that is too large (ACKED-4)."""
        try:
            await self._write_once(states, topic, name, acks)
        except Conflict:
            if len(acks) == 1:
                raise
            for ack in acks:
                try:
                    await self._write_once(states, topic, name, [ack])
                except Conflict as error:
                    _refuse([ack], error)

    async def _write_once(self, states: CursorStates, topic: str, name: str, acks: Sequence[_Ack]) -> None:
        """Write the acks as one record, take it, and answer them. Raise what concerns all of them."""
        from seglog.delivery.cursor import encode_cursor

        await self._service.incarnation(topic)  # the first call makes the log's id
        cursor = states.find(topic, name)
        good = []
        for ack in acks:
            try:
                cursor = states.acked(cursor, ack.seqs, ack.epoch)
            except Exception as error:
                _refuse([ack], error)
            else:
                good.append(ack)
        if good and not states.is_stored(cursor):
            if states.is_sharded:
                storable = await in_threads(self._service.local, states.storable, cursor)
            else:
                storable = states.storable(cursor)
            values = [encode_cursor(storable)]
            size_bytes = frame_bytes(values, cursor.key)
            with await self._service.quota.take_append(size_bytes) as hold:
                await self._service.log.topic(TOPIC).append(values, tag=cursor.key, durability="fsync")
                hold.appended(size_bytes)
            states.take(cursor)
        for ack in good:
            if not ack.done.done():
                ack.done.set_result(cursor)


def _refuse(acks: Sequence[_Ack], error: BaseException) -> None:
    for ack in acks:
        if not ack.done.done():
            told = error if isinstance(error, Exception) else asyncio.CancelledError()
            ack.done.set_exception(told)


def _position(cursor: Cursor) -> EventId:
    from offload.daemon.topic_news import EventId  # imported late, because that module imports the service

    return EventId(cursor.epoch, cursor.floor)
