"""The interface of a topic for its users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from seglog.base.arguments import checked
from seglog.base.ownership import is_foreign
from seglog.engine.engine import Engine, doing
from seglog.engine.state import TopicState
from seglog.inner_topic import InnerTopic, begin, first_at, request_checkpoint
from seglog.lazy_imports import append, batches, changes, checkpoint_plan, conditions, eviction, follow
from seglog.read_only_view import guarded
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

if TYPE_CHECKING:
    import pyarrow as pa

    from seglog.format.record_arrays import RecordArrays
    from seglog.maintenance.checkpoint_plan import Retention
    from seglog.writing.append import AppendOptions


def append_options(arguments: AppendArguments) -> AppendOptions:
    """Return the arguments with their defaults. Raise `TypeError` for an unknown one."""
    if not arguments:
        return append.PLAIN
    options = append.AppendOptions(**arguments)
    return options if options.times_ms is None else options._replace(times_ms=conditions.plain_times(options.times_ms))


class Topic:
    """A name in a log: append records to it, read them, delete them. Safe for many threads.

        >>> orders = log.topic("orders")
        >>> orders.append([b"book", b"lamp"], tag="eu")
        range(1, 3)
        >>> [record.value for record in orders.read(tag="eu")]
        [b'book', b'lamp']

    `log.topic(name)` makes no topic: the first append does.
    """

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

        The result may be too low in three cases: while records are in the cold tier only, because deletes by tag are
        not looked up there; in a relocated segment, where the log looks them up when it next relocates; and with a ttl,
        because records within a segment may have expired since the last read.
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
        """Append records, all or none, and return when they are as safe as `durability` says.

            >>> orders.append([b"book", b"lamp"], tag="eu")
            range(1, 3)
            >>> orders.append([b"desk"], key="order-17")
            range(3, 4)
            >>> orders.append([b"desk"], key="order-17")  # again, for example after a timeout: appends nothing
            range(3, 4)

        A crash within the append leaves all of its records or none, with any durability. If the topic does not exist,
        it is made with the log's `topic_defaults`. The first append to a branch waits for the archive, and raises its
        errors.

        Args:
            values: The records, each of `max_record_bytes` at most.
            tag: A label of all these records, by which reads and deletes select.
            node: Another label, such as the machine that the records come from.
            durability: "fsync", "disk", "memory" or "ephemeral"; None is what the topic is configured with. Ephemeral
                records are never written: they end with the process, and readers get a `Gap` after that.
            key: A text of 1 to 256 bytes in UTF-8 that makes the append idempotent for `idempotency_keep_s`: the same
                key again returns the same seqs, because the log remembers it.
            producer: The same for a program that numbers its batches (`ProducerBatch`). The log knows the last five.
            if_head: Append only if this is the topic's last seq; 0 means that it has no record.
            if_incarnation: Append only if the topic has this `incarnation`.
            times_ms: A time for each value, in ms since the epoch, in place of the clock's: ascending, none below
                `last_ts_ms`, and none more than five minutes ahead of the clock. An age counts from them: with a ttl,
                old records are gone at once.
            unterminated: The values are lines without a line end.

        Returns:
            The seqs of the records. An append without values has an empty range.

        Raises:
            HeadMoved: Another append came first. Read its records, then decide again.
            KeyReused: The key was that of other values. Make a new key for each append.
            ProducerFenced: The producer has appended in a higher epoch. Stop, or begin the next epoch.
            ProducerGap: The number of the batch skips one. Append the missing batch first.
            BatchForgotten: The batch is older than the last five. Read the topic to see whether its records are there.
            BatchReused: The log has a batch of this number with another number of values.
            TooManyKeys: The topic has 10,000 keys that are younger than `idempotency_keep_s`.
            OtherIncarnation: The topic is not the one of `if_incarnation`.
            WrittenElsewhere: Another directory writes the topic, or has written the branch.
            NoSuchBranch: The name is that of a branch, and there is none.
            NoSuchTopic: The name is that of a branch, and the log has no archive.
            AppendsHeld, DiskFull, TopicFull: Nothing was appended. Make room, then repeat.
            RecordTooLarge: A record is longer than `max_record_bytes`, or all are longer than 1 GiB.
            InvalidArgument, InvalidLabel, InvalidSetting, ReadOnly, LogClosed: Nothing was appended.
            WriterPoisoned: A write or a sync failed. Open the log again: only recovery knows whether the records are
                there.
        """
        if "times_ms" in options:
            return append.append(self._engine, self.name, values, append_options(options))[0]
        # `append_options` without a call, because each append spends its time here.
        own = append.AppendOptions(**options) if options else append.PLAIN  # type: ignore[arg-type]
        return append.append(self._engine, self.name, values, own)[0]

    def append_once(self, values: Sequence[bytes], **options: Unpack[LogAppendArguments]) -> Appended:
        """Append records as `append` does, and say whether the topic had them already.

            >>> orders.append_once([b"book"], key="order-17")
            Appended(seqs=range(1, 2), duplicate=False)
            >>> orders.append_once([b"book"], key="order-17").duplicate
            True

        The log decides that under the lock that assigns seqs, so that of several equal calls exactly one is no
        duplicate. Without `producer` and `key` no append is a duplicate.

        Args:
            values: As in `append`, and so are the options.

        Returns:
            The seqs, and whether they are those of an earlier append.

        Raises:
            SeglogError: As `append` does.
        """
        return Appended(*append.append(self._engine, self.name, values, append_options(options)))

    def append_stream(self, chunks: Iterable[bytes], **options: Unpack[LogAppendArguments]) -> Appended:
        """Append one record whose value comes in chunks, so that it never has to be in memory as a whole.

            with open("dump.bin", "rb") as file:
                log.topic("dumps").append_stream(iter(lambda: file.read(1 << 20), b""))

        Memory holds 1 MiB and a chunk: the rest waits in a file without a name in the data directory. If `chunks` ends
        with an error, nothing is appended, and the error passes through. A read returns the value as a whole.

        Args:
            chunks: The parts of the value, in order.
            options: Those of `append`; `times_ms` has one time.

        Returns:
            The seq, in a range of one, and whether the topic had the record already, as `append_once` does.

        Raises:
            RecordTooLarge: The value is longer than `max_record_bytes`; raised with the first chunk that passes it.
            SeglogError: As `append` does.
        """
        from seglog.writing.stream import append_stream

        return Appended(*append_stream(self._engine, self.name, chunks, append_options(options)))

    def bounds(self) -> Bounds:
        """Return the first and the last seq, what is sealed, and the identity of the topic, as one value.

            >>> orders.append([b"book", b"lamp"])
            range(1, 3)
            >>> bounds = orders.bounds()
            >>> bounds.earliest_seq, bounds.head_seq
            (1, 2)

        Returns:
            The bounds. The incarnation is None if the log is read-only.

        Raises:
            NoSuchTopic: The topic has no first append yet.
        """
        incarnation = None if self._engine.is_read_only else self.incarnation()
        self._engine.state(self.name)
        return Bounds(self.earliest_seq, self.head_seq, self.inner.sealed_seq, self.epoch, incarnation)

    def incarnation(self) -> str:
        """Return the identity of what this topic knows of its producers and keys. It stays the same over restarts.

            >>> orders.append([b"book"])
            range(1, 2)
            >>> orders.append([b"lamp"], if_incarnation=orders.incarnation())
            range(2, 3)

        A topic that was deleted and made again has another one. So has a topic in a new directory, as after a takeover
        or a recovery from the remote. A producer that finds another incarnation cannot repeat a batch safely. The first
        call makes the log's own id, durably.

        Raises:
            NoSuchTopic: The topic has no first append yet.
            ReadOnly: The log is open for reading only.
            OSError: The disk does not take the id.
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
        """Return the live records from seq `start` to seq `end`, both inclusive.

            >>> orders.append([b"book", b"lamp", b"desk"], tag="eu")
            range(1, 4)
            >>> [record.value for record in orders.read(2)]
            [b'lamp', b'desk']
            >>> [record.seq for record in orders.read(tag="eu", limit=2)]
            [1, 2]

        Records below `hot_floor` come from the cold tier, and those in relocated segments from the warm store, however
        long it takes. The reader passes over deleted records. It reports records that retention takes, even during the
        read, and records that were past the ttl when `read` was called (seglog.reading.times).

        Args:
            start: The first seq; None is the first live record.
            end: The last seq; None is the present head.
            gaps: Give a `Gap` in the place of records that retention took, instead of raising `Evicted`.
            since_ms: The first time, in ms since the epoch. Records outside the bounds are not read.
            until_ms: The last time, itself included.
            tag: Only records with this tag; a trailing `*` makes it a prefix.
            limit: So many records at most.

        Returns:
            An iterator, which reads as it is asked.

        Raises:
            NoSuchTopic, SeqOutOfRange: At once; all others when the reader gets there.
            Evicted: Retention took records of the range. Continue behind its `gap_to`, or ask with `gaps`.
            Truncated: The records behind this one were truncated, and their seqs are used again.
            ColdTierRequired: The records are in the remote only, and no archive is attached.
            WarmStoreRequired, WarmStoreFailed: The store of older segments is not there, or does not return them.
            FileCorrupt: A file is damaged below what was durable.
            ViewOutdated: The log is read-only, and the data has gone since it was opened.
            SeglogError: What an archive and its store raise, such as `StoreUnreachable` and `InvalidChunk`.
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

            >>> orders.append([b"book", b"lamp"])
            range(1, 3)
            >>> [len(batch) for batch in orders.read_batches()]
            [2]

        If a record is deleted while the caller goes through a list, the record stays in that list.

        Raises:
            SeglogError: As `read` does, after the records that come before.
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

            >>> orders.append([b"book", b"lamp"])
            range(1, 3)
            >>> [arrays.last_seq for arrays in orders.read_arrays()]
            [2]

        No object is made for a record (seglog.format.record_arrays), so for millions of records this is the fastest
        call. Deletes reach the arrays that come after them, as in `read_batches`.

        Raises:
            SeglogError: As `read` does, after the records that come before.
        """
        arrays = self._arrays(start, end, gaps=gaps)
        return arrays if gaps else cast("Iterator[RecordArrays]", arrays)

    @checked
    def read_arrow(
        self, start: int | None = None, end: int | None = None, *, text: bool = False, **selection: Unpack[Selection]
    ) -> pa.RecordBatchReader:
        """Return the records of `read` in Apache Arrow, which Polars, DuckDB and pandas take as they are.

            table = topic.read_arrow().read_all()
            frame = topic.read_arrow(text=True).read_pandas()
            frame = polars.from_arrow(topic.read_arrow())
            rows = duckdb.sql("select tag, count(*) from records group by tag")  # with records = topic.read_arrow()

        The columns are those of the Spark source (`seglog.arrow_schema()`):

            topic      string                  the topic, without a branch
            seq        int64                   the record's number in the topic, from 1
            timestamp  timestamp[us, tz=UTC]   the time that the log set, in whole milliseconds
            node       string                  the record's node, or null
            tag        string                  the record's tag, or null
            value      binary                  the record's bytes; with `text` a string

        A batch has up to a MiB of frames with their headers, some 20,000 rows at most, or one larger record. None is
        empty. It owns its memory. No object is made for a record. A consumer that takes the reader through Arrow's C
        interface, as Polars and DuckDB do, raises an error of its own with the text of ours.
        Source: the Arrow columnar format, https://arrow.apache.org/docs/format/Columnar.html

        Args:
            start: The first seq; None is the first live record.
            end: The last seq, inclusive; None is the present head.
            text: Give the values as strings.
            since_ms: The first time, in ms since the epoch.
            until_ms: The last time, itself included.
            tag: Only records with this tag; a trailing `*` makes it a prefix.

        Returns:
            A `pyarrow.RecordBatchReader`, which reads as it is asked.

        Raises:
            NotInstalled: pyarrow is missing: the extra `arrow` installs it.
            InvalidArgument: With `text`, a value that is not UTF-8. The error names the record.
            Evicted: Retention took records of the range. A batch has no place for a `Gap`.
            SeglogError: As `read` does, after the batches of the records that come before.
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

            >>> orders.append([b"book", b"lamp"])
            range(1, 3)
            >>> for record in orders.follow(2, timeout_s=0.01):  # without a time-out it waits for ever
            ...     print(record.seq, record.value)
            2 b'lamp'

        A follower that keeps a view of the topic also follows truncations. `Truncated` has the next `start` and
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

        If the topic was deleted and made again, or if the truncation is older than the opening of this log, the `seq`
        of `Truncated` is 1. Epochs of another data directory mean nothing here: compare `incarnation` as well if you
        keep your place over a takeover.

        Args:
            start: The first seq; None is the first live record.
            gaps: Give a `Gap` in the place of records that retention took, and go on.
            epoch: You have the records below `start` as they were in this epoch of the topic. Without `start` it tells
                nothing.
            timeout_s: End after so many seconds without a new record of the selection. None: end when the log closes.
            tag: Only records with this tag; a trailing `*` makes it a prefix.

        Returns:
            An iterator, which waits for news.

        Raises:
            Evicted: Retention took records. Without `gaps` no loss is silent: to continue, follow from `gap_to + 1` on.
            Truncated: A truncation took a record that you have.
            NoSuchTopic: There is no topic, or it was deleted meanwhile.
            ReadOnly: The log is open for reading only, so that no record is ever added there.
            SeglogError: As `read` does.
        """
        follower = self.inner.follower(start, gaps=gaps, epoch=options.get("epoch"))
        items = follow.follow_records(follower, options.get("timeout_s"), options.get("tag"))
        return items if gaps else cast("Iterator[Record]", items)

    @checked
    def seq_at(self, ts_ms: int) -> int:
        """Return the first seq whose time is `ts_ms` or later.

            >>> orders.append([b"book"], times_ms=[1000])
            range(1, 2)
            >>> orders.append([b"lamp"], times_ms=[2000])
            range(2, 3)
            >>> orders.seq_at(1500)
            2

        Args:
            ts_ms: A time in ms since the epoch. The call asks the cold tier if that seq may lie below `hot_floor`.

        Returns:
            The seq, from `earliest_seq` on; `head_seq + 1` if there is none.

        Raises:
            NoSuchTopic: The topic has no first append yet.
            ColdTierRequired: The answer is in the remote only, and no archive is attached.
        """
        state = self._engine.state(self.name)
        seq = first_at(self._engine, state, ts_ms)
        return max(seq, expired_seq(self._engine, state, seq))

    @checked
    def delete(self, **conditions: Unpack[DeleteArguments]) -> Removed:
        """Delete the current records that meet each given condition. Durable on return.

            >>> orders.append([b"book", b"lamp", b"desk"], tag="eu")
            range(1, 4)
            >>> removed = orders.delete(start=2, tag="eu")  # from seq 2 on, one tag
            >>> [record.seq for record in orders.read()]
            [1]

        `undo` takes it back, or `archive.history` if the topic has an archive. If all records of the topic are
        ephemeral, nothing is written. The deleted records are not counted.

        Args:
            start: The first seq.
            end: The last seq, inclusive.
            before: The seq behind the last one.
            seqs: Single seqs in any order, of a million ranges at most: all of them are deleted, or none after a crash.
            epoch: The epoch in which you saw the seqs.
            tag: The exact tag, or a prefix with a trailing `*`.
            since_ms: The first time, in ms since the epoch.
            until_ms: The last time, itself included.
            grep: A regular expression that the value has. The log looks up times and values first.

        Returns:
            The `number` of the delete, for `undo`.

        Raises:
            NoSuchTopic: The topic has no first append yet.
            InvalidSetting: No condition was given.
            InvalidArgument: `end` is below `start`, `grep` is no regular expression, or there are too many seqs.
            ConcurrentModification: A truncation has ended the epoch. Look the records up again.
            InvalidLabel: `tag` fits no frame.
            UpgradeNeeded: The directory has a form that knows no deletes by `seqs` and by a range.
            SeglogError: What `read` raises, while the log looks times and values up.
        """
        where = where_of(conditions, self.epoch, self.seq_at, lambda first, last: self.read(first, last, gaps=True))
        return Removed(None, None, number=self.inner.delete(where).op or None)

    @checked
    def undo(self, delete: int | None = None, *, partial: bool = False, preview: bool = False) -> Undeleted:
        """Take back a delete that the log has made, so that its records have their seqs and times again.

            >>> orders.append([b"book", b"lamp"], tag="eu")
            range(1, 3)
            >>> removed = orders.delete(tag="eu")
            >>> orders.undo(removed.number).back
            SeqSet(1-2)
            >>> [record.value for record in orders.read()]
            [b'book', b'lamp']

        A record that another delete took as well stays deleted until that one is undone, too. The log knows the last 16
        deletes of a topic, while their segments are there: a reclaim takes the bytes of deleted records, and a
        checkpoint drops segments in front that have no live one.

        Args:
            delete: The number of the delete; None is the newest one that is not undone.
            partial: Take back what is still there if some of the records are gone.
            preview: Change nothing, and say what the undo would do.

        Returns:
            The seqs that are back, those that are gone, and those that stay deleted by others.

        Raises:
            NoSuchTopic: The topic has no first append yet.
            DeleteNotUndone: Some of the records are gone, and `partial` is not given or none comes back. Also for an
                eviction, and for a topic with `keep_history`, whose archive undoes deletes.
            UpgradeNeeded: The directory has a form that knows no undo.
        """
        from seglog.writing.delete_undo import (  # imported late, because most programs need none
            preview_undo,
            undo_delete,
        )

        if preview:
            return preview_undo(self._engine, self.name, delete)
        return undo_delete(self._engine, self.name, delete, partial=partial)

    @checked
    def evict(self, before: int) -> Removed:
        """Evict the records below `before`, as retention does. Readers get a `Gap` or `Evicted` in their place.

            >>> orders.append([b"book", b"lamp"])
            range(1, 3)
            >>> removed = orders.evict(2)
            >>> list(orders.read(1, gaps=True))[0]
            Gap(gap_from=1, gap_to=1)

        Args:
            before: The first seq that stays.

        Returns:
            The `number` of the eviction. In all else this works as `delete`.

        Raises:
            NoSuchTopic: The topic has no first append yet.
        """
        return Removed(None, None, number=self.inner.delete(DeleteWhere(before), evicts=True).op or None)

    def seal(self) -> None:
        """Seal the segments with the current records. Later appends begin a new segment. Raise `NoSuchTopic`."""
        with doing("seal"):
            request_checkpoint(self._engine, checkpoint_plan.CheckpointRequest(self.name, seal=True))

    @checked
    def truncate(self, seq: int) -> None:
        """Remove the records from `seq` on, durably. Later appends use their seqs again, in a higher `epoch`.

            >>> orders.append([b"book", b"lamp"])
            range(1, 3)
            >>> orders.truncate(2)
            >>> orders.append([b"desk"])
            range(2, 3)

        A delete that was made above `seq` now ends below it. A reader that is above `seq` ends with `Truncated`. At
        `head_seq + 1` there is nothing to do.

        Args:
            seq: The first seq that goes. With `keep_history`, it may be below the records on this disk.

        Raises:
            NoSuchTopic: The topic has no first append yet.
            SeqOutOfRange: `seq` is above `head_seq + 1`.
            NotTruncatable: `seq` is below records that were evicted, or without `keep_history` below records that left
                this disk or expired.
        """
        changes.truncate(self._engine, self.name, seq, None)

    def enforce_retention(self) -> Retention:
        """Seal segments that are old enough, and evict records past the topic's ttl or a cap, by the log's clock.

            >>> orders.append([b"book"])
            range(1, 2)
            >>> orders.enforce_retention().topic
            'orders'

        Returns:
            What was evicted. With `keep_history` nothing is, and the result names the last record that waits for the
            archive.

        Raises:
            NoSuchTopic: The topic has no first append yet.
        """
        done = eviction.enforce(self._engine, [self._engine.state(self.name)])
        return done[0] if done else checkpoint_plan.Retention(self.name)

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
