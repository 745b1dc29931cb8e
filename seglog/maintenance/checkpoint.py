"""A checkpoint: copy records from the WAL to segments, apply deletes to flags, and free WAL files.

    0 cut       Cut files for the truncations that wait for it (see seglog.maintenance.removal).
    1 plan      Under the committer's lock, note the end of the published WAL in each shard. Note which records each
                changed topic has above its segments (seglog.maintenance.checkpoint_plan).
    2 absorb    Copy verified frames to .data and entries to .idx. If a segment is full, continue in a new one. Sync
                them (seglog.maintenance.absorb). The upkeep syncs one segment while it writes the next one.
    3 flag      Remove the deleted flag of undeleted records. Set it in entries that pending deletes reach. Sync them.
    4 store     Store the manifest, atomically. From here on recovery starts at the ends noted in 1.
    5 publish   Under the committer's lock, show readers the new places.
    6 free      Unlink WAL files, released segments and the directories of deleted topics.

CKPT-1  The checkpoint unlinks a file only after the manifest that makes it unnecessary is durable.
CKPT-2  Step 0 is complete in itself. Steps 1 to 3 change no existing data, except flags that a pending delete sets
    anyway, or that an undelete removes. So a crash or a full disk leaves the last checkpoint whole. The next attempt
    cuts the bytes beyond its lengths. A checkpoint without room cuts them itself, so that they take no space until
    then.
CKPT-3  Copied frames are verified. So damage in the WAL is found while the WAL still exists. A large piece is verified
    by the hash that it had when it was written (seglog.wal.wal).
CKPT-4  Every checkpoint seals the segments that are old enough. Without `keep_history`, it also drops sealed segments
    at the front that have no live record.
CKPT-5  Any failure except a full disk or a lack of file descriptors poisons the writer. After it, the content of the
    files is unknown.
CKPT-6  A checkpoint sets flags, and syncs a segment that it seals, even if the files look right already. The process
    that wrote them may have been killed, or got an error, before they were durable. After its manifest is durable, a
    process does not set the same flags again.
CKPT-7  A checkpoint calls no warm store and waits for none (seglog.maintenance.relocation). Relocated segments that are
    released or dropped become pending deletes: the manifest lists them, and the relocator deletes them. The flags of
    relocated segments stay unchanged. A delete by tag that may reach them is one of the topic's `warm_ops` instead.
    Other deletes need no place there, because no reader reads below `earliest_seq`.
CKPT-8  Ephemeral records stay in memory. If a later record is absorbed, a lost record takes the place of each ephemeral
    one, so that seqs stay dense. Ephemeral records after the last absorbed one are known only by the manifest's
    `head_seq`.
CKPT-9  The work under the lock grows with the topics that changed since the last checkpoint or reached their sealing
    age. It does not grow with all topics. For the others, the encoder has what the manifest says (MANIFEST-8).

Source: topics engine architecture, section 3, without its CheckpointMark frames (see seglog.wal.manifest).

**Reclaim** gives back the bytes of deleted records, and decides when and how fast. seglog.segments.rewrite rewrites a
segment.

    look     After each checkpoint, the reclaimer finds sealed segments with enough deleted bytes: at least
             `reclaim_dead_percent` of all bytes.
    copy     It copies live records without a lock of the log, at `reclaim_bytes_per_s`.
    swap     If no delete reached the segment meanwhile, it swaps the files under the checkpoint lock. Then readers look
             again.

RECLAIM-1  The reclaimer skips topics with `keep_history`. Their bytes go to the archive first, and then the segment is
    released as a whole. A checkpoint drops dead segments at the front, without a copy (CKPT-4).
RECLAIM-2  Reclaim changes nothing that a reader sees, and may stop or be skipped at any time. Records that a delete
    reached stay flagged. The reclaimer looks for them again after the next checkpoint and after the next opening.
RECLAIM-3  Before the log releases its directory, it waits until no copy runs. The next owner writes copies under the
    same names.
RECLAIM-4  If a swap fails half-way, it poisons the writer, as every failure does that leaves the files in an unknown
    state.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

from seglog.base import forms
from seglog.base.lazy import logger
from seglog.base.ownership import Owned
from seglog.engine.engine import Engine, doing
from seglog.engine.state import TopicState, reclaimable
from seglog.errors import CalledWithin, DiskFull, LogClosed, SeglogError, TooManyOpenFiles, WriterPoisoned
from seglog.files.file_system import NO_DESCRIPTOR
from seglog.interrupts import OwnLock
from seglog.maintenance.absorb import give_back, write_segments
from seglog.maintenance.checkpoint_plan import CheckpointRequest, Draft, Plan, plan_checkpoint, schedule
from seglog.maintenance.removal import finish_truncations, remove_topics
from seglog.segments.rewrite import discard_rewrite, rewrite_segment
from seglog.segments.segment import SegmentFiles, SegmentInfo
from seglog.values.deletes import DeleteList
from seglog.wal.manifest import LogManifest, numbers, store_encoded
from seglog.wal.wal import NO_SPACE

_logger = logger("seglog.maintenance.checkpoint")

# The upkeep sleeps this long between runs. Without the sleep, an append that returns from its sync waits up to 5 ms for
# the interpreter: only then Python forces a switch of threads.
_PAUSE_S = 50e-6


def checkpoint(engine: Engine, *requests: CheckpointRequest) -> None:
    """Run a checkpoint with these changes, one a topic. Return when it is durable.

    Raises `DiskFull` or `TooManyOpenFiles` (nothing changed), `WriterPoisoned`, `FileCorrupt`, `LogClosed`, `ReadOnly`.
    """
    engine.check_writable()
    with engine.checkpoint_lock:
        checkpoint_locked(engine, *requests)
    engine.wake_relocator()
    wake_reclaim(engine)


def upgrade(engine: Engine) -> None:
    """Give the directory the newest form, durably. Raises as `checkpoint` does, and then the form is as it was."""
    engine.check_writable()
    with engine.checkpoint_lock:
        engine.form = forms.NEWEST
        try:
            checkpoint_locked(engine)
        finally:
            engine.form = engine.kept_form


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
            checkpoint_locked(engine, pause_s=_PAUSE_S)
        else:
            engine.room.look()
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
            with doing("append"):
                checkpoint_locked(engine)
    engine.wake_relocator()


def checkpoint_locked(engine: Engine, *requests: CheckpointRequest, pause_s: float = 0) -> None:
    """Run a checkpoint, for a caller that holds the checkpoint lock. Sleep `pause_s` after each batch of records.

    On a full disk, give up the ballast and run it again.
    """
    try:
        _run(engine, requests, pause_s)
    except DiskFull:
        if not engine.room.give_up():
            raise
        _run(engine, requests, pause_s)
    engine.room.look()


def _run(engine: Engine, requests: Sequence[CheckpointRequest], pause_s: float) -> None:
    engine.check_open()
    engine.committer.check_sound()
    try:
        finish_truncations(engine)
    except OSError as error:
        raise _failure(engine, error) from error
    plan = plan_checkpoint(engine, requests)
    is_same = plan.wal == engine.checkpointed and plan.elsewhere == engine.kept_elsewhere
    if plan.drafts or not is_same or engine.form != engine.kept_form:
        try:
            _write(engine, plan, pause_s)
            _store_and_publish(engine, plan)
        except DiskFull:
            give_back(engine, plan.drafts)
            raise
    else:
        _take_over(engine, plan)
    _free(engine, plan)


def _write(engine: Engine, plan: Plan, pause_s: float) -> None:
    try:
        write_segments(engine, plan.drafts, pause_s)
    except OSError as error:
        raise _failure(engine, error) from error


def _take_over(engine: Engine, plan: Plan) -> None:
    """Give the encoder the metadata of topics without news, for later manifests."""
    for _, meta in plan.others:
        engine.encoder.put(meta)
    with engine.committer.lock:
        for state, meta in plan.others:
            schedule(engine, state, meta)


def _store_and_publish(engine: Engine, plan: Plan) -> None:
    """Run steps 4 and 5. Once the manifest may be on the disk, memory has to follow it, or the writer has to stop."""
    number = engine.manifest_number + 1
    try:
        store_encoded(engine.files, engine.layout, number, _encoded(engine, plan))
        with engine.committer.lock:
            engine.manifest_number = number
            engine.checkpointed = plan.wal
            engine.kept_elsewhere, engine.kept_form = plan.elsewhere, engine.form
            for draft in plan.drafts:
                _publish(draft)
                engine.pending_warm_deletes += tuple(draft.pending_warm_deletes)
                schedule(engine, draft.state, draft.final)
            for state, meta in plan.others:
                schedule(engine, state, meta)
        for draft in plan.drafts:
            engine.has_dead |= bool(reclaimable(draft.state, engine.settings.reclaim_dead_percent))
    except TooManyOpenFiles:
        raise  # the manifest has no name yet
    except OSError as error:
        if error.errno in NO_SPACE and number not in numbers(engine.files, engine.layout):
            raise _no_space(engine) from error
        raise _failure(engine, error, is_final=True) from error
    except BaseException as error:
        engine.committer.poison(error)
        raise


def _encoded(engine: Engine, plan: Plan) -> bytes:
    """Return the encoded manifest. If it does not reach the disk, the next checkpoint encodes its topics again."""
    encoder = engine.encoder
    for meta in (*(draft.result() for draft in plan.drafts), *(meta for _, meta in plan.others)):
        encoder.put(meta)
    for topic_id in plan.deleted:
        encoder.remove(topic_id)
    pending, secret = plan.all_pending_warm_deletes(), engine.mark_secret
    next_id, deleted = plan.next_topic_id, plan.deleted
    return encoder.encode_put(
        LogManifest(next_id, (), plan.wal, deleted, plan.epoch_floor, pending, secret, plan.elsewhere, engine.form)
    )


def _publish(draft: Draft) -> None:
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
    if draft.final is not None and state.last_deletes is draft.last_deletes:  # else a delete forgot them meanwhile
        if draft.final.last_deletes is not None:
            state.last_deletes = draft.final.last_deletes
        elif meta.config.keep_history:  # (LAST-2)
            state.last_deletes = state.last_deletes.forgotten(draft.last_seq + 1)
        state.new_deletes = state.new_deletes[len(draft.new_deletes) :]
    state.undeleted = None  # none came since: undeletes hold the checkpoint lock
    state.flagged_below = max(state.flagged_below, draft.deletes.below)
    state.truncate_ops = meta.truncate_ops  # no truncation came since: truncations hold the checkpoint lock
    state.warm, state.warm_ops = draft.warm, draft.warm_ops
    state.ephemeral_buffer.drop_below(state.hot_floor)
    state.settle_front()


def _free(engine: Engine, plan: Plan) -> None:
    """Run step 6. If a file cannot be unlinked now, recovery unlinks it."""
    try:
        engine.wals.remove_below(plan.wal)
        for draft in plan.drafts:
            for segment in draft.released:
                if segment.is_hot:
                    engine.segments.remove(draft.state.topic_id, segment.first_seq)
        if plan.deleted:
            engine.segments.forget_topics(set(plan.deleted))
            remove_topics(engine.files, engine.layout, plan.deleted)
            with engine.committer.lock:
                engine.deleted = tuple(topic_id for topic_id in engine.deleted if topic_id not in plan.deleted)
    except OSError as error:
        _logger.warning("cannot remove what is not needed any more: %s", error)


def _failure(engine: Engine, error: OSError, *, is_final: bool = False) -> DiskFull | TooManyOpenFiles | WriterPoisoned:
    if error.errno in NO_SPACE and not is_final:
        return _no_space(engine)
    if error.errno in NO_DESCRIPTOR and not is_final:
        return TooManyOpenFiles(engine.layout.root)
    engine.committer.poison(error)
    return WriterPoisoned(engine.layout.root, str(error))


def _no_space(engine: Engine) -> DiskFull:
    wals = engine.wals
    return DiskFull(engine.layout.root, "checkpoint", may_reopen=len(wals) == 1 and wals.older_files > 0)


class _Stopped(Exception):
    """The log is closing."""


class Reclaimer(Owned):
    """The reclaimer of one log. `run` is the work of its own Upkeep; `stop` ends a running copy."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopping = threading.Event()
        self._lock = OwnLock()
        # Segments whose rewrite failed, as they then were. A segment is tried again only after its info changes.
        self._failed: set[tuple[int, SegmentInfo]] = set()

    def stop(self) -> None:
        self._stopping.set()

    def check_apart(self) -> None:
        """Raise `CalledWithin` if `join` would wait for this thread."""
        if self._lock.is_mine:
            raise CalledWithin

    def join(self) -> None:
        """Wait, after `stop`, until no copy runs."""
        with self._lock.exclusive:
            pass

    def run(self) -> None:
        """Reclaim all candidates, at the pace of `reclaim_bytes_per_s`. Do nothing if that is 0."""
        self._engine.has_dead = False
        if self._engine.settings.reclaim_bytes_per_s:
            with contextlib.suppress(_Stopped):
                self._run(self._pace)

    def run_now(self) -> None:
        """Reclaim all candidates at full speed, for a caller that waits. Raises `LogClosed`."""
        try:
            self._run(self._at_once)
        except _Stopped as error:
            raise LogClosed from error

    def _run(self, pace: Callable[[int], None]) -> None:
        """Rewrite each candidate. A failure is logged, and the segment stays unchanged."""
        with self._lock.exclusive:
            for state, info in self._candidates():
                if self._stopping.is_set():
                    raise _Stopped
                self._try(state, info, pace)

    def _try(self, state: TopicState, info: SegmentInfo, pace: Callable[[int], None]) -> None:
        try:
            self._rewrite(state, info, pace)
        except _Stopped:
            raise
        except Exception as error:
            self._failed.add((state.topic_id, info))
            _logger.warning("%s: deleted records keep their bytes: %s", state.name, error)

    def _candidates(self) -> list[tuple[TopicState, SegmentInfo]]:
        engine = self._engine
        if engine.is_closed or engine.committer.is_poisoned:
            return []
        return [
            (state, info)
            for state in list(engine.topics.values())
            for info in reclaimable(state, engine.settings.reclaim_dead_percent)
            if (state.topic_id, info) not in self._failed
        ]

    def _rewrite(self, state: TopicState, info: SegmentInfo, pace: Callable[[int], None]) -> None:
        engine, topic_id = self._engine, state.topic_id
        segment = engine.segments.get(topic_id, info)
        if segment.data.size() != info.data_bytes:
            # A rewrite swapped the files, and a crash came before the next manifest (REWRITE-5).
            with engine.checkpoint_lock:
                self._publish(state, info, segment.counted(info))
            return
        try:
            data_bytes = rewrite_segment(engine.files, engine.layout, segment, info, pace)
        except BaseException:
            discard_rewrite(engine.files, engine.layout, topic_id, info.first_seq)
            raise
        with engine.checkpoint_lock:
            if self._is_as_it_was(state, info):
                self._swap(segment)
                self._publish(state, info, info._replace(data_bytes=data_bytes, dead_bytes=0))
            else:
                discard_rewrite(engine.files, engine.layout, topic_id, info.first_seq)

    def _is_as_it_was(self, state: TopicState, info: SegmentInfo) -> bool:
        """Return whether the segment is unchanged: not deleted from, cut, released or relocated.

        The caller holds the checkpoint lock.
        """
        engine = self._engine
        if engine.is_closed or engine.committer.is_poisoned or state.is_gone or state.config.keep_history:
            return False
        return info in state.sealed

    def _swap(self, segment: SegmentFiles) -> None:
        engine = self._engine
        try:
            engine.segments.swap(segment.topic_id, segment.first_seq, segment)
            engine.files.sync_dir(engine.layout.topic(segment.topic_id))
        except BaseException as error:
            engine.committer.poison(error)
            raise

    def _publish(self, state: TopicState, old: SegmentInfo, new: SegmentInfo) -> None:
        with self._engine.committer.lock:
            state.replace_segment(old, new)

    def _at_once(self, _size_bytes: int) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _pace(self, size_bytes: int) -> None:
        if self._stopping.wait(size_bytes / self._engine.settings.reclaim_bytes_per_s):
            raise _Stopped
