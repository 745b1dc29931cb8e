"""The changes of a topic, except appends of users. Each one is committed in a group with other changes.

Each function returns when its change is visible and durable. All functions raise `ReadOnly`, `LogClosed`,
`WriterPoisoned` and `DiskFull`. After `DiskFull` no record has changed.

**An undelete** shows records of sealed segments again that deletes have taken.

    1 frame     The writer makes an UNDELETE frame durable, which names the records. From here on readers find them,
                whatever the flags say (`SegmentCache.show`), and so they do after any crash.
    2 flags     A checkpoint removes the flags of these records, and stores a manifest.

UNDELETE-1  The frame names records. The caller knows which deletes took each of them: a flag has no number. The undo of
    a delete that the log made itself (seglog.writing.delete_undo) also names that delete, which is listed no longer.
UNDELETE-2  A listed delete still reaches the records: step 1 makes all of them pending again. So a record that a second
    delete took comes back only when that one is taken back, too.
UNDELETE-3  No checkpoint runs while the frame is in flight (TRUNC-8): one that has planned before would drop the
    deletes that step 1 makes pending.
UNDELETE-4  The flags of relocated segments do not change. If such a record is in one of them, or if a delete that
    their flags lack may reach it, all of them are made hot first. They are relocated again, with the right flags.
UNDELETE-5  A record whose bytes a reclaim took stays deleted. `has_bytes` tells a caller before, and does not vouch for
    relocated segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from seglog.base.lazy import logger
from seglog.engine.engine import Engine, change
from seglog.engine.entries import (
    ConfigEntry,
    CreateEntry,
    DeleteEntry,
    TopicDeleteEntry,
    TruncateEntry,
    UndeleteEntry,
    delete_ephemeral,
)
from seglog.engine.state import TopicState
from seglog.errors import (
    ConcurrentModification,
    Misuse,
    NoSuchTopic,
    NotTruncatable,
    SeglogError,
    SeqOutOfRange,
    TopicExists,
    WrittenElsewhere,
)
from seglog.maintenance.checkpoint import checkpoint, checkpoint_locked
from seglog.maintenance.relocation import make_hot
from seglog.maintenance.removal import advance_front, kept_part, lowest_truncation
from seglog.segments.segment import SegmentInfo
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteOp, DeleteWhere, UndeleteOp
from seglog.values.seq_set import SeqSet
from seglog.values.written_elsewhere import Elsewhere
from seglog.writing.append import (
    AppendOptions,
    begin_append,
    check_append,
    check_label,
    finish_append,
    new_topic,
    wake_upkeep,
)

_logger = logger("seglog.writing.changes")

# This many selective deletes ask for a checkpoint, which puts them into the flags. Until then readers keep an entry for
# each of their tags and ranges.
_PENDING_MAX = 10_000
_UPKEEP = AppendOptions(durability="fsync")


@change
def append_upkeep(engine: Engine, name: str, value: bytes) -> None:
    """Append a record that upkeep needs (SPACE-1). It waits for no checkpoint, and passes while appends are held."""
    values, records, size_bytes = check_append(engine, [value], _UPKEEP, is_upkeep=True)
    while (begun := begin_append(engine, name, values, records, size_bytes, _UPKEEP)) is None:
        engine.committer.flush()
    finish_append(engine, begun)


@change
def create_topic(
    engine: Engine, name: str, config: TopicConfig, *, first_seq: int, ts_floor_ms: int, is_taken_over: bool
) -> None:
    """Create a topic. Raises `TopicExists`, and `WrittenElsewhere` unless the caller has taken it over."""
    engine.check_writable()
    committer = engine.committer
    entry: CreateEntry | None = None
    while entry is None:
        with committer.lock:
            committer.check_open()
            if name in engine.topics:
                raise TopicExists(name)
            if name in engine.elsewhere and not is_taken_over:
                raise WrittenElsewhere(name, is_fenced=False)
            if not engine.is_being_deleted(name):
                entry = new_topic(engine, name, config, first_seq=first_seq, ts_floor_ms=ts_floor_ms)
                committer.enqueue(entry)
        if entry is None:
            committer.flush()  # a durable deletion frees the name (SHARD-1)
    committer.finish(entry)


def mark_elsewhere(engine: Engine, name: str, mark: Elsewhere | None) -> None:
    """Set the mark of a topic, or with None end it, durably (seglog.values.written_elsewhere)."""
    engine.check_writable()
    with engine.committer.lock:
        engine.committer.check_open()
        if mark is None:
            engine.elsewhere.pop(name, None)
        else:
            engine.elsewhere[name] = mark
        is_new = dict(engine.kept_elsewhere).get(name) != mark
    if is_new:
        checkpoint(engine)


@change
def configure(engine: Engine, name: str, change_config: Callable[[TopicConfig], TopicConfig]) -> TopicConfig:
    """Change the configuration of a topic, and return the new one.

    Raises `NoSuchTopic`, and `WrittenElsewhere` for a topic that this directory follows.
    """
    engine.check_writable()
    committer = engine.committer
    entry: ConfigEntry | None = None
    while entry is None:
        state = engine.find(name)
        if state is None:
            if name in engine.elsewhere:  # so, too, while a promotion moves the name
                raise WrittenElsewhere(name, is_fenced=False, is_append=False)
            engine.check_open()
            raise NoSuchTopic(name)
        former = state.config
        config = change_config(former)
        with committer.lock:
            committer.check_open()
            is_newest = state.config is former and state.assigned_configs == state.configs
            if is_newest and engine.topics.get(name) is state:
                entry = ConfigEntry(state, config)
                committer.enqueue(entry)
        if entry is None:
            committer.flush()  # another configuration, or the end of the topic, is on its way
    committer.finish(entry)
    return config


@change
def delete(engine: Engine, name: str, where: DeleteWhere, *, evicts: bool = False) -> DeleteOp:
    """Delete the records that meet the conditions.

    With `evicts`, and `before` alone, readers get a `Gap` for the range. Raises `NoSuchTopic`, `InvalidLabel`,
    `ConcurrentModification`, and what `DeleteWhere.check` raises.
    """
    engine.check_writable()
    where.check()
    if where.tag is not None:
        check_label("tag", where.tag)
    committer = engine.committer
    with committer.lock:
        committer.check_open()
        state = engine.state(name)
        if where.epoch not in {None, state.epoch}:
            raise ConcurrentModification(name)
        ts_ms = max(engine.clock.now_ms(), state.assigned_ts_ms)
        is_all_ephemeral = state.is_all_ephemeral
        number = 0 if is_all_ephemeral else state.assigned_op + 1
        op = where.op(number, state.assigned_seq, ts_ms)
        if op.seqs is not None:
            engine.check_form("a delete of ranges or of single records", 2)
        if evicts and state.floors.earliest_seq < op.below:
            op = replace(op, evict_from=state.floors.earliest_seq)
        if is_all_ephemeral:
            delete_ephemeral(state, op)
        else:
            entry = DeleteEntry(state, op)
            committer.enqueue(entry)
    if not is_all_ephemeral:
        committer.finish(entry)
        engine.wants_checkpoint |= state.pending.selective >= _PENDING_MAX
        wake_upkeep(engine)
    advance_front(engine, state)
    if not op.is_prefix and state.warm:
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
    with held_relocation(engine, state):
        _make_truncated_hot(engine, state, seq)
        _truncate(engine, state, seq, position)


@contextmanager
def held_relocation(engine: Engine, state: TopicState) -> Iterator[None]:
    """Let the relocator leave the topic alone meanwhile, and wake it afterwards."""
    with engine.committer.lock:
        state.relocation_holds += 1
    try:
        yield
    finally:
        with engine.committer.lock:
            state.relocation_holds -= 1
    engine.wake_relocator()


@change
def undelete(engine: Engine, name: str, seqs: SeqSet, evict_floor: int | None) -> None:
    """Show deleted records again.

    Raises `NoSuchTopic`, `SeqOutOfRange`, `UpgradeNeeded`, and the errors of a read of the warm store.
    """
    engine.check_writable()
    engine.check_form("an undo", 2)
    state = engine.state(name)
    with held_relocation(engine, state):
        for info in to_make_hot(engine, state, seqs):
            make_hot(engine, state, info)
        with engine.retention_lock, engine.checkpoint_lock:
            undelete_locked(engine, state, seqs, evict_floor)
        advance_front(engine, state)


def has_bytes(engine: Engine, name: str, seqs: SeqSet) -> bool:
    """Return whether hot segments alone had these records, and still have their bytes."""
    state = engine.state(name)
    if to_make_hot(engine, state, seqs):
        return False
    for info in _touched(engine, state, seqs):
        inner = seqs.within(info.first_seq, info.last_seq)
        entries = engine.segments.get(state.topic_id, info).entries(inner.first, inner.end - 1)
        if any(
            not entries["length"][first - inner.first : last - inner.first + 1].all() for first, last in inner.ranges()
        ):
            return False
    return True


def to_make_hot(engine: Engine, state: TopicState, seqs: SeqSet) -> tuple[SegmentInfo, ...]:
    is_touched = any(not info.is_hot for info in _touched(engine, state, seqs))
    return state.warm if is_touched or state.warm_ops.reach.may_reach(seqs.first) else ()


def _touched(engine: Engine, state: TopicState, seqs: SeqSet) -> list[SegmentInfo]:
    with engine.checkpoint_lock, engine.committer.lock:
        return [info for info in state.sealed if seqs.within(info.first_seq, info.last_seq)]


def _queued_undelete(
    engine: Engine, state: TopicState, seqs: SeqSet, evict_floor: int | None, of: int | None
) -> UndeleteEntry:
    """Queue the undelete, and return its entry. The caller holds the lock."""
    if of is None and seqs.end > state.sealed_seq + 1:
        raise SeqOutOfRange(state.name, seqs.end - 1, state.first_seq, state.sealed_seq)
    ts_ms = max(engine.clock.now_ms(), state.assigned_ts_ms)
    op = UndeleteOp(state.assigned_op + 1, ts_ms, seqs, evict_floor, of)
    entry = UndeleteEntry(state, op, lambda state: engine.segments.show(state.topic_id, state.undeleted))
    engine.committer.enqueue(entry)
    return entry


def undelete_locked(
    engine: Engine, state: TopicState, seqs: SeqSet, evict_floor: int | None = None, of: int | None = None
) -> None:
    """Show records again. The caller holds the retention lock and the checkpoint lock, and advances the front after."""
    queue = partial(_queued_undelete, engine, state, seqs, evict_floor, of)
    _commit_locked(engine, state, queue, "records of %s are back, their flags are not removed yet: %s")


def _commit_locked(
    engine: Engine, state: TopicState, queue: Callable[[], TruncateEntry | UndeleteEntry | None], is_late: str
) -> None:
    """Commit what `queue` queues, if it does, and run a checkpoint. The caller holds the checkpoint lock."""
    committer = engine.committer
    try:
        with committer.lock:
            committer.check_open()
            _check_is_there(engine, state)
            entry = queue()
        if entry is None:
            return
        committer.finish(entry)
    except BaseException as error:
        committer.settle(error)  # while this thread holds the checkpoint lock (TRUNC-8, UNDELETE-3)
        raise
    try:
        checkpoint_locked(engine)
    except SeglogError as error:
        _logger.warning(is_late, state.name, error)


def _check_is_there(engine: Engine, state: TopicState) -> None:
    if engine.topics.get(state.name) is not state:
        raise NoSuchTopic(state.name)


def _make_truncated_hot(engine: Engine, state: TopicState, seq: int) -> None:
    """Make the segment that contains the cut hot again if it is relocated. Its kept part becomes the active segment."""
    # After this thread gets the checkpoint lock, no relocation runs, because `relocation_holds` is above 0.
    with engine.checkpoint_lock, engine.committer.lock:
        is_in_segments = max(lowest_truncation(state), state.hot_floor) <= seq < state.tail.first_seq
        info = state.segment_of(seq) if is_in_segments else None
    if info is not None and not info.is_hot and info.first_seq < seq:
        make_hot(engine, state, info)


def _truncate(engine: Engine, state: TopicState, seq: int, position: tuple[int, int, int] | None) -> None:
    with engine.retention_lock, engine.checkpoint_lock:
        if state.undeleted is not None:
            checkpoint_locked(engine)  # the manifest of a truncation hides the frame of an undelete from replay
        if lowest_truncation(state) <= seq < state.tail.first_seq:
            remainder = kept_part(state, seq, lambda info: engine.segments.get(state.topic_id, info))
        else:
            remainder = None
        queue = partial(_queued_truncation, engine, state, seq, position, remainder)
        _commit_locked(engine, state, queue, "%s is truncated, its files are not yet: %s")


def _queued_truncation(
    engine: Engine, state: TopicState, seq: int, position: tuple[int, int, int] | None, remainder: SegmentInfo | None
) -> TruncateEntry | None:
    """Queue the truncation, and return its entry. Return None if the topic has no record from `seq` on.

    The caller holds the lock.
    """
    if position is not None and not state.is_at(position):
        raise ConcurrentModification(state.name)
    _check_truncation(state, seq)
    if seq > state.assigned_seq:
        return None
    entry = TruncateEntry(state, seq, max(engine.clock.now_ms(), state.assigned_ts_ms), remainder)
    engine.committer.enqueue(entry)
    return entry


def _check_truncation(state: TopicState, seq: int) -> None:
    """Raise `NotTruncatable` or `SeqOutOfRange` if `seq` is no valid place for a cut. The caller holds the lock."""
    lowest = lowest_truncation(state)
    if seq < lowest:
        raise NotTruncatable(state.name, seq, lowest)
    if seq > state.assigned_seq + 1:
        raise SeqOutOfRange(state.name, seq, lowest, state.assigned_seq)


@change
def delete_topic(engine: Engine, name: str, position: tuple[int, int, int] | None) -> None:
    """Delete a topic. Raises `NoSuchTopic`, `ConcurrentModification`, `Misuse`.

    With a position, a topic that changes just now is not deleted: `ConcurrentModification` comes when the change is
    published.
    """
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
        if position is None and state.config.keep_history:
            raise history_kept(name)
        is_there = position is None or state.is_at(position)
        entry = TopicDeleteEntry(state, leave, go)
        if is_there:
            committer.enqueue(entry)
    if not is_there:
        committer.flush()
        raise ConcurrentModification(name)
    committer.finish(entry)
    wake_upkeep(engine)


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


def history_kept(topic: str) -> Misuse:
    hint = "delete its records instead. If the topic has no archive, configure it without keep_history"
    return Misuse(f"topic {topic} keeps its history, so the log does not delete it", hint=hint)
