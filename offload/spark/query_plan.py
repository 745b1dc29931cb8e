"""The plan of a query: the tasks that give its rows, and the aggregates that need no rows.

SPLAN-1  A plan reads the commits, and the heads of the index objects of segments that the commits leave in question.
    It reads no data object, except one chunk of a topic with a ttl, one for a version by time, and those of AGG-2.
SPLAN-2  Every row that the query shows is in exactly one task, and no other row is.
    The exceptions are filters that a task still has: they stand in its pieces.
SPLAN-3  A task carries all that a reader needs to read and check it, and nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

from catalog.format.commit import ForkPoint
from catalog.format.control import MAIN
from catalog.objects.object_store import ObjectStore
from catalog.snapshot import Snapshot
from catalog.volume import Volumes
from offload.read.chunk_fetcher import in_order
from offload.read.cold_reader import ColdReader
from offload.services.expired import expired_before, unexpired
from offload.spark.aggregates import MOST_READ_BYTES, Aggregate, Row, TopicView, aggregate, groups
from offload.spark.change_feed import feed_of
from offload.spark.columns import WITHOUT_DATA
from offload.spark.data_loss import check_loss
from offload.spark.messages import InvalidMessage
from offload.spark.option_texts import moment_ms
from offload.spark.options import ReadOptions, Verify
from offload.spark.packing import TaskSize, packed
from offload.spark.pin import Pin, PinnedTopic, pin_topics
from offload.spark.selection import Selection, conditions_of, may_show, meets, select
from offload.spark.stores import open_remote
from offload.spark.task import Filter, Needs, Op, Task
from seglog.base.dataclasses import dataclass
from seglog.files.clock import SystemClock

_PARALLELISM = 32  # of a cluster that nothing is known of
_TOPICS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True)
class Query:
    """A query: the columns that it needs, filters that all hold, and its limit of rows."""

    columns: frozenset[str]
    filters: tuple[Filter, ...] = ()
    limit: int | None = None
    parallelism: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    tasks: tuple[Task, ...]
    segments: int

    @property
    def rows(self) -> int:
        """The number of rows, or the most that there can be if `is_exact` is false."""
        return sum(task.rows for task in self.tasks)

    @property
    def is_exact(self) -> bool:
        return all(task.is_exact for task in self.tasks)

    @property
    def raw_bytes(self) -> int:
        return sum(task.raw_bytes for task in self.tasks)


class Remote:
    """A remote, as the planner reads it. It keeps the newest snapshots and the index heads in memory."""

    def __init__(self, store: ObjectStore) -> None:
        """Read from `store`, which `close` closes."""
        self._store = store
        self.volumes = Volumes(store)
        self.reader = ColdReader(self._store)

    @classmethod
    def open(cls, url: str, kms_key_id: str = "") -> Remote:
        return cls(open_remote(url, kms_key_id))

    def close(self) -> None:
        self.reader.close()
        self._store.close()

    def pin(self, options: ReadOptions) -> Pin:
        """Return the versions that `options` mean now. Raises as `offload.spark.pin.pin_topics`."""
        return pin_topics(options, self.volumes, self.reader, SystemClock().now_ms())

    def snapshots(self, topics: Sequence[PinnedTopic]) -> Iterator[Snapshot]:
        """Yield the state of each topic at its version. Reads several at a time. Raises `NoSuchObject`."""
        work = [partial(self.volumes.snapshot, topic.point.vid, topic.point.lsn, topic.point.seq) for topic in topics]
        return in_order(work, _TOPICS_AT_A_TIME, "seglog-plan") if len(work) > 1 else (task() for task in work)

    def is_collected(self, point: ForkPoint) -> bool:
        """Tell whether GC has passed the version."""
        return point.lsn < self.volumes.boundary(point.vid)

    def plan(self, options: ReadOptions, pin: Pin, query: Query) -> Plan:
        """Return the tasks for `query`. Raises `DataLoss`, and what reading the commits and the index heads raises."""
        needs = _needs(options, query.columns)
        if options.feed is not None:
            return self._feed(options, pin, query, needs)
        chosen: list[Selection] = []
        rows = 0
        for selection in self._selections(options, pin, query.filters):
            chosen.append(selection)
            rows += sum(chunk.rows for chunk in selection.chunks if not chunk.filters)
            if query.limit is not None and rows >= query.limit:
                break
        return _packed(options, query, needs, chosen)

    def aggregate(
        self, options: ReadOptions, pin: Pin, filters: Sequence[Filter], figures: Sequence[Aggregate]
    ) -> list[int | None] | None:
        """Return the aggregates of the rows. None if too much has to be read for them. Raises as `plan` does.

        None for a feed as well, whose rows Spark counts.
        """
        if _are_counted_by_spark(options):
            return None
        return aggregate(self._views(options, pin, filters), self.reader, figures, _readable_bytes(options))

    def groups(
        self, options: ReadOptions, pin: Pin, filters: Sequence[Filter], by: Sequence[str], figures: Sequence[Aggregate]
    ) -> list[Row] | None:
        """Return the aggregates of each group of rows. None as in `aggregate`. Raises as `plan`."""
        if _are_counted_by_spark(options):
            return None
        return groups(self._views(options, pin, filters), self.reader, by, figures, _readable_bytes(options))

    def _feed(self, options: ReadOptions, pin: Pin, query: Query, needs: Needs) -> Plan:
        """Return the tasks of a feed. Its filters stay with Spark, because a removal has nulls that they may test."""
        if query.filters:
            raise InvalidMessage("a feed of changes takes no filters", hint="use the jar of this seglog")
        [topic] = pin.topics
        assert topic.since is not None  # noqa: S101 - the pin of a feed has it
        changes = feed_of(options, topic.topic, topic.since, topic.point, self.volumes, self.reader)
        return _packed(options, query, needs, changes)

    def _selections(self, options: ReadOptions, pin: Pin, filters: Sequence[Filter]) -> Iterator[Selection]:
        """Yield what the query reads of each segment, ascending by topic and seq."""
        views = list(self._views(options, pin, filters))
        for part, view in zip(views, self.reader.indexed(part.view for part in views), strict=True):
            selection = select(part.topic, view, self.reader.index(view), part.conditions)
            if selection is not None:
                yield selection

    def _views(self, options: ReadOptions, pin: Pin, filters: Sequence[Filter]) -> Iterator[TopicView]:
        """Yield the segments of which the query may read something, ascending by topic and seq."""
        topics = list(zip(pin.topics, self.snapshots(pin.topics), strict=True))
        if options.fail_on_data_loss:
            check_loss(options, topics, self.reader, pin.made_at_ms)
        ranges = _range_filters(options, pin.made_at_ms)
        for topic, snapshot in topics:
            conditions = conditions_of([*filters, *ranges, *_seq_filters(options, topic.topic)])
            if not all(meets(condition, topic.topic) for condition in conditions.topics):
                continue
            floor = self._expiry_floor(options, topic, snapshot, pin.made_at_ms)
            for view in unexpired(snapshot.segments, floor):
                if may_show(view, conditions):
                    yield TopicView(topic.topic, view, conditions)

    def _expiry_floor(self, options: ReadOptions, topic: PinnedTopic, snapshot: Snapshot, now_ms: int) -> int:
        """Return the first seq that has not expired. A past state shows records that expired since."""
        if not options.is_newest:
            return 1
        return expired_before(snapshot, now_ms, self.reader, is_branch=topic.branch != MAIN)


def pin(options: ReadOptions) -> Pin:
    """Return the versions that `options` mean now, from a remote that is opened for it."""
    with closing(Remote.open(options.url, options.kms_key_id)) as remote:
        return remote.pin(options)


def plan(options: ReadOptions, pin: Pin, query: Query) -> Plan:
    """Return the tasks for `query`, from a remote that is opened for it."""
    with closing(Remote.open(options.url, options.kms_key_id)) as remote:
        return remote.plan(options, pin, query)


def _packed(options: ReadOptions, query: Query, needs: Needs, chosen: list[Selection]) -> Plan:
    size = TaskSize(options.max_task_bytes, options.min_tasks, query.parallelism or _PARALLELISM)
    tasks = packed(chosen, size, options.url, options.verify or Verify.RECORD, needs)
    return Plan(tuple(tasks), len(chosen))


def _needs(options: ReadOptions, columns: frozenset[str]) -> Needs:
    needs_data = options.verify is Verify.RECORD or not columns <= WITHOUT_DATA
    return Needs.DATA if needs_data else Needs.NOTHING


def _are_counted_by_spark(options: ReadOptions) -> bool:
    return options.feed is not None or _needs(options, frozenset()) is Needs.DATA


def _readable_bytes(options: ReadOptions) -> int:
    """Return how much of the data a count may read. That is checked, so it is 0 for a query that checks nothing."""
    return 0 if options.verify is Verify.NONE else MOST_READ_BYTES


def _range_filters(options: ReadOptions, now_ms: int) -> list[Filter]:
    """Return the options on time and tag as filters."""
    filters: list[Filter] = []
    if options.starting_time is not None:
        filters.append(Filter("timestamp", Op.GE, (moment_ms(options.starting_time, now_ms) * 1000,)))
    if options.ending_time is not None:
        filters.append(Filter("timestamp", Op.LE, (moment_ms(options.ending_time, now_ms) * 1000,)))
    if options.tag is not None:
        is_prefix = options.tag.endswith("*")
        filters.append(Filter("tag", Op.PREFIX if is_prefix else Op.EQ, (options.tag.removesuffix("*"),)))
    return filters


def _seq_filters(options: ReadOptions, topic: str) -> list[Filter]:
    """Return the options on the seqs of one topic as filters."""
    first, last = options.starting.of(topic), options.ending.of(topic)
    filters = [] if not first else [Filter("seq", Op.GE, (first,))]
    return filters if last is None else [*filters, Filter("seq", Op.LE, (last,))]
