"""The interface of a topic for its users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal, cast, overload

from seglog.base.arguments import checked
from seglog.engine.engine import Engine, doing
from seglog.engine.state import TopicState
from seglog.errors import ReadOnly, SeqOutOfRange, Truncated
from seglog.format.frames import Frames
from seglog.maintenance import eviction
from seglog.maintenance.checkpoint import checkpoint
from seglog.maintenance.plan import CheckpointRequest, Retention
from seglog.reading.batches import read_batches
from seglog.reading.follow import Follower, follow_records
from seglog.reading.read import continue_records, read_frame_batches
from seglog.reading.sealed import SealedFiles
from seglog.reading.times import expired_seq, first_seq_at, known_floors
from seglog.segments.segment import SegmentInfo
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteOp, DeleteWhere, TruncateOp
from seglog.values.producer import Appended, Producer, ProducerBatch
from seglog.values.record import Gap, Record
from seglog.values.seq_set import SeqSet, seq_set
from seglog.view import explained, guarded
from seglog.writing import write
from seglog.writing.append import PLAIN, AppendOptions, append
from seglog.writing.conditions import incarnation_of, know_log_id, plain_times

if TYPE_CHECKING:
    import pyarrow as pa

    from seglog.format.record_arrays import RecordArrays

__all__ = ["Topic"]


class Topic:
    """A name in a log. The first append makes the topic itself. Safe for many threads."""

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
        """Return the interned id, which the frames on this machine carry. Raise `NoSuchTopic`."""
        return self._engine.state(self.name).topic_id

    @property
    def config(self) -> TopicConfig:
        """Return the configuration. Before the topic exists, return the configuration that it will get."""
        state = self._engine.find(self.name)
        return self._engine.topic_defaults if state is None else state.config

    @property
    def first_seq(self) -> int:
        """Return the lowest seq that the topic itself ever has: 1, or the start of a branch."""
        state = self._engine.find(self.name)
        return 1 if state is None else state.first_seq

    @property
    def head_seq(self) -> int:
        """Return the highest seq that is visible; `first_seq - 1` before there is one."""
        state = self._engine.find(self.name)
        return 0 if state is None else state.head_seq

    @property
    def hot_floor(self) -> int:
        """Return the lowest seq in this log's own segments, hot or relocated; `head_seq + 1` if there is none."""
        state = self._engine.find(self.name)
        return 1 if state is None else state.hot_floor

    @property
    def earliest_seq(self) -> int:
        """Return the first live seq; `head_seq + 1` if there is none. No lock, no I/O.

        The result may be too low in three cases. While records are in the cold tier only, deletes by tag are not looked
        up there. In a relocated segment, the log looks them up when it next relocates. With a ttl, records within a
        segment may have expired since the last read.
        """
        state = self._engine.find(self.name)
        return 1 if state is None else known_floors(self._engine, state).earliest_seq

    @property
    def evict_floor(self) -> int:
        """Return the seq above the last record that was evicted or has expired; 1 before that. No lock, no I/O.

        With a ttl, the result may be too low, as `earliest_seq` says.
        """
        state = self._engine.find(self.name)
        return 1 if state is None else known_floors(self._engine, state).evict_floor

    @property
    def epoch(self) -> int:
        """Return the epoch; 0 if there is no topic.

        The epoch rises when the topic is truncated, or made again after a deletion. Then seqs may mean other records
        than before.
        """
        state = self._engine.find(self.name)
        return 0 if state is None else state.epoch

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
        state = self._engine.find(self.name)
        if state is None:
            return 0
        with self._engine.committer.lock:
            return state.sealed_seq

    @property
    def last_ts_ms(self) -> int:
        """Return the time of the last append or delete, in ms since the epoch; 0 before there is one."""
        state = self._engine.find(self.name)
        return 0 if state is None else state.last_ts_ms

    @property
    def record_count_hot(self) -> int:
        """Return the number of records from `hot_floor` on. Deleted ones count, because their seqs stay."""
        return self.head_seq - self.hot_floor + 1

    @property
    def bytes_hot(self) -> int:
        """Return the bytes of frames in the data directory and of ephemeral ones in memory, deleted ones included."""
        state = self._engine.find(self.name)
        if state is None:
            return 0
        with self._engine.committer.lock:
            return state.hot_bytes

    @property
    def bytes_relocated(self) -> int:
        """Return the bytes of the frames of relocated segments, deleted ones included. The warm store is not asked."""
        state = self._engine.find(self.name)
        if state is None:
            return 0
        with self._engine.committer.lock:
            return state.sizes.warm_bytes

    def append(
        self,
        values: Sequence[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
        producer: ProducerBatch | None = None,
        if_head: int | None = None,
        key: str | None = None,
        if_incarnation: str | None = None,
        times_ms: Sequence[int] | None = None,
    ) -> range:
        """Append records, all or none, and return their seqs when they are as safe as `durability` says.

        A crash within the append leaves all of its records or none, with any durability.
        `durability` is "fsync", "disk", "memory" or "ephemeral". None means the durability that the topic is configured
        with. Ephemeral records are never written: they end with the process, and readers get a `Gap` after that.
        `unterminated` says that the values are lines without a line end.
        `producer` makes the append idempotent: the same batch again returns the same seqs and appends nothing. A lower
        epoch raises `ProducerFenced`, a number that skips `ProducerGap`. A number older than the last five raises
        `BatchForgotten`, and another number of values `BatchReused`. `key`, a text of 1 to 256 bytes in UTF-8, does the
        same for `idempotency_keep_s`, for a caller that has no producer. The same key with other values raises
        `KeyReused`. A topic with 10,000 keys raises `TooManyKeys`. With `if_head`, raise `HeadMoved` unless that seq is
        the topic's last one; 0 means no record. With `if_incarnation`, raise
        `OtherIncarnation` unless the topic has it (`incarnation`).
        `times_ms` are the times of the values, in place of the clock's: ascending, none below `last_ts_ms`, and none
        more than five minutes ahead of the clock. An age counts from them: with a ttl, old records are gone at once.
        If the topic does not exist, it is made with the log's `topic_defaults`. A branch is not made: only its maker
        knows where it starts. In that case, raise `NoSuchTopic`.
        Raise `RecordTooLarge`, `InvalidLabel`, `InvalidSetting`, `DiskFull` or `LogClosed` with nothing appended. After
        `WriterPoisoned`, only recovery knows whether the records were appended.
        """
        options = PLAIN
        if tag is not None or node is not None or unterminated is not False or durability is not None:
            options = AppendOptions(tag, node, unterminated, durability, producer, if_head, key, if_incarnation)
        elif producer is not None or if_head is not None or key is not None or if_incarnation is not None:
            options = AppendOptions(producer=producer, if_head=if_head, key=key, if_incarnation=if_incarnation)
        if times_ms is not None:
            options = options._replace(times_ms=plain_times(times_ms))
        return append(self._engine, self.name, values, options)[0]

    def append_once(
        self,
        values: Sequence[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
        producer: ProducerBatch | None = None,
        if_head: int | None = None,
        key: str | None = None,
        if_incarnation: str | None = None,
        times_ms: Sequence[int] | None = None,
    ) -> Appended:
        """Append records as `append` does, and say whether the topic had them already.

        The log decides that under the lock that assigns seqs, so of several equal calls one is no duplicate. Without
        `producer` and `key` no append is a duplicate. Raise the errors of `append`.
        """
        times = None if times_ms is None else plain_times(times_ms)
        options = AppendOptions(tag, node, unterminated, durability, producer, if_head, key, if_incarnation, times)
        return Appended(*append(self._engine, self.name, values, options))

    def append_stream(
        self,
        chunks: Iterable[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
        producer: ProducerBatch | None = None,
        if_head: int | None = None,
        key: str | None = None,
        if_incarnation: str | None = None,
    ) -> int:
        """Append one record whose value comes in chunks, and return its seq.

            with open("dump.bin", "rb") as file:
                seq = log.topic("dumps").append_stream(iter(lambda: file.read(1 << 20), b""))

        Memory holds 1 MiB and a chunk: the rest waits in a file without a name in the data directory. If `chunks` ends
        with an error, nothing is appended, and the error passes through. A read returns the value as a whole.
        The other arguments, and the errors, are those of `append`. Raise `RecordTooLarge` with the first chunk that
        passes `max_record_bytes`.
        """
        from seglog.writing.stream import append_stream

        options = AppendOptions(tag, node, unterminated, durability, producer, if_head, key, if_incarnation)
        return append_stream(self._engine, self.name, chunks, options)[0].start

    @checked
    def producer(self, producer: str) -> Producer | None:
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

    def incarnation(self) -> str:
        """Return the identity of what this topic knows of its producers. It stays the same over restarts.

        A topic that was deleted and made again has another one. So has a topic in a new directory, as after a takeover
        or a recovery from the remote. A producer that finds another incarnation cannot repeat a batch safely. The first
        call makes the log's own id, durably. Raise `NoSuchTopic`, `ReadOnly`, and errors of the disk.
        """
        state = self._engine.state(self.name)
        self._engine.check_writable()
        know_log_id(self._engine)
        return incarnation_of(self._engine, state)

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
        """Return the live records from `start` to `end`, both inclusive.

        If `start` is None, begin at the first live record. If `end` is None, end at the current head. `since_ms` and
        `until_ms` bound the times as well, both inclusive. Records outside the bounds are not read.
        Records below `hot_floor` come from the cold tier. Records in relocated segments come from the warm store,
        however long it takes. If the store fails, raise `WarmStoreFailed`.
        The reader passes over deleted records, and reports records that retention takes, even during the read. With
        `gaps` it gets a `Gap` in their place. Without `gaps`, raise `Evicted`. The same holds for records that are past
        the ttl when `read` is called (seglog.reading.times).
        Raise `NoSuchTopic` and `SeqOutOfRange` at once. Raise `ColdTierRequired`, `FileCorrupt`, `Evicted`, `Truncated`
        and the errors of the cold tier when the reader gets there.
        """
        state = self._engine.state(self.name)
        first, last, truncations, expired = self._range(state, start, end, since_ms, until_ms)
        items = continue_records(self._engine, state, first, last, truncations, gaps=gaps, expired=expired)
        records = guarded(self._engine, state, items)
        return records if gaps else cast("Iterator[Record]", records)

    @checked
    def read_batches(self, start: int | None = None, end: int | None = None) -> Iterator[list[Record]]:
        """Return the records of `read` in lists of up to a MiB. For thousands of records this is several times as fast.

        If a record is deleted while the caller goes through a list, the record stays in that list. Raise the errors of
        `read`, after the records that come before.
        """
        state = self._engine.state(self.name)
        first, last, truncations, expired = self._range(state, start, end)
        return guarded(self._engine, state, read_batches(self._engine, state, first, last, truncations, expired))

    @overload
    def read_arrays(
        self, start: int | None = None, end: int | None = None, *, gaps: Literal[False] = False
    ) -> Iterator[RecordArrays]: ...
    @overload
    def read_arrays(
        self, start: int | None = None, end: int | None = None, *, gaps: bool
    ) -> Iterator[RecordArrays | Gap]: ...
    @checked
    def read_arrays(
        self, start: int | None = None, end: int | None = None, *, gaps: bool = False
    ) -> Iterator[RecordArrays] | Iterator[RecordArrays | Gap]:
        """Return the records of `read` as arrays of up to a MiB of frames, or of one larger record. None is empty.

        No object is made for a record (seglog.format.record_arrays), so for millions of records this is the fastest
        call. Deletes reach the arrays that come after them, as in `read_batches`. Raise the errors of `read`, after the
        records that come before.
        """
        arrays = self._arrays(start, end, gaps=gaps)
        return arrays if gaps else cast("Iterator[RecordArrays]", arrays)

    @checked
    def read_arrow(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        tag: str | None = None,
        text: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the records of `read` in Apache Arrow, as a `pyarrow.RecordBatchReader`, which reads as it is asked.

            table = topic.read_arrow().read_all()
            frame = topic.read_arrow(text=True).read_pandas()
            frame = polars.from_arrow(topic.read_arrow())
            rows = duckdb.sql("select tag, count(*) from records group by tag")  # with records = topic.read_arrow()

        It has the schema of `seglog.arrow_schema()`, whose columns are those of the Spark source:

            topic      string                  the topic, without a branch
            seq        int64                   the record's number in the topic, from 1
            timestamp  timestamp[us, tz=UTC]   the time that the log set, in whole milliseconds
            node       string                  the record's node, or null
            tag        string                  the record's tag, or null
            value      binary                  the record's bytes; with `text` a string

        `start` and `end` are inclusive seqs, `since_ms` and `until_ms` inclusive times in ms since the epoch. `tag`
        selects the records with that tag; a trailing `*` makes it a prefix. A batch has up to a MiB of frames with
        their headers, some 20,000 rows at most, or one larger record. None is empty. It owns its memory. No object is
        made for a record.

        With `text`, a value that is not UTF-8 raises `InvalidArgument`, which names the record. A batch has no place
        for a `Gap`: for records that retention took, raise `Evicted`, as `read` does. If pyarrow is not installed,
        raise `NotInstalled`: the extra `arrow` installs it. Raise the errors of `read`, after the batches of the
        records that come before. A consumer that takes the reader through Arrow's C interface, as Polars and DuckDB do,
        raises an error of its own with their text.
        Source: the Arrow columnar format, https://arrow.apache.org/docs/format/Columnar.html
        """
        from seglog.format.arrow import read_as_arrow
        from seglog.values.arrow import check_arrow

        check_arrow("Topic.read_arrow")
        arrays = cast("Iterator[RecordArrays]", self._arrays(start, end, since_ms=since_ms, until_ms=until_ms))
        return read_as_arrow(self.name, arrays, tag, text=text)

    @overload
    def follow(
        self,
        start: int | None = None,
        *,
        epoch: int | None = None,
        timeout_s: float | None = None,
        gaps: Literal[False] = False,
    ) -> Iterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, epoch: int | None = None, timeout_s: float | None = None, gaps: bool
    ) -> Iterator[Record | Gap]: ...
    @checked
    def follow(
        self,
        start: int | None = None,
        *,
        epoch: int | None = None,
        timeout_s: float | None = None,
        gaps: bool = False,
    ) -> Iterator[Record] | Iterator[Record | Gap]:
        """Return the records of `read`, and then wait for further records at the head, without polling.

        `epoch` says that the caller has the records below `start` as they were in that epoch of the topic. If a
        truncation took one of them since then, raise `Truncated`, whose `seq` and `epoch` are the next `start` and
        `epoch`:

            start, epoch = 1, topic.epoch
            while True:
                try:
                    for record in topic.follow(start, epoch=epoch):
                        view[record.seq] = record.value
                        start = record.seq + 1
                except Truncated as cut:
                    start, epoch = cut.seq, cut.epoch
                    view = {seq: value for seq, value in view.items() if seq < start}

        Without `start` the caller has no record, and `epoch` tells nothing. If the topic was deleted and made again, or
        if the truncation is older than the opening of this log, the `seq` of `Truncated` is 1. Epochs of another data
        directory mean nothing here: compare `incarnation` as well if the caller keeps its place over a takeover.

        Without `gaps`, records that retention took raise `Evicted`, whose `gap_to` is the last of them. So no loss is
        silent. To continue, follow from `gap_to + 1` on. With `gaps`, a `Gap` comes in their place, and the follower
        goes on.

        The iteration ends when the log closes, or after `timeout_s` seconds without a new record. Raise the errors of
        `read`. If the topic is deleted meanwhile, raise `NoSuchTopic`. If the log is read-only, raise `ReadOnly`,
        because no record is ever added there.
        """
        items = follow_records(self.follower(start, gaps=gaps, epoch=epoch), timeout_s)
        return items if gaps else cast("Iterator[Record]", items)

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
                first, expired = self._begin(state, start)
            except SeqOutOfRange:
                if epoch is None or state.epoch == now:
                    raise
                continue  # truncated once more in between
            return Follower(self._engine, state, first, truncations, epoch=now, gaps=gaps, expired=expired)

    @checked
    def seq_at(self, ts_ms: int) -> int:
        """Return the first seq whose time is `ts_ms` or later, from `earliest_seq` on; `head_seq + 1` if there is none.

        The call asks the cold tier if that seq may lie below `hot_floor`. Raise `NoSuchTopic`, `ColdTierRequired`.
        """
        state = self._engine.state(self.name)
        seq = self._seq_at(state, ts_ms)
        return max(seq, expired_seq(self._engine, state, seq))

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
        return SealedFiles(self._engine, self._hot(first, last), last)

    @checked
    def delete(
        self,
        *,
        before: int | None = None,
        tag: str | None = None,
        start: int | None = None,
        end: int | None = None,
        seqs: SeqSet | Iterable[int] | None = None,
        epoch: int | None = None,
    ) -> DeleteOp:
        """Delete the current records that meet each given condition. Durable on return.

            orders.delete(start=4711, end=9200)             cut out a range; both ends are deleted
            orders.delete(start=4711, tag="web1")           from there on, one tag
            orders.delete(seqs=[17, 4711])                  single records: all of them, or none after a crash

        `tag` is exact, or a prefix with a trailing `*`. `before` is exclusive. `seqs` may be in any order, and make a
        million ranges at most. With `epoch`, the seqs are those of that epoch. If all records of the topic are
        ephemeral, nothing is written, and the delete has the number 0.

        Raise `NoSuchTopic`. Raise `InvalidSetting` without any condition, and `InvalidArgument` if `end` is below
        `start`, or there are too many seqs. Raise `ConcurrentModification` if a truncation has ended the epoch.
        """
        return write.delete(self._engine, self.name, DeleteWhere(before, tag, start, end, seq_set(seqs), epoch))

    @checked
    def evict(self, before: int) -> DeleteOp:
        """Evict the records below `before`, as retention does. Readers get a `Gap` or `Evicted` in their place.

        In all else this works as `delete`: `delete_ops` lists it. Raise `NoSuchTopic`.
        """
        with doing("evict"):
            return write.delete(self._engine, self.name, DeleteWhere(before), evicts=True)

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
        self._request_checkpoint(CheckpointRequest(self.name, settle_op=op))

    def seal(self) -> None:
        """Seal the segments with the current records. Later appends begin a new segment. Raise `NoSuchTopic`."""
        with doing("seal"):
            self._request_checkpoint(CheckpointRequest(self.name, seal=True))

    def segments(self) -> tuple[SegmentInfo, ...]:
        """Return the segments, hot and relocated, ascending. The active one, if any, is last.

        The newest records may be in no segment yet.
        """
        state = self._engine.state(self.name)
        with self._engine.committer.lock:
            return state.segments

    @checked
    def truncate(self, seq: int, *, position: tuple[int, int, int] | None = None) -> None:
        """Remove the records from `seq` on, durably on return. Later appends use their seqs again, in a higher `epoch`.

        A delete that was made above `seq` now ends below it. A reader that is above `seq` ends with `Truncated`. At
        `head_seq + 1` there is nothing to do.
        With `keep_history`, `truncate_ops` lists the truncation, and `seq` may be below the records on this disk.
        With a `position` that the topic has no longer (`Topic.position`), raise `ConcurrentModification` with nothing
        done. Raise `NoSuchTopic`. Raise `SeqOutOfRange` above `head_seq + 1`, and `NotTruncatable` below records that
        were evicted or left this disk.
        """
        write.truncate(self._engine, self.name, seq, position)

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
        self._request_checkpoint(CheckpointRequest(self.name, settle_truncation=op))

    def enforce_retention(self) -> Retention:
        """Seal segments that are old enough, and evict records past the topic's ttl or a cap, by the log's clock.

        With `keep_history` nothing is evicted. The result names the last record that waits for the archive. Raise
        `NoSuchTopic`.
        """
        done = eviction.enforce(self._engine, [self._engine.state(self.name)])
        return done[0] if done else Retention(self.name)

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
        self._request_checkpoint(CheckpointRequest(self.name, release_seq=last_seq, epoch=epoch))

    def _seq_at(self, state: TopicState, ts_ms: int) -> int:
        with explained(self._engine, state):
            return first_seq_at(self._engine, state, ts_ms)

    def _hot(self, first: int, last: int) -> TopicState:
        state = self._engine.state(self.name)
        for seq in (first, last):
            if not state.hot_floor <= seq <= state.head_seq:
                raise SeqOutOfRange(self.name, seq, state.hot_floor, state.head_seq)
        return state

    def _arrays(
        self,
        start: int | None,
        end: int | None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: bool = False,
    ) -> Iterator[RecordArrays | Gap]:
        from seglog.reading.batches import read_arrays  # imported late, because most commands need none

        state = self._engine.state(self.name)
        first, last, truncations, expired = self._range(state, start, end, since_ms, until_ms)
        items = read_arrays(self._engine, state, first, last, truncations, gaps=gaps, expired=expired)
        return guarded(self._engine, state, items)

    def _range(
        self,
        state: TopicState,
        start: int | None,
        end: int | None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> tuple[int, int, int, int]:
        """Return the first and the last seq of a read, the topic's truncations so far, and the expiry floor.

        Raise `SeqOutOfRange`.
        """
        truncations, head = len(state.truncations), state.head_seq
        first, expired = self._begin(state, start, since_ms)
        last = head if end is None else min(end, head)
        if until_ms is not None:
            last = min(last, self._seq_at(state, until_ms + 1) - 1)
        return first, last, truncations, expired

    def _begin(self, state: TopicState, start: int | None, since_ms: int | None = None) -> tuple[int, int]:
        """Return the first seq of a read, and the expiry floor for it. Raise `SeqOutOfRange`."""
        first = state.floors.earliest_seq if start is None else start
        if not 1 <= first <= state.head_seq + 1:
            raise SeqOutOfRange(self.name, first, 1, state.head_seq)
        if since_ms is not None:
            first = max(first, self._seq_at(state, since_ms))
        expired = expired_seq(self._engine, state, first)
        return (max(first, expired) if start is None else first), expired

    def _request_checkpoint(self, request: CheckpointRequest) -> None:
        self._engine.check_writable()
        self._engine.state(self.name)
        checkpoint(self._engine, request)
