"""The metrics of a directory whose values are read at a scrape: of its log, topics, replicas, workers and caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from offload.archive import Archive
from offload.operations import queue as queues
from offload.operations import router as router_operations
from offload.operations.cursor import TOPIC, CursorListed, NextTimes, listed
from offload.worker.pool import WorkerPool
from seglog import Log, NoSuchTopic
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from offload.daemon.background.topic_work import TopicWorks


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The figures of one topic at the moment of a scrape. Times are in ms; None if there is no such time.

    The lag is None if this directory lacks the copy of the topic's newest commit, until the next offload fetches it.
    """

    topic: str
    earliest_seq: int
    head_seq: int
    hot_bytes: int
    forgotten_producers: int
    keys: int
    lag_bytes: int | None
    lag_s: float | None
    is_paused: bool
    is_diverged: bool
    offloaded_at_ms: int | None
    kept_from_ms: int | None


@dataclass(frozen=True, slots=True)
class ReplicaFigures:
    """A topic that this directory follows. `lag_s` is the time since the last sync that succeeded."""

    topic: str
    lag_s: float


_TOPICS: tuple[tuple[str, str, Callable[[TopicFigures], float | None]], ...] = (
    ("seglog_topic_head_seq", "Seq of the last record of a topic.", lambda each: each.head_seq),
    (
        "seglog_topic_earliest_seq",
        "First seq of a topic that retention has not removed.",
        lambda each: each.earliest_seq,
    ),
    ("seglog_topic_hot_bytes", "Bytes of a topic's frames on the local disk.", lambda each: each.hot_bytes),
    (
        "seglog_topic_keys",
        "Keys of appends that a topic keeps. At 10,000 it refuses a new one.",
        lambda each: each.keys,
    ),
    (
        "seglog_offload_lag_bytes",
        "Bytes of a topic's sealed segments that are not in the remote.",
        lambda each: each.lag_bytes,
    ),
    (
        "seglog_offload_lag_seconds",
        "Age of a topic's oldest sealed record that is not in the remote; 0 if there is none.",
        lambda each: each.lag_s,
    ),
    (
        "seglog_offload_last_success_timestamp_seconds",
        "Unix time of the last offload of a topic that succeeded, since the daemon's start.",
        lambda each: _seconds(each.offloaded_at_ms),
    ),
    (
        "seglog_gc_kept_from_timestamp_seconds",
        "Unix time from which GC keeps each past state of a topic.",
        lambda each: _seconds(each.kept_from_ms),
    ),
    ("seglog_topic_paused", "1 while the offload of a topic is paused, else 0.", lambda each: each.is_paused),
    (
        "seglog_topic_diverged",
        "1 if another writer committed at the LSN of a topic, so that its offload stopped, else 0.",
        lambda each: each.is_diverged,
    ),
)

_CURSORS: tuple[tuple[str, str, Callable[[CursorListed], float | None]], ...] = (
    ("seglog_cursor_lag_records", "Seqs that a cursor has not acked.", lambda each: each.lag_records),
    (
        "seglog_cursor_lag_bytes",
        "Bytes of frames that a cursor has not acked, by the mean frame on the local disk.",
        lambda each: each.lag_bytes,
    ),
    (
        "seglog_cursor_lag_seconds",
        "Age of the first record on the local disk that a cursor has not acked; 0 if there is none.",
        lambda each: each.lag_s if each.lag_records else 0,
    ),
)

_QUEUES: tuple[tuple[str, str, Callable[[queues.QueueListed], float]], ...] = (
    ("seglog_queue_ready", "Jobs of a queue that a claim could get now.", lambda each: each.ready),
    ("seglog_queue_in_flight", "Jobs of a queue that workers have.", lambda each: each.in_flight),
    ("seglog_queue_dead", "Jobs of a queue that were delivered too often, since it was made.", lambda each: each.dead),
    ("seglog_queue_lost", "Jobs of a queue that retention evicted, since it was made.", lambda each: each.lost),
)

_ROUTERS: tuple[tuple[str, str, Callable[[router_operations.RouterListed], float | None]], ...] = (
    ("seglog_router_lag_records", "Seqs of the source that a router has not come to.", lambda each: each.lag_records),
    (
        "seglog_router_passed_over_records",
        "Records that were gone from the source before a router came to them.",
        lambda each: each.passed_over,
    ),
    (
        "seglog_router_stopped",
        "1 while a router does not copy, and nobody paused it, else 0. `seglog router list` says why.",
        lambda each: each.reason is not None,
    ),
)


class FigureCollector:
    """A collector of prometheus_client that asks `source` at each scrape."""

    def __init__(self, source: DirectoryFigures) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        yield _plain("seglog_wal_bytes", "Bytes of the write-ahead log on the local disk.", self._source.wal_bytes())
        topics = list(self._source.topics())
        for name, meaning, value_of in _TOPICS:
            yield _gauge(name, meaning, ((figures.topic, value_of(figures)) for figures in topics))
        yield from self._cursors()
        yield from self._queues()
        yield from self._routers()
        lags = ((replica.topic, replica.lag_s) for replica in self._source.replicas())
        yield _gauge(
            "seglog_replica_lag_seconds",
            "Time since the last sync of a replica that succeeded. At a proxy without news it grows to 20 s.",
            lags,
        )
        workers = self._source.live_workers()
        yield _plain(
            "seglog_worker_processes", "Worker processes for uploads that are up; 0 before the first upload.", workers
        )
        forgotten = CounterMetricFamily(
            "seglog_topic_forgotten_producers",
            "Producers that a topic knew and knows no longer: silent for long, or followed by too many.",
            labels=["topic"],
        )
        for figures in topics:
            forgotten.add_metric([figures.topic], figures.forgotten_producers)
        yield forgotten
        yield self._caches()

    def _cursors(self) -> Iterator[Metric]:
        cursors = list(self._source.cursors())
        for name, meaning, value_of in _CURSORS:
            family = GaugeMetricFamily(name, meaning, labels=["topic", "cursor"])
            for cursor in cursors:
                value = value_of(cursor)
                if value is not None:
                    family.add_metric([cursor.topic, cursor.cursor], float(value))
            yield family

    def _queues(self) -> Iterator[Metric]:
        listed = list(self._source.queues())
        for name, meaning, value_of in _QUEUES:
            family = GaugeMetricFamily(name, meaning, labels=["topic", "queue"])
            for queue in listed:
                family.add_metric([queue.topic, queue.queue], float(value_of(queue)))
            yield family

    def _routers(self) -> Iterator[Metric]:
        routers = list(self._source.routers())
        for name, meaning, value_of in _ROUTERS:
            family = GaugeMetricFamily(name, meaning, labels=["router"])
            for router in routers:
                value = value_of(router)
                if value is not None:
                    family.add_metric([router.router], float(value))
            yield family

    def _caches(self) -> Metric:
        family = CounterMetricFamily(
            "seglog_cache_requests",
            "Look-ups of cold reads in a cache, by cache and outcome.",
            labels=["cache", "outcome"],
        )
        for name, hits, misses in self._source.cache_counts():
            family.add_metric([name, "hit"], hits)
            family.add_metric([name, "miss"], misses)
        return family


def _plain(name: str, meaning: str, value: int) -> Metric:
    """Return a gauge without a label."""
    family = GaugeMetricFamily(name, meaning)
    family.add_metric([], value)
    return family


def _gauge(name: str, meaning: str, values: Iterable[tuple[str, Any]]) -> Metric:
    """Return a gauge by topic. A topic without a value has no sample."""
    family = GaugeMetricFamily(name, meaning, labels=["topic"])
    for topic, value in values:
        if value is not None:
            family.add_metric([topic], float(value))
    return family


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


@dataclass(frozen=True, slots=True)
class DirectoryFigures:
    """What a scrape asks for. It asks the local disk only."""

    log: Log
    archive: Archive | None
    works: TopicWorks
    workers: WorkerPool | None
    replicas: Callable[[], Iterator[ReplicaFigures]]
    now_ms: Callable[[], int]
    next_times: NextTimes = field(default_factory=NextTimes)

    def wal_bytes(self) -> int:
        return self.log.wal_bytes

    def topics(self) -> Iterator[TopicFigures]:
        for name in self.log.topics():
            try:
                yield self._topic(name)
            except NoSuchTopic:  # deleted meanwhile
                continue

    def cursors(self) -> Iterable[CursorListed]:
        """Return the cursors with their lags: none before they are loaded (offload.daemon.cursors)."""
        if not self.log.has_topic(TOPIC):
            return ()
        from seglog.delivery.cursor_states import CursorStates  # imported late: most daemons have no cursor

        states = CursorStates.of(self.log)
        return listed(self.log, states, times=self.next_times) if states.is_loaded else ()

    def queues(self) -> Iterable[queues.QueueListed]:
        """Return the queues: none before they are loaded (offload.daemon.queues)."""
        if not self.log.has_topic(queues.TOPIC):
            return ()
        from seglog.delivery.queue_states import QueueStates  # imported late: most daemons have no queue

        states = QueueStates.of(self.log)
        return [queues.listed(states, each) for each in states.all()] if states.is_loaded else ()

    def routers(self) -> Iterable[router_operations.RouterListed]:
        """Return the routers with their lags: none before they are loaded (offload.daemon.routers)."""
        if not self.log.has_topic(router_operations.TOPIC):
            return ()
        from seglog.delivery.router_states import RouterStates  # imported late: most daemons have no router

        states = RouterStates.of(self.log)
        return router_operations.listed(self.log, states) if states.is_loaded else ()

    def live_workers(self) -> int:
        return 0 if self.workers is None else self.workers.live

    def cache_counts(self) -> Iterator[tuple[str, int, int]]:
        """Return the name, the hits and the misses of each cache."""
        return iter(()) if self.archive is None else self.archive.cache_counts()

    def _topic(self, name: str) -> TopicFigures:
        topic, status = self.log.topic(name), None if self.archive is None else self.archive.status
        offloaded_seq = topic.head_seq if status is None else status.offloaded_seq_here(name)
        is_known, above_seq = offloaded_seq is not None, offloaded_seq or 0
        waiting = [segment for segment in topic.inner.segments() if segment.sealed and segment.last_seq > above_seq]
        lag_ms = self.now_ms() - waiting[0].min_ts_ms if waiting else 0
        return TopicFigures(
            topic=name,
            earliest_seq=topic.earliest_seq,
            head_seq=topic.head_seq,
            hot_bytes=topic.inner.bytes_hot,
            forgotten_producers=topic.inner.forgotten_producers,
            keys=topic.inner.known_keys,
            lag_bytes=sum(segment.data_bytes for segment in waiting) if is_known else None,
            lag_s=max(0, lag_ms) / 1000 if is_known else None,
            is_paused=status is not None and status.is_paused(name),
            is_diverged=status is not None and status.is_diverged(name),
            offloaded_at_ms=self.works.succeeded_at_ms(name),
            kept_from_ms=None if status is None else status.kept_from_ms(name),
        )
