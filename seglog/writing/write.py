"""The changes of a topic. Each one takes its seqs under the lock, and is committed in a group with other changes.

Each function returns when its change is visible, and as safe as its durability says. A change that is refused takes no
seq. All functions raise `ReadOnly`, `LogClosed`, `WriterPoisoned` and `DiskFull`. After `DiskFull` nothing has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from seglog.engine.engine import Engine, change
from seglog.engine.entries import (
    AppendEntry,
    ConfigEntry,
    CreateEntry,
    DeleteEntry,
    EphemeralEntry,
    TopicDeleteEntry,
    TruncateEntry,
    delete_ephemeral,
)
from seglog.engine.state import TopicState
from seglog.errors import (
    AppendsHeld,
    ConcurrentModification,
    HistoryKept,
    InvalidArgument,
    InvalidLabel,
    InvalidSetting,
    NoSuchTopic,
    NotTruncatable,
    OffsetOverflow,
    ReadOnly,
    RecordTooLarge,
    SeglogError,
    SeqOutOfRange,
    TopicExists,
    TopicFull,
)
from seglog.files.clock_watch import JUMP_MS
from seglog.format.control import TopicCreated
from seglog.format.frame import LABEL_MAX_BYTES, encode_appends
from seglog.format.index import OFFSET_END
from seglog.maintenance.checkpoint import checkpoint_locked, wait_for_room
from seglog.maintenance.ephemeral import make_room, trim
from seglog.maintenance.housekeeping import advance_front, enforce_limits
from seglog.maintenance.relocator import make_hot
from seglog.maintenance.retention import Retained, passed_cap
from seglog.maintenance.truncation import kept_part, lowest_truncation
from seglog.values.byte_strings import byte_strings
from seglog.values.config import TopicConfig, check_durability, check_history
from seglog.values.deletes import DeleteOp
from seglog.values.names import BRANCH_MARK
from seglog.wal.group_commit import Entry
from seglog.wal.wal import SYNC_MARK_BYTES

__all__ = [
    "PendingAppend",
    "append",
    "begin_append",
    "check_append",
    "configure",
    "create_topic",
    "delete",
    "delete_topic",
    "finish_append",
    "sync_written",
    "truncate",
]

_logger = logging.getLogger("seglog.writing.write")

# Maximum of one append. The writer writes it with one call into one WAL file, where offsets have 32 bits.
_APPEND_MAX_BYTES = 1024 * 1024 * 1024

# More ephemeral records than this after a record in the WAL ask for a checkpoint. Until then the tail has an entry for
# each of them.
_LOST_IN_TAIL_MAX = 100_000

# This many deletes by tag ask for a checkpoint, which puts them into the flags. Until then readers keep an entry for
# each of their tags.
_PENDING_TAGS_MAX = 10_000


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
    """Append the values and return their seqs. A missing topic is created in the same group.

    Without values, nothing is created.
    """
    values, _ = check_append(engine, values, tag=tag, node=node, unterminated=unterminated, durability=durability)
    if not values:
        known = engine.find(name)
        head = 0 if known is None else known.head_seq
        return range(head + 1, head + 1)
    wait_for_room(engine)
    engine.committer.check_apart()
    # The body of `change`, inlined, because a lone append spends its time here.
    try:
        begun = begin_append(engine, name, values, tag=tag, node=node, unterminated=unterminated, durability=durability)
        return finish_append(engine, begun)
    except BaseException as error:
        engine.committer.leave(error)
        raise


def check_append(
    engine: Engine,
    values: Sequence[bytes],
    *,
    tag: str | None,
    node: str | None,
    unterminated: bool,
    durability: str | None,
) -> tuple[Sequence[bytes], int]:
    """Return the values as the log keeps them (seglog.values.byte_strings), and their size in bytes.

    Raises `ReadOnly` and `AppendsHeld`. For wrong arguments, raises `RecordTooLarge`, `InvalidLabel`, `InvalidSetting`
    and `InvalidArgument`.
    """
    if engine.is_read_only:
        raise ReadOnly(engine.layout.root)
    if engine.append_block_reason is not None:
        raise AppendsHeld(engine.append_block_reason)
    limit = engine.settings.max_record_bytes
    if type(values) is list and len(values) == 1 and type(values[0]) is bytes and len(values[0]) <= limit:
        # The common case, in a third of the time of the general case.
        own: Sequence[bytes] = (values[0],)
        size_bytes = len(values[0])
    else:
        own = byte_strings(values)
        size_bytes = _check_sizes(own, limit)
    if tag is not None:
        _check_label("tag", tag)
    if node is not None:
        _check_label("node", node)
    # Another number would set other flags of the frame.
    if unterminated is not False and unterminated is not True:
        raise InvalidArgument("unterminated", unterminated, "True or False")
    if durability is not None:
        check_durability(durability)
    return own, size_bytes


class PendingAppend(NamedTuple):
    """An append that has its seqs and is in the queue. The caller must call `finish_append`.

    The queue may wait for this append to lead.
    """

    state: TopicState
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
) -> PendingAppend:
    """Assign seqs to one or more values and queue the append. `finish_append` commits it.

    `check_append` and `check_apart` have passed.
    """
    committer = engine.committer
    begun: PendingAppend | None = None
    while begun is None:
        with committer.raw_lock:
            committer.check_open()
            if not engine.topics_being_deleted or not engine.is_being_deleted(name):
                begun = _begin_append(engine, name, values, tag, node, durability, unterminated=unterminated)
        if begun is None:
            committer.flush()  # a durable deletion frees the name (SHARD-1)
    return begun


def _begin_append(
    engine: Engine,
    name: str,
    values: Sequence[bytes],
    tag: str | None,
    node: str | None,
    durability: str | None,
    *,
    unterminated: bool,
) -> PendingAppend:
    """Do the work of `begin_append`. The caller holds the lock."""
    committer = engine.committer
    create: CreateEntry | None = None
    state = engine.topics.get(name)
    if state is None:
        if BRANCH_MARK in name:
            raise NoSuchTopic(name)  # only the code that creates a branch knows its first seq
        create = _new_topic(engine, name, engine.topic_defaults, first_seq=1, ts_floor_ms=0)
        state = create.state
    durability = durability or state.config.durability
    durable, is_disk = durability == "fsync", durability == "disk"
    now_ms = engine.clock.now_ms()
    first = state.assigned_seq + 1
    ts_ms = max(now_ms, state.assigned_ts_ms)
    if not -JUMP_MS <= now_ms - state.assigned_ts_ms <= JUMP_MS:
        engine.clock_watch.look(name, now_ms, state.assigned_ts_ms)
    is_ephemeral = durability == "ephemeral"
    if is_ephemeral:
        check_history(durability, keep_history=state.config.keep_history)
    pieces, lengths = encode_appends(
        state.topic_id, first, ts_ms, values, tag=tag, node=node, unterminated=unterminated, durable=durable
    )
    size_bytes = sum(lengths)
    if size_bytes + SYNC_MARK_BYTES > OFFSET_END:
        raise OffsetOverflow(engine.layout.wal, OFFSET_END)
    if state.config.is_capped:
        _check_room(state, len(lengths), size_bytes)
    entry: Entry
    if is_ephemeral:
        make_room(engine, state, size_bytes, len(lengths))
        entry = EphemeralEntry(state, engine.memory, first, ts_ms, b"".join(pieces), lengths, tag)
    else:
        is_late = is_disk and committer.is_sync_due(state.topic_id, now_ms, engine.settings.disk_sync_interval_ms)
        written_ms = now_ms if is_disk else None
        entry = AppendEntry(state, first, ts_ms, pieces, lengths, sync=durable or is_late, written_ms=written_ms)
    seqs = range(first, first + len(lengths))
    if is_ephemeral and create is None and state.is_quiet:
        # The topic has nothing in flight. So the append need not wait for the entries of other topics.
        entry.assign()
        entry.publish(0, 0)
        engine.wants_checkpoint |= len(state.tail) > 0 and state.head_seq - state.logged_seq > _LOST_IN_TAIL_MAX
        return PendingAppend(state, (), seqs)
    if create is not None:
        committer.enqueue(create)
    committer.enqueue(entry)
    return PendingAppend(state, (entry,) if create is None else (create, entry), seqs)


def finish_append(engine: Engine, begun: PendingAppend) -> range:
    """Commit the append, and return its seqs when the records are as safe as their durability says."""
    for entry in begun.entries:
        engine.committer.finish(entry)
    _wake_upkeep(engine)
    if begun.state.config.has_limits:
        trim(engine, begun.state)
        enforce_limits(engine, begun.state)
    return begun.seqs


@change
def create_topic(engine: Engine, name: str, config: TopicConfig, *, first_seq: int, ts_floor_ms: int) -> None:
    """Create a topic. Raises `TopicExists`."""
    engine.check_writable()
    committer = engine.committer
    entry: CreateEntry | None = None
    while entry is None:
        with committer.lock:
            committer.check_open()
            if name in engine.topics:
                raise TopicExists(name)
            if not engine.is_being_deleted(name):
                entry = _new_topic(engine, name, config, first_seq=first_seq, ts_floor_ms=ts_floor_ms)
                committer.enqueue(entry)
        if entry is None:
            committer.flush()  # a durable deletion frees the name (SHARD-1)
    committer.finish(entry)


@change
def configure(engine: Engine, name: str, config: TopicConfig) -> None:
    """Change the configuration of a topic. Raises `NoSuchTopic`."""
    engine.check_writable()
    committer = engine.committer
    with committer.lock:
        committer.check_open()
        entry = ConfigEntry(engine.state(name), config)
        committer.enqueue(entry)
    committer.finish(entry)


@change
def delete(engine: Engine, name: str, *, before: int | None, tag: str | None, evicts: bool = False) -> DeleteOp:
    """Delete the records that are below `before` and have `tag`. One of the two conditions may be None.

    With `evicts` and without a tag, readers get a `Gap` for the range. Raises `NoSuchTopic` and `InvalidLabel`. Without
    any condition, raises `InvalidSetting`.
    """
    engine.check_writable()
    if before is None and tag is None:
        raise InvalidSetting("delete", "needs before, tag, or both")
    if tag is not None:
        _check_label("tag", tag)
    committer = engine.committer
    with committer.lock:
        committer.check_open()
        state = engine.state(name)
        ts_ms = max(engine.clock.now_ms(), state.assigned_ts_ms)
        is_all_ephemeral = state.is_all_ephemeral
        op = DeleteOp(0 if is_all_ephemeral else state.assigned_op + 1, state.assigned_seq, ts_ms, before, tag)
        if evicts and state.floors.earliest_seq < op.below:
            op = replace(op, evict_from=state.floors.earliest_seq)
        if is_all_ephemeral:
            delete_ephemeral(state, op)
        else:
            entry = DeleteEntry(state, op)
            committer.enqueue(entry)
    if not is_all_ephemeral:
        committer.finish(entry)
        engine.wants_checkpoint |= state.pending.tagged >= _PENDING_TAGS_MAX
        _wake_upkeep(engine)
    if tag is not None:
        advance_front(engine, state)
        if state.warm:
            engine.wake_relocator()
    return op


@change
def truncate(engine: Engine, name: str, seq: int, position: tuple[int, int, int] | None) -> None:
    """Truncate a topic: remove its records from `seq` on.

    Raises `NoSuchTopic`, `NotTruncatable`, `SeqOutOfRange`, `ConcurrentModification`, and the errors of a read of the
    warm store. The truncation is complete when its frame is durable. If the files cannot be cut yet, the next
    checkpoint cuts them.
    """
    engine.check_writable()
    state = engine.state(name)
    with engine.committer.lock:
        state.relocation_holds += 1
    try:
        _make_truncated_hot(engine, state, seq)
        _truncate(engine, state, seq, position)
    finally:
        with engine.committer.lock:
            state.relocation_holds -= 1
    engine.wake_relocator()


def _make_truncated_hot(engine: Engine, state: TopicState, seq: int) -> None:
    """Make the segment that contains the cut hot again if it is relocated. Its kept part becomes the active segment."""
    # After this thread gets the checkpoint lock, no relocation runs, because `relocation_holds` is above 0.
    with engine.checkpoint_lock, engine.committer.lock:
        is_in_segments = max(lowest_truncation(state), state.hot_floor) <= seq < state.tail.first_seq
        info = state.segment_of(seq) if is_in_segments else None
    if info is not None and not info.is_hot and info.first_seq < seq:
        make_hot(engine, state, info)


def _truncate(engine: Engine, state: TopicState, seq: int, position: tuple[int, int, int] | None) -> None:
    committer = engine.committer
    with engine.retention_lock, engine.checkpoint_lock:
        if lowest_truncation(state) <= seq < state.tail.first_seq:
            kept = kept_part(state, seq, lambda info: engine.segments.get(state.topic_id, info))
        else:
            kept = None
        with committer.lock:
            committer.check_open()
            if engine.topics.get(state.name) is not state:
                raise NoSuchTopic(state.name)
            if position is not None and position != state.position:
                raise ConcurrentModification(state.name)
            _check_truncation(state, seq)
            if seq > state.assigned_seq:
                return
            entry = TruncateEntry(state, seq, max(engine.clock.now_ms(), state.assigned_ts_ms), kept)
            committer.enqueue(entry)
        committer.finish(entry)
        try:
            checkpoint_locked(engine, None)
        except SeglogError as error:
            _logger.warning("%s is truncated, its files are not yet: %s", state.name, error)


def _check_truncation(state: TopicState, seq: int) -> None:
    """Raise `NotTruncatable` or `SeqOutOfRange` if `seq` is no valid place for a cut. The caller holds the lock."""
    lowest = lowest_truncation(state)
    if seq < lowest:
        raise NotTruncatable(state.name, seq, lowest)
    if seq > state.assigned_seq + 1:
        raise SeqOutOfRange(state.name, seq, lowest, state.assigned_seq)


@change
def delete_topic(engine: Engine, name: str, position: tuple[int, int, int] | None) -> None:
    """Delete a topic. Raises `NoSuchTopic`, `ConcurrentModification`, and without a position `HistoryKept`."""
    engine.check_writable()
    committer = engine.committer

    def leave(state: TopicState) -> None:
        engine.topics.pop(name, None)
        engine.topics_being_deleted[state.topic_id] = state
        engine.epoch_floor = max(engine.epoch_floor, state.epoch)

    def go(state: TopicState) -> None:
        engine.topics_being_deleted.pop(state.topic_id, None)
        if state.topic_id not in engine.deleted:
            engine.changed.pop(state.topic_id, None)
            engine.deleted += (state.topic_id,)
            engine.pending_warm_deletes += tuple((state.topic_id, info.first_seq) for info in state.warm)

    with committer.lock:
        committer.check_open()
        state = engine.state(name)
        if position is not None and position != state.position:
            raise ConcurrentModification(name)
        if position is None and state.config.keep_history:
            raise HistoryKept(name)
        committer.enqueue(entry := TopicDeleteEntry(state, leave, go))
    committer.finish(entry)
    _wake_upkeep(engine)


def _new_topic(engine: Engine, name: str, config: TopicConfig, *, first_seq: int, ts_floor_ms: int) -> CreateEntry:
    """Return the entry that creates a topic. The caller holds the lock. The id of a refused entry stays unused."""
    created = TopicCreated(engine.next_topic_id, name, engine.epoch_floor + 1, first_seq, config, ts_floor_ms)
    engine.next_topic_id += 1
    return CreateEntry(created, engine.topics, engine.creating, engine.changed)


def sync_written(engine: Engine) -> None:
    """Make the records of durability `disk` durable, or poison the writer. `syncer` runs this after appends."""
    if not engine.committer.has_unsynced:
        return
    try:
        engine.committer.flush()
    except SeglogError as error:
        _logger.warning("what was acked at disk may not be durable: %s", error)
    except Exception:
        # The failure has poisoned the writer. No caller waits here to get the error.
        _logger.exception("what was acked at disk may not be durable")


def _wake_upkeep(engine: Engine) -> None:
    if engine.wals.needs_upkeep or engine.wants_checkpoint:
        engine.upkeep.wake()
    if engine.committer.has_unsynced:
        engine.syncer.wake_later(engine.settings.disk_sync_interval_ms / 1000)


def _check_room(state: TopicState, records: int, size_bytes: int) -> None:
    """Raise `TopicFull` if the append would pass a cap. The caller holds the lock, and no seq is assigned yet."""
    if state.config.discard != "reject":
        return
    wanted = Retained(state.retained_from, state.assigned_seq + records, state.retained_bytes + size_bytes)
    passed = passed_cap(state.config, wanted)
    if passed is not None:
        raise TopicFull(state.name, *passed)


def _check_sizes(values: Sequence[bytes], limit: int) -> int:
    """Return the sum of the sizes. Raises `RecordTooLarge`."""
    total = sum(map(len, values))
    if total > limit and max(map(len, values)) > limit:
        raise RecordTooLarge(max(map(len, values)), limit)
    if total > _APPEND_MAX_BYTES:
        raise RecordTooLarge(total, _APPEND_MAX_BYTES)
    return total


def _check_label(label: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidArgument(label, text, "a text or None")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidLabel(label, f"cannot be written as UTF-8: {error.reason}") from error
    if size > LABEL_MAX_BYTES:
        raise InvalidLabel(label, f"{size} bytes are more than {LABEL_MAX_BYTES}")
