"""Changing a topic: what is handed out under the lock, and committed with whatever else is waiting.

Each function returns when the change is as safe as it has to be, and visible. What is refused is refused before a seq
is handed out. All raise `LogClosed`, `WriterPoisoned` and `DiskFull`; after the last one nothing has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seglog.checkpoint import wait_for_room
from seglog.commit import Entry
from seglog.config import TopicConfig, check_durability
from seglog.control import TopicCreated
from seglog.deletes import DeleteOp
from seglog.engine import Engine
from seglog.entries import AppendEntry, ConfigEntry, CreateEntry, DeleteEntry
from seglog.errors import InvalidLabel, InvalidSetting, NoSuchTopic, RecordTooLarge, TopicExists
from seglog.frame import LABEL_MAX_BYTES, encode_appends
from seglog.names import BRANCH_MARK

__all__ = [
    "Begun",
    "append",
    "begin_append",
    "check_append",
    "configure",
    "create_topic",
    "delete",
    "finish_append",
]

# Of one append: it is written at once, into one WAL file, where offsets have 32 bits.
_APPEND_MAX_BYTES = 1024 * 1024 * 1024


def append(
    engine: Engine,
    name: str,
    values: Sequence[bytes],
    *,
    tag: str | None,
    node: str | None,
    unterminated: bool,
    durability: str | None,
) -> range:
    """The seqs. A topic that is not there is made, in the same group; for no values nothing is."""
    check_append(engine, values, tag=tag, node=node, durability=durability)
    if not values:
        known = engine.find(name)
        head = 0 if known is None else known.head_seq
        return range(head + 1, head + 1)
    wait_for_room(engine)
    begun = begin_append(engine, name, values, tag=tag, node=node, unterminated=unterminated, durability=durability)
    return finish_append(engine, begun)


def check_append(
    engine: Engine, values: Sequence[bytes], *, tag: str | None, node: str | None, durability: str | None
) -> int:
    """How many bytes the values are. Raises for what no log takes: `RecordTooLarge`, `InvalidLabel`, `InvalidSetting`,
    `TypeError`.
    """
    size_bytes = _check_values(values, engine.settings.max_record_bytes)
    _check_label("tag", tag)
    _check_label("node", node)
    if durability is not None:
        check_durability(durability)
    return size_bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """An append that has its seqs and is in the queue. `finish_append` has to follow: the queue may wait for it."""

    entries: tuple[Entry, ...]
    seqs: range


def begin_append(
    engine: Engine,
    name: str,
    values: Sequence[bytes],
    *,
    tag: str | None,
    node: str | None,
    unterminated: bool,
    durability: str | None,
) -> Begun:
    """Of one value at least; `check_append` has passed. Nothing is written before `finish_append`."""
    committer = engine.committer
    create: CreateEntry | None = None
    with committer.lock:
        committer.check_open()
        state = engine.topics.get(name)
        if state is None:
            if BRANCH_MARK in name:
                raise NoSuchTopic(name)  # where a branch starts, only its maker knows
            create = _new_topic(engine, name, engine.topic_defaults, first_seq=1, ts_floor_ms=0)
            state = create.state
        durable = (durability or state.config.durability) == "fsync"
        first = state.assigned_seq + 1
        ts_ms = max(engine.clock.now_ms(), state.assigned_ts_ms)
        frames = encode_appends(
            state.topic_id, first, ts_ms, values, tag=tag, node=node, unterminated=unterminated, durable=durable
        )
        entry = AppendEntry(state, ts_ms, frames, sync=durable)
        if create is not None:
            committer.enqueue(create)
            engine.topics[name] = state
        committer.enqueue(entry)
        state.assigned_seq += len(frames)
        state.assigned_ts_ms = ts_ms
    return Begun((entry,) if create is None else (create, entry), range(first, first + len(frames)))


def finish_append(engine: Engine, begun: Begun) -> range:
    """The seqs, when the records are as safe as they have to be."""
    for entry in begun.entries:
        engine.committer.finish(entry)
    _wake_upkeep(engine)
    return begun.seqs


def create_topic(engine: Engine, name: str, config: TopicConfig, *, first_seq: int, ts_floor_ms: int) -> None:
    """Raises `TopicExists`, `InvalidSetting`."""
    if first_seq < 1:
        raise InvalidSetting("first_seq", f"{first_seq} is below 1")
    committer = engine.committer
    with committer.lock:
        committer.check_open()
        if name in engine.topics:
            raise TopicExists(name)
        entry = _new_topic(engine, name, config, first_seq=first_seq, ts_floor_ms=ts_floor_ms)
        committer.enqueue(entry)
        engine.topics[name] = entry.state
    committer.finish(entry)


def configure(engine: Engine, name: str, config: TopicConfig) -> None:
    """Raises `NoSuchTopic`."""
    committer = engine.committer
    with committer.lock:
        committer.check_open()
        entry = ConfigEntry(engine.state(name), config)
        committer.enqueue(entry)
    committer.finish(entry)


def delete(engine: Engine, name: str, *, before: int | None, tag: str | None) -> DeleteOp:
    """Raises `NoSuchTopic`, `InvalidLabel`, and `InvalidSetting` without any condition."""
    if before is None and tag is None:
        raise InvalidSetting("delete", "needs before, tag, or both")
    _check_label("tag", tag)
    committer = engine.committer
    with committer.lock:
        committer.check_open()
        state = engine.state(name)
        ts_ms = max(engine.clock.now_ms(), state.assigned_ts_ms)
        op = DeleteOp(state.assigned_op + 1, state.assigned_seq, ts_ms, before, tag)
        entry = DeleteEntry(state, op)
        committer.enqueue(entry)
        state.assigned_op = op.op
        state.assigned_ts_ms = ts_ms
    committer.finish(entry)
    _wake_upkeep(engine)
    return op


def _new_topic(engine: Engine, name: str, config: TopicConfig, *, first_seq: int, ts_floor_ms: int) -> CreateEntry:
    """The lock is held. An id that is not used after all is left out."""
    created = TopicCreated(engine.next_topic_id, name, 1, first_seq, config, ts_floor_ms)
    engine.next_topic_id += 1
    return CreateEntry(created)


def _wake_upkeep(engine: Engine) -> None:
    if engine.wal.needs_upkeep:
        engine.upkeep.wake()


def _check_values(values: Sequence[bytes], limit: int) -> int:
    if isinstance(values, (bytes, bytearray, memoryview, str)):
        raise TypeError("append takes a sequence of byte strings, not one")
    sizes = [*map(len, values)]
    total = sum(sizes)
    if total > limit and max(sizes) > limit:
        raise RecordTooLarge(max(sizes), limit)
    if total > _APPEND_MAX_BYTES:
        raise RecordTooLarge(total, _APPEND_MAX_BYTES)
    return total


def _check_label(label: str, text: str | None) -> None:
    if text is None:
        return
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidLabel(label, f"cannot be written as UTF-8: {error.reason}") from error
    if size > LABEL_MAX_BYTES:
        raise InvalidLabel(label, f"{size} bytes are more than {LABEL_MAX_BYTES}")
