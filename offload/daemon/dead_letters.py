"""Dead letters: what a job leaves in another topic when it was delivered too often (offload.daemon.queues).

    1  A claim makes a job dead, with the number of its letter, durably.
    2  The letters go into their topic in the order of these numbers, each as the batch of its number.
    3  The jobs are acked. A crash or a refusal in between repeats the batches, and their topic knows them.

LETTER-1  A job that died has one letter. The topic knows the newest batches of the queue, and the others came before
    them, because the numbers ascend.
LETTER-2  If the topic of dead letters takes none, the queue hands out nothing and says why, and each look tries again.
    Other queues, followers and appends have no part in this.
LETTER-3  A record has a letter only if it is the one that died: after a truncation or a delete of the queue, the
    letters that were on their way are dropped.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from seglog import BatchForgotten, ProducerBatch
from seglog.errors import Missing

if TYPE_CHECKING:
    from offload.daemon.queues import Queues, Work
    from offload.daemon.service import Service
    from seglog import Record
    from seglog.delivery.queue import Queue

_log = logging.getLogger("seglog.daemon")


class DeadLetters:
    """The dead letters of the queues of one service."""

    def __init__(self, service: Service, queues: Queues) -> None:
        self._service = service
        self._queues = queues

    def begin(self, queue: Queue, work: Work) -> None:
        """Bury the dying jobs of a queue in the background, if there are any and nobody does so."""
        if queue.dying and not work.is_burying:
            work.is_burying = True
            self._queues.keep(self._bury(queue, work))

    async def _bury(self, queue: Queue, work: Work) -> None:
        """Append the letters of dying jobs, and ack the jobs (LETTER-1)."""
        buried, stuck = list[int](), ""
        try:
            try:
                await self._append_all(queue, work, buried)
            except Missing:
                return  # the topic or the queue is deleted
            except Exception as error:
                stuck = f"topic {queue.settings.dead_letter} takes no dead letter: {error}"
            if stuck and stuck != queue.stuck:
                _log.warning("queue %s pauses: %s", work.key, stuck)
            queue.stuck = stuck
            if buried:
                await self._ack(queue, work, buried)
                work.wake()
        except Missing:
            pass
        except Exception as error:
            _log.warning("the letters of queue %s are there, and the next look acks their jobs: %s", work.key, error)
        finally:
            work.is_burying = False

    async def _append_all(self, queue: Queue, work: Work, buried: list[int]) -> None:
        states, letters = await self._queues.states(), queue.settings.dead_letter
        topic = self._service.sync.get_topic(work.topic)
        for seq, number in sorted(queue.dying.items(), key=lambda pair: pair[1]):
            record = (await work.records.read([seq]))[0].get(seq)
            is_cut = topic.epoch != queue.cursor.epoch or queue.dying.get(seq) != number
            if is_cut or not states.is_current(queue):  # nothing awaits between this and the append (LETTER-3)
                return
            if letters is not None and record is not None:
                await self.append(queue, letters, record, number)
            buried.append(seq)

    async def append(self, queue: Queue, letters: str, record: Record, number: int) -> None:
        """Append a letter, unless it is there."""
        told = {
            "queue": queue.key, "seq": record.seq, "deliveries": queue.deliveries.get(record.seq, 1),
            "reason": "max_deliver", "node": record.node,
        }  # fmt: skip
        producer = ProducerBatch(f"queue:{queue.key}", queue.born_ms, number, gaps=True)
        node, topic = json.dumps(told), self._service.log.topic(letters)
        with suppress(BatchForgotten):  # it is there, and more than the topic knows came behind it (LETTER-1)
            await topic.append(
                [record.value], tag=record.tag, node=node, producer=producer, durability="fsync",
                unterminated=record.unterminated,
            )  # fmt: skip

    async def _ack(self, queue: Queue, work: Work, buried: list[int]) -> None:
        from seglog.delivery.queue import Event, Kind  # imported late: most daemons have no queue

        async with self._queues.claimed(work) as states:
            if states.begin(work.topic, work.name) is not queue:  # deleted, and made again, meanwhile
                return
            seqs = sorted(seq for seq in buried if seq in queue.dying)
            if seqs:
                event = Event(Kind.ACKED, seqs)
                queue.apply(event)
                await self._queues.append(states, queue, [event])
