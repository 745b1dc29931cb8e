"""A queue: a cursor with leases, which hands out each record of a topic as a job until it is acked.

The topic `_seglog.queues` has the events of all queues. The tag of a record is `topic/queue`, such as `orders/billing`.
A record is one event or more, each little-endian:

    offset  size  field    meaning
    0       4     length   bytes of the event behind this field
    4       1     version  1
    5       1     kind     see below
    6       2     unused   0
    8       4     text     bytes of the text
    12      4     count    seqs of the event
    16      8     number   see below
    24      8     at       ms: when it happened
    32      8     until    ms: see below
    40      8     first    the lowest seq
    48      ...   text     UTF-8
    ...     ...   set      a portable Roaring bitmap of seq - first; empty: `count` seqs from `first` on

    kind          what happened                             number            until     text           set
    1   state     a snapshot begins; nothing before counts  -                 -         JSON: fields   the cursor
    2   claimed   a client got the jobs                     the lease's id    deadline  the client     seqs
    3   extended  their leases hold longer                  -                 deadline  -              seqs
    4   acked     the jobs are done                         -                 -         -              seqs
    5   released  the jobs wait for their next delivery     1 if none got it  due time  -              seqs
    6   dead      they were delivered too often             the first letter  -         the reason     seqs
    7   passed    no record is there                        1 if evicted      -         -              seqs
    8   paused    no more jobs; without a text: go on       -                 -         the reason     none
    9   counted   of a snapshot: their deliveries           deliveries        -         -              seqs
    10  redriven  letters were appended again               the last letter   -         -              none
    11  deleted   the queue is gone                         -                 -         -              none

The set of a state is the record of a cursor (seglog.delivery.cursor).

QUEUE-1  `apply` is the only way to change what events tell, live and in a replay. So a replay gives the state that was.
QUEUE-2  Each seq below `next_seq` is acked, leased, waiting or dying. So no job is forgotten, and none is two of these.
QUEUE-3  No timer runs: a claim first takes back the leases that are over at its `now`. Until then, a late ack counts,
    because nobody else has the job. After that the id of the lease is unknown, for ever.
QUEUE-4  A job that comes again goes before jobs that were never delivered; among them, the lowest seq goes first.
QUEUE-5  The jobs of one claim share one lease. A job in flight is one entry of a dict, so a million of them fit.
QUEUE-6  `rollback` takes back what was applied since `begin`: for events whose append was refused.

No I/O: bytes in, bytes out, and the time is an argument.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from enum import IntEnum
from heapq import heapify, heappop, heappush
from itertools import chain, count
from typing import Any, Final, NamedTuple

from pyroaring import BitMap

from seglog.base.dataclasses import dataclass
from seglog.delivery.cursor import Cursor, decode_cursor, encode_cursor
from seglog.delivery.keyed_topic import UnreadableState

TOPIC: Final = "_seglog.queues"
"""The topic that has the events of all queues of a log."""
HEADER = struct.Struct("<IBBHIIQQQQ")
_LENGTH = struct.Struct("<I")
_VERSION = 1
_RECORD_BYTES = 1024 * 1024
_DONE_KEPT = 10_000
_MINUTE_MS = 60_000
_STATE_FIELDS = ("born_ms", "next_seq", "dead", "lost", "lost_from", "lost_to", "redriven", "paused")


class Kind(IntEnum):
    STATE = 1
    CLAIMED = 2
    EXTENDED = 3
    ACKED = 4
    RELEASED = 5
    DEAD = 6
    PASSED = 7
    PAUSED = 8
    COUNTED = 9
    REDRIVEN = 10
    DELETED = 11


class Event(NamedTuple):
    """What happened to jobs of one queue. `seqs` ascend. `data` is the cursor of a state."""

    kind: Kind
    seqs: Sequence[int] = ()
    number: int = 0
    at_ms: int = 0
    until_ms: int = 0
    text: str = ""
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What `queue create` fixes and `queue set` changes. Without `max_in_flight`, there is no such bound."""

    lease_ms: int = 30_000
    max_deliver: int = 5
    on_ack: str = "keep"
    dead_letter: str | None = None
    max_in_flight: int | None = None
    max_dead_per_minute: int = 100
    claim_jitter_ms: int = 0


class Lease:
    """The right of one client to the jobs of one claim, until the deadline. Compared by identity."""

    __slots__ = ("client", "deadline_ms", "id", "seqs", "since_ms")

    def __init__(self, number: int, since_ms: int, deadline_ms: int, client: str, seqs: Sequence[int]) -> None:
        self.id = number
        self.since_ms = since_ms
        self.deadline_ms = deadline_ms
        self.client = client
        self.seqs = seqs


class Taken(NamedTuple):
    """Jobs that may be handed out again, those that were delivered too often, and whether these are too many."""

    seqs: list[int]
    dead: list[int]
    is_too_many: bool


class _Before(NamedTuple):
    """What a job was before a change."""

    lease: Lease | None
    due_ms: int | None
    deliveries: int | None
    letter: int | None


class Queue:
    """The state of a queue.

    `jobs` has the lease of each job in flight, and `waiting` the due time of each one that comes again. `deliveries`
    counts those of more than one. `dying` has the number of the dead letter of each job whose letter is on its way.
    """

    def __init__(self, cursor: Cursor, settings: QueueSettings, born_ms: int = 0) -> None:
        self.cursor = cursor
        self.stored = cursor  # as of the last `begin`: what events on the disk say
        self.deleted = replace(cursor, floor=0, above=BitMap())  # of a queue that deletes: what it has deleted
        self.stuck = ""  # why the topic of dead letters takes none
        self.settings = settings
        self.born_ms = born_ms
        self.next_seq = cursor.floor + 1
        self.jobs: dict[int, Lease] = {}
        self.waiting: dict[int, int] = {}
        self.deliveries: dict[int, int] = {}
        self.dying: dict[int, int] = {}
        self.dead = self.lost = self.lost_from = self.lost_to = self.redriven = 0
        self.paused = ""
        self.dead_at_ms: deque[int] = deque()
        self.is_cut = False  # a truncation has changed it, and no event says so
        self._done: dict[int, int] = {}  # the newest acked seqs, with the ids of their leases
        self._before: dict[int, _Before] | None = None  # None during a replay
        self._fields: dict[str, Any] = {}
        self._is_indexed = False
        self._numbers = count()
        self._deadlines: list[tuple[int, int, Lease]] = []
        self._due: list[tuple[int, int]] = []
        self._ready: list[int] = []

    @property
    def key(self) -> str:
        return self.cursor.key

    # ------------------------------------------------------------ looks

    def has(self, seq: int, lease_id: int) -> bool:
        """Return whether the job belongs to that lease."""
        lease = self.jobs.get(seq)
        return lease is not None and lease.id == lease_id

    def holds(self, seq: int, lease_id: int, now_ms: int) -> bool:
        """Return whether the job belongs to that lease, and nobody may take it back yet."""
        return self.has(seq, lease_id) and self.jobs[seq].deadline_ms > now_ms

    def was_acked(self, seq: int, lease_id: int) -> bool:
        """Return whether an ack with that lease counted lately, so that this one repeats it."""
        return self._done.get(seq) == lease_id

    @property
    def room(self) -> int:
        """Return how many more jobs may be in flight."""
        most = self.settings.max_in_flight
        return 2**62 if most is None else max(0, most - len(self.jobs))

    def next_ms(self) -> int | None:
        """Return the first time at which a lease is over or a job is due; None if there is none."""
        self._index()
        heads = [each[0][0] for each in (self._deadlines, self._due) if each]
        return min(heads, default=None)

    def reason(self, now_ms: int, head_seq: int) -> str | None:
        """Return the one reason why a claim gets no job now; None if it gets one."""
        if self.paused or self.stuck:
            return f"paused: {self.paused or self.stuck}"
        leases = list(self.jobs.values())
        again = [due for due in list(self.waiting.values()) if due <= now_ms]
        over = sum(lease.deadline_ms <= now_ms for lease in leases)
        most = self.settings.max_in_flight
        has_room, has_jobs = most is None or len(leases) - over < most, again or over or self.next_seq <= head_seq
        if has_room and has_jobs:
            return None
        if leases:
            oldest = min(leases, key=lambda lease: lease.since_ms)
            bound = f", and max_in_flight is {most}" if most is not None and len(leases) >= most else ""
            who = f"the oldest by {oldest.client or 'a client without a name'} since {_time(oldest.since_ms)}"
            return f"{len(leases):,} in flight, {who}{bound}"
        if self.waiting:
            return f"nothing is due before {_time(min(list(self.waiting.values())))}"
        return "empty"

    # ------------------------------------------------------------ decisions

    def sweep(self, now_ms: int) -> None:
        """Take back the leases that are over, and the jobs that are due (QUEUE-3)."""
        self._index()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            lease = heappop(self._deadlines)[2]
            for seq in lease.seqs:
                if self.jobs.get(seq) is lease:
                    del self.jobs[seq]
                    self.waiting[seq] = 0
                    heappush(self._ready, seq)
        while self._due and self._due[0][0] <= now_ms:
            _, seq = heappop(self._due)
            if seq in self.waiting:
                heappush(self._ready, seq)

    def take(self, now_ms: int, most: int) -> Taken:
        """Take up to `most` jobs that come again from the ready ones (QUEUE-4). `put_back` undoes that."""
        self.sweep(now_ms)
        taken, most_dead, last = Taken([], [], is_too_many=False), self._dead_room(now_ms), 0
        while self._ready and len(taken.seqs) < most:
            seq = heappop(self._ready)
            if seq == last or self.waiting.get(seq, now_ms + 1) > now_ms:  # twice in the heap, or gone, or later
                continue
            last = seq
            if self.deliveries.get(seq, 1) < self.settings.max_deliver:
                taken.seqs.append(seq)
            elif len(taken.dead) < most_dead:
                taken.dead.append(seq)
            else:
                heappush(self._ready, seq)
                return taken._replace(is_too_many=True)
        return taken

    def put_back(self, seqs: Iterable[int]) -> None:
        """Let jobs that were taken wait again."""
        for seq in seqs:
            heappush(self._ready, seq)

    def _dead_room(self, now_ms: int) -> int:
        while self.dead_at_ms and not now_ms - _MINUTE_MS < self.dead_at_ms[0] <= now_ms:
            self.dead_at_ms.popleft()
        return self.settings.max_dead_per_minute - len(self.dead_at_ms)

    # ------------------------------------------------------------ changes

    def begin(self) -> None:
        """Let what was applied stand. `rollback` returns to here (QUEUE-6)."""
        self.stored = self.cursor
        self._before = {}
        names = ("cursor", "settings", "next_seq", "dead", "lost", "lost_from", "lost_to", "redriven", "paused")
        self._fields = {name: getattr(self, name) for name in names}
        self._fields["dead_at_ms"] = self.dead_at_ms.copy()

    def rollback(self) -> None:
        """Take back what was applied since `begin`."""
        for name, value in self._fields.items():
            setattr(self, name, value)
        for seq, before in (self._before or {}).items():
            _put(self.jobs, seq, before.lease)
            _put(self.waiting, seq, before.due_ms)
            _put(self.deliveries, seq, before.deliveries)
            _put(self.dying, seq, before.letter)
            self._done.pop(seq, None)
        self._before = {}
        self._is_indexed = False

    def apply(self, event: Event) -> None:
        """Let an event count (QUEUE-1)."""
        seqs = event.seqs
        if event.kind in (Kind.ACKED, Kind.PASSED):
            self.cursor = self.cursor.acked(seqs)  # first, because it may raise
        if self._before is not None:
            for seq in seqs:
                if seq not in self._before:
                    now = (self.jobs.get(seq), self.waiting.get(seq), self.deliveries.get(seq), self.dying.get(seq))
                    self._before[seq] = _Before(*now)
        match event.kind:
            case Kind.STATE:
                self._restore(event)
            case Kind.CLAIMED:
                self._claimed(event)
            case Kind.EXTENDED:
                self._extended(event)
            case Kind.ACKED:
                for seq in seqs:
                    lease = self._forget(seq)
                    if lease is not None:
                        self._done[seq] = lease.id
                while len(self._done) > _DONE_KEPT:
                    del self._done[next(iter(self._done))]
            case Kind.RELEASED:
                for seq in seqs:
                    self.jobs.pop(seq, None)
                    self.waiting[seq] = event.until_ms
                    if event.number:
                        self.deliveries[seq] = self.deliveries.get(seq, 1) - 1
                    if self._is_indexed:
                        heappush(self._due, (event.until_ms, seq))
            case Kind.DEAD:
                for letter, seq in enumerate(seqs, event.number):
                    self.jobs.pop(seq, None)
                    self.waiting.pop(seq, None)
                    self.dying[seq] = letter
                    self.dead_at_ms.append(event.at_ms)
                self.dead = event.number + len(seqs)
            case Kind.PASSED:
                for seq in seqs:
                    self._forget(seq)
                if event.number:
                    self.lost_from = self.lost_from if self.lost else seqs[0]
                    self.lost, self.lost_to = self.lost + len(seqs), max(self.lost_to, seqs[-1])
            case Kind.PAUSED:
                self.paused = event.text
                if not event.text:
                    self.dead_at_ms.clear()
            case Kind.COUNTED:
                self.deliveries |= dict.fromkeys(seqs, event.number)
            case Kind.REDRIVEN:
                self.redriven = event.number
            case Kind.DELETED:
                pass  # the owner of the queue forgets it
        if seqs:
            self.next_seq = max(self.next_seq, seqs[-1] + 1)

    def _claimed(self, event: Event) -> None:
        lease = Lease(event.number, event.at_ms, event.until_ms, event.text, event.seqs)
        jobs, waiting, deliveries = self.jobs, self.waiting, self.deliveries
        for seq in event.seqs:
            if seq in waiting or seq in jobs:
                deliveries[seq] = deliveries.get(seq, 1) + 1
                waiting.pop(seq, None)
            jobs[seq] = lease
        self._note(lease)

    def _extended(self, event: Event) -> None:
        leases: dict[Lease, list[int]] = {}
        for seq in event.seqs:
            lease = self.jobs.get(seq)
            if lease is not None:
                leases.setdefault(lease, []).append(seq)
        for old, seqs in leases.items():
            lease = Lease(old.id, old.since_ms, event.until_ms, old.client, seqs)
            self.jobs |= dict.fromkeys(seqs, lease)
            self._note(lease)

    def _note(self, lease: Lease) -> None:
        if self._is_indexed:
            heappush(self._deadlines, (lease.deadline_ms, next(self._numbers), lease))

    def _forget(self, seq: int) -> Lease | None:
        self.waiting.pop(seq, None)
        self.deliveries.pop(seq, None)
        self.dying.pop(seq, None)
        return self.jobs.pop(seq, None)

    def cut(self, seq: int, epoch: int, incarnation: str) -> None:
        """Forget the jobs from `seq` on, after a truncation that took their records."""
        self.cursor = replace(self.cursor.cut(seq, epoch), incarnation=incarnation)
        self.deleted = self.deleted.cut(seq, epoch)
        for states in (self.jobs, self.waiting, self.deliveries, self.dying, self._done):
            for each in [each for each in states if each >= seq]:
                del states[each]
        self.next_seq = min(self.next_seq, max(1, seq))
        self.is_cut, self._is_indexed = True, False
        self.begin()

    def _index(self) -> None:
        """Build the heaps, if they are outdated, or hold more leases that are gone than live ones."""
        if len(self._deadlines) > 2 * len(self.jobs) + 1000 or len(self._due) > 2 * len(self.waiting) + 1000:
            self._is_indexed = False
        if not self._is_indexed:
            leases = {id(lease): lease for lease in self.jobs.values()}.values()
            self._deadlines = [(lease.deadline_ms, next(self._numbers), lease) for lease in leases]
            self._due = [(due_ms, seq) for seq, due_ms in self.waiting.items()]
            self._ready = []
            heapify(self._deadlines)
            heapify(self._due)
            self._is_indexed = True

    # ------------------------------------------------------------ snapshots

    def state_event(self, cursor: Cursor) -> Event:
        """Return the event that begins a snapshot, with the cursor as a record may have it."""
        fields = {name: getattr(self, name) for name in _STATE_FIELDS}
        fields["dying"] = sorted([seq, letter] for seq, letter in self.dying.items())
        fields["dead_at_ms"] = list(self.dead_at_ms)
        text = json.dumps({"settings": asdict(self.settings), **fields})
        return Event(Kind.STATE, text=text, data=encode_cursor(cursor))

    def snapshot(self, cursor: Cursor) -> Iterator[Event]:
        """Yield the events that make this state of nothing."""
        yield self.state_event(cursor)
        leases: dict[Lease, list[int]] = {}
        for seq, lease in self.jobs.items():
            leases.setdefault(lease, []).append(seq)
        for lease, seqs in leases.items():
            yield Event(Kind.CLAIMED, sorted(seqs), lease.id, lease.since_ms, lease.deadline_ms, lease.client)
        for due_ms, seqs in _grouped(self.waiting).items():
            yield Event(Kind.RELEASED, sorted(seqs), until_ms=due_ms)
        for number, seqs in _grouped(self.deliveries).items():
            yield Event(Kind.COUNTED, sorted(seqs), number)

    def _restore(self, event: Event) -> None:
        """Take the fields of a state. Raise `UnreadableState` for one of another version."""
        cursor = self.cursor if not event.data else decode_cursor(event.data, self.cursor.key)
        try:
            fields = json.loads(event.text)
            settings, dying = QueueSettings(**fields.pop("settings")), dict(fields.pop("dying"))
            dead_at_ms = deque[int](fields.pop("dead_at_ms"))
            values = [fields.pop(name) for name in _STATE_FIELDS]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            text = f"this is no state of a queue of this version: {event.text[:200]} ({error})"
            raise UnreadableState(text, self.cursor.key) from error
        if fields:
            raise UnreadableState(
                f"a state of a queue has fields of a later version: {sorted(fields)}", self.cursor.key
            )
        self.__init__(cursor, settings)  # type: ignore[misc]
        self.dying, self.dead_at_ms = dying, dead_at_ms
        for name, value in zip(_STATE_FIELDS, values, strict=True):
            setattr(self, name, value)


def _time(ts_ms: int) -> str:
    return datetime.fromtimestamp(ts_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put(states: dict[int, Any], seq: int, value: object) -> None:
    if value is None:
        states.pop(seq, None)
    else:
        states[seq] = value


def _grouped(states: dict[int, int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for seq, value in states.items():
        groups.setdefault(value, []).append(seq)
    return groups


def encode_event(event: Event) -> bytes:
    text, seqs, data = event.text.encode(), event.seqs, event.data
    first, size = (seqs[0], len(seqs)) if seqs else (0, 0)
    if size and seqs[-1] - first != size - 1:
        data = BitMap([seq - first for seq in seqs]).serialize()
    length = HEADER.size - _LENGTH.size + len(text) + len(data)
    numbers = event.number, event.at_ms, event.until_ms, first
    return HEADER.pack(length, _VERSION, event.kind, 0, len(text), size, *numbers) + text + data


def records_of(events: Iterable[Event]) -> list[bytes]:
    """Return the values of records with these events, each of 1 MiB if no event is larger."""
    values, parts, size = list[bytes](), list[bytes](), 0
    for part in chain(map(encode_event, events), (b"",)):
        if parts and (size + len(part) > _RECORD_BYTES or not part):
            values.append(b"".join(parts))
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    return values


def decode_events(value: bytes, tag: str | None) -> list[Event]:
    """Return the events of a record. Raise `UnreadableState` for a record that is none of this version."""
    try:
        return list(_decoded(value))
    except (ValueError, struct.error) as error:
        text = f"these are no events of a queue of this version: {value[:50]!r} ({error})"
        raise UnreadableState(text, tag) from error


def _decoded(value: bytes) -> Iterator[Event]:
    at = 0
    while at < len(value):
        length, version, kind, _, text_bytes, size, number, at_ms, until_ms, first = HEADER.unpack_from(value, at)
        end = at + _LENGTH.size + length
        if version != _VERSION or end > len(value) or end < at + HEADER.size + text_bytes:
            raise ValueError(f"version {version}, {length} bytes of an event at {at} of {len(value)}")
        begin = at + HEADER.size
        text, data = value[begin : begin + text_bytes].decode(), value[begin + text_bytes : end]
        seqs: Sequence[int] = range(first, first + size) if size else ()
        if size and data:
            seqs, data = [first + place for place in BitMap.deserialize(data)], b""
        yield Event(Kind(kind), seqs, number, at_ms, until_ms, text, data)
        at = end
