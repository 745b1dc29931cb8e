"""The state of a topic in an open log.

A thread that writes a field holds the committer's lock. A thread that reads fields that must fit together holds it too.
The end of a topic has two views. `assigned_*` includes entries in flight. `head_seq` and `last_ts_ms` are published,
and so visible. `reset_assigned` resets the first view to the second.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from seglog.base.dataclasses import dataclass
from seglog.engine.known_appends import Keys, Producers
from seglog.engine.tail import EphemeralBuffer, Memory, Tail
from seglog.errors import WarmStoreRequired
from seglog.format.arrays import NDArray, np
from seglog.segments.segment import SegmentInfo, Sizes
from seglog.values.append_key import KeyedAppend, Repeatable, Unit
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteList, DeleteOp, Floors, TruncateOp
from seglog.values.last_deletes import LastDeletes
from seglog.values.producer import AppendedBatch
from seglog.values.record import Gap
from seglog.values.seq_set import SeqSet
from seglog.wal.manifest import ActiveMeta, TopicMeta


@dataclass(slots=True, eq=False)
class TopicState:
    """The state of one topic."""

    topic_id: int
    name: str
    epoch: int
    config: TopicConfig
    first_seq: int
    hot_floor: int
    last_ts_ms: int
    tail: Tail
    sealed: tuple[SegmentInfo, ...] = ()
    #: The sealed segments that are relocated.
    warm: tuple[SegmentInfo, ...] = ()
    active: SegmentInfo | None = None
    #: The listed deletes, which include the pending ones.
    ops: DeleteList = field(default_factory=DeleteList)
    #: The deletes that are not yet in the flags of the .idx files.
    pending: DeleteList = field(default_factory=DeleteList)
    #: The records of an undelete whose flags are still to be removed; None without any.
    undeleted: SeqSet | None = None
    #: The selective deletes that may reach relocated segments, whose flags do not change.
    warm_ops: DeleteList = field(default_factory=DeleteList)
    #: What the log needs to take a delete back. A checkpoint adds the new deletes, each with the first seq that was on
    #: this disk before it.
    last_deletes: LastDeletes = field(default_factory=LastDeletes)
    new_deletes: list[tuple[DeleteOp, int]] = field(default_factory=list[tuple["DeleteOp", int]])
    #: One more than the number of the last published delete.
    next_op: int = 1
    #: How many changes of `config` were published since the log was opened.
    configs: int = 0
    is_published: bool = False
    #: Increases whenever records change place or flags. A reader that sees it increase looks again.
    generation: int = 0
    #: The expiry floor as far as a reader has found it, and the time of the record there, or an earlier time
    #: (seglog.reading.times). Only a truncation lowers them.
    expired_seq: int = 1
    oldest_live_ms: int = 0
    #: One value, so that a reader needs no lock for it.
    floors: Floors = field(default_factory=Floors)
    #: The exclusive end of what selective deletes have reached, or a seq above it. From there on, no record is dead. So
    #: a first live record that is known at or above it needs no search (seglog.maintenance.removal).
    selective_below: int = 1
    in_flight_bytes: int = 0
    #: The seqs of all truncations since the log was opened, and the epoch after the last of them. Active readers look
    #: at the seqs, and at `is_gone`.
    truncations: tuple[int, ...] = ()
    truncated_epoch: int = 0
    #: Whether the topic was deleted.
    is_gone: bool = False
    #: Set until seglog.maintenance.removal has cut the files.
    truncated_meta: TopicMeta | None = None
    #: The listed truncations.
    truncate_ops: tuple[TruncateOp, ...] = ()
    #: While it is above 0, no segment is relocated.
    relocation_holds: int = 0
    #: The value of `next_op` at the relocator's last search for the first live record in the warm store.
    front_op: int = 0
    #: The ephemeral records. If other records follow them, the WAL first gets a frame with the last seq taken.
    ephemeral_buffer: EphemeralBuffer = field(default_factory=EphemeralBuffer)
    #: None if the topic never had a producer; likewise the keys.
    producers: Producers | None = None
    keys: Keys | None = None
    waiters: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    head_seq: int = field(init=False)
    assigned_seq: int = field(init=False)
    assigned_ts_ms: int = field(init=False)
    assigned_op: int = field(init=False)
    assigned_configs: int = field(init=False)
    #: The last seq that the WAL knows. `assigned_logged` includes entries in flight.
    logged_seq: int = field(init=False)
    assigned_logged: int = field(init=False)
    #: The head in the newest manifest.
    kept_head: int = field(init=False)
    #: All records below it in hot segments durably have the deleted flag, as far as this process knows.
    flagged_below: int = field(init=False, default=0)
    #: The last totals. If the segments have changed, `sizes` recomputes them.
    known_sizes: Sizes = field(init=False, default_factory=Sizes)
    #: The log's register of topics for the next checkpoint. Code that changes a field of `to_meta` enters the topic.
    changed: dict[int, TopicState] = field(init=False, default_factory=dict["int", "TopicState"])
    #: The time under which `Engine.aging` has the topic.
    seal_due_ms: int | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.head_seq = self.logged_seq = self.kept_head = self.tail.first_seq + len(self.tail) - 1
        self.reset_assigned()

    @property
    def known_deletes(self) -> LastDeletes:
        return self.last_deletes.added(tuple(self.new_deletes))

    @property
    def sealed_seq(self) -> int:
        return self.sealed[-1].last_seq if self.sealed else self.hot_floor - 1

    def cut_since(self, epoch: int) -> int | None:
        """Return the lowest seq that may mean another record than in `epoch`, or None. The caller holds the lock.

        The seq is 1 if the state does not know all truncations since then.
        """
        count = self.epoch - epoch  # each truncation raises the epoch by 1
        if not count:
            return None
        return min(self.truncations[-count:]) if 0 < count <= len(self.truncations) else 1

    def touch(self) -> None:
        """Enter the topic for the next checkpoint. The caller holds the lock."""
        self.changed[self.topic_id] = self

    def replay(
        self, file: int, offsets: NDArray[np.int64], lengths: NDArray[np.int64], times: NDArray[np.uint64]
    ) -> None:
        """Add records that recovery has found in a WAL file."""
        self.tail.take(file, offsets, lengths, times)
        self.head_seq = self.logged_seq = self.tail.end_seq - 1
        self.last_ts_ms = int(times[-1])

    def replay_one(self, file: int, offset: int, length: int, ts_ms: int) -> None:
        """Add a record that recovery has found in a WAL file."""
        self.tail.add(file, offset, length, ts_ms)
        self.head_seq = self.logged_seq = self.tail.end_seq - 1
        self.last_ts_ms = ts_ms

    def unreplay(self, seq: int, last_ts_ms: int) -> None:
        """Take back the records from `seq` on that recovery has added. They are part of a torn batch."""
        self.tail.cut(seq)
        self.head_seq = self.logged_seq = seq - 1
        self.last_ts_ms = last_ts_ms

    def publish_ephemeral(
        self, memory: Memory, frames: bytes, lengths: Sequence[int], ts_ms: int, tag: str | None
    ) -> None:
        """Publish ephemeral records."""
        self.ephemeral_buffer.add(memory, self.head_seq + 1, frames, lengths, ts_ms, tag)
        self.lose(len(lengths), ts_ms, len(frames))
        if self.waiters:
            self.wake()

    def lose(self, count: int, ts_ms: int, size_bytes: int = 0) -> None:
        """Publish `count` seqs of records that are on no disk. Their frames had `size_bytes` in flight."""
        self.touch()
        if self.tail.end_seq == self.head_seq + 1:
            self.tail.lose(count, ts_ms)
        end, last_ts_ms = self.tail.end_seq, max(self.last_ts_ms, ts_ms)
        # One statement, because an interrupt hits only between calls. After one, this runs again.
        self.head_seq, self.last_ts_ms, self.in_flight_bytes = end - 1, last_ts_ms, self.in_flight_bytes - size_bytes

    def with_producers(self) -> Producers:
        """Return the producers. If the topic never had one, make their register first. The caller holds the lock."""
        if self.producers is None:
            self.producers = Producers()
        return self.producers

    def with_keys(self) -> Keys:
        """Return the keys. If the topic never had one, make their register first. The caller holds the lock."""
        if self.keys is None:
            self.keys = Keys()
        return self.keys

    def assign_unit(self, unit: Repeatable, ts_ms: int) -> None:
        """Add a batch of a producer, or a key, whose records are in flight. The caller holds the lock."""
        if type(unit) is AppendedBatch:
            (self.with_producers() if self.producers is None else self.producers).assign(unit, ts_ms)
        else:
            (self.with_keys() if self.keys is None else self.keys).assign(unit, ts_ms)

    def publish_unit(self, unit: Unit, ts_ms: int) -> None:
        """Add the batch of a producer, or the key, of published records. The caller holds the lock."""
        if type(unit) is AppendedBatch:
            (self.with_producers() if self.producers is None else self.producers).publish(unit, ts_ms)
        elif type(unit) is KeyedAppend:
            (self.with_keys() if self.keys is None else self.keys).publish(unit, ts_ms)

    def settle_front(self) -> None:
        """Raise the floors and `hot_floor` above lost seqs at the front. The floors then report these seqs as lost.

        If the topic has segments, nothing changes.
        """
        if self.has_segments or self.floors.earliest_seq < self.hot_floor:
            return
        first = self.ephemeral_buffer.first_from(self.hot_floor)
        front = self.tail.first_seq if first is None else min(first, self.tail.first_seq)
        if front > self.hot_floor:
            lost = Gap(self.floors.earliest_seq, front - 1) if self.floors.earliest_seq < front else None
            self.touch()
            self.floors = self.floors.evicted(front, lost)
            self.hot_floor = front

    def drop_oldest_ephemeral(self) -> None:
        """Drop the oldest chunk of ephemeral records, for memory or for retention. Its records are then lost."""
        self.ephemeral_buffer.drop_oldest()
        self.settle_front()
        self.generation += 1

    def wake(self) -> None:
        """Call each of the `waiters` after a change. A waiter must not block."""
        while self.waiters:
            self.waiters[-1]()
            self.waiters.pop()

    @property
    def retained_from(self) -> int:
        """The first seq on this disk that may be live. Caps count from here."""
        return max(self.floors.earliest_seq, self.hot_floor)

    @property
    def dead_segments(self) -> int:
        """The number of sealed segments at the front without a live record."""
        return bisect_left(self.sealed, self.floors.earliest_seq, key=lambda segment: segment.last_seq)

    @property
    def sizes(self) -> Sizes:
        """The totals of the sealed segments. The caller holds the lock."""
        if self.known_sizes.segments is not self.sealed or self.known_sizes.warm is not self.warm:
            self.known_sizes = Sizes(self.sealed, self.warm)
        return self.known_sizes

    @property
    def retained_bytes(self) -> int:
        """The bytes of frames on this disk and in flight, without segments that have no live record.

        The caller holds the lock.
        """
        first, active = self.retained_from, self.active
        unsealed = active.data_bytes if active is not None and active.last_seq >= first else 0
        return self.sizes.bytes_from(first) + unsealed + self.unabsorbed_bytes + self.in_flight_bytes

    @property
    def hot_bytes(self) -> int:
        """The bytes of frames in the data directory and in memory, with deleted ones. The caller holds the lock."""
        unsealed = 0 if self.active is None else self.active.data_bytes
        return self.sizes.hot_bytes + unsealed + self.unabsorbed_bytes

    @property
    def unabsorbed_bytes(self) -> int:
        """The bytes of published frames that are in no segment."""
        return self.tail.bytes + self.ephemeral_buffer.frame_bytes

    @property
    def has_segments(self) -> bool:
        return self.active is not None or bool(self.sealed)

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        return self.sealed if self.active is None else (*self.sealed, self.active)

    @property
    def segments_end(self) -> int:
        """The last seq in a segment, released segments included. All records from there to the tail were ephemeral."""
        return self.sealed_seq if self.active is None else self.active.last_seq

    @property
    def position(self) -> tuple[int, int, int]:
        """A value that each published append, delete, truncation and configuration changes. The caller holds the lock.

        It counts nothing that is in flight, because whoever asks for it looks at what is published only.
        """
        return self.epoch, self.head_seq, self.next_op - 1 + self.configs

    def is_at(self, position: tuple[int, int, int]) -> bool:
        """Return whether the topic has this position, and nothing in flight changes it. The caller holds the lock."""
        return self.is_quiet and self.position == position

    @property
    def is_quiet(self) -> bool:
        """True if the topic is published, and none of its changes is in flight: what moves the position.

        A truncation and then as many records may be in flight. Their bytes tell that, because the seqs do not.
        """
        is_changing = (
            self.assigned_seq != self.head_seq
            or self.assigned_op != self.next_op - 1
            or self.assigned_configs != self.configs
        )
        return self.is_published and not (is_changing or self.in_flight_bytes)

    @property
    def is_being_truncated(self) -> bool:
        return self.assigned_seq < self.head_seq

    @property
    def is_all_ephemeral(self) -> bool:
        """True if the topic has records, all of them are in memory only, and none of its changes is in flight."""
        is_written = bool(self.has_segments or len(self.tail) or self.floors.earliest_seq < self.hot_floor)
        return self.is_quiet and not is_written and bool(self.ephemeral_buffer.chunks)

    def reset_assigned(self) -> None:
        self.assigned_seq = self.head_seq
        self.assigned_ts_ms = self.last_ts_ms
        self.assigned_op = self.next_op - 1
        self.assigned_configs = self.configs
        self.assigned_logged = self.logged_seq
        self.in_flight_bytes = 0
        if self.producers is not None:
            self.producers.reset_assigned()
        if self.keys is not None:
            self.keys.reset_assigned()

    def segment_of(self, seq: int) -> SegmentInfo | None:
        """Return the segment that holds `seq`, or None if no segment does. `seq` is not below the hot floor."""
        if seq > self.segments_end:
            return None
        if self.active is not None and seq >= self.active.first_seq:
            return self.active
        return self.sealed[bisect_right(self.sealed, seq, key=lambda segment: segment.first_seq) - 1]

    def to_meta(self) -> TopicMeta:
        """Return the state for a manifest. It is correct only if the segments have absorbed the tail."""
        return TopicMeta(
            topic_id=self.topic_id,
            name=self.name,
            epoch=self.epoch,
            config=self.config,
            first_seq=self.first_seq,
            hot_floor=self.hot_floor,
            active=active_meta(self.active),
            head_seq=self.head_seq,
            last_ts_ms=self.last_ts_ms,
            next_op=self.next_op,
            ops=tuple(self.ops),
            floors=self.floors if self.config.keep_history else self.floors.expired(self.expired_seq),
            sealed=self.sealed,
            warm_ops=tuple(self.warm_ops),
            truncate_ops=self.truncate_ops,
            last_deletes=None if self.config.keep_history or self.next_op == 1 else self.last_deletes,
            producers=() if self.producers is None else self.producers.all(),
            keys=() if self.keys is None else self.keys.all(),
        )

    def replace_segment(self, old: SegmentInfo, new: SegmentInfo) -> None:
        """Replace the description of a sealed segment. The caller holds the lock."""
        self.touch()
        self.sealed = tuple(new if info == old else info for info in self.sealed)
        self.generation += 1


def check_all_hot(states: Iterable[TopicState]) -> None:
    """Raise `WarmStoreRequired` if a topic has relocated segments. A log without a warm store calls this."""
    for state in states:
        if state.warm:
            raise WarmStoreRequired(state.name, state.warm[0].first_seq, state.warm[-1].last_seq)


def relocated(segments: Sequence[SegmentInfo]) -> tuple[SegmentInfo, ...]:
    return tuple(info for info in segments if info.warm_check is not None)


def active_meta(active: SegmentInfo | None) -> ActiveMeta | None:
    if active is None:
        return None
    return ActiveMeta(active.first_seq, active.records, active.data_bytes, active.dead_records, active.dead_bytes)


def reclaimable(state: TopicState, dead_percent: int) -> list[SegmentInfo]:
    """Return the hot sealed segments with at least `dead_percent` of their bytes in deleted records.

    If the topic keeps its history, return none. Segments at the front without a live record are left out, because a
    checkpoint drops them.
    """
    if state.config.keep_history or state.is_gone:
        return []
    return [
        info
        for info in state.sealed
        if info.dead_bytes
        and info.is_hot
        and info.dead_bytes * 100 >= dead_percent * info.data_bytes
        and info.last_seq >= state.floors.earliest_seq
    ]
