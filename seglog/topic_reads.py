"""What a reader sees of a topic: its figures, its records, and news of them.

`Topic` adds the changes, so that a program has both in one object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Unpack, cast, overload

from seglog.base.arguments import checked
from seglog.base.ownership import is_foreign
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState
from seglog.inner_topic import InnerTopic, begin, first_at
from seglog.lazy_imports import batches, follow
from seglog.read_only_view import guarded
from seglog.reading.read import continue_records
from seglog.reading.times import expired_seq, known_floors
from seglog.values.config import TopicConfig
from seglog.values.protocols import FollowArguments, ReadArguments, Selection
from seglog.values.record import Gap, Record, selected

if TYPE_CHECKING:
    import pyarrow as pa

    from seglog.format.record_arrays import RecordArrays


class TopicReads:
    """The half of `Topic` that changes nothing."""

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
        first, last, truncations, expired = self._range(state, start, end, selection)
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
        bounds = self._range(state, start, end, {})
        return guarded(self._engine, state, batches.read_batches(self._engine, state, *bounds))

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
        arrays = self._arrays(start, end, {}, gaps=gaps)
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
        arrays = cast("Iterator[RecordArrays]", self._arrays(start, end, selection, gaps=False))
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

    def _arrays(
        self, start: int | None, end: int | None, selection: Selection, *, gaps: bool
    ) -> Iterator[RecordArrays | Gap]:
        state = self._engine.state(self.name)
        first, last, truncations, expired = self._range(state, start, end, selection)
        items = batches.read_arrays(self._engine, state, first, last, truncations, gaps=gaps, expired=expired)
        return guarded(self._engine, state, items)

    def _range(
        self, state: TopicState, start: int | None, end: int | None, selection: Selection
    ) -> tuple[int, int, int, int]:
        """Return the first and the last seq of a read, the topic's truncations so far, and the expiry floor.

        Raise `SeqOutOfRange`.
        """
        truncations, head = len(state.truncations), state.head_seq
        first, expired = begin(self._engine, state, start, selection.get("since_ms"))
        last = head if end is None else min(end, head)
        until_ms = selection.get("until_ms")
        if until_ms is not None:
            last = min(last, first_at(self._engine, state, until_ms + 1) - 1)
        return first, last, truncations, expired
