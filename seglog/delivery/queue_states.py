"""The queues of a log, in memory and in the topic `_seglog.queues` (seglog.delivery.queue).

    1  The first user loads them: each event of a live queue is applied, from its newest snapshot on.
    2  Who changes a queue claims it, begins, applies events, and appends them as one batch. If that fails, it rolls
       back.
    3  When a queue has had many events, its holder appends a snapshot. Then the records before the oldest snapshot of
       all queues go.

QUEUES-1  A change counts for others only once its holder has appended it, because nobody else looks before that. If an
    append is refused, the queue is what it was. A log that only follows the topic keeps nothing of it, so that a
    take-over begins with the newest state.
QUEUES-2  A queue counts for one topic of one log, as a cursor does (CURSORS-2). If the topic is deleted, or made again,
    the queue has ended. A queue from another directory keeps what it knows of the records that were taken over.
QUEUES-3  A truncation shows when the queue is next changed, by its epoch, and a snapshot stores it. After a restart
    before that, the queue begins again at 1, because the log no longer knows the cut (CURSORS-3): jobs come again, and
    none is missed.
QUEUES-4  The records before the oldest snapshot go only once that is durable. While a queue is unreadable, none goes.

Thread-safe: the event loop of a daemon and the threads of its commands share the object of their log (`of`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from seglog.base.errors import Conflict, Corrupt, Missing
from seglog.delivery.claims import Claims
from seglog.delivery.cursor import Cursor, key_of
from seglog.delivery.cursor_states import Cut
from seglog.delivery.keyed_topic import UnreadableState
from seglog.delivery.positions import as_of_now, change_of, is_foreign, is_sharded, storable
from seglog.delivery.queue import TOPIC, Event, Kind, Queue, QueueSettings, decode_events, records_of
from seglog.errors import AppendsHeld, DiskFull
from seglog.log import Log
from seglog.topic import Topic
from seglog.values.record import Record

MOST_QUEUES = 1_000
"""The queues of one log. They are labels of metrics, so there is a bound."""
_SNAPSHOT_EVENTS = 10_000


class QueueStates(Claims):
    """The queues of one log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = weakref.proxy(log)  # the register of `of` ends with the log
        self._queues: dict[str, Queue] = {}
        self._unreadable: dict[str, int] = {}
        self._snapshots: dict[str, int] = {}  # the seq of the newest snapshot of each queue
        self._events: dict[str, int] = {}  # since that
        self._loading = threading.Lock()  # also held from the append of a snapshot until its queue is entered
        self.is_loaded = False
        self.newest_born_ms = 0  # a queue that is made again is younger, whatever the clock says

    @classmethod
    def of(cls, log: Log) -> QueueStates:
        """Return the object that all users of an open log share."""
        with _making:
            found = _by_log.get(log)
            if found is None:
                found = _by_log[log] = cls(log)
            return found

    def load(
        self,
        records: Callable[[], Iterable[Record]],
        report: Callable[[str], None] = lambda _: None,
        cut: Cut = lambda _cursor: None,
    ) -> None:
        """Apply the events in `records`, once this log has their topic. Before that, each call takes them anew.

        `cut` is that of `CursorStates.load`.
        """
        with self._loading:
            if self.is_loaded:
                return
            is_own = self._log.has_topic(TOPIC)
            self._queues, self._unreadable, self._snapshots, self._events = {}, {}, {}, {}
            for record in records():
                self._replay(record, report)
            for queue in self._queues.values():
                seq = cut(queue.cursor) if is_foreign(self._log, queue.cursor, TOPIC) else None
                queue.begin()  # all of it is on the disk
                if seq is not None:
                    queue.cut(seq, queue.cursor.epoch, queue.cursor.incarnation)
            self.is_loaded = is_own

    def _replay(self, record: Record, report: Callable[[str], None]) -> None:
        key = record.tag or ""
        try:
            for event in decode_events(record.value, record.tag):
                self._take(key, event, record.seq)
        except UnreadableState as error:
            report(f"record {record.seq} of {TOPIC}: {error}")
            self._queues.pop(key, None)
            self._unreadable[key] = record.seq

    def _take(self, key: str, event: Event, seq: int) -> None:
        if event.kind is Kind.STATE:
            topic, _, name = key.partition("/")
            queue = self._queues[key] = Queue(Cursor(topic, name, "", 0, 0), QueueSettings())
            queue.apply(event)
            self._unreadable.pop(key, None)
            self._snapshots[key], self._events[key] = seq, 0
            self.newest_born_ms = max(self.newest_born_ms, queue.born_ms)
        elif event.kind is Kind.DELETED:
            self._queues.pop(key, None)
        elif key in self._queues:
            self._queues[key].apply(event)
            self._events[key] += 1

    # ------------------------------------------------------------ looks

    def find(self, topic: str, name: str) -> Queue:
        """Return a queue. Raise `NoSuchTopic`, `Missing`, and `Corrupt` for an unreadable state."""
        key = key_of(topic, name)
        if key in self._unreadable:
            text = f"the state of the queue {key} is unknown: record {self._unreadable[key]} of {TOPIC} is of no queue"
            raise Corrupt(f"{text} of this version", hint="use the directory with the version that wrote the record")
        queue = self._queues.get(key)
        if queue is None or as_of_now(self._log, queue.cursor) is None:
            self._log.get_topic(topic)
            hint = f"`seglog queue create {topic} {name}` makes it, `seglog queue list {topic}` lists them"
            raise Missing(f"topic {topic} has no queue {name}", hint=hint)
        return queue

    def has(self, topic: str, name: str) -> bool:
        """Return whether there is such a queue, also one whose state is unreadable."""
        key = key_of(topic, name)
        queue = self._queues.get(key)
        return key in self._unreadable or (queue is not None and as_of_now(self._log, queue.cursor) is not None)

    def is_current(self, queue: Queue) -> bool:
        """Return whether this is the queue of its name still."""
        return self._queues.get(queue.key) is queue and as_of_now(self._log, queue.cursor) is not None

    def all(self, topic: str | None = None) -> list[Queue]:
        """Return the queues of a topic, or of all, by their names."""
        live = (each for each in tuple(self._queues.values()) if as_of_now(self._log, each.cursor) is not None)
        return sorted((each for each in live if topic in {None, each.cursor.topic}), key=lambda each: each.key)

    def handable_seq(self, queue: Queue) -> int:
        """Return the last seq that may be a job. Later ones are in memory only: a crash gives their seqs to others."""
        topic: Topic = self._log.topic(queue.cursor.topic)
        return min(topic.inner.logged_seq, topic.head_seq)

    def head_seq(self, queue: Queue) -> int:
        topic: Topic = self._log.topic(queue.cursor.topic)
        return topic.head_seq

    # ------------------------------------------------------------ changes, by the holder of the claim

    def begin(self, topic: str, name: str) -> Queue:
        """Return a claimed queue that begins a change, with the truncations since the last one in it (QUEUES-3)."""
        queue = self.find(topic, name)
        change = change_of(self._log, queue.cursor)
        if change is not None:
            cut, epoch, incarnation = change
            if cut is not None:
                queue.cut(cut, epoch, incarnation)
        queue.begin()
        return queue

    def records(self, queue: Queue, events: Sequence[Event]) -> list[bytes]:
        """Return the values that tell these events, which were applied to a claimed queue.

        If the queue was cut, that is a whole snapshot, unless they end the queue.
        """
        if queue.is_cut and all(event.kind is not Kind.DELETED for event in events):
            return records_of(queue.snapshot(storable(self._log, queue.cursor)))
        return records_of(events)

    def appended(self, queue: Queue, events: int, first_seq: int) -> None:
        """Take note that the values of `records` are in, from `first_seq` on."""
        if queue.is_cut or not events:
            queue.is_cut = False
            self._snapshots[queue.key], self._events[queue.key] = first_seq, 0
        else:
            self._events[queue.key] = self._events.get(queue.key, 0) + events
        queue.begin()

    def put(self, queue: Queue) -> None:
        """Append a snapshot of a claimed queue, durably. Raise what an append raises."""
        values = records_of(queue.snapshot(storable(self._log, queue.cursor)))
        with self._loading:
            is_first = not self._log.has_topic(TOPIC)
            first_seq = self._log.topic(TOPIC).append(values, tag=queue.key, durability="fsync").start
            queue.is_cut = False
            self._unreadable.pop(queue.key, None)
            self.appended(queue, 0, first_seq)
            self._queues[queue.key] = queue
            self.newest_born_ms = max(self.newest_born_ms, queue.born_ms)
            self.is_loaded = self.is_loaded or is_first

    def tell(self, queue: Queue, *events: Event) -> None:
        """Apply events to a claimed queue that has begun, and append them, durably. Raise what an append raises."""
        try:
            for event in events:
                queue.apply(event)
            values = self.records(queue, events)
            first_seq = self._log.topic(TOPIC).append(values, tag=queue.key, durability="fsync").start
        except BaseException:
            queue.rollback()
            raise
        self.appended(queue, len(events), first_seq)
        if any(event.kind is Kind.DELETED for event in events):
            self._queues.pop(queue.key, None)

    def check_room(self) -> None:
        """Raise `Conflict` if the log has as many queues as it takes."""
        if len(self._queues) >= MOST_QUEUES and len(self.all()) >= MOST_QUEUES:
            text = f"this directory has {MOST_QUEUES:,} queues, and takes no more"
            raise Conflict(text, hint="`seglog queue delete TOPIC NAME` deletes one")

    def keep_up(self, delete: Callable[[int], object]) -> None:
        """Append the snapshots that are due, store truncations, and delete the records that nobody needs (QUEUES-4).

        A snapshot is due after 10,000 events, and as many more as there are jobs in flight. So it costs little beside
        them. A quiet queue makes one when the topic has ten times as many events behind its last one.
        """
        if not self.is_loaded or not self._log.has_topic(TOPIC):
            return
        topic, has_new = self._log.topic(TOPIC), False
        for key in tuple(self._queues):
            with self.claimed(key):
                queue = self._queues.get(key)
                if queue is None:
                    continue
                if as_of_now(self._log, queue.cursor) is None:
                    del self._queues[key]
                    continue
                self.begin(queue.cursor.topic, queue.cursor.name)
                bound = _SNAPSHOT_EVENTS + len(queue.jobs) + len(queue.waiting)
                behind = topic.head_seq - self._snapshots[key]
                if queue.is_cut or self._events[key] > bound or behind > 10 * bound:
                    with suppress(AppendsHeld, DiskFull):  # without room, a later call does so
                        self.put(queue)
                        has_new = True
        if has_new and not self._unreadable:
            with self._loading:  # so that a queue in the making has its snapshot in here
                first_needed = min((self._snapshots[key] for key in tuple(self._queues)), default=topic.head_seq + 1)
            delete(first_needed)

    def sync_jobs(self, queue: Queue) -> None:
        """Make the records durable that the queue's events name, if another shard of the WAL has them. Blocks."""
        if self.is_sharded:
            self._log.topic(queue.cursor.topic).inner.sync()

    @property
    def is_sharded(self) -> bool:
        return is_sharded(self._log)


_making = threading.Lock()
_by_log: weakref.WeakKeyDictionary[Log, QueueStates] = weakref.WeakKeyDictionary()
