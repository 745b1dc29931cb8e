"""What callers commit: appended records and a topic's control frames, and what becomes visible with each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seglog.commit import Entry
from seglog.config import TopicConfig
from seglog.control import (
    TopicCreated,
    encode_config,
    encode_create,
    encode_delete,
    encode_evict,
    encode_topic_delete,
    encode_truncate,
)
from seglog.deletes import DeleteOp
from seglog.floors import Floors
from seglog.segment import SegmentInfo
from seglog.state import TopicState
from seglog.tail import Tail
from seglog.truncation import apply_truncate

__all__ = [
    "AppendEntry",
    "ConfigEntry",
    "CreateEntry",
    "DeleteEntry",
    "EvictEntry",
    "TopicDeleteEntry",
    "TruncateEntry",
    "apply_delete",
    "apply_evict",
    "new_state",
]


class AppendEntry(Entry):
    """`frames` lie one after the other, and are as long as `lengths` says."""

    __slots__ = ("_first_seq", "_lengths", "_state", "_ts_ms")

    def __init__(
        self,
        state: TopicState,
        first_seq: int,
        ts_ms: int,
        frames: bytes,
        lengths: Sequence[int],
        *,
        sync: bool,
        written_ms: int | None,
    ) -> None:
        super().__init__([frames], len(lengths), sync=sync, written_ms=written_ms)
        self._state = state
        self._first_seq = first_seq
        self._ts_ms = ts_ms
        self._lengths = lengths

    def assign(self) -> None:
        state, size = self._state, len(self.pieces[0])
        if state.head_seq < self._first_seq:
            state.in_flight_bytes += size
        state.assigned_ts_ms = self._ts_ms
        state.assigned_seq = self._first_seq + self.frames - 1

    def publish(self, file: int, offset: int, /) -> None:
        if self._state.head_seq < self._first_seq:
            self._state.publish(file, offset, self._lengths, self._ts_ms)
        elif self._state.waiters:
            self._state.wake()


class CreateEntry(Entry):
    """`topics` are those of the log, by name."""

    __slots__ = ("_topics", "state")

    def __init__(self, created: TopicCreated, topics: dict[str, TopicState]) -> None:
        super().__init__([encode_create(created)], 1, sync=True)
        self.state = new_state(created)
        self._topics = topics

    def assign(self) -> None:
        self._topics[self.state.name] = self.state

    def publish(self, _file: int, _offset: int, /) -> None:
        self.state.is_published = True


class ConfigEntry(Entry):
    __slots__ = ("_config", "_state")

    def __init__(self, state: TopicState, config: TopicConfig) -> None:
        super().__init__([encode_config(state.topic_id, state.assigned_ts_ms, config)], 1, sync=True)
        self._state = state
        self._config = config

    def publish(self, _file: int, _offset: int, /) -> None:
        self._state.config = self._config


class DeleteEntry(Entry):
    __slots__ = ("_op", "_state")

    def __init__(self, state: TopicState, op: DeleteOp) -> None:
        super().__init__([encode_delete(state.topic_id, op)], 1, sync=True)
        self._state = state
        self._op = op

    def assign(self) -> None:
        self._state.assigned_op = self._op.op
        self._state.assigned_ts_ms = self._op.ts_ms

    def publish(self, _file: int, _offset: int, /) -> None:
        if self._op.op >= self._state.next_op:
            apply_delete(self._state, self._op)


class EvictEntry(Entry):
    __slots__ = ("_floors", "_state")

    def __init__(self, state: TopicState, floors: Floors) -> None:
        super().__init__([encode_evict(state.topic_id, state.assigned_ts_ms, floors)], 1, sync=True)
        self._state = state
        self._floors = floors

    def publish(self, _file: int, _offset: int, /) -> None:
        apply_evict(self._state, self._floors)


class TruncateEntry(Entry):
    __slots__ = ("_epoch", "_kept", "_seq", "_state")

    def __init__(self, state: TopicState, seq: int, kept: SegmentInfo | None) -> None:
        self._epoch = state.epoch + 1
        super().__init__([encode_truncate(state.topic_id, state.assigned_ts_ms, seq, self._epoch)], 1, sync=True)
        self._state = state
        self._seq = seq
        self._kept = kept

    def assign(self) -> None:
        self._state.assigned_seq = self._seq - 1

    def publish(self, _file: int, _offset: int, /) -> None:
        if self._state.epoch < self._epoch:
            apply_truncate(self._state, self._seq, self._epoch, self._kept)


class TopicDeleteEntry(Entry):
    """`leave` frees the name, `go` is called once nobody finds the topic any more. Both under the lock, and again."""

    __slots__ = ("_go", "_leave", "_state")

    def __init__(
        self, state: TopicState, leave: Callable[[TopicState], None], go: Callable[[TopicState], None]
    ) -> None:
        super().__init__([encode_topic_delete(state.topic_id, state.assigned_ts_ms, state.epoch)], 1, sync=True)
        self._state = state
        self._leave = leave
        self._go = go

    def assign(self) -> None:
        self._leave(self._state)

    def publish(self, _file: int, _offset: int, /) -> None:
        self._state.is_gone = True
        self._state.generation += 1
        self._state.wake()
        self._go(self._state)


def apply_evict(state: TopicState, floors: Floors) -> None:
    """A delete that came between may have raised `earliest_seq` further."""
    state.floors = floors.raised(state.floors.earliest_seq)
    state.generation += 1


def apply_delete(state: TopicState, op: DeleteOp) -> None:
    if op.tag is None:
        end = op.at_seq + 1
        state.floors = state.floors.raised(end if op.before is None else min(op.before, end))
    next_op, last_ts_ms = max(state.next_op, op.op + 1), max(state.last_ts_ms, op.ts_ms)
    # Together: an interrupt comes between calls only.
    state.ops, state.pending, state.next_op, state.last_ts_ms = (
        (*state.ops, op),
        (*state.pending, op),
        next_op,
        last_ts_ms,
    )


def new_state(created: TopicCreated) -> TopicState:
    return TopicState(
        topic_id=created.topic_id,
        name=created.name,
        epoch=created.epoch,
        config=created.config,
        first_seq=created.first_seq,
        hot_floor=created.first_seq,
        last_ts_ms=created.ts_ms,
        tail=Tail(created.first_seq),
    )
