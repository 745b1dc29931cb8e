"""A topic as its users see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal, cast, overload

from seglog.arguments import checked
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.errors import ReadOnly, SeqOutOfRange
from seglog.format.frames import Frames
from seglog.maintenance import housekeeping
from seglog.maintenance.checkpoint import Wish, checkpoint
from seglog.maintenance.retention import Retention
from seglog.reading.batches import read_batches
from seglog.reading.expiry import expired_seq, known_floors
from seglog.reading.follow import Follower, follow_records
from seglog.reading.read import continue_records, read_frame_batches
from seglog.reading.sealed import SealedFiles
from seglog.reading.search import first_seq_at
from seglog.segments.segment import SegmentInfo
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteOp
from seglog.values.record import Gap, Record
from seglog.values.truncate_op import TruncateOp
from seglog.view import explained, guarded
from seglog.writing import write

__all__ = ["Topic"]


class Topic:
    """A name in a log; the topic itself is made by the first append. Safe for many threads."""

    __slots__ = ("_engine", "name")

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    def __repr__(self) -> str:
        return f"<Topic {self.name}>"

    @property
    def exists(self) -> bool:
        return self._engine.find(self.name) is not None

    @property
    def topic_id(self) -> int:
        """The interned id, which the frames on this machine carry. Raises `NoSuchTopic`."""
        return self._engine.state(self.name).topic_id

    @property
    def config(self) -> TopicConfig:
        """The one it will be made with, before the topic exists."""
        state = self._engine.find(self.name)
        return self._engine.topic_defaults if state is None else state.config

    @property
    def first_seq(self) -> int:
        """The lowest seq the topic itself ever has: 1, or the start of a branch."""
        state = self._engine.find(self.name)
        return 1 if state is None else state.first_seq

    @property
    def head_seq(self) -> int:
        """The highest seq that is visible; `first_seq - 1` before there is one."""
        state = self._engine.find(self.name)
        return 0 if state is None else state.head_seq

    @property
    def hot_floor(self) -> int:
        """The lowest seq in this log's own segments, hot or relocated; `head_seq + 1` if there is none."""
        state = self._engine.find(self.name)
        return 1 if state is None else state.hot_floor

    @property
    def earliest_seq(self) -> int:
        """The first live seq; `head_seq + 1` if there is none. No lock, no I/O.

        It may be lower while records are in the cold tier only: deletes by tag are not looked up there. With a ttl it
        may be lower by what has expired within a segment since the last read.
        """
        state = self._engine.find(self.name)
        return 1 if state is None else known_floors(self._engine, state).earliest_seq

    @property
    def evict_floor(self) -> int:
        """Above the last record that retention took, or that has expired; 1 before that. No lock, no I/O.

        With a ttl it is as `earliest_seq` says.
        """
        state = self._engine.find(self.name)
        return 1 if state is None else known_floors(self._engine, state).evict_floor

    @property
    def epoch(self) -> int:
        """Goes up when seqs may mean other records than before: the topic was made anew, or truncated. 0: none."""
        state = self._engine.find(self.name)
        return 0 if state is None else state.epoch

    @property
    def position(self) -> tuple[int, int, int]:
        """What every append, delete and truncation changes, also one that is on its way. Raises `NoSuchTopic`."""
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return state.position

    @property
    def sealed_seq(self) -> int:
        """The highest seq in a sealed segment, released ones included; `first_seq - 1` before there is one."""
        state = self._engine.find(self.name)
        if state is None:
            return 0
        with self._engine.committer.lock:
            return state.sealed_seq

    @property
    def last_ts_ms(self) -> int:
        """Time of the last append or delete, ms since the epoch; 0 before there is one."""
        state = self._engine.find(self.name)
        return 0 if state is None else state.last_ts_ms

    @property
    def record_count_hot(self) -> int:
        """Records from `hot_floor` on, deleted ones included: their seqs stay."""
        return self.head_seq - self.hot_floor + 1

    @property
    def bytes_hot(self) -> int:
        """Bytes of the frames in the data directory and of ephemeral ones in memory, deleted ones included."""
        state = self._engine.find(self.name)
        if state is None:
            return 0
        with self._engine.committer.lock:
            return state.hot_bytes

    @property
    def bytes_relocated(self) -> int:
        """Bytes of the frames in segments in the cold store, deleted ones included. The store is not asked."""
        state = self._engine.find(self.name)
        if state is None:
            return 0
        with self._engine.committer.lock:
            return state.sizes.cold_bytes

    def append(
        self,
        values: Sequence[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
    ) -> range:
        """Append records, all or none, and return their seqs when they are as safe as `durability` says.

        `durability` is "fsync", "disk", "memory" or "ephemeral"; None: as the topic is configured. Ephemeral records
        are never written: they end with the process, and are a `Gap` after it. `unterminated` says that these are lines
        without a line end. The topic is made if it is not there, with the log's `topic_defaults`; a branch is not, for
        only its maker knows where it starts: `NoSuchTopic`.
        Raises `RecordTooLarge`, `InvalidLabel`, `InvalidSetting`, `DiskFull`, `WriterPoisoned`, `LogClosed`: nothing
        was appended, but after `WriterPoisoned` only recovery knows.
        """
        return write.append(
            self._engine, self.name, values, tag=tag, node=node, unterminated=unterminated, durability=durability
        )

    @overload
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: Literal[False] = False,
    ) -> Iterator[Record]: ...
    @overload
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: bool,
    ) -> Iterator[Record | Gap]: ...
    @checked
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: bool = False,
    ) -> Iterator[Record] | Iterator[Record | Gap]:
        """The live records from `start` to `end`, both inclusive; None: from the first live one, to the head of now.

        `since_ms` and `until_ms` bound their times as well, both inclusive; what lies outside is not read.
        Records below `hot_floor` come from the cold tier, those in relocated segments from the cold store, as long as
        it takes: `ColdStoreFailed` if it fails. What was deleted is passed over. Where retention took records
        of the range, also while the reader is on its way, it gets a `Gap` in their place with `gaps`, or `Evicted` is
        raised. So it is where a record is past the ttl when this is called (seglog.reading.expiry). Raises
        `NoSuchTopic` and
        `SeqOutOfRange` at once; `ColdTierRequired`, `FileCorrupt`, `Evicted`, `Truncated` and what the cold tier raises
        when the reader gets there.
        """
        state = self._engine.state(self.name)
        cuts, head = len(state.cuts), state.head_seq
        first, expired = self._begin(state, start, since_ms)
        last = head if end is None else min(end, head)
        if until_ms is not None:
            last = min(last, self._seq_at(state, until_ms + 1) - 1)
        items = continue_records(self._engine, state, first, last, cuts, gaps=gaps, expired=expired)
        found = guarded(self._engine, state, items)
        return found if gaps else cast("Iterator[Record]", found)

    @checked
    def read_batches(self, start: int | None = None, end: int | None = None) -> Iterator[list[Record]]:
        """The same as `read`, in lists of up to a MiB: several times as fast for whoever takes thousands at once.

        What is deleted while the caller goes through a list stays in it. Raises what `read` raises, after the records
        that come before.
        """
        state = self._engine.state(self.name)
        cuts, head = len(state.cuts), state.head_seq
        last = head if end is None else min(end, head)
        first, expired = self._begin(state, start)
        return guarded(self._engine, state, read_batches(self._engine, state, first, last, cuts, expired))

    @overload
    def follow(
        self, start: int | None = None, *, timeout_s: float | None = None, gaps: Literal[False] = False
    ) -> Iterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, timeout_s: float | None = None, gaps: bool
    ) -> Iterator[Record | Gap]: ...
    @checked
    def follow(
        self, start: int | None = None, *, timeout_s: float | None = None, gaps: bool = False
    ) -> Iterator[Record] | Iterator[Record | Gap]:
        """As `read`, and on from the head: the next record is waited for, without polling.

        Ends when the log closes, or after `timeout_s` seconds without a new record. Raises what `read` raises, and
        `NoSuchTopic` when the topic is deleted meanwhile; `ReadOnly` for a log that is, for nothing ever comes there.
        """
        found = follow_records(self.follower(start, gaps=gaps), timeout_s)
        return found if gaps else cast("Iterator[Record]", found)

    @checked
    def follower(self, start: int | None = None, *, gaps: bool = False) -> Follower:
        """What `follow` stands on, for whoever waits in another way. Raises as `follow` does."""
        if self._engine.is_read_only:
            raise ReadOnly(self._engine.layout.root, "what it shows does not grow")
        state = self._engine.state(self.name)
        cuts = len(state.cuts)
        first, expired = self._begin(state, start)
        return Follower(self._engine, state, first, cuts, gaps=gaps, expired=expired)

    @checked
    def seq_at(self, ts_ms: int) -> int:
        """The first seq whose time is `ts_ms` or later, not below `earliest_seq`; `head_seq + 1` if there is none.

        Asks the cold tier when that may lie below `hot_floor`. Raises `NoSuchTopic`, `ColdTierRequired`.
        """
        state = self._engine.state(self.name)
        found = self._seq_at(state, ts_ms)
        return max(found, expired_seq(self._engine, state, found))

    @checked
    def frames(self, first: int, last: int) -> Iterator[bytes]:
        """Whole, verified frames of the hot records from `first` to `last`, deleted ones included.

        A deleted record is there as it was while its delete is listed in `delete_ops`; after that, as a tombstone: a
        frame with the deleted flag, its seq and its time. With `keep_history` an ephemeral record is one too, with the
        lost flag: no archive gets it. Raises `NoSuchTopic` and `SeqOutOfRange` at once; `FileCorrupt` when the reader
        gets there, and `SeqOutOfRange` when what it reads is released meanwhile.
        """
        return chain.from_iterable(self.frame_batches(first, last))

    @checked
    def frame_batches(self, first: int, last: int) -> Iterator[Frames]:
        """The same as `frames`, up to a MiB at a time: for whoever takes thousands at once."""
        state = self._hot(first, last)
        return guarded(self._engine, state, read_frame_batches(self._engine, state, first, last))

    @checked
    def sealed_files(self, first: int, last: int) -> SealedFiles:
        """The same records, for a process beside this one that reads sealed segments itself. Raises as `frames`."""
        return SealedFiles(self._engine, self._hot(first, last), last)

    @checked
    def delete(self, *, before: int | None = None, tag: str | None = None) -> DeleteOp:
        """Delete the records that are there now and are below `before`, have the tag, or both. Durable on return.

        Where all of them are ephemeral nothing is written, and the delete has the number 0.

        `tag` is exact, or a prefix with a trailing `*`. Raises `NoSuchTopic`, `InvalidSetting` without any condition.
        """
        return write.delete(self._engine, self.name, before=before, tag=tag)

    @checked
    def evict(self, before: int) -> DeleteOp:
        """What retention does, once and by hand: the records below `before` are lost, and readers are told so, by
        `Gap` or `Evicted`. As `delete` in all else: it is listed in `delete_ops`. Raises `NoSuchTopic`.
        """
        return write.delete(self._engine, self.name, before=before, tag=None, evicts=True)

    def delete_ops(self) -> tuple[DeleteOp, ...]:
        """The listed deletes, oldest first: with `keep_history` until they are settled, else until a checkpoint.

        Where records have left the local disk, they stay listed until they are settled in any case.
        """
        return tuple(self._engine.state(self.name).ops)

    @checked
    def settle_deletes(self, op: int) -> None:
        """Delete number `op` is on record elsewhere: list it no more. Durable on return; one not listed is fine."""
        self._grant(Wish(self.name, settle_op=op))

    def seal(self) -> None:
        """What is there now is in sealed segments on return; later appends begin a new one. Raises `NoSuchTopic`."""
        self._grant(Wish(self.name, seal=True))

    def segments(self) -> tuple[SegmentInfo, ...]:
        """Hot and relocated ones, ascending; the active one, if any, is last. The newest records may be in none yet."""
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return state.segments

    @checked
    def truncate(self, seq: int, *, position: tuple[int, int, int] | None = None) -> None:
        """Remove the records from `seq` on: later appends use their seqs again, in a higher `epoch`. Durable on return.

        Deletes made above end below it; readers that are above it end with `Truncated`. At `head_seq + 1` there is
        nothing to do. With `keep_history` it is listed in `truncate_ops`, and may go below what is on this disk.
        With a `position` it is done in that one only (`Topic.position`): `TopicMoved` otherwise.
        Raises `NoSuchTopic`, `SeqOutOfRange` above that, and `NotTruncatable` below what was evicted or left this disk.
        """
        write.truncate(self._engine, self.name, seq, position)

    def truncate_ops(self) -> tuple[TruncateOp, ...]:
        """With `keep_history`: truncations that are not settled, oldest first, each deeper than the one before."""
        return self._engine.state(self.name).truncate_ops

    @checked
    def settle_truncation(self, op: TruncateOp) -> None:
        """It is on record elsewhere: list it no more. Durable on return; one that is not listed is fine."""
        self._grant(Wish(self.name, settle_truncation=op))

    def enforce_retention(self) -> Retention:
        """Seal what is old enough, and evict what the topic's ttl and caps want gone, by the log's clock.

        With `keep_history` nothing is evicted; the result says what waits for the archive. Raises `NoSuchTopic`.
        """
        done = housekeeping.enforce(self._engine, [self._engine.state(self.name)])
        return done[0] if done else Retention(self.name)

    @property
    def due_seq(self) -> int:
        """The last sealed seq that ttl and caps want gone from this disk; 0 if none. Raises `NoSuchTopic`."""
        return housekeeping.due(self._engine, self._engine.state(self.name))

    @checked
    def release(self, last_seq: int, *, epoch: int | None = None) -> None:
        """Unlink the sealed segments that end at or before `last_seq`: reads of their records go to the cold tier.

        Durable on return. The caller has made sure that the cold tier has them; with `epoch` nothing is done if that is
        not the topic's any more, for then the seqs may mean other records. Raises `NoSuchTopic`.
        """
        self._grant(Wish(self.name, release_seq=last_seq, epoch=epoch))

    def _seq_at(self, state: TopicState, ts_ms: int) -> int:
        with explained(self._engine, state):
            return first_seq_at(self._engine, state, ts_ms)

    def _hot(self, first: int, last: int) -> TopicState:
        state = self._engine.state(self.name)
        for seq in (first, last):
            if not state.hot_floor <= seq <= state.head_seq:
                raise SeqOutOfRange(self.name, seq, state.hot_floor, state.head_seq)
        return state

    def _begin(self, state: TopicState, start: int | None, since_ms: int | None = None) -> tuple[int, int]:
        """The first seq of a read, and the expiry floor for it. Raises `SeqOutOfRange`."""
        first = state.floors.earliest_seq if start is None else start
        if not 1 <= first <= state.head_seq + 1:
            raise SeqOutOfRange(self.name, first, 1, state.head_seq)
        if since_ms is not None:
            first = max(first, self._seq_at(state, since_ms))
        expired = expired_seq(self._engine, state, first)
        return (max(first, expired) if start is None else first), expired

    def _grant(self, wish: Wish) -> None:
        self._engine.check_writable()
        self._engine.state(self.name)
        checkpoint(self._engine, wish)
