"""The interface of a topic for its users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from seglog.base.arguments import checked
from seglog.base.ownership import is_foreign
from seglog.engine.engine import Engine, doing
from seglog.engine.state import TopicState
from seglog.inner_topic import InnerTopic, begin, first_at, request_checkpoint
from seglog.late import append, batches, conditions, eviction, follow, plan, write
from seglog.reading.read import continue_records
from seglog.reading.times import expired_seq, known_floors
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteWhere, where_of
from seglog.values.last_deletes import Undeleted
from seglog.values.producer import Appended
from seglog.values.protocols import (
    AppendArguments,
    Bounds,
    DeleteArguments,
    FollowArguments,
    LogAppendArguments,
    ReadArguments,
    Removed,
    Selection,
)
from seglog.values.record import Gap, Record, selected
from seglog.view import guarded

if TYPE_CHECKING:
    import pyarrow as pa

    from seglog.format.record_arrays import RecordArrays
    from seglog.maintenance.plan import Retention
    from seglog.writing.append import AppendOptions


def append_options(arguments: AppendArguments) -> AppendOptions:
    """Return the arguments with their defaults. Raise `TypeError` for an unknown one."""
    if not arguments:
        return append.PLAIN
    options = append.AppendOptions(**arguments)
    return options if options.times_ms is None else options._replace(times_ms=conditions.plain_times(options.times_ms))


class Topic:
    """A name in a log. The first append makes the topic itself. Safe for many threads."""

    __slots__ = ("_engine", "name")

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self.name = name

    def __repr__(self) -> str:
        if is_foreign(self._engine):
            return f"<Topic {self.name} of another process>"
        seqs = f"seq {self.earliest_seq} to {self.head_seq}" if self.head_seq else "no records"
        return f"<Topic {self.name} of {self._engine.layout.root}: {seqs}>"

    @property
    def inner(self) -> InnerTopic:
        """Return what the layers above the log need of the topic."""
        return InnerTopic(self._engine, self.name)

    @property
    def exists(self) -> bool:
        return self._engine.find(self.name) is not None

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
    def earliest_seq(self) -> int:
        """Return the first live seq; `head_seq + 1` if there is none. No lock, no I/O.

        The result may be too low in three cases. While records are in the cold tier only, deletes by tag are not looked
        up there. In a relocated segment, the log looks them up when it next relocates. With a ttl, records within a
        segment may have expired since the last read.
        """
        state = self._engine.find(self.name)
        return 1 if state is None else known_floors(self._engine, state).earliest_seq

    @property
    def epoch(self) -> int:
        """Return the epoch; 0 if there is no topic.

        The epoch rises when the topic is truncated, or made again after a deletion. Then seqs may mean other records
        than before.
        """
        state = self._engine.find(self.name)
        return 0 if state is None else state.epoch

    @property
    def last_ts_ms(self) -> int:
        """Return the time of the last append or delete, in ms since the epoch; 0 before there is one."""
        state = self._engine.find(self.name)
        return 0 if state is None else state.last_ts_ms

    def append(self, values: Sequence[bytes], **options: Unpack[LogAppendArguments]) -> range:
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
        If the topic does not exist, it is made with the log's `topic_defaults`. The first append to a branch waits for
        the archive, and raises its errors, such as `NoSuchBranch`. If another directory has written the branch, raise
        `WrittenElsewhere`. Without an archive, raise `NoSuchTopic`.
        Raise `RecordTooLarge`, `InvalidLabel`, `InvalidSetting`, `DiskFull` or `LogClosed` with nothing appended. After
        `WriterPoisoned`, only recovery knows whether the records were appended.
        """
        if "times_ms" in options:
            return append.append(self._engine, self.name, values, append_options(options))[0]
        # `append_options` without a call, because each append spends its time here.
        own = append.AppendOptions(**options) if options else append.PLAIN  # type: ignore[arg-type]
        return append.append(self._engine, self.name, values, own)[0]

    def append_once(self, values: Sequence[bytes], **options: Unpack[LogAppendArguments]) -> Appended:
        """Append records as `append` does, and say whether the topic had them already.

        The log decides that under the lock that assigns seqs, so of several equal calls one is no duplicate. Without
        `producer` and `key` no append is a duplicate. Raise the errors of `append`.
        """
        return Appended(*append.append(self._engine, self.name, values, append_options(options)))

    def append_stream(self, chunks: Iterable[bytes], **options: Unpack[LogAppendArguments]) -> Appended:
        """Append one record whose value comes in chunks. Return its seq, in a range of one, as `append_once` does.

            with open("dump.bin", "rb") as file:
                log.topic("dumps").append_stream(iter(lambda: file.read(1 << 20), b""))

        Memory holds 1 MiB and a chunk: the rest waits in a file without a name in the data directory. If `chunks` ends
        with an error, nothing is appended, and the error passes through. A read returns the value as a whole.
        The other arguments, and the errors, are those of `append`; `times_ms` has one time. Raise `RecordTooLarge` with
        the first chunk that passes `max_record_bytes`.
        """
        from seglog.writing.stream import append_stream

        return Appended(*append_stream(self._engine, self.name, chunks, append_options(options)))

    def bounds(self) -> Bounds:
        """Return the bounds of the topic. The incarnation is None if the log is read-only. Raise `NoSuchTopic`."""
        incarnation = None if self._engine.is_read_only else self.incarnation()
        self._engine.state(self.name)
        return Bounds(self.earliest_seq, self.head_seq, self.inner.sealed_seq, self.epoch, incarnation)

    def incarnation(self) -> str:
        """Return the identity of what this topic knows of its producers. It stays the same over restarts.

        A topic that was deleted and made again has another one. So has a topic in a new directory, as after a takeover
        or a recovery from the remote. A producer that finds another incarnation cannot repeat a batch safely. The first
        call makes the log's own id, durably. Raise `NoSuchTopic`, `ReadOnly`, and errors of the disk.
        """
        state = self._engine.state(self.name)
        self._engine.check_writable()
        conditions.know_log_id(self._engine)
        return conditions.incarnation_of(self._engine, state)

    @overload
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: Literal[False] = False,
        **selection: Unpack[ReadArguments],
    ) -> Iterator[Record]: ...
    @overload
    def read(
        self, start: int | None = None, end: int | None = None, *, gaps: bool, **selection: Unpack[ReadArguments]
    ) -> Iterator[Record | Gap]: ...
    @checked
    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        gaps: bool = False,
        **selection: Unpack[ReadArguments],
    ) -> Iterator[Record] | Iterator[Record | Gap]:
        """Return the live records from `start` to `end`, both inclusive.

        If `start` is None, begin at the first live record. If `end` is None, end at the current head. `since_ms` and
        `until_ms` bound the times as well, both inclusive. Records outside the bounds are not read. `tag` selects the
        records with that tag; a trailing `*` makes it a prefix. The read ends after `limit` records.
        Records below `hot_floor` come from the cold tier. Records in relocated segments come from the warm store,
        however long it takes. If the store fails, raise `WarmStoreFailed`.
        The reader passes over deleted records, and reports records that retention takes, even during the read. With
        `gaps` it gets a `Gap` in their place. Without `gaps`, raise `Evicted`. The same holds for records that are past
        the ttl when `read` is called (seglog.reading.times).
        Raise `NoSuchTopic` and `SeqOutOfRange` at once. Raise `ColdTierRequired`, `FileCorrupt`, `Evicted`, `Truncated`
        and the errors of the cold tier when the reader gets there.
        """
        state = self._engine.state(self.name)
        since_ms, until_ms = selection.get("since_ms"), selection.get("until_ms")
        first, last, truncations, expired = self._range(state, start, end, since_ms, until_ms)
        items = continue_records(self._engine, state, first, last, truncations, gaps=gaps, expired=expired)
        records = guarded(self._engine, state, items)
        tag, limit = selection.get("tag"), selection.get("limit")
        if tag is not None or limit is not None:
            records = selected(records, tag, limit)
        return records if gaps else cast("Iterator[Record]", records)

    @checked
    def read_batches(self, start: int | None = None, end: int | None = None) -> Iterator[list[Record]]:
        """Return the records of `read` in lists of up to a MiB. For thousands of records this is several times as fast.

        If a record is deleted while the caller goes through a list, the record stays in that list. Raise the errors of
        `read`, after the records that come before.
        """
        state = self._engine.state(self.name)
        first, last, truncations, expired = self._range(state, start, end)
        return guarded(
            self._engine, state, batches.read_batches(self._engine, state, first, last, truncations, expired)
        )

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
        self, start: int | None = None, end: int | None = None, *, text: bool = False, **selection: Unpack[Selection]
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
        since_ms, until_ms = selection.get("since_ms"), selection.get("until_ms")
        arrays = cast("Iterator[RecordArrays]", self._arrays(start, end, since_ms=since_ms, until_ms=until_ms))
        return read_as_arrow(self.name, arrays, selection.get("tag"), text=text)

    @overload
    def follow(
        self, start: int | None = None, *, gaps: Literal[False] = False, **options: Unpack[FollowArguments]
    ) -> Iterator[Record]: ...
    @overload
    def follow(
        self, start: int | None = None, *, gaps: bool, **options: Unpack[FollowArguments]
    ) -> Iterator[Record | Gap]: ...
    @checked
    def follow(
        self, start: int | None = None, *, gaps: bool = False, **options: Unpack[FollowArguments]
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

        `tag` selects the records with that tag; a trailing `*` makes it a prefix. The iteration ends when the log
        closes, or after `timeout_s` seconds without a new one of them. Raise the errors of `read`. If the topic is
        deleted meanwhile, raise `NoSuchTopic`. If the log is read-only, raise `ReadOnly`, because no record is ever
        added there.
        """
        follower = self.inner.follower(start, gaps=gaps, epoch=options.get("epoch"))
        items = follow.follow_records(follower, options.get("timeout_s"), options.get("tag"))
        return items if gaps else cast("Iterator[Record]", items)

    @checked
    def seq_at(self, ts_ms: int) -> int:
        """Return the first seq whose time is `ts_ms` or later, from `earliest_seq` on; `head_seq + 1` if there is none.

        The call asks the cold tier if that seq may lie below `hot_floor`. Raise `NoSuchTopic`, `ColdTierRequired`.
        """
        state = self._engine.state(self.name)
        seq = first_at(self._engine, state, ts_ms)
        return max(seq, expired_seq(self._engine, state, seq))

    @checked
    def delete(self, **conditions: Unpack[DeleteArguments]) -> Removed:
        """Delete the current records that meet each given condition. Durable on return.

            orders.delete(start=4711, end=9200)             cut out a range; both ends are deleted
            orders.delete(start=4711, tag="web1")           from there on, one tag
            orders.delete(seqs=[17, 4711])                  single records: all of them, or none after a crash

        `tag` is exact, or a prefix with a trailing `*`. `before` is exclusive. `seqs` may be in any order, and make a
        million ranges at most. With `epoch`, the seqs are those of that epoch. `since_ms` and `until_ms` are inclusive
        times, and `grep` is a regular expression that the value has: the log looks these records up first. If all
        records of the topic are ephemeral, nothing is written. The deleted records are not counted.

        Raise `NoSuchTopic`. Raise `InvalidSetting` without any condition. Raise `InvalidArgument` if `end` is below
        `start`, if `grep` is no regular expression, or if there are too many seqs. Raise `ConcurrentModification` if a
        truncation has ended the epoch.
        """
        where = where_of(conditions, self.epoch, self.seq_at, lambda first, last: self.read(first, last, gaps=True))
        return Removed(None, None, number=self.inner.delete(where).op or None)

    @checked
    def undo(self, delete: int | None = None, *, partial: bool = False, preview: bool = False) -> Undeleted:
        """Take back a delete that the log has made; without a number, the newest one that is not undone.

            orders.undo(orders.delete(tag="eu").number)

        The records have their seqs and times again. One that another delete took as well stays deleted until that one
        is undone, too. With `preview`, nothing changes. The log knows the last 16 deletes of a topic, while their
        segments are there: a reclaim takes the bytes of deleted records, and a checkpoint drops segments in front that
        have no live one.

        Raise `NoSuchTopic` and `UpgradeNeeded`. Raise `DeleteNotUndone` if some of the records are gone, unless
        `partial` is given and others come back. Raise it for an eviction, and for a topic with `keep_history`, whose
        archive undoes deletes.
        """
        from seglog.writing.undo import preview_undo, undo_delete  # imported late, because most programs need none

        if preview:
            return preview_undo(self._engine, self.name, delete)
        return undo_delete(self._engine, self.name, delete, partial=partial)

    @checked
    def evict(self, before: int) -> Removed:
        """Evict the records below `before`, as retention does. Readers get a `Gap` or `Evicted` in their place.

        In all else this works as `delete`: `delete_ops` lists it. Raise `NoSuchTopic`.
        """
        return Removed(None, None, number=self.inner.delete(DeleteWhere(before), evicts=True).op or None)

    def seal(self) -> None:
        """Seal the segments with the current records. Later appends begin a new segment. Raise `NoSuchTopic`."""
        with doing("seal"):
            request_checkpoint(self._engine, plan.CheckpointRequest(self.name, seal=True))

    @checked
    def truncate(self, seq: int) -> None:
        """Remove the records from `seq` on, durably on return. Later appends use their seqs again, in a higher `epoch`.

        A delete that was made above `seq` now ends below it. A reader that is above `seq` ends with `Truncated`. At
        `head_seq + 1` there is nothing to do. With `keep_history`, `seq` may be below the records on this disk. Raise
        `NoSuchTopic`. Raise `SeqOutOfRange` above `head_seq + 1`, and `NotTruncatable` below records that were evicted
        or left this disk.
        """
        write.truncate(self._engine, self.name, seq, None)

    def enforce_retention(self) -> Retention:
        """Seal segments that are old enough, and evict records past the topic's ttl or a cap, by the log's clock.

        With `keep_history` nothing is evicted. The result names the last record that waits for the archive. Raise
        `NoSuchTopic`.
        """
        done = eviction.enforce(self._engine, [self._engine.state(self.name)])
        return done[0] if done else plan.Retention(self.name)

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
        first, expired = begin(self._engine, state, start, since_ms)
        last = head if end is None else min(end, head)
        if until_ms is not None:
            last = min(last, first_at(self._engine, state, until_ms + 1) - 1)
        return first, last, truncations, expired
