"""A checkpoint: copy records from the WAL to segments, apply deletes to flags, and free WAL files.

    0 cut       Cut files for the truncations that wait for it (see seglog.maintenance.truncation).
    1 plan      Under the committer's lock, note the end of the published WAL in each shard. Note which records each
                changed topic has above its segments.
    2 absorb    Copy verified frames to .data and entries to .idx. If a segment is full, continue in a new one. Sync
                them.
    3 flag      Set the deleted flag in the entries that pending deletes reach. Sync them.
    4 store     Store the manifest, atomically. From here on recovery starts at the ends noted in 1.
    5 publish   Under the committer's lock, show readers the new places.
    6 free      Unlink WAL files, released segments and the directories of deleted topics.

CKPT-1  The checkpoint unlinks a file only after the manifest that makes it unnecessary is durable.
CKPT-2  Step 0 is complete in itself. Steps 1 to 3 change no existing data, except flags that a pending delete sets
    anyway. So a crash or a full disk leaves the last checkpoint whole. The next attempt cuts the bytes beyond its
    lengths.
CKPT-3  Copied frames are verified. So damage in the WAL is found while the WAL still exists.
CKPT-4  Every checkpoint seals the segments that are old enough. Without `keep_history`, it also drops sealed segments
    at the front that have no live record.
CKPT-5  Any failure except a full disk or a lack of file descriptors poisons the writer. After it, the content of the
    files is unknown.
CKPT-6  A checkpoint sets flags, and syncs a segment that it seals, even if the files look right already. The process
    that wrote them may have been killed, or got an error, before they were durable. After its manifest is durable, a
    process does not set the same flags again.
CKPT-7  A checkpoint calls no cold store and waits for none (seglog.maintenance.relocator). Relocated segments that are
    released or dropped become pending deletes: the manifest lists them, and the relocator deletes them. The flags of
    relocated segments stay unchanged. A delete by tag that may reach them is one of the topic's `cold_ops` instead.
    Other deletes need no place there, because no reader reads below `earliest_seq`.
CKPT-8  Ephemeral records stay in memory. If a later record is absorbed, a lost record takes the place of each ephemeral
    one, so that seqs stay dense. Ephemeral records after the last absorbed one are known only by the manifest's
    `head_seq`.
CKPT-9  The work under the lock grows with the topics that changed since the last checkpoint or reached their sealing
    age. It does not grow with all topics. For the others, the encoder has what the manifest says (MANIFEST-8).

Source: topics engine architecture, section 3, without its CheckpointMark frames (see seglog.wal.manifest).
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count, groupby

from seglog.engine.engine import Engine
from seglog.engine.state import TopicState, active_meta, reclaimable, relocated
from seglog.errors import DiskFull, SeglogError, TooManyOpenFiles, WriterPoisoned
from seglog.files.port import NO_DESCRIPTOR
from seglog.maintenance.removal import remove_topics
from seglog.maintenance.retention import is_aged, seal_age_ms
from seglog.maintenance.truncation import finish_truncations
from seglog.reading.read import lost_times, tail_batch
from seglog.segments.batch import FRAME_BATCH_MAX_RECORDS, lost_batch
from seglog.segments.segment import SegmentFiles, SegmentInfo, SegmentWriter, cut
from seglog.segments.sizes import Sizes
from seglog.segments.tags import reached_seqs, write_tags
from seglog.values.config import LogSettings
from seglog.values.delete_list import DeleteList
from seglog.values.deletes import DeleteOp
from seglog.values.merged_deletes import NO_DELETES, MergedDeletes
from seglog.values.truncate_op import TruncateOp
from seglog.wal.manifest import LogManifest, TopicMeta, WalPosition, numbers, store_encoded
from seglog.wal.wal import NO_SPACE

__all__ = [
    "CheckpointRequest",
    "checkpoint",
    "checkpoint_locked",
    "is_to_be_sealed",
    "relieve",
    "wait_for_room",
    "wake_reclaim",
]

_logger = logging.getLogger("seglog.maintenance.checkpoint")

# The upkeep sleeps this long between runs. Without the sleep, an append that returns from its sync waits up to 5 ms for
# the interpreter: only then Python forces a switch of threads.
_PAUSE_S = 50e-6
_ticket = count()


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A change to a topic that a caller asks of a checkpoint. The manifest makes it durable, or it does not happen.

    `seal` seals the active segment. `release_seq` releases the sealed segments that end there or below; with `epoch`,
    only if the topic has that epoch. `settle_op` and `settle_truncation` take a delete and a truncation off their
    lists. `relocated` is the first seq of a hot segment with a copy in the cold store, and its .idx's XXH3-64.
    `made_hot` is the first seq of a relocated segment that is hot again.
    """

    topic: str
    seal: bool = False
    settle_op: int | None = None
    release_seq: int | None = None
    epoch: int | None = None
    settle_truncation: TruncateOp | None = None
    relocated: tuple[int, int] | None = None
    made_hot: int | None = None


@dataclass(slots=True)
class _Draft:
    """A topic during a checkpoint: first as planned, then as it will be published.

    The tail goes from `first_seq` to `last_seq`, and is absorbed up to `kept_seq`. All records from `lost_seq` to the
    tail were ephemeral. `deletes` are the deletes to flag: the first `pending_count` of `pending`, and the deletes that
    a segment made hot again was not flagged for.
    """

    state: TopicState
    meta: TopicMeta
    lost_seq: int
    first_seq: int
    kept_seq: int
    last_seq: int
    pending: DeleteList
    pending_count: int
    seal: bool
    sealed: list[SegmentInfo]
    active: SegmentInfo | None
    released: list[SegmentInfo]
    made_hot: int | None
    cold: tuple[SegmentInfo, ...]
    final: TopicMeta | None = None
    cold_ops: DeleteList = field(default_factory=DeleteList)
    deletes: MergedDeletes = NO_DELETES
    sizes: Sizes = field(default_factory=Sizes)
    has_new_tags: bool = False

    @property
    def segments(self) -> list[SegmentInfo]:
        return self.sealed if self.active is None else [*self.sealed, self.active]

    @property
    def pending_cold_deletes(self) -> list[tuple[int, int]]:
        gone = [info.first_seq for info in relocated(self.released)]
        return [(self.meta.topic_id, seq) for seq in (*gone, self.made_hot) if seq is not None]

    def result(self) -> TopicMeta:
        """Return the metadata for the manifest and for `_publish`. Call this after all segments are written."""
        cold_ops = _kept_cold_ops((*self.meta.cold_ops, *self.deletes.tagged), self.cold)
        self.cold_ops = DeleteList(cold_ops)
        self.sizes = Sizes(tuple(self.sealed), self.cold)
        active = active_meta(self.active)
        self.final = replace(self.meta, sealed=self.sizes.segments, active=active, cold_ops=cold_ops)
        return self.final

    def merge_deletes(self) -> None:
        """Merge the deletes to flag. This runs without the lock, because there may be many."""
        made_hot = () if self.made_hot is None else self.meta.cold_ops
        if made_hot or self.pending_count:
            self.deletes = MergedDeletes((*made_hot, *self.pending.first(self.pending_count)))

    def replace(self, info: SegmentInfo) -> None:
        """Replace the info of that segment."""
        if not info.sealed:
            self.active = info
        else:
            self.sealed[bisect_left(self.sealed, info.first_seq, key=lambda each: each.first_seq)] = info


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan of a checkpoint. `others` are topics with nothing to write that may differ from the newest manifest."""

    wal: tuple[WalPosition, ...]
    next_topic_id: int
    drafts: list[_Draft]
    others: list[tuple[TopicState, TopicMeta]]
    deleted: tuple[int, ...]
    epoch_floor: int
    pending_cold_deletes: tuple[tuple[int, int], ...]

    def all_pending_cold_deletes(self) -> tuple[tuple[int, int], ...]:
        return (*self.pending_cold_deletes, *(key for draft in self.drafts for key in draft.pending_cold_deletes))


def checkpoint(engine: Engine, request: CheckpointRequest | None = None) -> None:
    """Run a checkpoint. Return when it is durable.

    Raises `DiskFull` or `TooManyOpenFiles` (nothing changed), `WriterPoisoned`, `FileCorrupt`, `LogClosed`, `ReadOnly`.
    """
    engine.check_writable()
    with engine.checkpoint_lock:
        checkpoint_locked(engine, request)
    engine.wake_relocator()
    wake_reclaim(engine)


def wake_reclaim(engine: Engine) -> None:
    """Wake the reclaimer if it has work. The caller does not hold the checkpoint lock."""
    if engine.has_dead:
        engine.reclaim.wake()


def relieve(engine: Engine) -> None:
    """Run the upkeep: prepare the next WAL file, and run a checkpoint if one is due.

    A checkpoint is due if WAL files wait for it, or if `wants_checkpoint` is set. If another thread runs one, do
    nothing. If the checkpoint fails, the WAL keeps its files, and the next upkeep tries again. Appends continue until
    they have to wait for a checkpoint. An exception that this code does not foresee poisons the writer.
    """
    if engine.committer.is_poisoned or not (engine.wals.needs_upkeep or engine.wants_checkpoint):
        return
    if not engine.takes_checkpoint_lock():
        return
    try:
        engine.wals.prepare_next()
        if engine.wals.older_files or engine.wants_checkpoint:
            engine.wants_checkpoint = False
            checkpoint_locked(engine, None, pause_s=_PAUSE_S)
    except SeglogError as error:
        _logger.warning("a checkpoint failed, the WAL keeps its files: %s", error)
    except Exception as error:
        engine.committer.poison(error)
        _logger.exception("a checkpoint failed")
    finally:
        engine.leave_checkpoint()
    engine.wake_relocator()
    wake_reclaim(engine)


def wait_for_room(engine: Engine) -> None:
    """Return when fewer WAL files than `wal_max_files` wait for a checkpoint. Raises what that checkpoint raises.

    The waiting thread runs the checkpoint itself unless one is already running, so that its error reaches a caller.
    """
    if engine.wals.older_files < engine.settings.wal_max_files:
        return
    with engine.checkpoint_lock:
        if engine.wals.older_files >= engine.settings.wal_max_files:
            checkpoint_locked(engine, None)
    engine.wake_relocator()


def checkpoint_locked(engine: Engine, request: CheckpointRequest | None, *, pause_s: float = 0) -> None:
    """Run a checkpoint, for a caller that holds the checkpoint lock. Sleep `pause_s` after each batch of records."""
    engine.check_open()
    engine.committer.check_sound()
    try:
        finish_truncations(engine)
    except OSError as error:
        raise _failure(engine, error) from error
    plan = _plan(engine, request)
    if plan.drafts or plan.wal != engine.checkpointed:
        _write_segments(engine, plan, pause_s)
        _store_and_publish(engine, plan)
    else:
        _take_over(engine, plan)
    _free(engine, plan)


def _plan(engine: Engine, request: CheckpointRequest | None) -> _Plan:
    with engine.committer.lock:
        # This manifest leaves out a topic whose creation is not published. Recovery creates that topic from the WAL, so
        # its id must look unused in the manifest.
        next_topic_id = min(engine.creating, default=engine.next_topic_id)
        ends, deleted = engine.committer.published_ends, engine.deleted
        plan = _Plan(ends, next_topic_id, [], [], deleted, engine.epoch_floor, engine.pending_cold_deletes)
        for state in _to_look_at(engine, request):
            own = request if request is not None and request.topic == state.name else None
            aged = is_to_be_sealed(engine, state)
            if own is not None or aged or has_news(state):
                plan.drafts.append(_draft(state, own, seal=aged))
            else:
                plan.others.append((state, state.to_meta()))
    return plan


def _to_look_at(engine: Engine, request: CheckpointRequest | None) -> list[TopicState]:
    """Return the topics that this checkpoint looks at, ascending by id (CKPT-9).

    The caller holds the committer's lock.
    """
    for topic_id in [state.topic_id for state in engine.changed.values() if state.is_gone]:
        del engine.changed[topic_id]
    found = {**engine.changed, **{state.topic_id: state for state in _aged(engine)}}
    if request is not None:
        named = (engine.find(request.topic), *engine.topics_being_deleted.values())
        found |= {state.topic_id: state for state in named if state is not None and state.name == request.topic}
    return [found[topic_id] for topic_id in sorted(found) if not found[topic_id].is_gone]


def _aged(engine: Engine) -> list[TopicState]:
    """Return the topics of `aging` that are due. They count as changed until a checkpoint has sealed them."""
    found: list[TopicState] = []
    now_ms = engine.clock.now_ms()
    while engine.aging and engine.aging[0][0] < now_ms:
        state = engine.aging[0][2]
        if not state.is_gone:
            state.touch()
            found.append(state)
        state.seal_due_ms = None
        heappop(engine.aging)
    return found


def _settle(engine: Engine, state: TopicState, meta: TopicMeta | None) -> None:
    """Schedule the topic for sealing by age. If the topic has no news and is as `meta` says, later checkpoints skip it.

    `meta` is what the newest manifest says of the topic. The caller holds the committer's lock.
    """
    due_ms = _seal_due_ms(engine, state)
    if due_ms is not None and due_ms != state.seal_due_ms:
        heappush(engine.aging, (due_ms, next(_ticket), state))
        state.seal_due_ms = due_ms
    if not has_news(state) and state.to_meta() == meta:
        engine.changed.pop(state.topic_id, None)


def _take_over(engine: Engine, plan: _Plan) -> None:
    """Give the encoder the metadata of topics without news, for later manifests."""
    for _, meta in plan.others:
        engine.encoder.put(meta)
    with engine.committer.lock:
        for state, meta in plan.others:
            _settle(engine, state, meta)


def has_news(state: TopicState) -> bool:
    """Return whether the topic has anything that segments and flags lack. The caller holds the committer's lock."""
    return bool(len(state.tail) or state.pending or state.head_seq != state.kept_head or _is_outdated(state))


def _seal_due_ms(engine: Engine, state: TopicState) -> int | None:
    """Return the time after which the active segment is old enough to seal, or None.

    Records in the tail are news anyway.
    """
    max_age_ms = seal_age_ms(state.config, engine.settings.segment_max_age_ms)
    return state.active.min_ts_ms + max_age_ms if max_age_ms and state.active is not None else None


def is_to_be_sealed(engine: Engine, state: TopicState) -> bool:
    """Return whether the oldest unsealed record is old enough to seal. The caller holds the committer's lock."""
    max_age_ms = seal_age_ms(state.config, engine.settings.segment_max_age_ms)
    if not max_age_ms:
        return False
    oldest = state.tail.ts_ms(state.tail.first_seq) if len(state.tail) else None
    if state.active is not None:
        oldest = state.active.min_ts_ms
    return is_aged(oldest, max_age_ms, engine.clock.now_ms())


def _is_outdated(state: TopicState) -> bool:
    """Return whether a checkpoint can drop segments, or forget listed deletes."""
    if state.ops and not _keeps_ops(state, state.hot_floor):
        return True
    return state.dead_segments > 0 and not state.config.keep_history


def _draft(state: TopicState, request: CheckpointRequest | None, *, seal: bool) -> _Draft:
    sealed = list(state.sealed)
    made_hot = None if request is None else request.made_hot
    if request is not None and request.relocated is not None:
        sealed = [_with_check(info, *request.relocated) for info in sealed]
    if made_hot is not None:
        sealed = [info._replace(cold_check=None) if info.first_seq == made_hot else info for info in sealed]
    release_seq = 0 if request is None or request.release_seq is None else request.release_seq
    if request is not None and request.epoch not in {None, state.epoch}:
        release_seq = 0
    if not state.config.keep_history:
        release_seq = max(release_seq, state.floors.earliest_seq - 1)
    released = sealed[: bisect_right(sealed, release_seq, key=lambda segment: segment.last_seq)]
    del sealed[: len(released)]
    has_moved = released or made_hot is not None or (request is not None and request.relocated is not None)
    hot_floor = released[-1].last_seq + 1 if released else state.hot_floor
    ops = tuple(state.ops) if _keeps_ops(state, hot_floor) else ()
    if request is not None and request.settle_op is not None:
        ops = tuple(op for op in ops if op.op != request.settle_op)
    truncate_ops = tuple(op for op in state.truncate_ops if request is None or op != request.settle_truncation)
    return _Draft(
        state=state,
        meta=replace(state.to_meta(), hot_floor=hot_floor, ops=ops, truncate_ops=truncate_ops),
        lost_seq=state.segments_end + 1,
        first_seq=state.tail.first_seq,
        kept_seq=state.tail.kept_seq,
        last_seq=state.head_seq,
        pending=state.pending,
        pending_count=len(state.pending),
        seal=seal or (request is not None and request.seal),
        sealed=sealed,
        active=state.active,
        released=released,
        made_hot=made_hot,
        cold=relocated(sealed) if has_moved else state.cold,
    )


def _with_check(info: SegmentInfo, first_seq: int, check: int) -> SegmentInfo:
    return info._replace(cold_check=check) if info.first_seq == first_seq else info


def _kept_cold_ops(ops: tuple[DeleteOp, ...], cold: tuple[SegmentInfo, ...]) -> tuple[DeleteOp, ...]:
    """Return the deletes by tag that may reach relocated segments, without deletes that a later one covers (CKPT-7)."""
    if not cold:
        return ()
    # A delete that does not reach the first record reaches none behind it.
    return tuple(op for op in MergedDeletes(ops).tagged if op.may_reach(cold[0].first_seq))


def _keeps_ops(state: TopicState, hot_floor: int) -> bool:
    """Return whether the topic keeps its listed deletes.

    A delete that reaches into the cold tier sets no flags there, so it stays listed until it is settled.
    """
    return state.config.keep_history or state.floors.earliest_seq < hot_floor


def _write_segments(engine: Engine, plan: _Plan, pause_s: float) -> None:
    """Run steps 2 and 3."""
    try:
        for draft in plan.drafts:
            draft.merge_deletes()
            _absorb(engine, draft, pause_s)
            for info in draft.segments if draft.deletes.top else ():
                if info.is_hot and draft.deletes.may_reach(info.first_seq):
                    known_below = 0 if info.first_seq == draft.made_hot else draft.state.flagged_below
                    draft.replace(_flag(engine, draft.state.topic_id, info, draft.deletes, known_below))
    except OSError as error:
        raise _failure(engine, error) from error


def _absorb(engine: Engine, draft: _Draft, pause_s: float) -> None:
    had_segments = bool(draft.sealed or draft.released or draft.active)
    writer: SegmentWriter | None = None
    created = False
    seq = draft.lost_seq
    while draft.first_seq <= draft.kept_seq and seq <= draft.kept_seq:
        if seq < draft.first_seq:
            upto = min(draft.first_seq - 1, seq + FRAME_BATCH_MAX_RECORDS - 1)
            batch = lost_batch(draft.state.topic_id, seq, lost_times(engine, draft.state, seq, upto))
        else:
            batch = tail_batch(engine, draft.state, seq, draft.kept_seq)
        headers = batch.verified()
        start = 0
        while start < len(batch):
            if writer is None:
                writer = _writer(engine, draft, batch.first_seq + start, int(batch.entries["length"][start]))
                created |= writer.records == 0
            stop = start + writer.room(batch.entries["length"][start:], engine.settings)
            if start < stop:
                part = batch.entries[start:stop]
                writer.add(batch.piece(start, stop), part["length"], part["ts_ms"], headers["flags"][start:stop])
            if stop < len(batch):
                _finish(engine, draft, writer, seal=True)
                writer = None
            start = stop
        seq = batch.last_seq + 1
        if pause_s:
            time.sleep(pause_s)
    if writer is not None:
        _finish(engine, draft, writer, seal=_is_full(writer.info(sealed=False), 1, engine.settings))
    if draft.seal and draft.active is not None:
        _seal(engine, draft, draft.active)
    if created or draft.has_new_tags:
        engine.files.sync_dir(engine.layout.topic(draft.state.topic_id))
        if not had_segments:
            engine.files.sync_dir(engine.layout.topics)


def _writer(engine: Engine, draft: _Draft, seq: int, frame_bytes: int) -> SegmentWriter:
    """Return a writer of the active segment, or of a new one that begins with `seq`."""
    topic_id = draft.state.topic_id
    if draft.active is not None and _is_full(draft.active, frame_bytes, engine.settings):
        _seal(engine, draft, draft.active)
    if draft.active is not None:
        return SegmentWriter(engine.files, engine.segments.get(topic_id, draft.active), draft.active)
    engine.files.make_dir(engine.layout.topic(topic_id))
    return SegmentWriter(engine.files, engine.segments.create(topic_id, seq), None)


def _seal(engine: Engine, draft: _Draft, active: SegmentInfo) -> None:
    """Seal the active segment: cut its files to their lengths, and sync them even if they look right (CKPT-6).

    From now on the size of the files, and no longer the manifest, says where the segment ends.
    """
    segment = engine.segments.get(draft.state.topic_id, active)
    cut(segment, active.records, active.data_bytes)
    segment.data.datasync()
    segment.idx.datasync()
    _add_sealed(engine, draft, segment, active._replace(sealed=True))


def _finish(engine: Engine, draft: _Draft, writer: SegmentWriter, *, seal: bool) -> None:
    writer.sync()
    info = writer.info(sealed=seal)
    if seal:
        _add_sealed(engine, draft, writer.segment, info)
    else:
        draft.active = info


def _add_sealed(engine: Engine, draft: _Draft, segment: SegmentFiles, info: SegmentInfo) -> None:
    draft.has_new_tags |= write_tags(engine.files, engine.layout, segment, info)
    draft.sealed.append(info)
    draft.active = None


def _is_full(info: SegmentInfo, frame_bytes: int, settings: LogSettings) -> bool:
    """Return whether a segment has no room for the frame. An empty segment takes one record of any size."""
    limit = settings.segment_max_bytes
    is_over = info.data_bytes >= limit or info.data_bytes + frame_bytes > limit + settings.max_store_overflow
    return info.records >= settings.segment_max_events or (info.records > 0 and is_over)


def _flag(engine: Engine, topic_id: int, info: SegmentInfo, deletes: MergedDeletes, known_below: int) -> SegmentInfo:
    """Run step 3 for one segment, also where the flag is set already (CKPT-6).

    Return the new info of the segment. If the deletes reach no record, return `info` and read no entries.
    """
    segment = engine.segments.get(topic_id, info)
    seqs = reached_seqs(engine.files, engine.layout, segment, info, deletes, known_below=known_below)
    if not seqs:
        return info
    for _, group in groupby(seqs, key=lambda seq: (seq - info.first_seq) // FRAME_BATCH_MAX_RECORDS):
        batch = list(group)
        segment.entries(batch[0], batch[-1])
        segment.set_deleted(batch[0], batch[-1], batch)
    segment.idx.datasync()
    return segment.counted(info)


def _store_and_publish(engine: Engine, plan: _Plan) -> None:
    """Run steps 4 and 5. Once the manifest may be on the disk, memory has to follow it, or the writer has to stop."""
    number = engine.manifest_number + 1
    try:
        store_encoded(engine.files, engine.layout, number, _encoded(engine, plan))
        with engine.committer.lock:
            engine.manifest_number = number
            engine.checkpointed = plan.wal
            for draft in plan.drafts:
                _publish(draft)
                engine.pending_cold_deletes += tuple(draft.pending_cold_deletes)
                _settle(engine, draft.state, draft.final)
            for state, meta in plan.others:
                _settle(engine, state, meta)
        for draft in plan.drafts:
            engine.has_dead |= bool(reclaimable(draft.state, engine.settings.reclaim_dead_percent))
    except TooManyOpenFiles:
        raise  # the manifest has no name yet
    except OSError as error:
        if error.errno in NO_SPACE and number not in numbers(engine.files, engine.layout):
            raise DiskFull(engine.layout.meta) from error
        raise _failure(engine, error, is_final=True) from error
    except BaseException as error:
        engine.committer.poison(error)
        raise


def _encoded(engine: Engine, plan: _Plan) -> bytes:
    """Return the encoded manifest. If it does not reach the disk, the next checkpoint encodes its topics again."""
    encoder = engine.encoder
    for meta in (*(draft.result() for draft in plan.drafts), *(meta for _, meta in plan.others)):
        encoder.put(meta)
    for topic_id in plan.deleted:
        encoder.remove(topic_id)
    return encoder.encode_put(
        LogManifest(plan.next_topic_id, (), plan.wal, plan.deleted, plan.epoch_floor, plan.all_pending_cold_deletes())
    )


def _publish(draft: _Draft) -> None:
    """Publish a draft. Changes after the plan stay. The caller holds the committer's lock."""
    state, meta = draft.state, draft.meta
    planned = meta.next_op
    state.generation += 1
    state.tail.drop(draft.last_seq - draft.first_seq + 1)
    state.kept_head = draft.last_seq
    state.sealed, state.known_sizes = draft.sizes.segments, draft.sizes
    state.active = draft.active
    state.hot_floor = meta.hot_floor
    later = state.ops.since(planned)
    if len(state.ops) != len(meta.ops) + len(later):
        state.ops = DeleteList((*meta.ops, *later))
    if state.pending:
        state.pending = DeleteList(state.pending.since(planned))
    state.flagged_below = max(state.flagged_below, draft.deletes.below)
    state.truncate_ops = meta.truncate_ops  # no truncation came since: truncations hold the checkpoint lock
    state.cold, state.cold_ops = draft.cold, draft.cold_ops
    state.ephemeral_buffer.drop_below(state.hot_floor)
    state.settle_front()


def _free(engine: Engine, plan: _Plan) -> None:
    """Run step 6. If a file cannot be unlinked now, recovery unlinks it."""
    try:
        engine.wals.remove_below(plan.wal)
        for draft in plan.drafts:
            for segment in draft.released:
                if not segment.is_hot:
                    continue
                engine.segments.remove(draft.state.topic_id, segment.first_seq)
        if plan.deleted:
            remove_topics(engine.files, engine.layout, plan.deleted)
            with engine.committer.lock:
                engine.deleted = tuple(topic_id for topic_id in engine.deleted if topic_id not in plan.deleted)
    except OSError as error:
        _logger.warning("cannot remove what is not needed any more: %s", error)


def _failure(engine: Engine, error: OSError, *, is_final: bool = False) -> DiskFull | TooManyOpenFiles | WriterPoisoned:
    if error.errno in NO_SPACE and not is_final:
        return DiskFull(engine.layout.root)
    if error.errno in NO_DESCRIPTOR and not is_final:
        return TooManyOpenFiles(engine.layout.root)
    engine.committer.poison(error)
    return WriterPoisoned(engine.layout.root, str(error))
