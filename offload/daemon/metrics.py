"""The daemon's metrics for Prometheus. Names, units and labels follow its conventions.

    seglog_wal_sync_seconds                     histogram   one datasync of a file of the log
    seglog_appended_records_total, _bytes_total counter     records and bytes of values, appended over HTTP
    seglog_append_seconds                       histogram   an append over HTTP, from its start to its ack
    seglog_topic_head_seq                       gauge       by topic
    seglog_topic_hot_bytes                      gauge       by topic
    seglog_topic_forgotten_producers_total      counter     by topic: producers that it knew, and knows no longer
    seglog_offload_lag_bytes, _lag_seconds      gauge       by topic: sealed bytes that are not offloaded, and
                                                            the age of their oldest record
    seglog_offload_runs_total                   counter     by outcome: published, nothing, failed, diverged, stopped
    seglog_offload_bytes_total                  counter     bytes of frames
    seglog_store_requests_total                 counter     by operation and outcome ("ok" or the error's name)
    seglog_store_request_seconds                histogram   by operation
    seglog_store_sent_bytes_total, _received_   counter
    seglog_http_requests_total                  counter     by route and status
    seglog_http_request_seconds                 histogram   by route
    seglog_http_requests_running                gauge       requests that have a place; probes have none
    seglog_http_followers_running               gauge       requests that wait for new records
    seglog_commands_running                     gauge       threads of commands, until the last step
    seglog_http_rejected_total                  counter     by reason: busy, too_large, slow, host, origin, token
    seglog_disk_free_bytes, seglog_disk_state   gauge       0 fine, 1 alarm, 2 full
    seglog_wal_bytes                            gauge
    seglog_cache_requests_total                 counter     by cache (index, chunk) and outcome (hit, miss)
    seglog_gc_runs_total                        counter     by outcome: done, blocked (damage), failed
    seglog_gc_deleted_objects_total             counter     by kind; a segment counts once
    seglog_gc_deleted_bytes_total               counter     bytes of segments, as far as known
    seglog_background_failures_total            counter     by task
    seglog_topic_paused, seglog_topic_diverged  gauge       by topic: 0 or 1

METRIC-1  Labels have few values: topics, fixed words and status codes. A label never holds a seq, a key or a message.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from offload.daemon.last_day import LastDay
from seglog import OsFiles

__all__ = ["MeteredFiles", "Metrics", "TopicFigures", "timed"]

_FAST_S = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
_SLOW_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """The figures of one topic at the moment of a scrape."""

    topic: str
    head_seq: int
    hot_bytes: int
    forgotten_producers: int
    lag_bytes: int
    lag_s: float
    is_paused: bool
    is_diverged: bool


class FigureSource(Protocol):
    def figures(self) -> Iterable[TopicFigures]: ...
    def cache_counts(self) -> Iterable[tuple[str, int, int]]:
        """Return the name, the hits and the misses of each cache."""
        ...


class Metrics:
    """The metrics of one daemon, in a registry of its own. No metric is global.

    `last_day` has the requests to the store for `seglog cost`. It is no metric of Prometheus.
    """

    def __init__(self) -> None:
        self.last_day = LastDay()
        self.registry = CollectorRegistry()
        on = self.registry
        self.wal_sync_s = Histogram("seglog_wal_sync_seconds", "One datasync.", buckets=_FAST_S, registry=on)
        self.appended_records = Counter("seglog_appended_records", "Records acked over HTTP.", registry=on)
        self.appended_bytes = Counter("seglog_appended_bytes", "Bytes of their values.", registry=on)
        self.append_s = Histogram("seglog_append_seconds", "An append, to its ack.", buckets=_FAST_S, registry=on)
        self.runs = Counter("seglog_offload_runs", "Offloads of a topic.", ["outcome"], registry=on)
        self.offloaded_bytes = Counter("seglog_offload_bytes", "Bytes of frames that were read for it.", registry=on)
        self.requests = Counter("seglog_store_requests", "To the store.", ["operation", "outcome"], registry=on)
        self.request_s = Histogram(
            "seglog_store_request_seconds", "One request to the store.", ["operation"], buckets=_SLOW_S, registry=on
        )
        self.sent_bytes = Counter("seglog_store_sent_bytes", "Bodies sent to the store.", registry=on)
        self.received_bytes = Counter("seglog_store_received_bytes", "Bodies that it gave.", registry=on)
        self.http_requests = Counter("seglog_http_requests", "Answered.", ["route", "status"], registry=on)
        self.http_s = Histogram(
            "seglog_http_request_seconds", "To the end of the answer.", ["route"], buckets=_SLOW_S, registry=on
        )
        self.http_running = Gauge("seglog_http_requests_running", "Requests that are answered now.", registry=on)
        self.http_followers = Gauge("seglog_http_followers_running", "Requests that wait for records.", registry=on)
        self.commands_running = Gauge("seglog_commands_running", "Commands that run now.", registry=on)
        self.rejected = Counter("seglog_http_rejected", "Before any work was done.", ["reason"], registry=on)
        self.disk_free_bytes = Gauge("seglog_disk_free_bytes", "Where the data directory is.", registry=on)
        self.disk_state = Gauge("seglog_disk_state", "0 fine, 1 alarm, 2 full.", registry=on)
        self.wal_bytes = Gauge("seglog_wal_bytes", "In the write-ahead log.", registry=on)
        self.failures = Counter("seglog_background_failures", "Of background work.", ["task"], registry=on)

        self.gc_runs = Counter("seglog_gc_runs", "Over the whole remote.", ["outcome"], registry=on)
        self.gc_objects = Counter("seglog_gc_deleted_objects", "That nothing needed.", ["kind"], registry=on)
        self.gc_bytes = Counter("seglog_gc_deleted_bytes", "Of segments, as far as known.", registry=on)

    def collected(self, objects: Mapping[str, int], size_bytes: int) -> None:
        """Count the objects that a run of GC deleted, by kind, and their bytes."""
        for kind, count in objects.items():
            self.gc_objects.labels(kind).inc(count)
        self.gc_bytes.inc(size_bytes)

    def watch(self, source: FigureSource) -> None:
        """Ask `source` for the figures of the topics and the caches at each scrape."""
        self.registry.register(_TopicCollector(source))

    def text(self) -> bytes:
        """Return the metrics in Prometheus's text format."""
        return generate_latest(self.registry)


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe how long the block takes, also if it fails."""
    start = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - start)


class MeteredFiles(OsFiles):
    """The file system, with a measurement of each datasync."""

    def __init__(self, metrics: Metrics) -> None:
        self._sync_s = metrics.wal_sync_s

    def datasync(self, fd: int) -> None:
        with timed(self._sync_s):
            super().datasync(fd)


class _TopicCollector:
    def __init__(self, source: FigureSource) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        figures = list(self._source.figures())
        for name, meaning, field in (
            ("seglog_topic_head_seq", "The last record.", "head_seq"),
            ("seglog_topic_hot_bytes", "Frames on the local disk.", "hot_bytes"),
            ("seglog_offload_lag_bytes", "Sealed and not offloaded.", "lag_bytes"),
            ("seglog_offload_lag_seconds", "Age of the oldest record that is sealed and not offloaded.", "lag_s"),
            ("seglog_topic_paused", "1 while offload is paused.", "is_paused"),
            ("seglog_topic_diverged", "1 when another writer committed at its LSN.", "is_diverged"),
        ):
            family = GaugeMetricFamily(name, meaning, labels=["topic"])
            for each in figures:
                family.add_metric([each.topic], float(getattr(each, field)))
            yield family
        forgotten = CounterMetricFamily(
            "seglog_topic_forgotten_producers", "Silent for long, or followed by too many.", labels=["topic"]
        )
        for each in figures:
            forgotten.add_metric([each.topic], each.forgotten_producers)
        yield forgotten
        cache = CounterMetricFamily("seglog_cache_requests", "Of cold reads.", labels=["cache", "outcome"])
        for name, hits, misses in self._source.cache_counts():
            cache.add_metric([name, "hit"], hits)
            cache.add_metric([name, "miss"], misses)
        yield cache
