"""What the layers above a log need of a topic: an archive, a daemon, and the stores of older segments.

`Topic.inner` has it. A program that appends and reads needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING

from seglog.base.arguments import checked
from seglog.engine.engine import Engine, doing
from seglog.engine.state import TopicState
from seglog.errors import ReadOnly, SeqOutOfRange, Truncated
from seglog.format.frames import Frames
from seglog.lazy_imports import changes, checkpoint, checkpoint_plan, conditions, eviction, follow, sealed
from seglog.read_only_view import explained, guarded
from seglog.reading.read import read_frame_batches
from seglog.reading.times import expired_seq, first_seq_at, known_floors
from seglog.segments.segment import SegmentInfo
from seglog.values.deletes import DeleteOp, DeleteWhere, TruncateOp
from seglog.values.producer import Producer
from seglog.values.seq_set import SeqSet

if TYPE_CHECKING:
    from seglog.reading.follow import Follower
    from seglog.reading.sealed import SealedFiles


class InnerTopic:
    """The inner parts of a topic: where its records are, its frames, and what an archive has to record."""

    __slots__ = ("_engine", "name")

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    @property
    def topic_id(self) -> int:
        """Return the interned id, which the frames on this machine carry. Raise `NoSuchTopic`."""
        return self._engine.state(self.name).topic_id

    @property
    def hot_floor(self) -> int:
        """Return the lowest seq in this log's own segments, hot or relocated; `head_seq + 1` if there is none."""
        state = self._engine.find(self.name)
        return 1 if state is None else state.hot_floor

    @property
    def evict_floor(self) -> int:
        """Return the seq above the last record that was evicted or has expired; 1 before that. No lock, no I/O.

        With a ttl, the result may be too low, as `earliest_seq` says.
        """
        state = self._engine.find(self.name)
        return 1 if state is None else known_floors(self._engine, state).evict_floor

    @property
    def position(self) -> tuple[int, int, int]:
        """Return a value that every append, delete, truncation and `Log.configure` changes once readers see it.

        A caller takes it first, and then looks at the topic. `truncate` and `Log.delete_topic` with that value act only
        if nothing has changed since, and nothing is in progress. Raise `NoSuchTopic`.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return state.position

    @property
    def sealed_seq(self) -> int:
        """Return the highest seq in a sealed segment, released ones included; `first_seq - 1` before there is one."""
        return self._figure(lambda state: state.sealed_seq)

    @property
    def record_count_hot(self) -> int:
        """Return the number of records from `hot_floor` on. Deleted ones count, because their seqs stay."""
        state = self._engine.find(self.name)
        return 0 if state is None else state.head_seq - state.hot_floor + 1

    @property
    def bytes_hot(self) -> int:
        """Return the bytes of frames in the data directory and of ephemeral ones in memory, deleted ones included."""
        return self._figure(lambda state: state.hot_bytes)

    @property
    def bytes_relocated(self) -> int:
        """Return the bytes of the frames of relocated segments, deleted ones included. The warm store is not asked."""
        return self._figure(lambda state: state.sizes.warm_bytes)

    def _figure(self, figure_of: Callable[[TopicState], int]) -> int:
        """Return a figure of the topic's state, or 0 if there is no such topic."""
        state = self._engine.find(self.name)
        if state is None:
            return 0
        with self._engine.committer.lock:
            return figure_of(state)

    @checked
    def known_producer(self, producer: str) -> Producer | None:
        """Return the epoch and the last batches of a producer; None if the topic knows none of that id.

        A bridge continues behind the number of the newest batch. Raise `NoSuchTopic`.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return None if state.producers is None else state.producers.published(producer)

    @property
    def forgotten_producers(self) -> int:
        """Return the number of producers that the topic has forgotten since the log was opened (PRODUCER-3)."""
        state = self._engine.find(self.name)
        return 0 if state is None or state.producers is None else state.producers.forgotten

    @property
    def known_keys(self) -> int:
        """Return the number of keys that the topic keeps for repeated appends. Beyond 10,000 it refuses a new one."""
        state = self._engine.find(self.name)
        return 0 if state is None or state.keys is None else len(state.keys)

    @checked
    def follower(self, start: int | None = None, *, gaps: bool = False, epoch: int | None = None) -> Follower:
        """Return the object behind `follow`, for a caller that waits in another way. Raise the errors of `follow`."""
        if self._engine.is_read_only:
            raise ReadOnly(self._engine.layout.root, "what it shows does not grow")
        state = self._engine.state(self.name)
        while True:
            with self._engine.committer.lock:
                now, truncations = state.epoch, len(state.truncations)
                cut = None if epoch is None else state.cut_since(epoch)
            if start is not None and cut is not None and cut < start:
                raise Truncated(self.name, cut, now)
            try:
                first, expired = begin(self._engine, state, start)
            except SeqOutOfRange:
                if epoch is None or state.epoch == now:
                    raise
                continue  # truncated once more in between
            return follow.Follower(self._engine, state, first, truncations, epoch=now, gaps=gaps, expired=expired)

    def sync(self) -> None:
        """Return when all records that readers see are durable, but for ephemeral ones.

        If a sync has covered them, this costs none. Raise `LogClosed` and `WriterPoisoned`.
        """
        self._engine.check_writable()
        self._engine.committer.flush()

    @checked
    def ephemeral_seqs(self, first: int, last: int) -> SeqSet:
        """Return the seqs from `first` to `last` whose records are in memory only, or were there. Raise `NoSuchTopic`.

        Of those that went from memory, it knows the ones that no checkpoint has passed.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return SeqSet.of([*state.ephemeral_buffer.within(first, last), *state.tail.lost_within(first, last)])

    @checked
    def frames(self, first: int, last: int) -> Iterator[bytes]:
        """Return whole, verified frames of the hot records from `first` to `last`, deleted ones included.

        While the delete of a record is listed in `delete_ops`, the frame of the deleted record is the original one.
        After that, it is a tombstone: a frame with the deleted flag, its seq and its time. With `keep_history`, an
        ephemeral record is a tombstone with the lost flag, so no archive gets its value.
        Raise `NoSuchTopic` and `SeqOutOfRange` at once. Raise `FileCorrupt` when the reader gets there. If the records
        are released meanwhile, raise `SeqOutOfRange`.
        """
        return chain.from_iterable(self.frame_batches(first, last))

    @checked
    def frame_batches(self, first: int, last: int) -> Iterator[Frames]:
        """Return the frames of `frames`, up to a MiB at a time, for a caller that takes thousands at once."""
        state = self._hot(first, last)
        return guarded(self._engine, state, read_frame_batches(self._engine, state, first, last))

    @checked
    def sealed_files(self, first: int, last: int) -> SealedFiles:
        """Return open files with the same records, for another process that reads sealed segments.

        Raise the errors of `frames`.
        """
        return sealed.SealedFiles(self._engine, self._hot(first, last), last)

    @checked
    def undelete(self, seqs: SeqSet, *, evict_floor: int | None = None) -> None:
        """Show records again that deletes took, durably on return, for an archive that takes a delete back.

            orders.inner.undelete(SeqSet.of([(5, 9), (12, 12)]))

        All of them are in sealed segments, or in the cold tier. One that a listed delete reaches stays deleted, and so
        does one whose bytes are gone (`has_bytes`). With `evict_floor`, readers get no `Gap` from that seq on.

        Raise `NoSuchTopic` and `UpgradeNeeded`. Raise `SeqOutOfRange` for a seq above `sealed_seq`.
        """
        if seqs:
            changes.undelete(self._engine, self.name, seqs, evict_floor)

    @checked
    def has_bytes(self, seqs: SeqSet) -> bool:
        """Return whether the log has the bytes of all these records that are in its segments. Raise `NoSuchTopic`."""
        return changes.has_bytes(self._engine, self.name, seqs)

    @checked
    def delete(self, where: DeleteWhere, *, evicts: bool = False) -> DeleteOp:
        """Delete or evict as `Topic` does, and return the delete, whose number is 0 if all records are ephemeral."""
        with doing("evict") if evicts else nullcontext():
            return changes.delete(self._engine, self.name, where, evicts=evicts)

    def delete_ops(self) -> tuple[DeleteOp, ...]:
        """Return the listed deletes, oldest first.

        With `keep_history`, a delete is listed until it is settled. The same holds if records have left the local disk.
        Otherwise, it is listed until a checkpoint.
        """
        return tuple(self._engine.state(self.name).ops)

    @checked
    def settle_deletes(self, op: int) -> None:
        """Stop listing delete number `op`, which an archive has recorded. Durable on return.

        If the delete is not listed, do nothing.
        """
        request_checkpoint(self._engine, checkpoint_plan.CheckpointRequest(self.name, settle_op=op))

    def segments(self) -> tuple[SegmentInfo, ...]:
        """Return the segments, hot and relocated, ascending. The active one, if any, is last.

        The newest records may be in no segment yet.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return state.segments

    @checked
    def changed_since(self, epoch: int) -> tuple[int, int | None]:
        """Return the topic's epoch, and the lowest seq that may mean another record than in `epoch`, or None.

        The seq is exact for truncations that this log has seen since it was opened. Otherwise it is 1, for example
        after a restart, or if the topic was deleted and made again. Raise `NoSuchTopic`.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return state.epoch, state.cut_since(epoch)

    @checked
    def knows_since(self, epoch: int) -> bool:
        """Return whether `changed_since` knows each truncation since that epoch, and is exact. Raise `NoSuchTopic`."""
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return 0 <= state.epoch - epoch <= len(state.truncations)

    @property
    def logged_seq(self) -> int:
        """The last seq that the WAL knows. Later records are in memory only, and after a crash others get their seqs.

        Raise `NoSuchTopic`.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return state.logged_seq

    def known_incarnation(self) -> str | None:
        """Return `Topic.incarnation`, or None as long as the log has no id of its own. Raise `NoSuchTopic`.

        A log that is open for reading only answers, too.
        """
        state = self._engine.state(self.name)
        return conditions.known_incarnation(self._engine, state)

    @property
    def lasting_version(self) -> tuple[int, int, int]:
        """Return a value that changes with each delete and truncation, and if the topic is made again.

        As long as it is the same, each record that readers have seen is there, but for those that retention took. Raise
        `NoSuchTopic`.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return state.topic_id, state.epoch, state.next_op

    @checked
    def sealed_version(self, last: int) -> tuple[int, ...] | None:
        """Return a value that identifies the records up to `last`, as readers see them.

        As long as the topic has the same value, a read that ends at `last` shows the same records and gaps, also after
        a restart. Each delete, eviction and truncation changes the value, even one that takes no record of the range.
        Return None if there is no such value: if a record up to `last` is not in a sealed segment, or is ephemeral and
        still in memory, or if the topic has a ttl. Raise `NoSuchTopic`.

        The parts are the topic's id and epoch, the number of its deletes, and its floors with those of a former ttl.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            in_memory = state.ephemeral_buffer.first_from(1)
            is_last = last <= state.sealed_seq and (in_memory is None or in_memory > last)
            if not is_last or state.config.ttl_ms is not None:
                return None
            floors = state.floors.expired(state.expired_seq)
            return state.topic_id, state.epoch, state.next_op, floors.evict_from, floors.evict_floor

    def truncate_ops(self) -> tuple[TruncateOp, ...]:
        """Return the truncations that are not settled, oldest first, each deeper than the one before.

        Only a topic with `keep_history` lists them.
        """
        return self._engine.state(self.name).truncate_ops

    @checked
    def settle_truncation(self, op: TruncateOp) -> None:
        """Stop listing a truncation, which an archive has recorded. Durable on return.

        If the truncation is not listed, do nothing.
        """
        request_checkpoint(self._engine, checkpoint_plan.CheckpointRequest(self.name, settle_truncation=op))

    @property
    def due_seq(self) -> int:
        """Return the last sealed seq that ttl and caps no longer keep on this disk; 0 if none. Raise `NoSuchTopic`."""
        return eviction.due(self._engine, self._engine.state(self.name))

    @checked
    def release(self, last_seq: int, *, epoch: int | None = None) -> None:
        """Unlink the sealed segments that end at or before `last_seq`. Reads of their records go to the cold tier.

        Durable on return. The caller has made sure that the cold tier has the records. If the topic's epoch is no
        longer `epoch`, nothing is done: the seqs may mean other records. If `epoch` is None, it is not compared. Raise
        `NoSuchTopic`.
        """
        request_checkpoint(
            self._engine, checkpoint_plan.CheckpointRequest(self.name, release_seq=last_seq, epoch=epoch)
        )

    def _hot(self, first: int, last: int) -> TopicState:
        state = self._engine.state(self.name)
        for seq in (first, last):
            if not state.hot_floor <= seq <= state.head_seq:
                raise SeqOutOfRange(self.name, seq, state.hot_floor, state.head_seq)
        return state

    @checked
    def truncate(self, seq: int, *, position: tuple[int, int, int] | None = None) -> None:
        """Truncate as `Topic.truncate` does.

        With a `position` that the topic has no longer, raise `ConcurrentModification` with nothing done.
        """
        changes.truncate(self._engine, self.name, seq, position)


def begin(engine: Engine, state: TopicState, start: int | None, since_ms: int | None = None) -> tuple[int, int]:
    """Return the first seq of a read, and the expiry floor for it. Raise `SeqOutOfRange`."""
    first = state.floors.earliest_seq if start is None else start
    if not 1 <= first <= state.head_seq + 1:
        raise SeqOutOfRange(state.name, first, 1, state.head_seq)
    if since_ms is not None:
        first = max(first, first_at(engine, state, since_ms))
    expired = expired_seq(engine, state, first)
    return (max(first, expired) if start is None else first), expired


def first_at(engine: Engine, state: TopicState, ts_ms: int) -> int:
    with explained(engine, state):
        return first_seq_at(engine, state, ts_ms)


def request_checkpoint(engine: Engine, request: checkpoint_plan.CheckpointRequest) -> None:
    engine.check_writable()
    engine.state(request.topic)
    checkpoint.checkpoint(engine, request)
