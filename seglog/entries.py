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

    __slots__ = ("_lengths", "_state", "_ts_ms")

    def __init__(
        self,
        state: TopicState,
        ts_ms: int,
        frames: bytes,
        lengths: Sequence[int],
        *,
        sync: bool,
        written_ms: int | None,
    ) -> None:
        super().__init__([frames], len(lengths), sync=sync, written_ms=written_ms)
        self._state = state
        self._ts_ms = ts_ms
        self._lengths = lengths

    def publish(self, file: int, offset: int, /) -> None:
        self._state.publish(file, offset, self._lengths, self._ts_ms)
        self._state.in_flight_bytes -= len(self.pieces[0])


class CreateEntry(Entry):
    __slots__ = ("state",)

    def __init__(self, created: TopicCreated) -> None:
        super().__init__([encode_create(created)], 1, sync=True)
        self.state = new_state(created)

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

    def publish(self, _file: int, _offset: int, /) -> None:
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

    def publish(self, _file: int, _offset: int, /) -> None:
        apply_truncate(self._state, self._seq, self._epoch, self._kept)


class TopicDeleteEntry(Entry):
    """`then` is called under the lock, once nobody finds the topic any more."""

    __slots__ = ("_state", "_then")

    def __init__(self, state: TopicState, then: Callable[[TopicState], None]) -> None:
        super().__init__([encode_topic_delete(state.topic_id, state.assigned_ts_ms, state.epoch)], 1, sync=True)
        self._state = state
        self._then = then

    def publish(self, _file: int, _offset: int, /) -> None:
        self._state.is_gone = True
        self._state.generation += 1
        self._state.wake()
        self._then(self._state)


def apply_evict(state: TopicState, floors: Floors) -> None:
    """A delete that came between may have raised `earliest_seq` further."""
    state.floors = floors.raised(state.floors.earliest_seq)
    state.generation += 1


def apply_delete(state: TopicState, op: DeleteOp) -> None:
    state.ops += (op,)
    state.pending += (op,)
    state.next_op = max(state.next_op, op.op + 1)
    state.last_ts_ms = max(state.last_ts_ms, op.ts_ms)
    if op.tag is None:
        end = op.at_seq + 1
        state.floors = state.floors.raised(end if op.before is None else min(op.before, end))


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
