"""The entries that callers commit: appended records and control frames. Each one changes the state of its topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from seglog.engine.known_appends import Keys, Producers
from seglog.engine.state import TopicState, active_meta
from seglog.engine.tail import Memory, Tail
from seglog.format.appends import EncodedFrames
from seglog.format.batch_frame import encode_batch, encode_key, encode_unit
from seglog.format.control import (
    TopicCreated,
    encode_config,
    encode_create,
    encode_delete,
    encode_evict,
    encode_head,
    encode_topic_delete,
    encode_truncate,
    encode_undelete,
)
from seglog.segments.segment import SegmentInfo
from seglog.values.append_key import Repeatable
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteList, DeleteOp, Floors, TruncateOp, UndeleteOp, listed_with
from seglog.values.names import BRANCH_MARK
from seglog.values.producer import AppendedBatch
from seglog.values.record import Gap
from seglog.values.written_elsewhere import Elsewhere
from seglog.wal.group_commit import Entry

_JOINED_MAX_BYTES = 4096


class AppendEntry(Entry):
    """Appended records, of which `frames` are the frames as `encode_appends` returns them.

    `unit` says that they are a batch of a producer, or were appended under a key. Several records are always a unit.
    `ts_ms` is the time of the append. Without `times`, it is that of the records.
    """

    __slots__ = (
        "_ahead", "_first_seq", "_frames_bytes", "_last_ms", "_last_seq", "_lengths", "_state", "_times", "_ts_ms",
        "_unit",
    )  # fmt: skip

    def __init__(
        self,
        state: TopicState,
        seqs: range,
        ts_ms: int,
        frames: EncodedFrames,
        *,
        sync: bool,
        written_ms: int | None,
        unit: Repeatable | None = None,
        times: Sequence[int] | None = None,
    ) -> None:
        pieces, lengths, frames_bytes = frames
        ahead, self.frames = 0, seqs.stop - seqs.start
        if unit is not None or self.frames > 1:
            if unit is None:
                mark = encode_unit(state.topic_id, ts_ms, seqs.start, self.frames)
            elif type(unit) is AppendedBatch:
                mark = encode_batch(state.topic_id, ts_ms, unit)
            else:
                mark = encode_key(state.topic_id, ts_ms, unit)
            ahead, self.frames = len(mark), self.frames + 1
            # One piece takes a shorter way through the WAL than two. A large one has a hash of its own there.
            pieces = (mark + pieces[0],) if frames_bytes <= _JOINED_MAX_BYTES else (mark, *pieces)
        if state.assigned_logged != state.assigned_seq:
            [head] = _head_first(state)
            ahead, self.frames, pieces = ahead + len(head), self.frames + 1, (head, *pieces)
        # `Entry.__init__`, inlined, because each append runs this.
        self.topic_id, self.pieces, self.size_bytes = state.topic_id, pieces, ahead + frames_bytes
        self.sync, self.written_ms = sync, written_ms
        self.owner, self.turn, self.error = 0, None, None
        self.is_done = self.left = False
        self._state, self._ts_ms, self._unit = state, ts_ms, unit
        self._times, self._last_ms = times, ts_ms if times is None else times[-1]
        self._first_seq, self._last_seq = seqs.start, seqs.stop - 1
        self._ahead, self._lengths, self._frames_bytes = ahead, lengths, frames_bytes

    def assign(self) -> None:
        state = self._state
        # Behind a truncation in flight, `head_seq` is still above these seqs. If they are assigned, they are published.
        if state.assigned_seq < self._first_seq:
            state.in_flight_bytes += self._frames_bytes
            if self._unit is not None:
                state.assign_unit(self._unit, self._ts_ms)
        state.assigned_ts_ms = self._last_ms
        state.assigned_seq = state.assigned_logged = self._last_seq

    def publish(self, file: int, offset: int, /) -> None:
        state = self._state
        if state.head_seq < self._first_seq:
            state.changed[self.topic_id] = state  # `touch`, inlined
            if state.tail.end_seq != self._first_seq:
                pass  # an interrupted call has added the records
            elif self._first_seq == self._last_seq:
                state.tail.add(file, offset + self._ahead, self._frames_bytes, self._last_ms)
            else:
                state.tail.extend(file, offset + self._ahead, self._lengths, self._last_ms, self._times)
            if self._unit is not None:
                state.publish_unit(self._unit, self._ts_ms)
            in_flight_bytes = state.in_flight_bytes - self._frames_bytes
            # One statement, because an interrupt hits only between calls. After one, `publish` runs again.
            state.head_seq, state.last_ts_ms, state.in_flight_bytes = self._last_seq, self._last_ms, in_flight_bytes
            state.logged_seq = self._last_seq
        if state.waiters:
            state.wake()


class EphemeralEntry(Entry):
    """Ephemeral records. The entry writes nothing: it waits until the earlier entries of its topic are published."""

    __slots__ = ("_first_seq", "_frames", "_lengths", "_memory", "_state", "_tag", "_ts_ms")

    def __init__(
        self, state: TopicState, memory: Memory, first_seq: int, ts_ms: int, frames: EncodedFrames, tag: str | None
    ) -> None:
        super().__init__(state.topic_id, [], 0, sync=False)
        pieces, self._lengths, _ = frames
        self._frames = b"".join(pieces)
        self._state = state
        self._memory = memory
        self._first_seq = first_seq
        self._ts_ms = ts_ms
        self._tag = tag

    def assign(self) -> None:
        state, size = self._state, len(self._frames)
        if state.assigned_seq < self._first_seq:
            state.in_flight_bytes += size
        state.assigned_ts_ms = self._ts_ms
        state.assigned_seq = self._first_seq + len(self._lengths) - 1

    def publish(self, _file: int, _offset: int, /) -> None:
        if self._state.head_seq < self._first_seq:
            self._state.publish_ephemeral(self._memory, self._frames, self._lengths, self._ts_ms, self._tag)
        elif self._state.waiters:
            self._state.wake()


class CreateEntry(Entry):
    """The creation of a topic. `topics` are the topics of the log, by name.

    `creating` are the ids of topics whose creation is in flight. `changed`: see `TopicState`. The creation ends a mark
    of `elsewhere`.
    """

    __slots__ = ("_creating", "_elsewhere", "_topics", "state")

    def __init__(
        self,
        created: TopicCreated,
        topics: dict[str, TopicState],
        creating: set[int],
        changed: dict[int, TopicState],
        elsewhere: dict[str, Elsewhere],
    ) -> None:
        super().__init__(created.topic_id, [encode_create(created)], 1, sync=True)
        self.state = new_state(created, elsewhere.get(created.name))
        self.state.changed = changed
        self._elsewhere = elsewhere
        self._topics = topics
        self._creating = creating

    def assign(self) -> None:
        self._topics[self.state.name] = self.state
        self._creating.add(self.state.topic_id)

    def publish(self, _file: int, _offset: int, /) -> None:
        self.state.touch()
        self.state.is_published = True
        self._creating.discard(self.state.topic_id)
        self._elsewhere.pop(self.state.name, None)


class ConfigEntry(Entry):
    __slots__ = ("_config", "_number", "_state")

    def __init__(self, state: TopicState, config: TopicConfig) -> None:
        super().__init__(state.topic_id, [encode_config(state.topic_id, state.assigned_ts_ms, config)], 1, sync=True)
        self._state = state
        self._config = config
        self._number = state.assigned_configs + 1

    def assign(self) -> None:
        self._state.assigned_configs = self._number

    def publish(self, _file: int, _offset: int, /) -> None:
        self._state.touch()
        self._state.config, self._state.configs = self._config, self._number


class DeleteEntry(Entry):
    __slots__ = ("_op", "_state")

    def __init__(self, state: TopicState, op: DeleteOp) -> None:
        pieces = [*_head_first(state), encode_delete(state.topic_id, op)]
        super().__init__(state.topic_id, pieces, len(pieces), sync=True)
        self._state = state
        self._op = op

    def assign(self) -> None:
        self._state.assigned_op = self._op.op
        self._state.assigned_logged = self._op.at_seq
        self._state.assigned_ts_ms = self._op.ts_ms

    def publish(self, _file: int, _offset: int, /) -> None:
        if self._op.op >= self._state.next_op:
            apply_delete(self._state, self._op)
        self._state.settle_front()


class UndeleteEntry(Entry):
    """An undelete. `show` runs under the lock once the state has it; after an interrupt it may run again."""

    __slots__ = ("_op", "_show", "_state")

    def __init__(self, state: TopicState, op: UndeleteOp, show: Callable[[TopicState], None]) -> None:
        pieces = [*_head_first(state), encode_undelete(state.topic_id, op)]
        super().__init__(state.topic_id, pieces, len(pieces), sync=True)
        self._state = state
        self._op = op
        self._show = show

    def assign(self) -> None:
        self._state.assigned_op = self._op.op
        self._state.assigned_logged = self._state.assigned_seq
        self._state.assigned_ts_ms = self._op.ts_ms

    def publish(self, _file: int, _offset: int, /) -> None:
        if self._op.op >= self._state.next_op:
            apply_undelete(self._state, self._op)
        self._show(self._state)


class EvictEntry(Entry):
    __slots__ = ("_floors", "_state")

    def __init__(self, state: TopicState, floors: Floors) -> None:
        pieces = [*_head_first(state), encode_evict(state.topic_id, state.assigned_ts_ms, floors)]
        super().__init__(state.topic_id, pieces, len(pieces), sync=True)
        self._state = state
        self._floors = floors

    def publish(self, _file: int, _offset: int, /) -> None:
        apply_evict(self._state, self._floors)
        self._state.settle_front()


class TruncateEntry(Entry):
    __slots__ = ("_epoch", "_kept", "_seq", "_state", "_ts_ms")

    def __init__(self, state: TopicState, seq: int, ts_ms: int, remainder: SegmentInfo | None) -> None:
        self._epoch = state.epoch + 1
        pieces = [*_head_first(state), encode_truncate(state.topic_id, ts_ms, seq, self._epoch)]
        super().__init__(state.topic_id, pieces, len(pieces), sync=True)
        self._state = state
        self._seq = seq
        self._ts_ms = ts_ms
        self._kept = remainder

    def assign(self) -> None:
        self._state.assigned_seq = self._state.assigned_logged = self._seq - 1
        self._state.assigned_ts_ms = self._ts_ms

    def publish(self, _file: int, _offset: int, /) -> None:
        if self._state.epoch < self._epoch:
            apply_truncate(self._state, self._seq, self._ts_ms, self._epoch, self._kept)


class TopicDeleteEntry(Entry):
    """The deletion of a topic. `leave` frees the name. `go` runs when readers no longer find the topic.

    Both run under the lock. After an interrupt they may run again.
    """

    __slots__ = ("_go", "_leave", "_state")

    def __init__(
        self, state: TopicState, leave: Callable[[TopicState], None], go: Callable[[TopicState], None]
    ) -> None:
        super().__init__(
            state.topic_id, [encode_topic_delete(state.topic_id, state.assigned_ts_ms, state.epoch)], 1, sync=True
        )
        self._state = state
        self._leave = leave
        self._go = go

    def assign(self) -> None:
        self._leave(self._state)

    def publish(self, _file: int, _offset: int, /) -> None:
        self._state.is_gone = True
        self._state.ephemeral_buffer.clear()
        self._state.generation += 1
        self._state.wake()
        self._go(self._state)


def apply_evict(state: TopicState, floors: Floors) -> None:
    """Apply an eviction. If a delete in between has raised `earliest_seq` further, the higher value stays."""
    state.touch()
    state.floors = floors.raised(state.floors.earliest_seq)
    state.ephemeral_buffer.drop_below(state.floors.earliest_seq)
    state.generation += 1


def apply_delete(state: TopicState, op: DeleteOp) -> None:
    if state.config.keep_history:
        state.last_deletes, state.new_deletes = state.last_deletes.forgotten(op.at_seq + 1), []
    elif not state.new_deletes or state.new_deletes[-1][0].op < op.op:  # else an interrupted call has added it
        state.new_deletes.append((op, max(state.hot_floor, state.floors.evict_floor)))
    _reach(state, op)
    state.ops.add(op)
    state.pending.add(op)
    # The last step, so that a reader that sees the new number finds the delete.
    next_op, last_ts_ms = max(state.next_op, op.op + 1), max(state.last_ts_ms, op.ts_ms)
    state.next_op, state.last_ts_ms = next_op, last_ts_ms


def apply_undelete(state: TopicState, op: UndeleteOp) -> None:
    """Show the records again, except those that a listed delete reaches (UNDELETE-2)."""
    state.touch()
    # Behind the records that are back, others may be dead that were below the floor so far.
    state.selective_below = max(state.selective_below, state.floors.earliest_seq)
    state.undeleted = op.seqs if state.undeleted is None else state.undeleted | op.seqs
    if op.of is not None:
        state.last_deletes, state.new_deletes = state.known_deletes.without(op.of), []
        state.ops = DeleteList(listed for listed in state.ops if listed.op != op.of)
    state.pending = DeleteList(state.ops)
    state.floors = op.floors(state.floors, state.ops)
    state.flagged_below = min(state.flagged_below, op.seqs.first)
    state.expired_seq = min(state.expired_seq, op.seqs.first)
    state.oldest_live_ms = 0
    state.generation += 1
    # The last step, as in `apply_delete`.
    state.next_op, state.last_ts_ms = op.op + 1, max(state.last_ts_ms, op.ts_ms)


def apply_truncate(state: TopicState, seq: int, ts_ms: int, epoch: int, remainder: SegmentInfo | None) -> None:
    """Change the state as the TRUNCATE frame says. `remainder` comes from `kept_part` of seglog.maintenance.removal."""
    state.touch()
    if state.config.keep_history:
        state.truncate_ops = listed_with(state.truncate_ops, TruncateOp(seq, ts_ms, state.next_op))
    state.ops = state.ops.ended_below(seq)
    state.pending = state.pending.ended_below(seq)
    state.warm_ops = state.warm_ops.ended_below(seq)
    state.last_deletes, state.new_deletes = state.known_deletes.cut(seq), []
    state.flagged_below = min(state.flagged_below, seq)
    state.floors = state.floors.cut(seq)
    state.selective_below = min(state.selective_below, seq)
    # A branch may have lost all records of its own. Then none is past the ttl, and it shows its parent's again.
    state.expired_seq = 1 if BRANCH_MARK in state.name else min(state.expired_seq, seq)
    state.oldest_live_ms = 0
    state.ephemeral_buffer.cut(seq)
    state.head_seq = state.logged_seq = seq - 1
    state.last_ts_ms = max(state.last_ts_ms, ts_ms)
    state.hot_floor = min(state.hot_floor, seq)
    if state.truncated_epoch < epoch:  # else an interrupted call has added it
        state.truncations, state.truncated_epoch = (*state.truncations, seq), epoch
    state.generation += 1
    state.wake()
    if seq >= state.tail.first_seq:
        state.tail.cut(seq)
    elif seq > state.segments_end:
        state.tail = Tail(seq)
    else:
        _cut_segments(state, seq, epoch, remainder)
    # The last step: until the epoch has changed, an interrupt makes the caller call this again.
    state.epoch = epoch


def _cut_segments(state: TopicState, seq: int, epoch: int, remainder: SegmentInfo | None) -> None:
    sealed = tuple(info for info in state.sealed if info.last_seq < seq)
    warm = tuple(info for info in state.warm if info.last_seq < seq)
    meta = replace(state.to_meta(), epoch=epoch, sealed=sealed, active=active_meta(remainder))
    tail = Tail(seq)
    # One statement, because an interrupt hits only between calls. With the new tail, `_cut_segments` never runs again.
    state.sealed, state.warm, state.active, state.tail, state.truncated_meta = sealed, warm, remainder, tail, meta


def delete_ephemeral(state: TopicState, op: DeleteOp) -> None:
    """Apply a delete to a topic that is in memory only. The delete gets no number, and the log writes nothing."""
    _reach(state, op)
    state.last_ts_ms = state.assigned_ts_ms = max(state.last_ts_ms, op.ts_ms)
    state.settle_front()
    state.generation += 1


def _reach(state: TopicState, op: DeleteOp) -> None:
    """Apply the immediate effects of a delete. A second call, after an interrupt, has the same result."""
    state.touch()
    if op.evict_from is not None:
        state.floors = state.floors.evicted(op.below, Gap(op.evict_from, op.below - 1))
        state.generation += 1  # readers on their way are told
    elif op.is_prefix:
        state.floors = state.floors.raised(op.below)
    else:
        state.selective_below = max(state.selective_below, op.below)
    state.ephemeral_buffer.delete(op)
    state.ephemeral_buffer.drop_below(state.floors.earliest_seq)


def _head_first(state: TopicState) -> list[bytes]:
    """Return a list with a HEAD frame if ephemeral records took seqs after the topic's last frame, else an empty list.

    The frame stands before any other frame of the topic. It prevents two errors after a crash:

    - A following record takes the seq of an ephemeral record.
    - A following delete reaches later records that take such seqs.
    """
    if state.assigned_logged == state.assigned_seq:
        return []
    return [encode_head(state.topic_id, state.assigned_ts_ms, state.assigned_seq)]


def new_state(created: TopicCreated, mark: Elsewhere | None) -> TopicState:
    """Return the state of a new topic. It has the producers and keys of a mark (ELSEWHERE-2).

    A branch, or a topic with `keep_history`, may have records below its first seq in the cold tier. So its
    `earliest_seq` is 1. Any other topic has no archive and no record below its first seq.
    """
    may_inherit = created.config.keep_history or BRANCH_MARK in created.name
    first = 1 if may_inherit else created.first_seq
    return TopicState(
        topic_id=created.topic_id,
        name=created.name,
        epoch=created.epoch,
        config=created.config,
        first_seq=created.first_seq,
        hot_floor=created.first_seq,
        last_ts_ms=created.ts_ms,
        tail=Tail(created.first_seq),
        floors=Floors(earliest_seq=first),
        producers=Producers(mark.producers) if mark is not None and mark.producers else None,
        keys=Keys(mark.keys) if mark is not None and mark.keys else None,
    )
