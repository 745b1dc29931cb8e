"""An append, from the caller's arguments to its seqs.

    1  `check_append` checks the arguments and copies mutable values. No later step checks them again.
    2  `begin_append` takes the lock, gives the records their seqs and time, and encodes their frames. It queues them as
       one entry of group commit (seglog.wal.group_commit). Long frames it encodes before it takes the lock, with the
       seqs and the time that they get if no other append to the topic comes in between.
    3  `finish_append` leads the group of that entry, or waits for the leader. Then the records are visible.
    4  It wakes the upkeep if there is work, and applies the limits of the topic.

`append` makes these steps for one append. If no entry is in flight, its caller is alone. Then it writes and syncs its
own frames in step 3, and makes no step that serves other threads. `seglog.aio` makes steps 2 to 4 for the merged
appends of many tasks, which go into one group.

Raises `ReadOnly`, `AppendsHeld`, `WrittenElsewhere`, `LogClosed`, `WriterPoisoned` and `DiskFull`. A refused append
takes no seq. After `DiskFull` nothing has changed. A repetition appends nothing, so it passes while appends are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from seglog.engine.engine import Engine
from seglog.engine.entries import AppendEntry, CreateEntry, EphemeralEntry
from seglog.engine.state import TopicState
from seglog.errors import (
    InvalidArgument,
    InvalidLabel,
    NoSuchTopic,
    OffsetOverflow,
    ReadOnly,
    RecordTooLarge,
    TopicFull,
    WrittenElsewhere,
)
from seglog.files.clock import JUMP_MS
from seglog.format.appends import EncodedFrames, LargeValue, encode_appends
from seglog.format.control import TopicCreated
from seglog.format.frame import LABEL_MAX_BYTES
from seglog.format.index import OFFSET_END
from seglog.format.lines import Lines, longest_bytes, total_bytes
from seglog.interrupts import uninterrupted
from seglog.maintenance.checkpoint import wait_for_room
from seglog.maintenance.checkpoint_plan import Retained, passed_cap
from seglog.maintenance.eviction import enforce_limits, make_room, trim
from seglog.tiers.cold_tier import BranchesTier
from seglog.values.append_key import GivenKey, KeyedAppend, Repeatable, digest_of
from seglog.values.byte_strings import byte_strings
from seglog.values.config import TopicConfig, check_durability, check_history
from seglog.values.names import BRANCH_MARK
from seglog.values.producer import AppendedBatch, Batch, ProducerBatch
from seglog.wal.group_commit import Barrier, Entry, GroupCommit
from seglog.wal.wal import SYNC_MARK_BYTES
from seglog.writing.conditions import (
    check_conditions,
    check_given,
    check_head,
    check_incarnation,
    check_times,
    know_log_id,
    plain_key,
)

# Maximum of one append. The writer writes it with one call into one WAL file, where offsets have 32 bits.
_APPEND_MAX_BYTES = 1024 * 1024 * 1024

# An append of so many records or bytes is long: to encode it takes a tenth of a millisecond and more.
_LONG_RECORDS, _LONG_BYTES = 256, 256 * 1024

# More ephemeral records than this after a record in the WAL ask for a checkpoint. Until then the tail has an entry for
# each of them.
_LOST_IN_TAIL_MAX = 100_000


class AppendOptions(NamedTuple):
    """The arguments of an append beside its values. They are the same for all of its records.

    With a condition, the append is one of its own: it is never merged with another one.
    """

    tag: str | None = None
    node: str | None = None
    unterminated: bool = False
    durability: str | None = None
    producer: ProducerBatch | None = None
    if_head: int | None = None
    key: str | None = None
    if_incarnation: str | None = None
    times_ms: tuple[int, ...] | None = None

    @property
    def has_conditions(self) -> bool:
        """Return whether the log decides about the append before it takes a seq (seglog.writing.conditions)."""
        is_given = self.if_head is not None or self.if_incarnation is not None or self.times_ms is not None
        return is_given or self.is_repeatable

    @property
    def is_repeatable(self) -> bool:
        """Return whether the topic may have the records already."""
        return self.producer is not None or self.key is not None


AppendOptions.__new__.__qualname__ = "append"  # a TypeError for an unknown argument names the call that takes them
PLAIN = AppendOptions()

#: An append that has its seqs and is in the queue: the shard and the state of its topic, its entries, its seqs, and
#: whether it is a repetition. The caller must call `finish_append`, because the queue may wait for this append to lead.
PendingAppend: TypeAlias = tuple[GroupCommit, TopicState, tuple[Entry, ...], range, bool]


def append(engine: Engine, name: str, values: Sequence[bytes], options: AppendOptions) -> tuple[range, bool]:
    """Append the values. Return their seqs, and whether the append is a repetition, which appends nothing.

    A missing topic is created in the same group. Without values, nothing is created.
    """
    values, records, size_bytes = check_append(engine, values, options)
    if not records:
        state = engine.find(name)
        head = 0 if state is None else state.head_seq
        if options.if_incarnation is not None:
            check_incarnation(engine, name, state, options.if_incarnation)
        if options.if_head is not None:
            check_head(name, head, options.if_head)
        if engine.append_block_reason is not None:
            engine.check_appends()
        return range(head + 1, head + 1), False
    for wal in engine.wals.each:
        if wal.older:
            wait_for_room(engine)
    committer = engine.committer
    committer.check_apart()
    if name not in engine.topics:
        open_branch(engine, name)
    # The body of `change`, inlined, because a lone append spends its time here.
    try:
        while (begun := begin_append(engine, name, values, records, size_bytes, options, is_alone=True)) is None:
            committer.flush()
        return finish_append(engine, begun), begun[4]
    except BaseException as error:
        committer.leave(error)
        raise


def open_branch(engine: Engine, name: str) -> None:
    """Let the cold tier make the topic of a branch that the log lacks: only the tier knows where the branch begins.

    This waits for the remote, so the caller holds no lock and is in no loop. Raises `LogClosed`, and what the tier
    raises.
    """
    if (
        name not in engine.topics
        and name not in engine.elsewhere
        and BRANCH_MARK in name
        and isinstance(engine.cold, BranchesTier)
    ):
        engine.cold.open_for_append(name)


def check_append(
    engine: Engine, values: Sequence[bytes], options: AppendOptions, *, is_upkeep: bool = False
) -> tuple[Sequence[bytes], int, int]:
    """Return the values as the log keeps them (seglog.values.byte_strings), their number, and their size in bytes.

    An append that `is_upkeep` passes while appends are held.

    Raises `ReadOnly` and `AppendsHeld`. For wrong arguments, raises `RecordTooLarge`, `InvalidLabel`, `InvalidSetting`
    and `InvalidArgument`. With `if_incarnation`, raises what `know_log_id` does.
    """
    if engine.is_read_only:
        raise ReadOnly(engine.layout.root)
    limit = engine.settings.max_record_bytes
    if type(values) is list and len(values) == 1 and type(value := values[0]) is bytes:
        # The common case, in a third of the time of the general case.
        own: Sequence[bytes] = (value,)
        records, size_bytes = 1, len(value)
        if size_bytes > limit:
            raise RecordTooLarge(size_bytes, limit)
    else:
        own = values if type(values) in {Lines, LargeValue} else byte_strings(values)
        records, size_bytes = len(own), _check_sizes(own, limit)
    if options is not PLAIN:
        _check_options(options)
        if options.times_ms is not None and len(options.times_ms) != records:
            raise InvalidArgument("times_ms", len(options.times_ms), f"a time for each of the {records} values")
        if not records and options.is_repeatable:
            raise InvalidArgument("values", values, "one value at least, because there is nothing to repeat")
        if options.if_incarnation is not None:
            know_log_id(engine)  # not under the lock, because this asks the disk
    if engine.append_block_reason is not None and records and not (is_upkeep or options.is_repeatable):
        engine.check_appends()
    return own, records, size_bytes


def begin_append(
    engine: Engine,
    name: str,
    values: Sequence[bytes],
    records: int,
    size_bytes: int,
    options: AppendOptions,
    *,
    is_alone: bool = False,
) -> PendingAppend | None:
    """Assign seqs to the values, and queue the append. `finish_append` commits it.

    There are `records` values of `size_bytes` in all, or a few more bytes than that.

    `check_append` and `check_apart` have passed. `is_alone` says that the caller queues nothing else before it finishes
    this append.
    If a topic of that name is being deleted, return None. The caller calls `flush` and tries again, because a durable
    deletion frees the name (SHARD-1).
    """
    tag, node, unterminated, durability, producer, if_head, key, if_incarnation, times_ms = options
    keyed = None if key is None else GivenKey(key if type(key) is str else plain_key(key), records, digest_of(values))
    is_long = records >= _LONG_RECORDS or size_bytes >= _LONG_BYTES
    ahead = _encode_ahead(engine, name, values, records, options) if is_long else None
    with engine.committer.raw_lock:
        create: CreateEntry | None = None
        state = engine.topics.get(name)
        if producer is not None or if_head is not None or keyed is not None or if_incarnation is not None:
            if state is None and engine.is_being_deleted(name):
                return None  # the deletion may still fail
            repeated = check_conditions(
                engine, name, state, records, durability, producer, keyed, if_head, if_incarnation
            )
            if repeated is not None:
                return _wait_for(engine, *repeated)
            if engine.append_block_reason is not None:
                raise engine.held()
        if engine.elsewhere and name in engine.elsewhere:
            _check_written_here(engine, name, state)
        if state is None:
            create = _creation(engine, name)
            if create is None:
                return None
            state = create.state
        durability = durability or state.config.durability
        is_durable, is_disk, is_ephemeral = durability == "fsync", durability == "disk", durability == "ephemeral"
        shard = engine.committer.open_shard(state.topic_id)
        now_ms, last_ms = engine.clock.now_ms(), state.assigned_ts_ms
        if not -JUMP_MS <= now_ms - last_ms <= JUMP_MS:
            engine.clock_watch.look(state.name, now_ms, last_ms)
        ts_ms = now_ms if now_ms > last_ms else last_ms
        if times_ms is not None:
            check_times(times_ms, now_ms, last_ms, durability)
        if is_ephemeral:
            check_history(durability, keep_history=state.config.keep_history)
        seqs = range(state.assigned_seq + 1, state.assigned_seq + 1 + records)
        if ahead is not None and ahead[0] == (state.topic_id, seqs.start, is_durable) and ahead[1] >= last_ms:
            _, ts_ms, frames = ahead
        else:
            frames = encode_appends(
                state.topic_id, seqs, ts_ms, values, tag=tag, node=node, unterminated=unterminated, durable=is_durable,
                times_ms=times_ms,
            )  # fmt: skip
        if frames[2] + SYNC_MARK_BYTES > OFFSET_END:
            raise OffsetOverflow(engine.layout.wal, OFFSET_END)
        if state.config.discard == "reject":
            _check_room(state, records, frames[2])
        entry: Entry
        if is_ephemeral:
            make_room(engine, state, frames[2], records)
            entry = EphemeralEntry(state, engine.memory, seqs.start, ts_ms, frames, tag)
            if create is None and state.is_quiet:
                _publish_at_once(engine, state, entry)
                return shard, state, (), seqs, False
        else:
            is_late = is_disk and shard.is_sync_due(now_ms, engine.settings.disk_sync_interval_ms)
            written_ms = now_ms if is_disk else None
            unit: Repeatable | None = None
            if producer is not None:
                producers = state.with_producers() if state.producers is None else state.producers
                producers.keep_ms = engine.settings.producer_keep_s * 1000
                unit = AppendedBatch(producer.id, producer.epoch, Batch(producer.number, seqs.start, records))
            elif keyed is not None:
                keys = state.with_keys() if state.keys is None else state.keys
                keys.keep_ms = engine.settings.idempotency_keep_s * 1000
                unit = KeyedAppend(keyed.key, seqs.start, records, keyed.digest)
            entry = AppendEntry(
                state, seqs, ts_ms, frames, sync=is_durable or is_late, written_ms=written_ms, unit=unit, times=times_ms
            )
        if create is not None:
            shard.enqueue(create)
            shard.enqueue(entry)
            return shard, state, (create, entry), seqs, False
        if is_alone and entry.frames:
            shard.enqueue_alone(entry)
        else:
            shard.enqueue(entry)
        return shard, state, (entry,), seqs, False


def _encode_ahead(
    engine: Engine, name: str, values: Sequence[bytes], records: int, options: AppendOptions
) -> tuple[tuple[int, int, bool], int, EncodedFrames]:
    """Return the frames of an append for the place that it has now, without the lock: the place and the time, too.

    To encode a million records takes a third of a second, and all other appends of the log need the lock.
    """
    state = engine.topics.get(name)
    durability = options.durability or (engine.topic_defaults if state is None else state.config).durability
    topic_id, seq, last_ms = engine.next_topic_id, 0, 0
    if state is not None:
        topic_id, seq, last_ms = state.topic_id, state.assigned_seq, state.assigned_ts_ms
    place, ts_ms = (topic_id, seq + 1, durability == "fsync"), max(engine.clock.now_ms(), last_ms)
    seqs, times_ms = range(seq + 1, seq + 1 + records), options.times_ms
    return place, ts_ms, encode_appends(
        topic_id, seqs, ts_ms, values, tag=options.tag, node=options.node, unterminated=options.unterminated,
        durable=place[2], times_ms=times_ms,
    )  # fmt: skip


def finish_append(engine: Engine, begun: PendingAppend) -> range:
    """Commit the append, and return its seqs when the records are as safe as their durability says."""
    shard, state, entries, seqs, _ = begun
    for entry in entries:
        shard.finish(entry)
    wal = shard.wal
    if wal.older or wal.offset > wal.half_bytes or shard.unsynced_since_ms is not None or engine.wants_checkpoint:
        wake_upkeep(engine)
    config = state.config
    if config.ttl_ms is not None or config.cap_records is not None or config.cap_bytes is not None:
        trim(engine, state)
        enforce_limits(engine, state)
    return seqs


def _wait_for(engine: Engine, state: TopicState, seqs: range) -> PendingAppend:
    """Queue an entry that is done when these seqs are durable (PRODUCER-2, KEYS-2). The caller holds the lock."""
    shard = engine.committer.open_shard(state.topic_id)
    shard.enqueue(barrier := Barrier())
    return shard, state, (barrier,), seqs, True


def _creation(engine: Engine, name: str) -> CreateEntry | None:
    """Return the entry that creates a missing topic, or None if a topic of that name is being deleted."""
    engine.committer.check_open()
    if engine.is_being_deleted(name):
        return None
    if BRANCH_MARK in name:
        raise NoSuchTopic(name)  # no cold tier knows its first seq
    return new_topic(engine, name, engine.topic_defaults, first_seq=1, ts_floor_ms=0)


def _check_written_here(engine: Engine, name: str, state: TopicState | None) -> None:
    """Raise `WrittenElsewhere` if another directory writes the topic (seglog.values.written_elsewhere)."""
    if state is None:
        raise WrittenElsewhere(name, is_fenced=False)
    if engine.elsewhere[name].is_fenced and not engine.settings.append_when_fenced:
        raise WrittenElsewhere(name, is_fenced=True)


def _publish_at_once(engine: Engine, state: TopicState, entry: EphemeralEntry) -> None:
    """Publish ephemeral records of a topic that has nothing in flight. They need not wait for other topics' entries."""
    entry.assign()
    try:
        entry.publish(0, 0)
    except BaseException:  # half of it would hide the next record of the topic
        uninterrupted(lambda: entry.publish(0, 0))
        raise
    engine.wants_checkpoint |= len(state.tail) > 0 and state.head_seq - state.logged_seq > _LOST_IN_TAIL_MAX


def wake_upkeep(engine: Engine) -> None:
    """Wake the threads that do the work which a change has left, if there is any."""
    if engine.wants_checkpoint or engine.wals.needs_upkeep:
        engine.upkeep.wake()
    if engine.committer.has_unsynced:
        engine.syncer.wake_later(engine.settings.disk_sync_interval_ms / 1000)


def new_topic(engine: Engine, name: str, config: TopicConfig, *, first_seq: int, ts_floor_ms: int) -> CreateEntry:
    """Return the entry that creates a topic. The caller holds the lock. The id of a refused entry stays unused."""
    created = TopicCreated(engine.next_topic_id, name, engine.epoch_floor + 1, first_seq, config, ts_floor_ms)
    engine.next_topic_id += 1
    return CreateEntry(created, engine.topics, engine.creating, engine.changed, engine.elsewhere)


def check_label(label: str, text: str) -> None:
    """Raise `InvalidArgument` or `InvalidLabel` if `text` is no tag or node."""
    if not isinstance(text, str):
        raise InvalidArgument(label, text, "a text or None")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidLabel(label, f"cannot be written as UTF-8: {error.reason}") from error
    if size > LABEL_MAX_BYTES:
        raise InvalidLabel(label, f"{size} bytes are more than {LABEL_MAX_BYTES}")


def _check_options(options: AppendOptions) -> None:
    if options.tag is not None:
        check_label("tag", options.tag)
    if options.node is not None:
        check_label("node", options.node)
    # Another number would set other flags of the frame.
    if options.unterminated is not False and options.unterminated is not True:
        raise InvalidArgument("unterminated", options.unterminated, "True or False")
    if options.durability is not None:
        check_durability(options.durability)
    check_given(options.producer, options.key, options.if_head, options.if_incarnation)


def _check_sizes(values: Sequence[bytes], limit: int) -> int:
    """Return the sum of the sizes. Raises `RecordTooLarge`."""
    total = total_bytes(values)
    if total > limit and (longest := longest_bytes(values)) > limit:
        raise RecordTooLarge(longest, limit)
    if total > _APPEND_MAX_BYTES:
        raise RecordTooLarge(total, _APPEND_MAX_BYTES)
    return total


def _check_room(state: TopicState, records: int, size_bytes: int) -> None:
    """Raise `TopicFull` if the append would pass a cap. The caller holds the lock, and no seq is assigned yet."""
    retained = Retained(state.retained_from, state.assigned_seq + records, state.retained_bytes + size_bytes)
    passed = passed_cap(state.config, retained)
    if passed is not None:
        raise TopicFull(state.name, *passed)
