"""The interface of a topic for its users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Unpack

from seglog.base.arguments import checked
from seglog.engine.engine import doing
from seglog.inner_topic import request_checkpoint
from seglog.lazy_imports import append, changes, checkpoint_plan, conditions, eviction
from seglog.topic_reads import TopicReads
from seglog.values.deletes import DeleteWhere, where_of
from seglog.values.last_deletes import Undeleted
from seglog.values.producer import Appended
from seglog.values.protocols import AppendArguments, Bounds, DeleteArguments, LogAppendArguments, Removed

if TYPE_CHECKING:
    from seglog.maintenance.checkpoint_plan import Retention
    from seglog.writing.append import AppendOptions


def append_options(arguments: AppendArguments) -> AppendOptions:
    """Return the arguments with their defaults. Raise `TypeError` for an unknown one."""
    if not arguments:
        return append.PLAIN
    options = append.AppendOptions(**arguments)
    return options if options.times_ms is None else options._replace(times_ms=conditions.plain_times(options.times_ms))


class Topic(TopicReads):
    """A name in a log: append records to it, read them, delete them. Safe for many threads.

        >>> orders = log.topic("orders")
        >>> orders.append([b"book", b"lamp"], tag="eu")
        range(1, 3)
        >>> [record.value for record in orders.read(tag="eu")]
        [b'book', b'lamp']

    `log.topic(name)` makes no topic: the first append does.
    """

    __slots__ = ()

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
