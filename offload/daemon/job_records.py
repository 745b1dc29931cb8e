"""The records of a queue's jobs: a page read ahead for new jobs, and reads for those that come again.

1  A claim reads first, because a store may hang, and hands out afterwards, in one round with nothing to wait for.
2  A page has up to 1,000 records, or 1 MiB and one record. Later rounds take what the first one leaves.
3  A read for jobs that come again ends at 1 MiB, too. The others wait for the next claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from offload.daemon.threads import in_threads
from seglog import Gap, Record

if TYPE_CHECKING:
    from offload.daemon.service import Service
    from seglog.delivery.queue import Event, Queue
    from seglog.delivery.queue_states import QueueStates

_PAGE_RECORDS = 1000
_PAGE_BYTES = 1024 * 1024


class JobRecords:
    """The records of the jobs of one queue."""

    def __init__(self, service: Service, topic: str) -> None:
        self._service = service
        self._topic = topic
        self._page: list[Record | Gap] = []  # the next one last
        self._next_seq = 0
        self._end_seq = 0
        self._version: object = None

    def fits(self, queue: Queue) -> bool:
        """Return whether the page has what the queue hands out next. A rollback, a delete and a cut change that."""
        return self._version == self._version_now() and self._next_seq == queue.next_seq

    def _version_now(self) -> object:
        return self._service.sync.topic(self._topic).inner.lasting_version

    async def read(self, seqs: Sequence[int]) -> tuple[dict[int, Record | None], int]:
        """Return the records of jobs that come again, up to 1 MiB and one record, and the last seq that it looked for.

        None is in the place of a record that was deleted, and nothing in that of an evicted one. `seqs` ascend.
        """
        if not seqs:
            return {}, 0
        topic = self._service.sync.topic(self._topic)

        def read() -> tuple[dict[int, Record | None], int]:
            found, size_bytes = dict[int, Record | None](), 0
            for _, group in groupby(enumerate(seqs), key=lambda pair: pair[1] - pair[0]):
                run = [seq for _, seq in group]
                found |= dict.fromkeys(run)
                for item in topic.read(run[0], run[-1], gaps=True):
                    if isinstance(item, Record):
                        found[item.seq] = item
                        size_bytes += len(item.value)
                        if size_bytes >= _PAGE_BYTES:
                            return {seq: each for seq, each in found.items() if seq <= item.seq}, item.seq
                    else:
                        for seq in range(max(run[0], item.gap_from), min(run[-1], item.gap_to) + 1):
                            del found[seq]
            return found, seqs[-1]

        result: tuple[dict[int, Record | None], int] = await in_threads(
            self._service.read_threads(topic, seqs[0]), read
        )
        return result

    async def read_ahead(self, states: QueueStates, queue: Queue, count: int) -> None:
        """Read the next records that were never handed out, unless so many are there."""
        first, last = queue.next_seq, states.handable_seq(queue)
        topic = self._service.sync.topic(self._topic)
        if not self.fits(queue):
            self._page, self._next_seq, self._end_seq, self._version = [], first, first, self._version_now()
        first = self._end_seq
        if len(self._page) >= count or first > last:
            return
        last = min(last, first + 2**32 - 2)  # the set of an event has 32 bits

        def read() -> tuple[list[Record | Gap], int]:
            items, size_bytes = list[Record | Gap](), 0
            for item in topic.read(first, last, gaps=True):
                items.append(item)
                size_bytes += len(item.value) if isinstance(item, Record) else 0
                if len(items) == _PAGE_RECORDS or size_bytes >= _PAGE_BYTES:
                    return items, (item.seq if isinstance(item, Record) else item.gap_to) + 1
            return items, last + 1

        items, self._end_seq = await in_threads(self._service.read_threads(topic, first), read)
        self._page[:0] = items[::-1]

    def take(self, queue: Queue, count: int, events: list[Event]) -> list[Record]:
        """Take up to so many records of the page. The seqs before them that have no record are passed over."""
        from seglog.delivery.queue import Event, Kind  # imported late: most daemons have no queue

        def tell(event: Event) -> None:
            queue.apply(event)
            events.append(event)

        taken, at, acked = list[Record](), queue.next_seq, queue.cursor.acked_above
        while self._page and len(taken) < count:
            item = self._page.pop()
            first, last = (item.seq, item.seq) if isinstance(item, Record) else (max(at, item.gap_from), item.gap_to)
            if last < at:
                continue
            if first > at:
                tell(Event(Kind.PASSED, range(at, first)))
            at = last + 1
            if isinstance(item, Gap):
                tell(Event(Kind.PASSED, range(first, at), 1))
            elif item.seq in acked:
                tell(Event(Kind.PASSED, range(first, at)))
            else:
                taken.append(item)
        if not self._page and len(taken) < count and self._end_seq > at:
            tell(Event(Kind.PASSED, range(at, self._end_seq)))
            at = self._end_seq
        self._next_seq = at
        return taken
